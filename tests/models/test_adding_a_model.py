"""Models of other packages: the documented one keeps the contract, and entry points name them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "adding_a_model.md").read_text(encoding="utf-8")
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


def test_the_page_has_600_words_at_most():
    assert len(PAGE.split()) <= 600


@pytest.mark.slow
def test_the_documented_model_keeps_the_contract(tmp_path):
    done = run_contract(tmp_path, CODE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 15


MODULE = '''
import numpy as np
from oneclass import Model, Popularity


class Newest(Popularity):
    """The items with the highest columns first."""

    name = "newest"

    def _scores(self, histories, users, score):
        return np.tile(np.arange(self.item_count, dtype=np.float32), (histories.shape[0], 1))
'''
ENTRY_POINTS = "[oneclass.models]\nnewest = newest_items:Newest\npopularity = newest_items:Newest\n"
TRIED = """
import tempfile
import numpy as np
from scipy.sparse import csr_matrix
from oneclass.models.registry import MODELS
from oneclass.models import fingerprint

likes = csr_matrix(np.eye(4) + np.eye(4, k=1))
with tempfile.TemporaryDirectory() as folder:
    MODELS["newest"](seed=1).fit(likes).save(folder)
    print(MODELS["newest"].load(folder).recommend(likes, 1)[0].ravel().tolist())
digest = fingerprint.fingerprint_model(MODELS["newest"])
print("newest" in MODELS, MODELS["popularity"].__module__, len(digest))
"""


@pytest.fixture
def installed(tmp_path):
    """A folder with an installed package of one model, which also claims the name of another."""
    (tmp_path / "newest_items.py").write_text(MODULE)
    (info := tmp_path / "newest_items-1.0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: newest-items\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return tmp_path


def test_a_model_of_another_package_is_known_and_replaces_none(installed):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(installed)!r})\n{TRIED}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[3, 3, 1, 2]", "True oneclass.models.popularity 16"]
