"""Run a flow's command in a process of its own, killed at a moment or left alone."""

import os
import signal
import time
from pathlib import Path

from benchmarks.reliability.crashes import commands, moments
from benchmarks.reliability.crashes.commands import FLOWS, HOME
from benchmarks.reliability.crashes.prefect_server import use_server

MAX_RUN_SECONDS = 600


def run_flow(flow: str, folder: Path, url: str, *, change: int = 0, seconds: float = MAX_RUN_SECONDS) -> int:
    """Run a command and return its exit status, or -9 if it was killed.

    Args:
        folder: of the home; a run that ends writes its number of changes of files into `changes` there.
        change: kill it before this change of files; never at 0.
        seconds: kill it after these.
    """
    count = 0

    def count_change(event: str) -> None:
        nonlocal count
        count += 1
        if count == change:
            os.kill(os.getpid(), signal.SIGKILL)

    def run_command() -> int:
        moments.report_changes(folder / HOME, count_change)
        with use_server(url):
            status = FLOWS[flow].main()
        (folder / "changes").write_text(str(count))
        return status

    process = commands.fork_process(folder, run_command, folder / "log")
    deadline = time.monotonic() + seconds
    while os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
