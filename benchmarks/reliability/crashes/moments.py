"""The moments of a run: before each of its changes of files, round each of DuckDB's commits, and within DuckDB's
writes.

A process that is killed leaves what lies in the files of its home, for the system has taken over what it wrote. So a
process that is stopped in its place, with all its threads, shows what a kill at that moment would leave.
"""

import os
import random
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate"}
ENDING = ("commit", "checkpoint", "close", "__exit__", "rollback")  # of DuckDB: when it writes what was asked for
WRITING = ("execute", "executemany")  # which commit by themselves where no transaction is open
SELDOM, OFTEN = 0.2, 0.002  # seconds: a run is stopped after drawn times up to so long, the second in DuckDB's writes


class Moment(NamedTuple):
    """When a run was stopped.

    Attributes:
        stage: the task that was at work, or where between them.
        what: a change of files, or of DuckDB's.
        kind: change, commit, or drawn.
    """

    stage: str
    what: str
    kind: str


def at_changes(home: Path, tell: Callable[[str], None]) -> None:
    """From now on, tell of each change of files below a home that this process is about to make, by its name.

    Files opened for writing, renamed, removed; folders and links made. DuckDB's own are not seen.
    """

    def look(event: str, arguments: tuple) -> None:
        if event == "open":
            name, _, flags = arguments
            if not isinstance(name, str | bytes | os.PathLike) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event not in CHANGES:
            return
        name = os.fsdecode(arguments[0]) if not isinstance(arguments[0], int) else ""
        if not os.path.isabs(name) or name.startswith(str(home)):
            tell(event)

    sys.addaudithook(look)


def at_commits(home: Path, tell: Callable[[str, bool], None]) -> None:
    """From now on, tell before and after each of DuckDB's commits, checkpoints and closings in this process, and after
    each statement that wrote to a database by itself.

    Args:
        tell: is given what it is, and whether it begins now.
    """
    kind = duckdb.DuckDBPyConnection

    def written() -> list[tuple]:
        found = [*home.glob("*/*.duckdb*"), *home.glob("*/publications/*/*.duckdb*")]
        return [(str(file), status.st_size, status.st_mtime_ns) for file in sorted(found) if (status := file.lstat())]

    def round_each(name: str) -> Callable[..., Any]:
        own = getattr(kind, name)

        def wrapped(connection: Any, *given: Any, **more: Any) -> Any:
            checkpoint = name in WRITING and str(given[:1]).strip("(',)\"").lower() == "checkpoint"
            what, ends = "checkpoint" if checkpoint else name, checkpoint or name in ENDING
            if ends:
                tell(what, True)
            there = written()
            try:
                return own(connection, *given, **more)
            finally:
                if ends or written() != there:
                    tell(what, False)

        return wrapped

    for name in (*ENDING, *WRITING):
        setattr(kind, name, round_each(name))


def tell_all(home: Path, telling: int, going_on: int) -> None:
    """In the process that runs: tell of every moment, a line each, and wait to be let go on."""
    from prefect.context import FlowRunContext, TaskRunContext

    in_turn = threading.RLock()

    def tell(what: str, kind: str, *, inside: bool = False) -> None:
        task = TaskRunContext.get()
        stage = task.task.name if task else "between stages" if FlowRunContext.get() else "round the flow"
        with in_turn:
            os.write(telling, f"{stage}\t{what}\t{kind}\t{int(inside)}\n".encode())
            os.read(going_on, 1)

    at_changes(home, lambda what: tell(what, "change"))
    at_commits(
        home,
        lambda what, begins: tell(f"{'before' if begins else 'after'} {what}", "commit", inside=begins),
    )


def watch(
    process: int, telling: int, going_on: int, take: Callable[[Moment], None], drawn: random.Random
) -> tuple[int, float]:
    """Stop a process at each moment that it tells of, and at drawn ones, and let it go on; its exit status, and the
    seconds of processor time that it took.

    Args:
        take: called while the process is stopped.
    """
    stage, pause = "round the flow", SELDOM
    while True:
        message = b""
        if select.select([telling], [], [], drawn.uniform(0, pause))[0] and not (message := os.read(telling, 4096)):
            break  # it has ended
        moment = Moment(stage, "at a drawn time", "drawn")
        if message:
            stage, what, kind, inside = message.decode().rstrip("\n").split("\t")
            moment, pause = Moment(stage, what, kind), OFTEN if inside == "1" else SELDOM
        os.kill(process, signal.SIGSTOP)
        _, status, usage = os.wait4(process, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        take(moment)
        os.kill(process, signal.SIGCONT)
        if message:
            os.write(going_on, b"1")
    _, status, usage = os.wait4(process, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
