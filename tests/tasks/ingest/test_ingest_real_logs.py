"""The published logs, where they are at hand."""

from pathlib import Path

import polars
import pytest

from oneclass.tasks import datasets
from oneclass.tasks.ingest import inspect_sources
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import real_log

COUNTS = "select count(*), count(distinct user_id), count(distinct item_id), max(line_number) from raw.events"


def ingested(home: Home, name: str, path: Path):
    dataset = datasets.load_dataset(name, home.root)
    logs = inspect_sources(dataset, [path])
    with warehouse.open_warehouse(home) as connection:
        load_logs(connection, list(enumerate(logs, 1)), home.folder, dataset)
        assert connection.execute("select count(*) from raw.rejects").fetchall() == [(0,)]
        yield connection


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, path, counts",
    [
        ("ml-1m", "ml-1m/ratings_ge4.dat", (575_281, 6_038, 3_533, 575_281)),
        ("ml-100k", "ml-100k/u.data", (100_000, 943, 1_682, 100_000)),
        ("lastfm", "lastfm-hetrec2011/user_artists.dat", (92_834, 1_892, 17_632, 92_835)),
        ("ml-latest-small", "ml-latest-small/ratings.csv", (100_004, 671, 9_066, 100_005)),
        ("gowalla", "gowalla/train.txt", (1_027_370, 29_858, 40_981, 29_858)),
        ("citeulike-a", "citeulike-a/users.dat", (204_986, 5_551, 16_980, 5_551)),
    ],
)
def test_counts(home, name, path, counts):
    log = real_log(path)
    for connection in ingested(home, name, log if name == "ml-1m" else log.parent):  # ml-1m's folder holds two logs
        assert connection.execute(COUNTS).fetchone() == counts


def test_every_line_of_ml_1m_is_where_it_stands(home):
    path = real_log("ml-1m/ratings.csv")
    expected = polars.read_csv(path, schema_overrides=[polars.String, polars.String, polars.Float64])
    assert len(expected) == 1_000_209
    expected = expected.with_row_index("line_number", offset=2).to_arrow()
    for connection in ingested(home, "ml-1m", path):
        connection.register("expected", expected)
        query = """
            select * from raw.events full join expected using (line_number)
            where (events.user_id, events.item_id, events.value) is distinct from
                (expected.user_id, expected.item_id, expected.rating)
        """
        assert connection.execute(query).fetchall() == []
