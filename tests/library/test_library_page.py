"""The blocks of `docs/how-to/library.md`, one after the other, and what their comments say is printed."""

import re
from pathlib import Path

import pytest

from tests.typed import read_page

BLOCKS = re.findall(r"^```python\n(.*?)^```$", read_page("docs/how-to/library.md"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_page_runs_and_prints_what_it_says(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in BLOCKS:
        exec(block, names)  # noqa: S102
    said = re.findall(r"^print\(.*\) +# (.*)$", "".join(BLOCKS), flags=re.MULTILINE)
    assert len(said) == 2 and capsys.readouterr().out.splitlines() == said
