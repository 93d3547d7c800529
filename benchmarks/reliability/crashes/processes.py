"""The flow's command in a process of its own, killed at a moment or left alone, and the Prefect servers beside it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.reliability.crashes import commands, moments
from benchmarks.reliability.crashes.commands import FLOWS, HOME

SECONDS = 600  # that a run gets


@contextmanager
def reporting_to(url: str) -> Iterator[None]:
    """Runs in this process report to that server; without heartbeats, which add a second to each, and without their
    logs.
    """
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


OFF = ("SCHEDULER", "LATE_RUNS", "TRIGGERS", "FOREMAN", "CANCELLATION_CLEANUP", "PAUSE_EXPIRATIONS")


class Server:
    """A Prefect server that somebody else began and ends.

    Args:
        url: of its API.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def states(self) -> dict[str, str]:
        """The state of every flow run that it knows, by the run's id."""
        found: dict[str, str] = {}
        while True:
            asked = {"limit": 200, "offset": len(found), "sort": "ID_DESC"}
            page = ask(f"{self.url}/flow_runs/filter", asked)
            found |= {one["id"]: one["state_type"] for one in page}
            if len(page) < 200:
                return found


class OwnServer(Server):
    """A Prefect server of its own, on a port that is free.

    Args:
        folder: for its database; it may hold one already.
    """

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        super().__init__(f"http://127.0.0.1:{port}/api")
        services = {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in OFF}
        own = {**services, "PREFECT_HOME": str(folder), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port), "--no-ui"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, env=os.environ | own, **quiet, start_new_session=True)

    def wait(self) -> "OwnServer":
        """The server itself, once it answers.

        Raises:
            SystemExit: it does not within two minutes.
        """
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=1).close()
                return self
            except OSError:
                time.sleep(0.2)
        self.end()
        raise SystemExit(f"no Prefect server answers at {self.url}")

    def end(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)


def copies(count: int, of: Path, folder: Path) -> list[OwnServer]:
    """Servers that know what the one whose folder is `of` knew; it must have ended."""
    begun = []
    for number in range(count):
        own = folder / f"prefect-{number}"
        shutil.copytree(of, own)
        begun.append(OwnServer(own))
    return [server.wait() for server in begun]


def ask(url: str, body: dict[str, Any]) -> Any:
    """What the API answers to a POST."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)
