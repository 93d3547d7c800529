"""Each benchmark states its command and answers `--help`, and two of them run on little."""

import importlib
from pathlib import Path

import pytest

from benchmarks import interrupted_nights, random_shops

FOLDER = Path(__file__).parents[1] / "benchmarks"
MODULES = {f"benchmarks.{file.stem}": file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.py"))}


def test_the_benchmarks_are_few():
    assert len(list(FOLDER.rglob("*.py"))) == len(MODULES) <= 16
    assert sum(len(text.splitlines()) for text in MODULES.values()) <= 2000


@pytest.mark.parametrize("name", [name for name, text in MODULES.items() if "def main" in text])
def test_a_benchmark_states_its_command_and_answers_help(name, monkeypatch, capsys):
    module = importlib.import_module(name)
    assert f"python -m {name}" in module.__doc__
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0 and "usage: " in capsys.readouterr().out


@pytest.mark.slow
def test_random_shops_are_as_by_brute_force(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["random_shops", "--shops", "2"])
    assert random_shops.main() == 0
    assert capsys.readouterr().out.count("as by brute force") == 2


@pytest.mark.slow
def test_a_night_that_is_killed_at_a_write_ends_like_an_undisturbed_one(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["interrupted_nights", "--moments", "3", "--seed", "7"])
    assert interrupted_nights.main() == 0
    assert " writes; 3 ended like an undisturbed night" in capsys.readouterr().out
