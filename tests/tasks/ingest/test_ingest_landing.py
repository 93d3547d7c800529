"""The landing folder: quarantined files, ingested files, and files that are never read."""

import gzip
from pathlib import Path

import pytest

from oneclass.data_contracts import ContractBroken
from oneclass.tasks import datasets
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import landing, sources, stage
from oneclass.tasks.ingest.landing import FileRefused, IngestSettings
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.report.warnings import collect_warnings
from oneclass.tasks.run_summary import describe_success
from oneclass.tasks.stores import runs, warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.tasks.ingest.conftest import count_events, list_set_aside
from tests.tasks.ingest.test_ingest_stage import write_csv

pytestmark = pytest.mark.slow

MOVE = IngestSettings(keep_files="move")
USERS = "select user_id from raw.events order by 1"
UNREADABLE = gzip.compress(b"user_id,item_id,rating\na,x,5\n")[:-9]
BAD = {
    "unreadable": (UNREADABLE, "Compressed file ended before the end"),
    "other columns": (b"a,b\n1,2\n", "Which column is the user and which the item?"),
    "broken lines": (b"user_id,item_id,rating\na,x,5\nbroken\n", "line 3: 1 fields instead of 3. In all 1 of 2"),
    "other bytes": (b"user_id,item_id,rating\n" + b"M\xfcller,K\xe4se,5\n" * 9, 'encoding = "windows-125'),
    "out of range": (b"user_id,item_id,rating\na,x,5\na,y,-7\n", "line 3: value is below value_min = 1"),
}


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return datasets.load_dataset("ml-1m", tmp_path)


def list_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def run_night(home: Home, dataset: Dataset, run_id: str) -> str:
    """Run a night that ingests the landing folder alone, and return its state."""
    with runs.record_run(home, run_id, "nightly-retrain", {}):
        ingest(home, dataset, [], run_id)
    return describe_success(home, run_id, report="").state


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_set_aside_and_the_others_go_in(home, dataset, caplog, name):
    content, why = BAD[name]
    write_csv(home.landing / "ratings-1.csv", *[f"u{n},x,5" for n in range(9)])
    (bad := home.landing / "may" / "ratings-2.csv").parent.mkdir()
    bad.write_bytes(content)
    ingest(home, dataset, [], "run-1")
    assert (list_set_aside(home, "run-1"), count_events(home)) == ([str(bad)], 9)
    aside = home.landing / "quarantine" / "may" / "ratings-2.csv"
    note = aside.with_name("ratings-2.csv.why.txt").read_text()
    assert aside.read_bytes() == content and not bad.exists()
    assert why in note and str(bad) in note and "put it back" in note and f"{bad}: set aside" in caplog.text
    if "lines" in name or "range" in name:
        assert "max_reject_share = 0.01" in note
    assert query_rows(home, "select name, outcome from operations.arrivals order by all") == [
        ("may/ratings-2.csv", "set aside"), ("ratings-1.csv", "new")
    ]  # fmt: skip
    write_csv(bad, "b,x,5")
    assert [one.outcome for one in ingest(home, dataset, [], "run-2")] == ["new", "skipped"]


def test_files_that_fail_while_they_are_loaded_are_set_aside_one_by_one(home, dataset, monkeypatch):
    for number in range(5):
        write_csv(home.landing / f"ratings-{number}.csv", f"u{number},x,5")
    load = stage.load_logs

    def fail_on_odd(connection, files, *more):
        load(connection, files, *more)
        for _, log in files:
            with landing.refuse_unreadable(log.location):
                assert int(log.location.stem[-1]) % 2 == 0, "an odd number"

    monkeypatch.setattr(stage, "load_logs", fail_on_odd)
    ingest(home, dataset, [], "run-1")
    assert [Path(path).name for path in list_set_aside(home, "run-1")] == ["ratings-1.csv", "ratings-3.csv"]
    assert query_rows(home, USERS) == [("u0",), ("u2",), ("u4",)]
    assert "AssertionError: an odd number" in (home.landing / "quarantine" / "ratings-3.csv.why.txt").read_text()
    with pytest.raises(FileRefused, match="ratings-1.csv: cannot be read"):
        ingest(home, dataset, [write_csv(home.root / "ratings-1.csv", "b,x,5")], "run-2")


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_file_is_not_refused_for_what_is_not_its_fault(tmp_path, error):
    with pytest.raises(type(error)), landing.refuse_unreadable(tmp_path):
        raise error


def test_every_night_tells_of_files_that_are_not_read_until_they_are_gone(home, dataset):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    assert run_night(home, dataset, "run-0") != "files unread"
    write_csv(home.landing / "orders-2.csv", "b,x,5")
    (home.landing / "ratings-2.csv").write_bytes(UNREADABLE)
    for run_id in ("run-1", "run-2"):
        assert run_night(home, dataset, run_id) == "files unread"
        with warehouse.open_warehouse(home, read_only=True) as connection:
            unread = warehouse.select(connection, "report/unread_files", run_id=run_id).to_dicts()
        warning, _ = collect_warnings({"events": 1, "rejects": 0}, {}, unread=unread)
        assert warning.severe and "Not read: orders-2.csv: its name matches none of the patterns" in warning.text
        text = describe_success(home, run_id, report="").text
        assert "Not read: orders-2.csv: its name matches" in text and "Not read: ratings-2.csv: " in text
    for path in [home.landing / "orders-2.csv", *(home.landing / "quarantine").iterdir()]:
        path.unlink()
    assert run_night(home, dataset, "run-3") != "files unread"


def test_a_changed_file_that_is_bad_leaves_what_was_read_before(home, dataset):
    good, bad = (write_csv(home.landing / name, f"{name},x,5") for name in ("ratings.csv", "ratings-2.csv"))
    run_night(home, dataset, "run-1")
    write_csv(good, "a,x,5", "b,x,5", "b,y,5")
    write_csv(bad, "broken", "b,x,5")
    run_night(home, dataset, "run-2")
    assert query_rows(home, f"select distinct {USERS[7:]}") == [("a",), ("b",), ("ratings-2.csv",)]
    texts = [describe_success(home, run_id, report="").text for run_id in ("run-1", "run-2")]
    assert "of them changed" not in texts[0] and "2 new files, 1 of them changed with 4 events" in texts[1]
    assert "Not read: ratings-2.csv: " in texts[1] and "line 2: 1 fields" in texts[1]


def test_where_no_file_is_left_and_nothing_is_there_the_run_stops(home, dataset):
    (home.landing / "deep").mkdir(parents=True)
    (home.landing / "deep" / "ratings.csv").write_bytes(UNREADABLE)
    with pytest.raises(InputError, match="ended before the end"):
        ingest(home, dataset, [], "run-1")
    assert list_files(home.landing) == {"quarantine/deep/ratings.csv", "quarantine/deep/ratings.csv.why.txt"}
    with pytest.raises(InputError, match="holds no raw files"):
        ingest(home, dataset, [], "run-2")


@pytest.mark.parametrize("content", [UNREADABLE, BAD["broken lines"][0]])
@pytest.mark.parametrize("replace", [False, True])
def test_a_file_that_is_named_is_never_moved(home, dataset, content, replace):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    (bad := home.landing / "ratings-2.csv").write_bytes(content)
    with pytest.raises((InputError, ContractBroken)):
        ingest(home, dataset, [] if replace else [home.landing], "run", MOVE, replace=replace)
    assert list_files(home.landing) == {"ratings-1.csv", "ratings-2.csv"} and bad.read_bytes() == content


def test_files_of_other_programs_and_those_put_away_are_no_input(home, dataset):
    names = "quarantine/ratings.csv", "done/ratings.csv", "_delta_log/ratings.csv", "_SUCCESS", "may/.ratings.csv"
    for name in names:
        write_csv(home.landing / name, "b,x,5")
    with pytest.raises(InputError, match="holds no raw files"):
        ingest(home, dataset, [], "run-1")
    (home.landing / "quarantine" / "ratings.csv").unlink()
    write_csv(home.landing / "ratings.csv", "a,x,5")
    assert run_night(home, dataset, "run-2") != "files unread"
    ingest(home, dataset, [home.landing], "run-3")
    assert query_rows(home, USERS) == [("a",)]


def test_a_file_that_is_being_written_is_left_for_the_next_run(home, dataset, caplog, monkeypatch):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    growing, look = write_csv(home.landing / "ratings-2.csv", "b,x,5"), sources._scan_file

    def meanwhile(path, *more):
        logs = look(path, *more)
        if path == growing:
            write_csv(growing, "b,x,5", "b,y,5")
        return logs

    monkeypatch.setattr(sources, "_scan_file", meanwhile)
    ingest(home, dataset, [], "run-1")
    assert list_set_aside(home, "run-1") == []
    assert query_rows(home, USERS) == [("a",)] and growing.exists() and "left for the next run" in caplog.text
    monkeypatch.undo()
    ingest(home, dataset, [], "run-2")
    assert count_events(home) == 3


@pytest.mark.parametrize("settings", [IngestSettings(), MOVE])
def test_ingested_files_stay_or_are_moved_also_after_a_run_that_died_before(home, dataset, settings):
    for name in ("ratings-1.csv", "may/ratings-2.csv"):
        write_csv(home.landing / name, f"{name},x,5")
    write_csv(home.landing / "notes.csv", "not a log of this data set")
    ingest(home, dataset, [], "run-1")
    folder = "done/" if settings == MOVE else ""
    for run_id in ("run-2", "run-3"):
        ingest(home, dataset, [], run_id, settings)
        assert count_events(home) == 2
        assert list_files(home.landing) == {f"{folder}ratings-1.csv", f"{folder}may/ratings-2.csv", "notes.csv"}


def test_a_file_that_was_written_anew_since_it_was_read_is_not_moved(home, dataset, monkeypatch):
    path, set_aside = write_csv(home.landing / "ratings.csv", "a,x,5"), landing.quarantine_files

    def meanwhile(*arguments):  # after the commit, before files are put away
        set_aside(*arguments)
        write_csv(path, "a,x,5", "b,x,5")

    monkeypatch.setattr(landing, "quarantine_files", meanwhile)
    ingest(home, dataset, [], "run-1", MOVE)
    monkeypatch.undo()
    assert query_rows(home, USERS) == [("a",)] and path.exists()
    ingest(home, dataset, [], "run-2", MOVE)
    assert count_events(home) == 2 and list_files(home.landing) == {"done/ratings.csv"}


def test_a_moved_file_that_comes_back_changed_replaces_its_events(home, dataset):
    for content in ("a,x,5", "b,x,5"):
        write_csv(home.landing / "ratings.csv", content)
        ingest(home, dataset, [], content, MOVE)
    assert query_rows(home, USERS) == [("b",)]
    moved = list_files(home.landing)
    assert len(moved) == 2 and "done/ratings.csv" in moved and {Path(name).name for name in moved} == {"ratings.csv"}
    # Read by hand, they have the names that they had.
    ingest(home, dataset, [home.landing / "done" / "ratings.csv"], "by hand")
    assert query_rows(home, USERS) == [("a",)]


def test_a_breach_moves_nothing(home, dataset):
    write_csv(home.landing / "ratings.csv", "a,x,5")
    ingest(home, dataset, [], "run-1")
    write_csv(home.landing / "ratings-2.csv", "b,x,5")
    with pytest.raises(ContractBroken, match="value_in_range"):  # of what was read in before the bounds were narrowed
        ingest(home, dataset.model_copy(update={"value_max": 4}), [], "run-2", MOVE)
    assert "ratings.csv" in list_files(home.landing)
