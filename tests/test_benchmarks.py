"""Each benchmark states its command and answers `--help`."""

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
MODULES = {
    ".".join(file.relative_to(FOLDER.parent).with_suffix("").parts): file.read_text(encoding="utf-8")
    for file in sorted(FOLDER.rglob("*.py"))
}


@pytest.mark.parametrize("dotted", [dotted for dotted, text in MODULES.items() if "ArgumentParser" in text])
def test_a_benchmark_states_its_command_and_answers_help(dotted, monkeypatch, capsys):
    module = importlib.import_module(dotted)
    assert f"python -m {dotted}" in module.__doc__
    monkeypatch.setattr("sys.argv", [dotted, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0 and "usage: " in capsys.readouterr().out


def test_the_benchmarks_are_few():
    assert len(MODULES) <= 16 and sum(len(text.splitlines()) for text in MODULES.values()) <= 2000
