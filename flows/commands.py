"""The commands: `oneclass NAME` after installation, python -m flows.NAME in a checkout.

Each module flows.NAME has a function NAME, which takes the command's parameters and returns the text to print; its
docstring is the help. For a command that runs a flow, `prepare_run` or a function `prepare` of its own checks the run
before Prefect is loaded or its server started, and hands its settings over to the flow. All import Prefect, numba and
other slow modules when they are called, so that `--help` answers at once.
"""

import contextlib
import gc
import importlib
import inspect
import os
import signal
import sys
import traceback
import types
import warnings
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version
from typing import Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter

from oneclass.flows import prefect_server
from oneclass.flows.parameters import find_default
from oneclass.tasks.terminal import escape_lines, prepare_streams, print_text

COMMANDS = {  # arguments of a common use, with which the command's help ends
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
}
RUNNING_FLOWS = ("backfill", "nightly_retrain", "forget")
WITH_PREFECT = (*RUNNING_FLOWS, "tune", "promote", "deploy")
# Return what was parsed, or None after `--help`; raise errors.
RETURN_ALL: Any = {"result_action": "return_value", "exit_on_error": False, "print_error": False}
EXIT_STATUSES = {
    0: "done",
    1: "a contract was broken, or a stage failed",
    2: "bad arguments, or input that cannot be read; nothing was written",
    130: "told to end by Ctrl-C (SIGINT)",
    143: "told to end by SIGTERM",
}


def build_app(name: str, program: str | None = None) -> App:
    """Build the command line of a command: a flag for each of its parameters, and `--debug`.

    Called with arguments, it returns the command's name, its parameters and whether to show tracebacks. The help calls
    it `program`.
    """
    program = program or f"python -m flows.{name}"
    run = getattr(importlib.import_module(f"oneclass.flows.{name}"), name)
    kind: Any = inspect.signature(run).parameters["given"].annotation
    app = App(
        name=program,
        help=inspect.getdoc(run),
        help_epilogue=f"For example:  {program} {COMMANDS[name]}",
        version=f"oneclass {version('oneclass')}",
        help_format="plaintext",  # which loads less than Markdown
        default_parameter=Parameter(
            allow_repeating=True,
            consume_multiple=True,
            negative=(),
            show_default=lambda value: None if value is False or value in ([], {}) else value,
        ),
        **RETURN_ALL,
    )

    def parse(*, given: Any, debug: bool = False) -> tuple[str, Any, bool]:
        """Parse one command line.

        Args:
            debug: show tracebacks
        """
        return name, given, debug

    parse.__annotations__["given"] = Annotated[kind, Parameter(name="*")]
    if all(find_default(one) is not inspect.Parameter.empty for one in fields(kind)):
        parse.__kwdefaults__ = {"given": kind(), "debug": False}
    app.default(parse)
    return app


def main(name: str, arguments: Sequence[str]) -> int:
    """Run a command and return its exit status, one of `EXIT_STATUSES`."""
    return run_app(build_app(name), arguments)


def run_app(app: App, arguments: Sequence[str]) -> int:
    """Run the command that the arguments name and return its exit status."""
    try:
        parsed = app(join_hyphens(arguments))
    except CycloptsError as error:
        print_text(f"{error} See {app.name[0]} --help.", sys.stderr)
        return 2
    if parsed is None:
        return 0
    name, given, debug = parsed
    command = importlib.import_module(f"oneclass.flows.{name}")
    try:
        if name in WITH_PREFECT:
            output, failure = f"\n{_run_with_prefect(command, name, given, debug)}", 0
        else:
            with warnings.catch_warnings(action="default" if debug else "ignore"):  # the output has what matters
                output, failure = getattr(command, name)(given), 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BaseException as error:
        if not isinstance(error, Exception) and not hasattr(error, "exit_status"):
            raise
        return _report_error(error, debug)
    if why := print_text(escape_lines(output), sys.stdout):
        print_text(f"\nStandard output cannot be written ({why}), so the result is not shown.", sys.stderr)
        return failure
    return 0


def join_hyphens(arguments: Sequence[str]) -> list[str]:
    """Join a lone hyphen to the flag before it, as in --time=-, because Cyclopts takes it for another flag."""
    joined: list[str] = []
    for word in arguments:
        if word == "-" and joined and joined[-1].startswith("--"):
            joined[-1] += "=-"
        else:
            joined.append(word)
    return joined


def _run_with_prefect(command: types.ModuleType, name: str, given: Any, debug: bool) -> str:
    """Run a command that loads Prefect, on a server of its own if it runs flows and no other is configured."""
    from oneclass.flows import run_hooks

    run = None
    if name in RUNNING_FLOWS:
        run = getattr(command, "prepare", run_hooks.prepare_run)(given)
        if isinstance(run, str):  # there is nothing to run
            return run
        prefect_server.start_server()
    import prefect.main as _

    prefect_server.log_startup()
    from oneclass.flows import signals

    if not debug:
        signals.silence_tracebacks()
    with signals.handle_signals(), contextlib.ExitStack() as stack:
        if name in RUNNING_FLOWS:
            from oneclass.flows import pipeline as _  # noqa: F401  (takes seconds, in which the server starts)

            stack.enter_context(prefect_server.ensure_server())
            stack.callback(run_hooks.prepared.reset, run_hooks.prepared.set(run))
        return getattr(command, name)(given)


def _report_error(error: BaseException, debug: bool) -> int:
    """Print an error in one message and return the exit status."""
    if debug:
        traceback.print_exception(error)
    status, message = getattr(error, "exit_status", 1), str(error)
    if not hasattr(error, "exit_status"):
        from oneclass.tasks.stores import resources

        explanation = isinstance(error, Exception) and resources.explain_exhaustion(error, "The home")
        message = explanation or f"{type(error).__name__}: {error}\nRun again with --debug for the traceback."
    print_text(f"\n{escape_lines(message)}", sys.stderr)
    return status


def run_as_program(name: str | None = None) -> NoReturn:
    """Run a command, by default the one that the first argument names, and end the process with its exit status."""
    gc.set_threshold(100_000)  # loading allocates millions of objects, of which next to none is garbage
    prepare_streams()
    status = run_app(build_app(name) if name else build_script(), sys.argv[1:])
    print_text("", sys.stderr)  # a log that cannot be written would change the status at exit
    gc.freeze()  # the interpreter would search all modules for garbage as it ends: half a second
    raise SystemExit(status)


def run_script() -> NoReturn:
    """Run the console script `oneclass`, from the installed package."""
    # A command starts its server as a process with `-c`, which would import packages from the current folder.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    run_as_program()


def build_script() -> App:
    """Build the command line of `oneclass`, which has every command."""
    app = App(name="oneclass", version=f"oneclass {version('oneclass')}", **RETURN_ALL)
    for name in COMMANDS:
        app.command(build_app(name, f"oneclass {name}"), name=list(dict.fromkeys([name, name.replace("_", "-")])))
    return app
