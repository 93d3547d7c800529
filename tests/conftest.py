"""Fixtures that every room uses: a home in a temporary folder, and a warehouse filled with events."""

import gc
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from email.message import Message
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

# Beside another process of pytest-xdist, BLAS on two threads takes a third more processor time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.stores import publications, warehouse
from oneclass.tasks.stores.home import Home, Limits
from tests.postgres_server import start_postgres

REAL_LOGS = Path(os.environ.get("ONECLASS_REAL_LOGS") or Path(__file__).parents[2] / "shared" / "data")
PUBLISHED = {
    "ml-100k/u.data": "from grouplens.org/datasets/movielens/100k",
    "ml-1m/ratings.csv": "ratings.dat from grouplens.org/datasets/movielens/1m as CSV: user_id,item_id,rating",
    "ml-latest-small/ratings.csv": "from grouplens.org/datasets/movielens/latest, the edition of October 2016",
    "lastfm-hetrec2011/user_artists.dat": "from grouplens.org/datasets/hetrec-2011, Last.FM",
}
"""Logs that tests read and that are not shipped: place below REAL_LOGS -> what it is and where a person finds it."""


FAST = "not slow"
# On small tables a second thread of DuckDB takes two fifths more processor time.
LIMITS = Limits(threads=1, memory=1 << 30)
EVENT_TYPES = {
    "user_id": pl.String, "item_id": pl.String, "value": pl.Float64, "occurred_at": pl.Datetime("us"),
    "event": pl.String,
}  # fmt: skip


def real_log(name: str) -> Path:
    """A log of PUBLISHED; the test is skipped where it is absent, with what to put where."""
    path = REAL_LOGS / name
    if not path.exists():
        folder, _, file = os.path.relpath(path).rpartition(os.sep)
        pytest.skip(f"{name} is not there: put {file} into {folder} ({PUBLISHED[name]})")
    return path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests marked slow too")


def pytest_configure(config: pytest.Config) -> None:
    """The slow tests are left out where no file, word or mark says which to run."""
    asked = [one for one in config.args if one.partition("::")[0].endswith(".py")]
    if not (asked or config.option.all or config.option.keyword or config.option.markexpr):
        config.option.markexpr = FAST  # pytest-xdist hands it to its processes


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.markexpr == FAST:
        terminalreporter.write_line("The slow tests were left out: --all runs them too.")


class PackagesTogether(LoadScopeScheduling):
    """Run the tests of one file in one process of pytest-xdist, and those of some packages in one.

    All flows share a Prefect server, which takes many seconds of processor time to start, and the tests of pages a
    report. The tests of a package of `models/` want the same kernels, which one process would wait for while another
    compiles them.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file.startswith("tests/flows/"):
            return "tests/flows"
        if file.startswith(("tests/tasks/html/", "tests/tasks/report/")):
            return "tests/tasks/report"
        room = file.rpartition("/")[0] if file.startswith("tests/models/") and file.count("/") > 2 else file
        return "tests/models/numerics" if room == "tests/models/slim" else room  # both want the kernels of slim


def pytest_collection() -> None:
    """Importing every test allocates millions of objects: none is garbage, and none becomes any (see below)."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was imported out of all later garbage collections, and make these rare."""
    gc.freeze()
    gc.set_threshold(100_000)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those of all flows come first, as the longest piece of one process; the others follow in their order."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/flows/"))


@pytest.hookimpl(optionalhook=True)  # for -p no:xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """With `-n 2`, schedule by `PackagesTogether`, in the order of the files: xdist would begin with the most tests."""
    config.option.loadscopereorder = False
    return PackagesTogether(config, log)


@cache
def empty_warehouse() -> bytes:
    """The file of a warehouse with all tables and no rows, which takes 30 ms to make."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder), "empty", LIMITS)
        with warehouse.open_warehouse(home):
            pass
        return home.warehouse.read_bytes()


def write_tables(home: Home) -> None:
    """Write a home's warehouse with all tables and no rows, if it has none."""
    if not home.warehouse.exists():
        home.folder.mkdir(parents=True, exist_ok=True)
        home.warehouse.write_bytes(empty_warehouse())


def home_in(folder: Path) -> Home:
    return Home(folder / "var", "small", LIMITS)


def set_fold_bound(users: int) -> None:
    """Set the default of `split.min_validation_users` in this process."""
    SplitSettings.model_fields["min_validation_users"].default = users
    SplitSettings.model_rebuild(force=True)


FOLD_BOUND = SplitSettings().min_validation_users


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server that all tests of a process share; they are skipped where there is none."""
    pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra `sql` is not installed")
    with start_postgres() as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def small_logs_have_one_split() -> None:
    """The small logs of tests have one split of users, as large logs have; tests of folds take `folds`."""
    set_fold_bound(0)


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """No test's file outlives a power cut, and a test of a store syncs some twenty, each of which takes milliseconds.

    `tests/tasks/stores/test_power_cuts.py` notes what is synced.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


class Receiver(NamedTuple):
    """A server that takes what is posted to it, but for paths that begin with `/refused`, which get a 500."""

    address: str
    bodies: list[dict]
    paths: list[str]
    headers: list[Message]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A server that takes notifications; the environment variable HOOK has its address."""
    bodies, paths, headers = [], [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            paths.append(self.path)
            headers.append(self.headers)
            self.send_response(500 if self.path.startswith("/refused") else 200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("HOOK", address)
        yield Receiver(address, bodies, paths, headers)
        server.shutdown()


@pytest.fixture
def folds() -> Iterator[None]:
    """The default by which small logs are divided into folds."""
    set_fold_bound(FOLD_BOUND)
    yield
    set_fold_bound(0)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return home_in(tmp_path)


@pytest.fixture
def log_events(home: Home) -> Callable[..., None]:
    """`log_into` the test's own home."""
    return partial(log_into, home)


def two_tastes(home: Home, users: int = 60, items: int = 20, likes: int = 12) -> None:
    """Log likes of users of two tastes, each with `items` items of its own; a user has at most so many likes."""
    generator = np.random.default_rng(1)
    pairs = {(f"u{u}", f"i{u % 2 * items + generator.integers(items)}") for u in range(users) for _ in range(likes)}
    log_into(home, [(user, item, 1) for user, item in sorted(pairs)])


def flip_bit(file: Path, place: int | None = None) -> None:
    """Flip a bit of the byte at a place of a file, or in its middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    file.write_bytes(data)


def query_rows(home: Home, query: str, *values) -> list[tuple]:
    """Return the rows of a query on a home's warehouse."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        return connection.execute(query, values).fetchall()


def execute_statement(home: Home, statement: str, values: Sequence = ()) -> None:
    """Execute a statement on a home's warehouse."""
    with warehouse.open_warehouse(home) as connection:
        connection.execute(statement, values)


def load_ids(home: Home, side: str) -> dict[int, str]:
    """Return the ids of the users or the items by their index."""
    return dict(query_rows(home, f"select {side}_index, {side}_id from indexed.{side}s"))


def load_entries(home: Home, matrix: csr_matrix, users: np.ndarray, items: np.ndarray) -> dict[tuple[str, str], float]:
    """Return the entries of a matrix by user and item id, with the indices of its rows and columns."""
    user_ids, item_ids, found = load_ids(home, "user"), load_ids(home, "item"), matrix.tocoo()
    return {
        (user_ids[users[row]], item_ids[items[column]]): value
        for row, column, value in zip(found.row, found.col, found.data.tolist(), strict=True)
    }


def make_current(home: Home, folder: Path, **facts) -> None:
    """Publish a folder that has all its files but the manifest, as a run does."""
    with warehouse.open_warehouse(home) as connection:
        connection.begin()
        publications.record_new(connection, home, folder, {"fits": [], **facts})
        connection.commit()
        publications.show_current(connection, home)


def log_into(home: Home, events: Sequence[tuple], file_id: int = 1) -> None:
    """Put (user, item, value[, time[, kind]]) events into `raw.events`, one file a call, lines numbered from 1."""
    write_tables(home)
    rows = [(str(user), str(item), value, *(*rest, None, None)[:2]) for user, item, value, *rest in events]
    incoming = pl.DataFrame(rows, EVENT_TYPES, orient="row").with_columns(
        file_id=pl.lit(file_id), line_number=pl.int_range(1, pl.len() + 1)
    )
    of_file = [file_id, f"log-{file_id}", f"sha-{file_id}", len(rows)]
    with warehouse.open_warehouse(home) as connection:
        warehouse.insert(connection, "raw.events", incoming)
        connection.execute(
            "insert into operations.log_files values (?, ?, ?, 1, ?, 0, now()::timestamp, null, null)", of_file
        )
