"""The notebook and the guide to the library run, and print what they show."""

import contextlib
import io
import json
import re

import pytest

from tests.typed import read_page


def test_the_notebook_prints_what_it_shows():
    names = {}
    cells = [
        cell for cell in json.loads(read_page("examples/estimators.ipynb"))["cells"] if cell["cell_type"] == "code"
    ]
    for cell in cells:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec("".join(cell["source"]), names)  # noqa: S102
        assert printed.getvalue() == "".join(line for output in cell["outputs"] for line in output["text"])
    assert len(cells) > 4


@pytest.mark.slow
def test_the_guide_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", read_page("docs/how-to/library.md"), flags=re.MULTILINE | re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(block, names)  # noqa: S102
    said = re.findall(r"^print\(.*\) +# (.*)$", "".join(blocks), flags=re.MULTILINE)
    assert len(said) == 2 and capsys.readouterr().out.splitlines() == said
