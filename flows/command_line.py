"""What the commands share: flags, exit statuses, and errors said in one message without a traceback."""

import argparse
import errno
import logging
import sys
import traceback
from collections.abc import Callable
from typing import Any

import prefect.main  # noqa: F401  (sets Prefect's logging up, so that its console handler is there)

from flows.settings import parse_assignment
from tasks import main_table
from tasks.publish import Published


def parser(module: str, description: str) -> argparse.ArgumentParser:
    """A parser with the flags that every run takes."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--home", metavar="DIR", help="where everything is kept; by default $ONECLASS_HOME, else ./var")
    parser.add_argument(
        "--config",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="settings as TOML: [stage or model] name = value; a later file goes before an earlier one",
    )
    parser.add_argument(
        "--set",
        dest="settings",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="single settings, such as binarize.threshold=4 mrf_dense.l2=500",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the one seed of every draw (default 0)")
    parser.add_argument("--threads", type=int, metavar="N", help="cores to use; all by default")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def add_models(parser: argparse.ArgumentParser) -> None:
    """The flags that say what the whole sequence trains, and by which protocols it judges."""
    parser.add_argument("--models", type=names, default=[], metavar="A,B,...", help="by default the data set's list")
    parser.add_argument(
        "--protocols",
        type=names,
        default=[],
        metavar="P,Q",
        help="strong_generalization and leave_one_out by default; given with --split-files",
    )


def add_logs(parser: argparse.ArgumentParser) -> None:
    """The flags that name a data set and its logs."""
    parser.add_argument(
        "--dataset",
        required=True,
        metavar="NAME",
        help="a data set, built in or declared in HOME/datasets/NAME.toml; `demo` makes its own log",
    )
    parser.add_argument(
        "--source",
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="raw log files or folders; by default those in HOME/NAME/landing",
    )
    parser.add_argument(
        "--split-files",
        nargs=2,
        default=[],
        metavar=("TRAIN", "TEST"),
        help="adjacency lists that come as a split; evaluated as the protocol `given`",
    )


def common_parameters(given: argparse.Namespace) -> dict[str, Any]:
    """The flags of `parser` as parameters of `flows.settings.resolve`."""
    return {
        "home": given.home,
        "config": given.config,
        "settings": dict(parse_assignment(text) for text in given.settings),
        "seed": given.seed,
        "threads": given.threads,
    }


def run(command: Callable[[], str], *, debug: bool) -> int:
    """Run `command` and print what it returns.

    Returns:
        The exit status: 0 done, 1 a contract was broken or a stage failed, 2 bad arguments or unreadable input.
    """
    if not debug:
        _silence_tracebacks()
    try:
        words = command()
    except KeyboardInterrupt:
        print("Interrupted; what was published before stays as it was.", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001  (the last boundary: whatever it was becomes a message and a status)
        if debug:
            traceback.print_exc()
        print(f"\n{_message(error)}", file=sys.stderr)
        return getattr(error, "exit_status", 1)
    print(f"\n{words}")
    return 0


def closing_words(published: Published) -> str:
    """The main table, and where the rest is."""
    return f"{main_table.plain(published.table)}\n\nTables: {published.folder}\nReport: {published.report}"


def _silence_tracebacks() -> None:
    """Keep tracebacks out of the terminal; Prefect's own record of the run keeps them."""

    class WithoutTraceback(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            record.exc_info = record.exc_text = None
            return True

    for handler in logging.getLogger().handlers:
        handler.addFilter(WithoutTraceback())
    logging.getLogger("EventsWorker").setLevel(logging.ERROR)  # what Prefect has yet to send would be the last line


def _message(error: Exception) -> str:
    if hasattr(error, "exit_status"):
        return str(error)
    if isinstance(error, OSError) and _is_full(error):
        return (
            f"{error.filename or 'The home'}: the disk is full ({error.strerror or error}). "
            "Free some space or choose another --home, then run again."
        )
    return f"{type(error).__name__}: {error}\nRun again with --debug for the traceback."


def _is_full(error: OSError) -> bool:
    """The disk has no room; numpy says so in words of its own, without the number."""
    of_numpy = ("Not enough free space", "requested and")
    return error.errno == errno.ENOSPC or (error.errno is None and any(words in str(error) for words in of_numpy))


def names(text: str) -> list[str]:
    """The names of a comma-separated list."""
    return [name for name in text.replace(" ", "").split(",") if name]
