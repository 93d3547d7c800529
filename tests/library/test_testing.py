"""`oneclass.testing`: an author's model is tested outside of the repository, and what it gets wrong is found."""

import os
import re
import subprocess
import sys

import pytest

from tests.typed import read_page

MODELS = '''
import numpy as np
from oneclass import Popularity


class MyModel(Popularity):
    """The most popular items."""

    name = "my_model"


class Forgetful(Popularity):
    """Draws a score without its seed."""

    name = "forgetful"

    def _scores(self, histories, users, score):
        return np.random.random((histories.shape[0], self.item_count)).astype(np.float32)
'''


@pytest.mark.slow
def test_the_contract_finds_what_a_model_gets_wrong(tmp_path):
    (package := tmp_path / "my_package").mkdir()
    (package / "__init__.py").touch()
    (package / "models.py").write_text(MODELS)
    [block] = re.findall(
        r"^(    from my_package.models import MyModel\n(?:    .*\n|\n)*)",
        read_page("docs/how-to/adding_a_model.md"),
        re.MULTILINE,
    )
    lines = [line[4:] for line in block.splitlines()]
    lines = ["    is_personal = False" if "settings =" in line else line for line in lines]  # it has none
    more = "from my_package.models import Forgetful\n\nclass TestForgetful(ModelContract):\n    model = Forgetful\n"
    (tmp_path / "test_models.py").write_text("\n".join([*lines, "", more]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", "test_models.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = set(re.findall(r"^FAILED test_models.py::(\w+)::(\w+)", done.stdout, re.MULTILINE))
    assert {name for name, _ in failed} == {"TestForgetful"}, done.stdout + done.stderr
    found = {test for _, test in failed}
    assert {"test_saving_and_loading_change_nothing", "test_same_seed_same_bits_on_one_thread_and_on_two"} <= found
    assert "test_settings_are_documented_strict_and_survive_json" not in found
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 20
