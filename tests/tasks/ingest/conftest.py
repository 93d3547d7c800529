"""A home for logs, writers of logs, and what was read of them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from oneclass.tasks import datasets
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.sources import scan_logs
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows, write_tables

EVENTS = "select file_id, line_number, user_id, item_id, value, occurred_at from raw.events order by all"
REJECTS = "select file_id, line_number, line, reason from raw.rejects order by all"


@pytest.fixture
def home(home: Home) -> Home:
    write_tables(home)
    return home


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """MovieLens 1M, which knows ratings from 1 to 5."""
    return datasets.load_dataset("ml-1m", tmp_path)


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file below folders that may not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_csv(path: Path, *rows: str) -> Path:
    return write_file(path, "\n".join(["user_id,item_id,rating", *rows]) + "\n")


def count_events(home: Home) -> int:
    return query_rows(home, "select count(*) from raw.events")[0][0]


def list_set_aside(home: Home, run_id: str) -> list[str]:
    """Return the paths of the files that a run set aside, from whichever folder."""
    quarantine = f"{home.landing.resolve()}/quarantine/%"
    query = "select path from operations.arrivals where (run_id, outcome) = ('{}', 'set aside') and path not like '{}'"
    return sorted(path for (path,) in query_rows(home, query.format(run_id, quarantine)))


def read_logs(home: Home, dataset: Dataset | str, paths: Sequence[Path]) -> tuple[list, list]:
    """Load logs without the stage's contracts, and return all events and rejects."""
    dataset = datasets.load_dataset(dataset, home.root) if isinstance(dataset, str) else dataset
    with warehouse.open_warehouse(home) as connection:
        load_logs(connection, enumerate(scan_logs(paths, dataset), 1), home.root, dataset)
    assert not [*home.root.glob("*.txt")]  # the copies are gone
    return query_rows(home, EVENTS), query_rows(home, REJECTS)
