"""The notebooks run, and print what they show."""

import contextlib
import io
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_prints_what_it_shows(notebook):
    names = {}
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec("".join(cell["source"]), names)  # noqa: S102
        shown = "".join(line for output in cell["outputs"] for line in output["text"])
        assert printed.getvalue() == shown


def test_there_are_notebooks():
    assert NOTEBOOKS
