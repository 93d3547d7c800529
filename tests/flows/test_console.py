"""What surrounds the commands: help and hints."""

import re
import shlex
import sys
from importlib.metadata import version

import pytest

from oneclass.flows import commands
from oneclass.tasks.terminal import count_things


def run_script(monkeypatch, capsys, *arguments):
    """(status, output, errors) of the script."""
    monkeypatch.setattr(sys, "argv", ["oneclass", *arguments])
    # The script sets it where it is not set, and would leave it to the tests after this one.
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    status = commands.run_app(commands.build_script(), list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_version_and_help(monkeypatch, capsys):
    assert run_script(monkeypatch, capsys, "--version") == (0, f"oneclass {version('oneclass')}\n", "")
    status, out, _ = run_script(monkeypatch, capsys, "--help")
    assert status == 0 and all(f" {name} " in out for name in commands.COMMANDS)
    assert run_script(monkeypatch, capsys) == (0, out, "")


@pytest.mark.parametrize(
    ("name", "near"),
    [("recomend", "recommend"), ("backfil", "backfill"), ("nightly-retrai", "nightly-retrain"), ("xyz", None)],
)
def test_a_misspelt_command_is_answered_with_what_resembles_it(monkeypatch, capsys, name, near):
    status, out, errors = run_script(monkeypatch, capsys, name)
    assert status == 2 and not out and f'Unknown command "{name}".' in errors
    assert f'Did you mean "{near}"?' in errors if near else "mean" not in errors


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_ends_with_an_example_that_parses(name, capsys):
    app = commands.build_app(name)
    assert app(shlex.split(commands.COMMANDS[name]))[1].dataset == "mine"
    assert commands.main(name, ["--version"]) == 0
    assert capsys.readouterr().out == f"oneclass {version('oneclass')}\n"
    assert commands.main(name, ["--help"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"For example:  python -m flows.{name} {commands.COMMANDS[name]}"
    flags = [argument.name for argument in app.assemble_argument_collection() if argument.name != "*"]
    assert {"--dataset", "--home", "--debug"} <= set(flags)
    described = re.sub(r"[│\s]+", " ", out)
    assert all(re.search(rf" {flag} (\S+ )?\w", described) for flag in flags)


def test_a_count_has_its_noun_in_the_right_number():
    assert [count_things(number, "new log") for number in (0, 1, 2000)] == ["0 new logs", "1 new log", "2,000 new logs"]
