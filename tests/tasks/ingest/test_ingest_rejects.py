"""Lines that cannot be read: each is kept, with file, line and reason; its neighbours are read."""

from pathlib import Path

import pytest

from oneclass.tasks import datasets
from oneclass.tasks.ingest import inspect_sources
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home

GOOD = {
    "netflix": "7:\n10,4,2004-01-01\n",
    "ml-1m": "user_id,item_id,rating,timestamp\na,b,3,1000000000\n",
    "msd": "a\tb\t3\n",
    "gowalla": "0 1 2\n",
    "citeulike-a": "2 1 2\n",
}
BAD = [
    ("netflix", "10,4", "2 fields instead of 3"),
    ("netflix", "10,four,2004-01-01", "value is not a number"),
    ("netflix", "10,inf,2004-01-01", "value is not finite"),
    ("netflix", "10,4,2004-02-30", "time is no date"),
    ("netflix", "10,4,infinity", "time is no date"),
    ("netflix", "10,4,204-01-01", "time is no date"),  # a fuzzer's finding: it was read as the year 204
    ("ml-1m", "a,b,3,20044-01-01", "time is neither"),
    ("netflix", " ,4,2004-01-01", "names no user"),
    ("netflix", "10", "1 fields instead of 3"),
    ("ml-1m", "a,b,3", "3 fields instead of 4"),
    ("ml-1m", "a,b,3,1,2", "5 fields instead of 4"),
    ("ml-1m", ",b,3,1", "names no user"),
    ("ml-1m", 'a,"",3,1', "names no item"),
    ("ml-1m", "a,b,,1", "value is not a number"),
    ("ml-1m", "a,b,NaN,1", "value is not finite"),
    ("ml-1m", "a,b,7,1", "value is above value_max = 5 of the data set's file"),
    ("ml-1m", "a,b,-1,1", "value is below value_min = 1 of the data set's file"),
    ("netflix", "10,5.5,2004-01-01", "value is above value_max = 5"),
    ("msd", "a\tb\t0.5", "value is below value_min = 1"),
    ("ml-1m", "a,b,3,", "time is neither"),
    ("ml-1m", "a,b,3,yesterday", "time is neither"),
    ("ml-1m", "a,b,3,999999999999999999", "time is neither"),
    ("ml-1m", '"a,b,3,1', "quotes do not pair"),
    ("msd", "a\tb\tthrice", "value is not a number"),
    ("citeulike-a", "3 1 2", "counts 3 items, but 2 follow"),
    ("citeulike-a", "many 1 2", "does not begin with a count"),
]


def read(home: Home, path: Path, name: str) -> tuple[list, list]:
    dataset = datasets.load_dataset(name, home.root)
    logs = inspect_sources(dataset, [path])
    with warehouse.open_warehouse(home) as connection:
        load_logs(connection, list(enumerate(logs, 1)), path.parent, dataset)
        return (
            connection.execute("select line_number from raw.events order by all").fetchall(),
            connection.execute("select file_id, line_number, line, reason from raw.rejects order by all").fetchall(),
        )


@pytest.mark.parametrize("name, line, reason", BAD)
def test_a_bad_line_is_kept_and_its_neighbours_are_read(home, tmp_path, name, line, reason):
    good = GOOD[name]
    path = tmp_path / "log.txt"
    path.write_text(f"{good}\n{line}\n{good.splitlines()[-1]}\n", encoding="utf-8")
    at = good.count("\n") + 2  # past a blank line
    events, rejects = read(home, path, name)
    assert rejects == [(1, at, line, rejects[0][3])] and reason in rejects[0][3]
    assert {number for (number,) in events} == {at - 2, at + 1}


@pytest.mark.parametrize("name", GOOD)
def test_bytes_that_are_not_utf8(home, tmp_path, name):
    good = GOOD[name].encode()
    path = tmp_path / "log.txt"
    path.write_bytes(good + b"1\xff" + good.splitlines()[-1] + b"\n" + good.splitlines()[-1] + b"\n")
    at = good.count(b"\n") + 1
    events, rejects = read(home, path, name)
    assert [(file_id, number) for file_id, number, _, _ in rejects] == [(1, at)]
    assert rejects[0][2].startswith("1\ufffd") and "not UTF-8" in rejects[0][3]
    assert {number for (number,) in events} == {at - 1, at + 1}


def test_ratings_without_a_header_belong_to_no_film(home, tmp_path):
    path = tmp_path / "combined_data_2.txt"
    path.write_text("1,4,2004-01-01\n2,4,2004-01-01\n9:\n3,4,2004-01-01\nnine:\n4,4,2004-01-01\n8:\n5,4,2004-01-01")
    events, rejects = read(home, path, "netflix")
    assert events == [(4,), (8,)]
    assert [(number, reason.split()[0]) for _, number, _, reason in rejects] == [
        (1, "no"),
        (2, "no"),
        (5, "is"),
        (6, "no"),
    ]


def test_of_a_very_long_line_the_beginning_is_kept(home, tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text(f"user_id,item_id,rating\n{'x' * 5000}\n")
    _, rejects = read(home, path, "ml-1m")
    assert rejects == [(1, 2, "x" * 1000, "1 fields instead of 3")]
