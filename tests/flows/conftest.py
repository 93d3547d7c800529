"""A real Prefect server for the flows' tests, and small logs on disk."""

import contextlib
import io
import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

import numpy as np
import prefect.settings
import pytest
from prefect.settings import (
    PREFECT_API_DATABASE_CONNECTION_URL,
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    temporary_settings,
)

from oneclass import flows  # noqa: F401  (its settings of Prefect come first)
from oneclass.flows import commands

ML = ["--dataset", "ml-latest-small"]
SHORT = ["bpr_uniform.epochs=2", "bpr_uniform.factors=10", "mrf_dense.l2=6.0"]
FAST = [*ML, "--models", "popularity,mrf_dense,bpr_uniform", "--set", *SHORT, "--threads", "2"]


NOT_ASKED = [  # services of the server that work on their own, round the clock, and that no test waits for
    getattr(prefect.settings, f"PREFECT_SERVER_SERVICES_{name}_ENABLED")
    for name in ("CANCELLATION_CLEANUP", "FOREMAN", "LATE_RUNS", "PAUSE_EXPIRATIONS", "SCHEDULER", "TRIGGERS")
]


running_server = contextlib.ExitStack()


@pytest.fixture(scope="session")
def prefect_server() -> str:
    """The API's address; without heartbeats, which add a second to every flow run."""
    from prefect.testing.utilities import prefect_test_harness  # here: it loads all of Prefect's server

    running_server.enter_context(temporary_settings(dict.fromkeys(NOT_ASKED, False)))
    running_server.enter_context(prefect_test_harness(server_startup_timeout=180))
    running_server.enter_context(temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}))
    return PREFECT_API_URL.value()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the server with the last test of this folder, since it takes processor time without being asked anything."""
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        running_server.close()


class Receiver(NamedTuple):
    """A server that takes what is posted to it, but for paths that begin with `/refused`, which get a 500."""

    address: str
    bodies: list[dict]
    paths: list[str]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    bodies, paths = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            paths.append(self.path)
            self.send_response(500 if self.path.startswith("/refused") else 200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield Receiver(f"http://127.0.0.1:{server.server_port}", bodies, paths)
        server.shutdown()


@pytest.fixture(scope="session")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MovieLens csv: 120 people of two tastes rate 40 films, 1 to 5 stars."""
    generator = np.random.default_rng(7)
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(120):
        for film in sorted(generator.choice(40, size=14, replace=False)):
            likes = film % 2 == user % 2
            lines.append(f"{user + 1},{film + 1},{generator.integers(*((4, 6) if likes else (1, 4)))},{10**9 + user}")
    path = tmp_path_factory.mktemp("logs") / "ratings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def prefect_home(prefect_server, tmp_path) -> Path:
    """A folder for `PREFECT_HOME` whose database has its tables, which take a server of its own seconds to make."""
    folder = tmp_path / "prefect"
    folder.mkdir()
    with (
        contextlib.closing(sqlite3.connect(PREFECT_API_DATABASE_CONNECTION_URL.value().partition(":///")[2])) as made,
        contextlib.closing(sqlite3.connect(folder / "prefect.db")) as copy,
    ):
        made.backup(copy)
    return folder


@pytest.fixture(scope="session")
def first(prefect_server, ratings, tmp_path_factory) -> tuple[Path, str]:
    """The home that a first backfill on two threads left, and what it printed; for tests that only read it."""
    home = tmp_path_factory.mktemp("first")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert commands.main("backfill", [*FAST, "--home", str(home), "--source", str(ratings)]) == 0
    return home, printed.getvalue()


@pytest.fixture
def after_first(first, tmp_path) -> Path:
    """A home of one's own after a first run."""
    return shutil.copytree(first[0], tmp_path / "home", symlinks=True)
