"""Start, query and copy Prefect servers."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DISABLED_SERVICES = ("SCHEDULER", "LATE_RUNS", "TRIGGERS", "FOREMAN", "CANCELLATION_CLEANUP", "PAUSE_EXPIRATIONS")
PAGE_RUNS = 200
START_SECONDS = 120


@contextmanager
def use_server(url: str) -> Iterator[None]:
    """Let runs in this process report to a server, without logs and without heartbeats, which add a second to each."""
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        PREFECT_LOGGING_TO_API_ENABLED,
        temporary_settings,
    )

    settings = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None, PREFECT_LOGGING_TO_API_ENABLED: False}
    with temporary_settings({PREFECT_API_URL: url, **settings}):
        yield


class Server:
    """A Prefect server that this program neither starts nor stops.

    Args:
        url: of its API.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def list_states(self) -> dict[str, str]:
        """Return the state of every flow run, by the run's id."""
        states: dict[str, str] = {}
        while True:
            query = {"limit": PAGE_RUNS, "offset": len(states), "sort": "ID_DESC"}
            page = self.post("flow_runs/filter", query)
            states |= {run["id"]: run["state_type"] for run in page}
            if len(page) < PAGE_RUNS:
                return states

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Return the answer of the API to a POST."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


class OwnServer(Server):
    """A Prefect server that this program starts, on a free port.

    Args:
        folder: of its database, which may exist.
    """

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        super().__init__(f"http://127.0.0.1:{port}/api")
        services = {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in DISABLED_SERVICES}
        own = {**services, "PREFECT_HOME": str(folder), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--port", str(port), "--no-ui"],
            env=os.environ | own,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_ready(self) -> "OwnServer":
        """Wait until the server answers, and return it.

        Raises:
            SystemExit: it does not answer in time.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=1).close()
                return self
            except OSError:
                time.sleep(0.2)
        self.stop()
        raise SystemExit(f"no Prefect server answers at {self.url}")

    def stop(self) -> None:
        """Stop the server."""
        self._process.terminate()
        self._process.wait(30)


def start_copies(count: int, source: Path, folder: Path) -> list[OwnServer]:
    """Start servers with copies of the database of a stopped server, whose folder is `source`."""
    servers = []
    for number in range(count):
        copy = folder / f"prefect-{number}"
        shutil.copytree(source, copy)
        servers.append(OwnServer(copy))
    return [server.wait_ready() for server in servers]
