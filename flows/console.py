"""Help around the commands: examples, hints for a misspelt command, and the script's own help."""

import difflib
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oneclass.flows.commands import Command

EXAMPLES = {
    "backfill": "--dataset mine --source orders.csv",
    "inspect": "--dataset mine --source orders.csv",
    "recommend": "--dataset mine --user 42",
    "serve": "--dataset mine --port 8765",
    "explain": "--dataset mine --user 42",
    "cite": "--dataset mine",
    "forget": "--dataset mine --user 42",
    "promote": "--dataset mine --rollback",
    "tune": "--dataset mine --model wmf",
    "nightly_retrain": "--dataset mine",
    "deploy": "--dataset mine",
    "notify": "--dataset mine --test",
    "data_docs": "--dataset mine",
}
"""Arguments of a common use of each command, with which its help ends."""


def run(arguments: list[str], commands: Mapping[str, "Command"]) -> int:
    """Answer arguments that begin with no command, and return the exit status."""
    name = arguments[0] if arguments else ""
    if name in ("--version", "version"):
        print(f"oneclass {version('oneclass')}")
    elif name in ("--help", "-h", "help"):
        print(format_usage(commands))
    else:
        print(suggest_command(name, commands) if name else format_usage(commands), file=sys.stderr)
        return 2
    return 0


def format_usage(commands: Mapping[str, "Command"]) -> str:
    """Return the list of commands."""
    lines = [f"  {name:17} {command.summary}" for name, command in commands.items()]
    return "\n".join(["usage: oneclass COMMAND ...", "", *lines, "", "oneclass COMMAND --help says more."])


def suggest_command(name: str, commands: Mapping[str, "Command"]) -> str:
    """Return what to say of a name that is no command, with those that resemble it."""
    near = difflib.get_close_matches(name.replace("-", "_").lower(), commands, n=3)
    lines = [f"oneclass: {name!r} is not a command. See oneclass --help."]
    if near:
        is_one = len(near) == 1
        lines += ["", "The most similar command is" if is_one else "The most similar commands are"]
        lines += [f"        {one}" for one in near]
    return "\n".join(lines)
