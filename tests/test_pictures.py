"""Pictures of pages, taken by `python -m docs.pictures`."""

import subprocess
import sys

import pytest

from docs import pictures
from tests.browser import CHROMIUM


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_picture_has_the_size_that_it_is_asked_for_and_shows_the_page(tmp_path):
    page, blank = tmp_path / "page.html", tmp_path / "blank.html"
    page.write_text("<body style='margin: 0; background: repeating-linear-gradient(45deg, red, blue 9px)'>")
    blank.write_text("<body>")
    for name in (page, blank):
        pictures.take_picture(name, name.with_suffix(".png"), (640, 480))
    image = page.with_suffix(".png").read_bytes()
    assert image.startswith(b"\x89PNG") and [int.from_bytes(image[at : at + 4], "big") for at in (16, 20)] == [640, 480]
    assert len(image) > 2 * len(blank.with_suffix(".png").read_bytes())


def test_a_home_without_the_demo_is_refused(tmp_path):
    command = [sys.executable, "-m", "docs.pictures", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=pictures.FOLDER.parent)
    assert ended.returncode == 1 and "--dataset demo" in ended.stderr and "Traceback" not in ended.stderr


def test_every_picture_of_the_documentation_is_taken_by_the_command():
    assert {file.name for file in pictures.FOLDER.rglob("*.png")} == set(pictures.PICTURES)
