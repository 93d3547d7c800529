"""The flow's command in a process of its own, which is killed at a moment or left alone."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.reliability.crashes import commands, moments
from benchmarks.reliability.crashes.commands import FLOWS, HOME

SECONDS = 600  # that a run gets


@contextmanager
def reporting_to(url: str) -> Iterator[None]:
    """Runs in this process report to that server; without heartbeats, which add a second to each, and without their logs."""
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        PREFECT_LOGGING_TO_API_ENABLED,
        temporary_settings,
    )

    chosen = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None, PREFECT_LOGGING_TO_API_ENABLED: False}
    with temporary_settings({PREFECT_API_URL: url, **chosen}):
        yield


def run(flow: str, folder: Path, url: str, *, change: int = 0, seconds: float = SECONDS) -> int:
    """One command in a process of its own; its exit status, or -9 where it was killed.

    Args:
        folder: that the home is in; of a run that ended, `changes` there has the number of its changes of files.
        change: of files, before which it is killed; never at 0.
        seconds: after which it is killed.
    """
    counted = [0]

    def count(what: str) -> None:
        counted[0] += 1
        if counted[0] == change:
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> int:
        moments.at_changes(folder / HOME, count)
        with reporting_to(url):
            status = FLOWS[flow].main()
        (folder / "changes").write_text(str(counted[0]))
        return status

    process = commands.forked(folder, work, folder / "log")
    deadline = time.monotonic() + seconds
    while os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
