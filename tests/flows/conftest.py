"""A real Prefect server for the flows' tests, and small logs on disk."""

import contextlib
import io
import os
import shutil
import sqlite3
import subprocess
import tempfile
import urllib.request
from importlib import metadata
from pathlib import Path

import duckdb
import numpy as np
import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from oneclass import flows  # noqa: F401  (its settings of Prefect come first)
from oneclass.flows import commands
from oneclass.flows.prefect_server import launch_server

ML = ["--dataset", "ml-latest-small"]
SHORT = ["bpr_uniform.epochs=2", "bpr_uniform.factors=10", "mrf_dense.l2=6.0"]
FAST = [*ML, "--models", "popularity,mrf_dense,bpr_uniform", "--set", *SHORT, "--threads", "2"]


NOT_ASKED = (  # services of the server that work on their own, round the clock, and that no test waits for
    "CANCELLATION_CLEANUP", "FOREMAN", "LATE_RUNS", "PAUSE_EXPIRATIONS", "SCHEDULER", "TRIGGERS",
)  # fmt: skip


running_server = contextlib.ExitStack()


@pytest.fixture(scope="session")
def empty_database(request: pytest.FixtureRequest) -> Path:
    """Prefect's database with all tables and no rows, in pytest's cache, for it takes a server seconds to make."""
    database = request.config.cache.mkdir("prefect") / f"{metadata.version('prefect')}.db"
    if not database.exists():
        with tempfile.TemporaryDirectory(dir=database.parent) as folder:
            server, _ = launch_test_server(Path(folder))
            end_server(server)
            with (
                contextlib.closing(sqlite3.connect(Path(folder) / "prefect.db")) as made,
                contextlib.closing(sqlite3.connect(Path(folder) / "copy.db")) as copy,
            ):
                made.backup(copy)  # with what is in its log
            (Path(folder) / "copy.db").rename(database)
    return database


def launch_test_server(home: Path, **settings: str) -> tuple[subprocess.Popen, str]:
    """Launch a server with its database in a folder, and wait until it answers at the address that is returned."""
    # A database that the user's settings name is not to be written to.
    database = f"sqlite+aiosqlite:///{home}/prefect.db"
    own = {"PREFECT_HOME": str(home), "PREFECT_SERVER_DATABASE_CONNECTION_URL": database}
    server, address = launch_server(os.environ | settings | own)
    urllib.request.urlopen(f"{address}/health", timeout=180).close()
    return server, address


def end_server(server: subprocess.Popen) -> None:
    server.terminate()
    server.wait(60)
    server.stdin.close()


@pytest.fixture(scope="session")
def server_home(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `prefect_server`."""
    return Path(shutil.copy(empty_database, tmp_path_factory.mktemp("server") / "prefect.db")).parent


@pytest.fixture(scope="session")
def prefect_server(server_home: Path) -> str:
    """The API's address of such a server as runs start; without heartbeats, which add a second to every flow run."""
    server, address = launch_test_server(
        server_home, **{f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "0" for name in NOT_ASKED}
    )
    running_server.callback(end_server, server)
    running_server.enter_context(
        temporary_settings({PREFECT_API_URL: address, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
    )
    return address


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the server with the last test of this folder, since it takes processor time without being asked anything."""
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        running_server.close()


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


def query_rows(home: Path, text: str, dataset: str = ML[1]) -> list[tuple]:
    """The rows of a query on the warehouse of a home."""
    with duckdb.connect(str(home / dataset / "warehouse.duckdb"), read_only=True) as connection:
        return connection.execute(text).fetchall()


@pytest.fixture
def prefect_home(empty_database: Path, tmp_path: Path) -> Path:
    """A folder for `PREFECT_HOME` whose database has its tables."""
    folder = tmp_path / "prefect"
    folder.mkdir()
    shutil.copy(empty_database, folder / "prefect.db")
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
