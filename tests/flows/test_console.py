"""What surrounds the commands: help and hints."""

import shlex
import sys
from importlib.metadata import version

import pytest

from oneclass.flows import commands
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import count_things


def run_script(monkeypatch, capsys, *arguments):
    """(status, output, errors) of the script."""
    monkeypatch.setattr(sys, "argv", ["oneclass", *arguments])
    # The script sets it where it is not set, and would leave it to the tests after this one.
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    with pytest.raises(SystemExit) as ended:
        commands.run_script()
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_version_and_help(monkeypatch, capsys):
    assert run_script(monkeypatch, capsys, "--version") == (0, f"oneclass {version('oneclass')}\n", "")
    status, out, _ = run_script(monkeypatch, capsys, "--help")
    assert status == 0 and all(f"  {name} " in out for name in commands.COMMANDS)
    assert run_script(monkeypatch, capsys) == (2, "", out)


@pytest.mark.parametrize(
    ("name", "near"),
    [("recomend", "recommend"), ("Backfil", "backfill"), ("nightly-retrai", "nightly_retrain"), ("xyz", None)],
)
def test_a_misspelt_command_is_answered_with_what_resembles_it(monkeypatch, capsys, name, near):
    status, out, errors = run_script(monkeypatch, capsys, name)
    assert status == 2 and not out and f"oneclass: {name!r} is not a command." in errors
    assert f" Did you mean {near}?" in errors if near else "mean" not in errors


def test_help_names_the_data_sets_of_the_home_and_ends_with_an_example_that_parses(tmp_path, capsys):
    Home(tmp_path, "shop").landing.mkdir(parents=True)
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "songs.toml").write_text("")
    for name, command in commands.COMMANDS.items():
        parser, example = commands.build_parser(name), command.example
        assert parser.parse_args(shlex.split(example)).dataset == "mine"
        with pytest.raises(SystemExit):
            parser.parse_args(["--home", str(tmp_path), "--help"])
        out = capsys.readouterr().out
        lines = out.splitlines()
        assert lines[-1] == f"For example:  {parser.prog} {example}"
        named = f"your data sets in {tmp_path}: shop, songs built-in data sets: amazon-book"
        assert named.replace(" ", "") in "".join(out.split())  # a long folder is broken at its hyphens
        has_models = any(line.startswith("models: ") for line in lines)
        assert has_models == bool({"model", "models"} & commands.COMMANDS[name].parameters.model_fields.keys())


def test_a_count_has_its_noun_in_the_right_number():
    assert [count_things(number, "new log") for number in (0, 1, 2000)] == ["0 new logs", "1 new log", "2,000 new logs"]
