"""The model of `docs/how-to/adding_a_model.md` passes the contract of every model."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "adding_a_model.md").read_text(encoding="utf-8")
FILE, NAME = re.search(r"`(models/(\w+)\.py)`, which", PAGE).groups()
(CODE,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
(LINE,) = re.findall(rf'^        ("{NAME}": "[\w.]+:\w+"),$', PAGE, flags=re.MULTILINE)
CATALOGUED = f"""
from pathlib import Path

import pytest

import oneclass.models
from oneclass.models.registry import MODELS, ModelRegistry

oneclass.models.__path__.append(str(Path(__file__).with_name("models")))
MODELS["{NAME}"] = ModelRegistry({{{LINE}}})["{NAME}"]
"""  # the line in the catalogue, before the tests are collected


def run_contract(folder: Path, code: str) -> subprocess.CompletedProcess:
    """The shared contract over a model that the catalogue has got."""
    (folder / "models").mkdir()
    (folder / FILE).write_text(code, encoding="utf-8")
    (folder / "catalogued.py").write_text(CATALOGUED)
    (tested,) = re.findall(r"^    python -m pytest (.*)$", PAGE, flags=re.MULTILINE)
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-p", "catalogued", *tested.split()]
    paths = os.pathsep.join([str(folder), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_documented_model_keeps_the_contract(tmp_path):
    done = run_contract(tmp_path, CODE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 25


def test_it_is_short():
    assert len(CODE.splitlines()) < 70
