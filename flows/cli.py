"""What the commands share: flags, exit statuses, signals, and errors in one message without a traceback.

Prefect, numba and other slow imports happen when a command runs, so that `--help` answers at once.
"""

import argparse
import atexit
import contextlib
import gc
import json
import os
import shlex
import signal
import sys
import textwrap
import tomllib
import traceback
import types
import warnings
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from oneclass.flows import prefect_server
from oneclass.flows.parameters import Flag
from oneclass.tasks.errors import InputError
from oneclass.tasks.terminal import escape_lines, escape_unencodable, open_closed_streams, print_text

if TYPE_CHECKING:
    from rich.console import Console

Parameters = TypeVar("Parameters", bound=BaseModel)
Prepared = TypeVar("Prepared")
# Importing modules leaves no garbage, and collecting it takes a sixth of the start-up time.
OBJECTS_BETWEEN_COLLECTIONS = 100_000
EXIT_STATUSES = {
    0: "done",
    1: "a contract was broken, or a stage failed",
    2: "bad arguments, or input that cannot be read; nothing was written",
    130: "told to end by Ctrl-C (SIGINT)",
    143: "told to end by SIGTERM",
}


def build_parser(name: str, description: str | None, kind: type[BaseModel], example: str) -> "CommandParser":
    """Build the parser of a command: a flag per parameter in `kind`, `--debug` and `--version`."""
    by_script = sys.argv[0].startswith("oneclass ")
    parser = CommandParser(prog=sys.argv[0] if by_script else f"python -m flows.{name}", description=description)
    parser.kind, parser.example = kind, example
    for parameter, field in kind.model_fields.items():
        parser.add_argument(flag_name(parameter, field), dest=parameter, **_argument_options(field))
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--version", action="version", version=f"oneclass {version('oneclass')}")
    return parser


class CommandParser(argparse.ArgumentParser):
    """A parser whose help names the data sets and models, and ends with an example of the command.

    Attributes:
        kind: the parameters that its flags set.
        example: a command line.
    """

    kind: type[BaseModel]
    example: str
    _home: str | None = None

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  (its overloads)
        """Parse the arguments; `--help` lists the data sets of `--home`."""
        words = list(sys.argv[1:] if args is None else args)
        if "--home" in words[:-1]:
            self._home = words[words.index("--home") + 1]
        return super().parse_args(words, namespace)

    def format_help(self) -> str:
        """Return the help."""
        from oneclass.tasks import datasets, model_names
        from oneclass.tasks.stores import home

        root = home.resolve_root(self._home)
        own = datasets.list_own_datasets(root)
        known = {
            f"your data sets in {root}": own,
            "built-in data sets": [name for name in datasets.list_datasets(root) if name not in own],
        }
        if {"models", "model"} & self.kind.model_fields.keys():
            known["models"] = model_names.list_models()
        lists = [
            textwrap.fill(f"{what}: {', '.join(names)}", subsequent_indent="  ", break_on_hyphens=False)
            for what, names in known.items()
            if names
        ]
        return "\n".join([super().format_help(), *lists, "", f"For example:  {self.prog} {self.example}", ""])


def parse_parameters(kind: type[Parameters], given: argparse.Namespace) -> Parameters:
    """Build the parameters from the parsed command line.

    Raises:
        InputError: a `--set` that is not an assignment.
    """
    values = {name: getattr(given, name) for name in kind.model_fields}
    if "settings" in values:
        values["settings"] = dict(map(parse_assignment, values["settings"]))
    return kind(**values)


def parse_assignment(text: str) -> tuple[str, Any]:
    """Parse `key=value` of `--set`: a dotted name, and a TOML value whose quotes may be omitted.

    Raises:
        InputError: it has no `=`, or the name has no dot.
    """
    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        raise InputError(f"--set {text}: write it as name.setting=value, such as binarize.threshold=4.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def flag_name(name: str, field: FieldInfo) -> str:
    """Return the flag of a parameter, such as `--split-files` or `--set`."""
    return _flag_metadata(field).name or f"--{name.replace('_', '-')}"


def to_command_line(module: str, given: BaseModel) -> str:
    """Format the command line that sets these parameters, omitting defaults."""
    words = ["python", "-m", module]
    for name, field in type(given).model_fields.items():
        value = getattr(given, name)
        if value == field.default:
            continue
        if isinstance(value, dict):
            value = [f"{key}={one if isinstance(one, str) else json.dumps(one)}" for key, one in value.items()]
        elif isinstance(value, list) and _flag_metadata(field).comma_separated:
            value = ",".join(value)
        if value is True:
            words.append(flag_name(name, field))
            continue
        words += [flag_name(name, field), *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


def run_main(main: Callable[[], int]) -> NoReturn:
    """Run a command as the program of this process, and end the process with its exit status."""
    gc.disable()  # until the modules are loaded, which leave next to no garbage
    open_closed_streams()
    escape_unencodable()
    # Registered before Prefect's handlers, so that it runs after them.
    atexit.register(_silence_stderr)
    # Loading the modules of a run takes seconds; until then a signal ends the process at once.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit_before_start)
    raise SystemExit(main())


def _exit_before_start(number: int, frame: types.FrameType | None) -> NoReturn:
    print(f"\nInterrupted by {signal.Signals(number).name}; nothing was begun.", file=sys.stderr, flush=True)
    os._exit(128 + number)


def start_garbage_collection() -> None:
    """Collect garbage from now on, seldom, and never look at the objects of the modules that are loaded."""
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    gc.enable()


def _restore_signals() -> None:
    """Restore the default signal handlers."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is _exit_before_start:
            signal.signal(number, usual)


def _silence_stderr() -> None:
    """Discard further output on stderr, so that the command's last line stays the last.

    Prefect's event loops run until the process ends and keep a failed run's traceback with its open DuckDB connection.
    DuckDB's binding then reports its objects as leaked, in a page that nobody can act on. `flows.pipeline` handles runs
    that do not fail.
    """
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def run_command(command: Callable[[], str], *, debug: bool) -> int:
    """Run `command` and print the text that it returns.

    Returns:
        The exit status, one of `EXIT_STATUSES`.
    """
    try:
        prefect_server.find_prefect_home()
        import prefect.main as _  # noqa: F401  (sets up Prefect's logging, with its console handler)
        from rich.console import Console
    except RuntimeError as error:
        return _report_error(error, debug)
    Console.on_broken_pipe = _hide_output  # pyright: ignore[reportAttributeAccessIssue]  (the name of `self`)
    prefect_server.log_startup()
    from oneclass.flows import signals

    if not debug:
        signals.silence_tracebacks()
    _restore_signals()
    try:
        with signals.handle_signals():
            output = command()
    except BaseException as error:
        if number := signals.signal_of(error):
            if debug:
                traceback.print_exc()
            print_text(f"\n{signals.termination_message(number)}", sys.stderr)
            return 128 + number
        if not isinstance(error, Exception):
            raise
        return _report_error(error, debug)
    if why := print_text(f"\n{escape_lines(output)}", sys.stdout):
        print_text(f"\nDone, but standard output cannot be written ({why}), so the result is not shown.", sys.stderr)
    return 0


def _hide_output(console: "Console") -> None:
    """Go on without the log if nobody reads it any more; rich would end the process."""
    console.quiet = True


def run_flow(prepare: Callable[[], Prepared | str], command: Callable[[Prepared], str], *, debug: bool) -> int:
    """Run a command that runs flows, on a Prefect server, if need be a temporary one.

    Args:
        prepare: called before Prefect is loaded or its server started; returns what `command` takes, or the text to
            print if there is nothing to run.

    Returns:
        The exit status, one of `EXIT_STATUSES`.
    """
    # Silence the temporary server's shutdown logs.
    os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
    try:
        prepared = prepare()
        if isinstance(prepared, str):
            return _print_result(f"\n{prepared}")
        prefect_server.start_server()
    except Exception as error:  # noqa: BLE001  (every error is reported in one message)
        return _report_error(error, debug)

    def run() -> str:
        # Loading the flows takes seconds, in which the server starts.
        from oneclass.flows import pipeline as _  # noqa: F401
        from oneclass.flows import server_access

        start_garbage_collection()
        with server_access.ensure_server():
            return command(prepared)

    return run_command(run, debug=debug)


def run_without_prefect(command: Callable[[], str], *, debug: bool) -> int:
    """Run a command that has no flow, as `run_command` does, without loading Prefect or changing signals."""
    start_garbage_collection()
    _restore_signals()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default" if debug else "ignore")  # the output has what matters
            return _print_result(command())
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:  # noqa: BLE001  (every error is reported in one message)
        return _report_error(error, debug)


def _print_result(text: str) -> int:
    """Print a command's result and return the exit status."""
    if why := print_text(escape_lines(text), sys.stdout):
        print_text(f"\nStandard output cannot be written ({why}).", sys.stderr)
        return 1
    return 0


def _report_error(error: Exception, debug: bool) -> int:
    """Print an error in one message and return the exit status."""
    if debug:
        traceback.print_exception(error)
    print_text(f"\n{escape_lines(_error_message(error))}", sys.stderr)
    return 2 if _lacks_home_folder(error) else getattr(error, "exit_status", 1)


def _lacks_home_folder(error: Exception) -> bool:
    """Whether an error is that of `Path.home()` for a user without a home folder, as in some containers."""
    return isinstance(error, RuntimeError) and str(error).startswith("Could not determine home directory")


def _flag_metadata(field: FieldInfo) -> Flag:
    return next(one for one in field.metadata if isinstance(one, Flag))


def _argument_options(field: FieldInfo) -> dict[str, Any]:
    """Return the arguments of `add_argument` for a parameter, from its type, default and `Flag`."""
    flag, kind = _flag_metadata(field), unwrap_optional(field.annotation)
    if kind is bool:
        return {"action": "store_true", "help": field.description}
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind), "help": field.description, "default": field.default}
    options: dict[str, Any] = {"metavar": flag.metavar, "help": field.description, "required": field.is_required()}
    if flag.comma_separated:
        return {**options, "type": _split_names, "default": []}
    if isinstance(flag.metavar, tuple):
        return {**options, "nargs": len(flag.metavar), "default": []}
    if get_origin(kind) in (list, dict):
        return {**options, "nargs": "+", "action": "extend", "default": []}
    if flag.optional:
        options |= {"nargs": "?", "const": ""}
    if not field.is_required():
        options["default"] = field.default
        options["help"] += "" if field.default is None else " (default %(default)s)"
    return {**options, "type": date.fromisoformat if kind is date else kind}


def unwrap_optional(annotation: Any) -> Any:
    """Return `T` for `T | None`, and any other type unchanged."""
    if get_origin(annotation) in (types.UnionType, Union):  # the latter with a `Literal` in it
        (annotation,) = (one for one in get_args(annotation) if one is not type(None))
    return annotation


def _error_message(error: Exception) -> str:
    if hasattr(error, "exit_status"):
        return str(error)
    if _lacks_home_folder(error):
        return (
            f"HOME: is not set, and user {os.getuid()} has no home folder here, where Prefect and numba keep their "
            "files. Set HOME to a folder that this user may write."
        )
    from oneclass.tasks import memory_errors

    if explanation := memory_errors.explain_exhaustion(error, "The home"):
        return explanation
    return f"{type(error).__name__}: {error}\nRun again with --debug for the traceback."


def _split_names(text: str) -> list[str]:
    """Split a comma-separated list of names."""
    return [name.strip() for name in text.split(",") if name.strip()]
