"""Help around the commands: examples, hints for a misspelt command, the script's own help, and shell completion."""

import difflib
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from oneclass.flows.cli import flag_name, unwrap_optional

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

COMPLETION = """\
# Completion of oneclass in bash; in zsh first: autoload -U +X bashcompinit && bashcompinit
_oneclass() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} words=
    if [ "$COMP_CWORD" = 1 ]; then
        words="{commands}"
    else
        case "${{COMP_WORDS[1]//-/_}} $previous" in
{values}
            *) case "${{COMP_WORDS[1]//-/_}}" in
{flags}
            esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _oneclass oneclass
"""


def run(arguments: list[str], commands: Mapping[str, "Command"]) -> int:
    """Answer arguments that begin with no command, and return the exit status."""
    name = arguments[0] if arguments else ""
    if name in ("--version", "version"):
        print(f"oneclass {version('oneclass')}")
    elif name in ("--help", "-h", "help"):
        print(format_usage(commands))
    elif name == "completion":
        print(format_completion(commands), end="")
    else:
        print(suggest_command(name, commands) if name else format_usage(commands), file=sys.stderr)
        return 2
    return 0


def format_usage(commands: Mapping[str, "Command"]) -> str:
    """Return the list of commands."""
    lines = [f"  {name:17} {command.summary}" for name, command in commands.items()]
    lines.append(f'  {"completion":17} completion for bash and zsh: eval "$(oneclass completion)"')
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


def format_completion(commands: Mapping[str, "Command"]) -> str:
    """Return the shell's completion script: commands, their flags, and the values of flags that have a choice."""
    flags, values = [], []
    for name, command in commands.items():
        named = {flag_name(field_name, field): field for field_name, field in command.parameters.model_fields.items()}
        flags.append(f'                {name}) words="{" ".join([*named, "--debug", "--help", "--version"])}" ;;')
        for flag, field in named.items():
            if choices := _list_choices(field.annotation):
                values.append(f'            "{name} {flag}") words="{" ".join(choices)}" ;;')
    names = " ".join([*commands, "completion", "--help", "--version"])
    return COMPLETION.format(commands=names, flags="\n".join(flags), values="\n".join(values))


def _list_choices(annotation: Any) -> tuple[str, ...]:
    """Return the values of a choice; none of another type."""
    kind = unwrap_optional(annotation)
    return get_args(kind) if get_origin(kind) is Literal else ()
