"""The stage as a whole: skipped and replaced files, its contract, rejects, and the state a killed run leaves."""

import gzip
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oneclass.data_contracts import ContractBroken
from oneclass.tasks import datasets
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import runs, warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.tasks.ingest.conftest import count_events

REPOSITORY = Path(__file__).parents[3]
EVENTS = "select user_id, item_id, value, file_id, line_number from raw.events order by all"
COUNTS = "select (select count(*) from raw.events), (select count(*) from operations.log_files)"


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return datasets.load_dataset("ml-1m", tmp_path)


def write_csv(path: Path, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["user_id,item_id,rating", *rows]) + "\n")
    return path


def test_new_logs_are_read_listed_and_skipped_later_by_their_bytes(home, dataset, tmp_path):
    one = write_csv(tmp_path / "one.csv", "a,x,5", *["a,y,4"] * 200, "broken")
    (packed := tmp_path / "two.csv.gz").write_bytes(gzip.compress(b"user_id,item_id,rating\nb,x,1\n"))
    (nameless := tmp_path / "ratings.dat").write_text("1::2::5::978300760\n")
    copy = write_csv(tmp_path / "copy.csv", "a,x,5", *["a,y,4"] * 200, "broken")
    found = [
        [(log.file_id, log.outcome) for log in ingest(home, dataset, paths, f"run-{number}")]
        for number, paths in enumerate([[nameless], [one], [copy], [packed, one, packed]])
    ]
    assert found == [[(1, "new")], [(2, "new")], [(2, "skipped")], [(3, "new"), (2, "skipped"), (3, "skipped")]]
    assert query_rows(home, EVENTS)[::202] == [("1", "2", 5, 1, 1), ("b", "x", 1, 3, 2)]
    columns = "file_id, path, bytes, events, rejects, length(sha256), names_columns"
    assert query_rows(home, f"select {columns} from operations.log_files order by 1") == [
        (1, str(nameless), nameless.stat().st_size, 1, 0, 64, False),
        (2, str(one), one.stat().st_size, 201, 1, 64, True),
        (3, str(packed), packed.stat().st_size, 1, 0, 64, True),
    ]


def test_a_night_without_new_logs_checks_what_is_there(home, dataset, tmp_path):
    ingest(home, dataset, [write_csv(tmp_path / "one.csv", "a,x,5", "a,y,4")], "run-1")
    assert ingest(home, dataset, [], "run-2") == [] and count_events(home) == 2
    checked = "select count(*), bool_and(success) from operations.contract_results where run_id = '{}'"
    assert query_rows(home, checked.format("run-2")) == query_rows(home, checked.format("run-1"))
    with warehouse.open_warehouse(home) as connection:
        connection.execute("delete from raw.events where item_id = 'x'")
    with pytest.raises(ContractBroken, match="events_counted"):
        ingest(home, dataset, [], "run-3")


def test_too_many_rejects_in_named_files_break_the_contract_and_leave_what_was_there(home, dataset, tmp_path):
    allowed = dataset.model_copy(update={"max_reject_share": 0.2})
    good = [f"u{number},x,5" for number in range(20)]
    ingest(home, allowed, [write_csv(tmp_path / "before.csv", "an old reject", *good)], "run-1")
    tables = "raw.rejects", "operations.log_files", "raw.events"
    before = [query_rows(home, f"from {table} order by all") for table in tables]
    some = write_csv(tmp_path / "a.csv", "one", *good[:4])
    worst = write_csv(tmp_path / "b.csv", *good[:2], "a,x,7", "another")
    with pytest.raises(ContractBroken, match="b.csv, line 4: value is above(?s:.*)max_reject_share = 0.5") as broken:
        ingest(home, allowed, [some, worst], "run-2")
    (sample,) = next(one for one in broken.value.broken if one.rule == "share_of_rejects").samples
    assert (sample["file_with_most"], sample["line_number"], sample["first_reject"]) == (str(worst), 4, "a,x,7")
    assert (sample["rejects"], sample["lines"]) == (3, 9)
    assert [query_rows(home, f"from {table} order by all") for table in tables] == before
    assert query_rows(
        home, "select success from operations.contract_results where (run_id, rule) = ('run-2', 'share_of_rejects')"
    ) == [(False,)]


def test_replace_reads_the_sources_anew_and_takes_away_the_others(home, dataset, tmp_path):
    one = write_csv(tmp_path / "one.csv", "a,x,5", *["a,y,5"] * 200, "broken")
    two = write_csv(tmp_path / "two.csv", "b,x,1")
    ingest(home, dataset, [one], "run-1")
    assert [log.file_id for log in ingest(home, dataset, [two], "run-2", replace=True)] == [1]
    assert query_rows(home, EVENTS) == [("b", "x", 1, 1, 2)] and query_rows(home, "from raw.rejects") == []
    exchanged = {"user": ("item_id",), "item": ("user_id",)}
    exchanged = dataset.model_copy(update={"columns": dataset.columns.model_copy(update=exchanged)})
    ingest(home, exchanged, [two], "run-3", replace=True)
    assert query_rows(home, EVENTS) == [("x", "b", 1, 1, 2)]


KILLED = """
import os, signal, sys
from pathlib import Path
from oneclass.tasks import datasets
from oneclass.tasks.stores.home import Home
from oneclass.tasks.ingest import stage

load = stage.load_logs
def read_and_die(connection, files, scratch, dataset, report_progress):
    (scratch / "copy.txt").write_text("unpacked")
    load(connection, files, scratch, dataset)
    print(*connection.execute("select count(*) from raw.events").fetchone(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

stage.load_logs = read_and_die
root = Path(sys.argv[1])
stage.ingest(Home(root, "small"), datasets.load_dataset("ml-1m", root), [sys.argv[2]], "run-2")
"""


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_replaces_leaves_the_old_and_the_next_one_clears_up(home, dataset, tmp_path):
    path = write_csv(tmp_path / "ratings.csv", "a,y,5", "b,y,5")
    ingest(home, dataset, [path], "run-1")
    write_csv(path, *[f"{user},x,5" for user in range(50_000)])
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(home.root), str(path)],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (killed.returncode, killed.stdout.strip()) == (-signal.SIGKILL, "50000"), killed.stderr
    assert query_rows(home, COUNTS) == [(2, 1)] and list((home.folder / "spill").glob("ingest-*"))
    with runs.record_run(home, "run-3", "backfill", {}):
        ingest(home, dataset, [path], "run-3")
    assert count_events(home) == 50_000 and not list((home.folder / "spill").glob("ingest-*"))


GOOD = {
    "netflix": "7:\n10,4,2004-01-01\n",
    "ml-1m": "user_id,item_id,rating,timestamp\na,b,3,1000000000\n",
    "msd": "a\tb\t3\n",
    "gowalla": "0 1 2\n",
    "citeulike-a": "2 1 2\n",
}
BAD = [
    ("netflix", "10,four,2004-01-01", "value is not a number"),
    ("netflix", "10,4,2004-02-30", "time is not a date or time"),
    ("netflix", "10,4,204-01-01", "time is not a date or time"),  # a fuzzer's finding: it was read as the year 204
    ("netflix", "10,4", "time is not a date or time"),
    ("netflix", "10,4,2999-01-01", "time is later than the clock by over max_future_days = 1 of the data set's file"),
    ("netflix", " ,4,2004-01-01", "names no user"),
    ("netflix", "10,5.5,2004-01-01", "value is above value_max = 5 of the data set's file"),
    ("netflix", "10,4,2004-01-01,5", "4 fields instead of 3"),
    ("ml-1m", "a,b,3,20044-01-01", "time is not a date or time"),
    ("ml-1m", ",b,3,1", "names no user"),
    ("ml-1m", "a,,3,1", "names no item"),
    ("ml-1m", "a,b,,1", "value is not a number"),
    ("ml-1m", "a,b,NaN,1", "value is not finite"),
    ("ml-1m", "a,b,-1,1", "value is below value_min = 1 of the data set's file"),
    ("ml-1m", "a", "1 fields instead of 4"),
    ("ml-1m", "a,b,3,1,2,3,4,5,6,7", "10 fields instead of 4"),
    ("ml-1m", "x" * 5000, "1 fields instead of 4"),
    ("msd", "a\tb\t0.5", "value is below value_min = 1"),
    ("citeulike-a", "3 1 2", "counts 3 items, but 2 follow"),
]


def ingest_file(home: Home, path: Path, name: str) -> tuple[set[int], list]:
    """Ingest a log of a built-in data set, and return the numbers of the lines with events, and the rejects."""
    dataset = datasets.load_dataset(name, home.root).model_copy(update={"max_reject_share": 1.0})
    ingest(home, dataset, [path], "run")
    lines = {number for (number,) in query_rows(home, "select line_number from raw.events")}
    return lines, query_rows(home, "select line_number, line, reason from raw.rejects order by all")


@pytest.mark.parametrize("name, line, reason", BAD)
def test_a_bad_line_is_kept_and_its_neighbours_are_read(home, tmp_path, name, line, reason):
    """Records are counted, with the header; a line of too few or many fields is none: it has its number in the file."""
    good = GOOD[name]
    (path := tmp_path / "log.txt").write_text(f"{good}\n{line}\n{good.splitlines()[-1]}\n")
    at = good.count("\n")
    lines, [reject] = ingest_file(home, path, name)
    if "fields instead" in reason or name == "citeulike-a":  # every line of which is counted
        assert reject[:2] == (at + 2, line[:1000]) and reason == reject[2]
        assert lines == ({at, at + 3} if name == "citeulike-a" else {at, at + 1})
    else:
        assert reject[:2] == (at + 1, line) and reason in reject[2] and lines == {at, at + 2}


def test_an_open_quote_rejects_the_lines_that_it_swallows(home, tmp_path):
    (path := tmp_path / "log.csv").write_text('user_id,item_id,rating\na,x,5\n"b,x,5\nc,x,5\n')
    lines, rejects = ingest_file(home, path, "ml-1m")
    assert lines == {2} and rejects == [(3, '"b,x,5', "quotes do not pair"), (4, "c,x,5", "quotes do not pair")]


@pytest.mark.parametrize("name", GOOD)
def test_bytes_that_are_not_utf8(home, tmp_path, name):
    good = GOOD[name].encode()
    last = good.splitlines()[-1] + b"\n"
    (path := tmp_path / "log.txt").write_bytes(good + last[:1] + b"\xff" + last[1:] + last)
    at = good.count(b"\n") + 1
    lines, [*_, (number, line, reason)] = ingest_file(home, path, name)
    assert number == at and line.startswith(f"{last[:1].decode()}\ufffd") and lines == {at - 1, at + 1}
    assert reason == "does not begin with a count" or "not UTF-8" in reason


def test_ratings_without_a_header_belong_to_no_film(home, tmp_path):
    (path := tmp_path / "combined_data_2.txt").write_text(
        "1,4,2004-01-01\n2,4,2004-01-01\n9:\n3,4,2004-01-01\nnine:\n4,4,2004-01-01\n8:\n5,4,2004-01-01"
    )
    lines, rejects = ingest_file(home, path, "netflix")
    assert lines == {4, 8} and [number for number, _, _ in rejects] == [1, 2, 5, 6]
