"""The moments of a run: before each change of files, around each DuckDB commit, and within DuckDB's writes.

A killed process leaves what is in the files of its home, because the system has taken over what it wrote. So a process
that is stopped with all its threads shows what a kill at that moment would leave.
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
ENDING_METHODS = ("commit", "checkpoint", "close", "__exit__", "rollback")  # of DuckDB: when it writes to its file
STATEMENT_METHODS = ("execute", "executemany")  # commit by themselves outside of a transaction
MAX_PAUSE_SECONDS, MAX_WRITE_PAUSE_SECONDS = 0.2, 0.002  # until the next drawn stop; the second in DuckDB's writes
OUTSIDE = "round the flow"  # the stage before and after the flow


class Moment(NamedTuple):
    """A moment at which a run was stopped.

    Attributes:
        stage: the task at work, or a place between tasks.
        event: a change of files, or DuckDB's.
        kind: change, commit, or drawn.
    """

    stage: str
    event: str
    kind: str


def report_changes(home: Path, report: Callable[[str], None]) -> None:
    """Report each change of files below a home before this process makes it, by the name of its audit event.

    Files opened for writing, renamed or removed; folders and links made. DuckDB's own changes are not seen.
    """

    def hear_event(event: str, arguments: tuple) -> None:
        if event == "open":
            name, _, flags = arguments
            if not isinstance(name, str | bytes | os.PathLike) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event not in CHANGES:
            return
        name = os.fsdecode(arguments[0]) if not isinstance(arguments[0], int) else ""
        if not os.path.isabs(name) or name.startswith(str(home)):
            report(event)

    sys.addaudithook(hear_event)


def report_commits(home: Path, report: Callable[[str, bool], None]) -> None:
    """Report this process's DuckDB commits, checkpoints and closings, before and after, and statements that wrote.

    Args:
        report: gets the event, and whether it is about to begin.
    """
    kind = duckdb.DuckDBPyConnection

    def list_databases() -> list[tuple]:
        files = [*home.glob("*/*.duckdb*"), *home.glob("*/publications/*/*.duckdb*")]
        return [(str(file), status.st_size, status.st_mtime_ns) for file in sorted(files) if (status := file.lstat())]

    def wrap_method(name: str) -> Callable[..., Any]:
        method = getattr(kind, name)

        def call_method(connection: Any, *arguments: Any, **more: Any) -> Any:
            statement = str(arguments[:1]).strip("(',)\"").lower()
            is_checkpoint = name in STATEMENT_METHODS and statement == "checkpoint"
            event, is_ending = "checkpoint" if is_checkpoint else name, is_checkpoint or name in ENDING_METHODS
            if is_ending:
                report(event, True)
            before = list_databases()
            try:
                return method(connection, *arguments, **more)
            finally:
                if is_ending or list_databases() != before:
                    report(event, False)

        return call_method

    for name in (*ENDING_METHODS, *STATEMENT_METHODS):
        setattr(kind, name, wrap_method(name))


def report_moments(home: Path, reports: int, permits: int) -> None:
    """In the process that runs: write every moment to a pipe, a line each, and wait for a byte from another."""
    from prefect.context import FlowRunContext, TaskRunContext

    lock = threading.RLock()

    def report(event: str, kind: str, *, is_writing: bool = False) -> None:
        task = TaskRunContext.get()
        stage = task.task.name if task else "between stages" if FlowRunContext.get() else OUTSIDE
        with lock:
            os.write(reports, f"{stage}\t{event}\t{kind}\t{int(is_writing)}\n".encode())
            os.read(permits, 1)

    def report_commit(event: str, begins: bool) -> None:
        report(f"{'before' if begins else 'after'} {event}", "commit", is_writing=begins)

    report_changes(home, lambda event: report(event, "change"))
    report_commits(home, report_commit)


def stop_at_moments(
    process: int, reports: int, permits: int, take: Callable[[Moment], None], generator: random.Random
) -> int:
    """Stop a process at each moment that it reports, and at drawn ones, and let it continue; returns its exit status.

    Args:
        take: called while the process is stopped.
    """
    stage, pause = OUTSIDE, MAX_PAUSE_SECONDS
    while True:
        message = b""
        is_ready = select.select([reports], [], [], generator.uniform(0, pause))[0]
        if is_ready and not (message := os.read(reports, 4096)):
            break  # it has ended
        moment = Moment(stage, "at a drawn time", "drawn")
        if message:
            stage, event, kind, is_writing = message.decode().rstrip("\n").split("\t")
            moment = Moment(stage, event, kind)
            pause = MAX_WRITE_PAUSE_SECONDS if is_writing == "1" else MAX_PAUSE_SECONDS
        os.kill(process, signal.SIGSTOP)
        _, status = os.waitpid(process, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        take(moment)
        os.kill(process, signal.SIGCONT)
        if message:
            os.write(permits, b"1")
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
