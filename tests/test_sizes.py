"""Lines and files of each folder stay within the table of CONTRIBUTING.md."""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.typed import ROOT, read_page

PICTURES = (".png", ".jpg", ".svg")
ROW = r"^\| `?([\w ]+?)/?`? \| ([\d,]+) \| ([\d,]+) \|"
BUDGETS = {
    name: tuple(int(count.replace(",", "")) for count in counts)
    for name, *counts in re.findall(ROW, read_page("CONTRIBUTING.md"), flags=re.MULTILINE)
}


def list_files() -> list[Path]:
    """List the tracked files, without links and pictures."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    names = [Path(name) for name in listed.stdout.split("\0") if name and not name.endswith(PICTURES)]
    return [name for name in names if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]


def test_no_folder_exceeds_its_size():
    lines, files = Counter(), Counter()
    for path in list_files():
        folder = path.parts[0] if path.parts[0] in BUDGETS else "other files"
        length = (ROOT / path).read_bytes().count(b"\n")
        for name in (folder, "all"):
            lines[name] += length
            files[name] += 1
    assert files.keys() <= BUDGETS.keys() and len(BUDGETS) > 10
    exceeded = {
        name: (lines[name], files[name])
        for name, (most_lines, most_files) in BUDGETS.items()
        if lines[name] > most_lines or files[name] > most_files
    }
    assert not exceeded, "take something else out, or change the table in CONTRIBUTING.md and say why"
