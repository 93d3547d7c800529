"""The landing folder: quarantined files, ingested files, and files that are never read."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from oneclass.data_contracts import ContractBroken
from oneclass.tasks import datasets
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import landing, sources
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.report.warnings import collect_warnings
from oneclass.tasks.run_summary import describe_success
from oneclass.tasks.stores import runs, warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.tasks.ingest.test_ingest_formats import pack_members
from tests.tasks.ingest.test_ingest_stage import write_csv

pytestmark = pytest.mark.slow

MOVE, REMOVE = IngestSettings(keep_files="move"), IngestSettings(keep_files="remove")
USERS = "select user_id from raw.events order by 1"


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return datasets.load_dataset("ml-1m", tmp_path)


def list_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def find_state(home: Home, run_id: str) -> str:
    """The state of a run by what it left unread."""
    with warehouse.open_warehouse(home) as connection:
        begun = connection.execute("from operations.runs where run_id = ?", [run_id]).fetchone()
        values = "(?, 'nightly-retrain', 'small', now(), null, 'running', '{}', '0')"
        if not begun:
            connection.execute(f"insert into operations.runs values {values}", [run_id])
    return describe_success(home, run_id, report="").state


UNREADABLE = b"user_id,item_id,rating\na,x,5\0\n"
BAD = {
    "unreadable": (UNREADABLE, "is NUL"),
    "other columns": (b"a,b\n1,2\n", "line 1: has the columns a, b"),
    "broken lines": (b"user_id,item_id,rating\na,x,5\nbroken\n", "line 3: 1 fields instead of 3. In all 1 of 2"),
    "out of range": (b"user_id,item_id,rating\na,x,5\na,y,-7\n", "line 3: value is below value_min = 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_set_aside_and_the_others_go_in(home, dataset, caplog, name):
    content, why = BAD[name]
    write_csv(home.landing / "ratings-1.csv", *[f"u{n},x,5" for n in range(9)])
    (bad := home.landing / "may" / "ratings-2.csv").parent.mkdir()
    bad.write_bytes(content)
    result = ingest(home, dataset, [], "run-1")
    assert (result.set_aside, result.total_events) == ((str(bad),), 9)
    aside = home.landing / "quarantine" / "may" / "ratings-2.csv"
    note = aside.with_name("ratings-2.csv.why.txt").read_text()
    assert aside.read_bytes() == content and not bad.exists()
    assert why in note and str(bad) in note and "put it back" in note
    if "lines" in name or "range" in name:
        assert "max_reject_share = 0.01" in note
    assert f"{bad}: set aside" in caplog.text
    assert query_rows(home, "select name, outcome from operations.arrivals order by all") == [
        ("may/ratings-2.csv", "set aside"), ("ratings-1.csv", "new")
    ]  # fmt: skip


def test_orders_of_the_future_are_set_aside_unless_the_data_set_allows_them(home, dataset):
    then = datetime.now(UTC) + timedelta(days=300)
    orders = [f"u{number % 3},{number},5,{int(then.timestamp())}" for number in range(300)]
    home.landing.mkdir(parents=True)
    for number, lines in enumerate((["a,x,5,978300760"], orders), 1):
        (home.landing / f"ratings-{number}.csv").write_text("\n".join(["user_id,item_id,rating,timestamp", *lines, ""]))
    result = ingest(home, dataset, [], "run-1")
    assert result.total_events == 1
    note = (home.landing / "quarantine" / "ratings-2.csv.why.txt").read_text()
    assert "line 2: time is later than the clock" in note and "max_future_days = 1 of the data set's file" in note
    (home.landing / "quarantine" / "ratings-2.csv").rename(home.landing / "ratings-2.csv")
    allowed = dataset.model_copy(update={"max_future_days": 300})
    assert ingest(home, allowed, [], "run-2").total_events == 301
    assert ingest(home, dataset, [result.new[0]], "run-3", replace=True).total_events == 1


def test_a_night_in_which_no_name_matches_warns_and_says_so_in_summary_and_report(home, dataset, caplog):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    ingest(home, dataset, [], "run-1", IngestSettings(keep_files="move"))
    write_csv(home.landing / "orders-2.csv", "b,x,5")
    with runs.record_run(home, "run-2", "nightly-retrain", {}):
        assert ingest(home, dataset, [], "run-2").new == ()
    assert "not read: orders-2.csv: its name matches none of the patterns" in caplog.text
    text = describe_success(home, "run-2", report="").text
    assert "Not read: orders-2.csv: its name matches none of the patterns" in text
    with warehouse.open_warehouse(home, read_only=True) as connection:
        [unread] = warehouse.select(connection, "report/unread_files", run_id="run-2").to_dicts()
    assert "files unread" == find_state(home, "run-2") and "files unread" != find_state(home, "run-1")
    overview = {"events": 1, "rejects": 0}
    [warning] = collect_warnings(overview, {}, unread=[unread])
    assert warning.severe and warning.text.startswith("Not read: orders-2.csv: its name matches none of the patterns")
    write_csv(home.landing / "ratings-3.csv", "b,x,5")
    assert len(ingest(home, dataset, [], "run-3").new) == 1 and "files unread" == find_state(home, "run-3")
    (home.landing / "orders-2.csv").unlink()
    ingest(home, dataset, [], "run-4")
    assert "files unread" != find_state(home, "run-4")


def test_a_file_in_quarantine_is_told_of_every_night_until_it_is_gone(home, dataset):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    (home.landing / "ratings-2.csv").write_bytes(UNREADABLE)
    for run_id in ("run-1", "run-2", "run-3"):
        ingest(home, dataset, [], run_id)
        (told,) = query_rows(home, f"select name, outcome from operations.arrivals where run_id = '{run_id}' offset "
                             f"{1 if run_id == 'run-1' else 0}")  # fmt: skip
        assert told == ("ratings-2.csv", "set aside")
    for path in (home.landing / "quarantine").iterdir():
        path.unlink()
    ingest(home, dataset, [], "run-4")
    assert "files unread" != find_state(home, "run-4")


def test_a_file_that_was_set_aside_can_be_put_back(home, dataset):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    (bad := home.landing / "ratings-2.csv").write_bytes(UNREADABLE)
    assert ingest(home, dataset, [], "run-1").set_aside == (str(bad),)
    assert ingest(home, dataset, [], "run-2").set_aside == ()
    write_csv(bad, "b,x,5")
    assert ingest(home, dataset, [], "run-3").new == (str(bad),)


def test_a_changed_file_that_is_bad_leaves_what_was_read_before(home, dataset):
    path = write_csv(home.landing / "ratings.csv", "a,x,5")
    ingest(home, dataset, [], "run-1")
    write_csv(path, "broken", "b,x,5")
    result = ingest(home, dataset, [], "run-2")
    assert (result.set_aside, result.changed, result.events_before) == ((str(path),), (), 0)
    assert query_rows(home, USERS) == [("a",)]


def test_where_no_file_is_left_and_nothing_is_there_the_run_stops(home, dataset):
    (home.landing / "deep").mkdir(parents=True)
    (home.landing / "deep" / "ratings.csv").write_bytes(UNREADABLE)
    with pytest.raises(InputError, match="none of its files can be read.*is NUL"):
        ingest(home, dataset, [], "run-1")
    assert list_files(home.landing) == {"quarantine/deep/ratings.csv", "quarantine/deep/ratings.csv.why.txt"}
    with pytest.raises(InputError, match="holds no raw files"):
        ingest(home, dataset, [], "run-2")


def test_two_files_of_one_name_are_both_kept_aside(home, dataset):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    for content in (UNREADABLE, UNREADABLE, UNREADABLE + b"2"):
        (home.landing / "ratings.csv").write_bytes(content)
        ingest(home, dataset, [], "run")
    aside = {name for name in list_files(home.landing / "quarantine") if not name.endswith(".why.txt")}
    assert aside == {"ratings.csv", "ratings.csv.2"}


def test_an_archive_is_set_aside_as_a_whole(home, tmp_path):
    dataset, good = datasets.load_dataset("netflix", tmp_path), b"1:\n10,4,2004-01-01\n"
    (home.landing).mkdir(parents=True)
    (home.landing / "mv_3.txt").write_bytes(good.replace(b"1:", b"3:"))
    archive = home.landing / "training_set.tar"
    archive.write_bytes(pack_members({"mv_1.txt": good, "mv_2.txt": b"2:\n10,4\n"}))
    assert ingest(home, dataset, [], "run").set_aside == (str(archive),)
    assert query_rows(home, "select item_id from raw.events") == [("3",)]


@pytest.mark.parametrize("content", [UNREADABLE, BAD["broken lines"][0]])
@pytest.mark.parametrize("replace", [False, True])
def test_a_file_that_is_named_is_never_moved(home, dataset, content, replace):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    (bad := home.landing / "ratings-2.csv").write_bytes(content)
    with pytest.raises((InputError, ContractBroken)):
        ingest(home, dataset, [] if replace else [home.landing], "run", MOVE, replace=replace)
    assert list_files(home.landing) == {"ratings-1.csv", "ratings-2.csv"} and bad.read_bytes() == content


def test_what_is_set_aside_or_done_is_no_input(home, dataset):
    for folder in ("quarantine", "done"):
        write_csv(home.landing / folder / "ratings.csv", "b,x,5")
    with pytest.raises(InputError, match="holds no raw files"):
        ingest(home, dataset, [], "run-1")
    write_csv(home.landing / "ratings.csv", "a,x,5")
    ingest(home, dataset, [], "run-2")
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
    assert ingest(home, dataset, [], "run-1").set_aside == ()
    assert query_rows(home, USERS) == [("a",)] and growing.exists() and "left for the next run" in caplog.text
    monkeypatch.undo()
    assert ingest(home, dataset, [], "run-2").total_events == 3


@pytest.mark.parametrize("settings", [IngestSettings(), MOVE, REMOVE])
def test_what_becomes_of_files_that_were_read_in(home, dataset, settings):
    for name in ("ratings-1.csv", "may/ratings-2.csv"):
        write_csv(home.landing / name, f"{name},x,5")
    write_csv(home.landing / "notes.csv", "not a log of this data set")
    ingest(home, dataset, [], "run-1", settings)
    read = {"ratings-1.csv", "may/ratings-2.csv"}
    left = {"keep": read, "move": {f"done/{name}" for name in read}, "remove": set()}[settings.keep_files]
    assert list_files(home.landing) == left | {"notes.csv"}
    assert ingest(home, dataset, [], "run-2", settings).total_events == 2
    assert list_files(home.landing) == left | {"notes.csv"}


@pytest.mark.parametrize("settings", [MOVE, REMOVE])
def test_a_file_that_was_written_anew_since_it_was_read_stays(home, dataset, monkeypatch, settings):
    path, set_aside = write_csv(home.landing / "ratings.csv", "a,x,5"), landing.quarantine_files

    def meanwhile(*arguments):  # after the commit, before files are put away
        set_aside(*arguments)
        write_csv(path, "a,x,5", "b,x,5")

    monkeypatch.setattr(landing, "quarantine_files", meanwhile)
    ingest(home, dataset, [], "run-1", settings)
    monkeypatch.undo()
    assert query_rows(home, USERS) == [("a",)] and path.exists()
    assert ingest(home, dataset, [], "run-2", settings).total_events == 2


def test_a_moved_file_that_comes_back_changed_replaces_its_events(home, dataset):
    for content in ("a,x,5", "b,x,5"):
        write_csv(home.landing / "ratings.csv", content)
        ingest(home, dataset, [], content, MOVE)
    assert query_rows(home, USERS) == [("b",)]
    assert list_files(home.landing) == {"done/ratings.csv", "done/ratings.csv.2"}


def test_a_run_that_died_before_it_moved_its_files_is_made_up_for(home, dataset):
    write_csv(home.landing / "ratings.csv", "a,x,5")
    ingest(home, dataset, [], "run-1")
    result = ingest(home, dataset, [], "run-2", MOVE)
    assert result.skipped and list_files(home.landing) == {"done/ratings.csv"}


def test_a_breach_moves_nothing(home, dataset, monkeypatch):
    write_csv(home.landing / "ratings.csv", "a,x,5")
    ingest(home, dataset, [], "run-1")
    write_csv(home.landing / "ratings-2.csv", "b,x,5")
    with pytest.raises(ContractBroken, match="value_in_range"):  # of what was read in before the bounds were narrowed
        ingest(home, dataset.model_copy(update={"value_max": 4}), [], "run-2", MOVE)
    assert "ratings.csv" in list_files(home.landing)


def test_returns_below_no_bound_are_events_that_are_no_likes(home, dataset, tmp_path, caplog):
    shop = Dataset(name="shop", title="Orders", columns={"value": ["quantity"]})
    (home.landing).mkdir(parents=True)
    (home.landing / "orders.csv").write_text("user,item,quantity\na,x,1\na,x,-1\nb,y,2\n")
    with caplog.at_level(logging.WARNING):
        assert ingest(home, shop, [], "run").total_events == 3
    assert not caplog.records


def test_the_notification_tells_what_changed_and_what_was_set_aside(home, dataset):
    path = write_csv(home.landing / "ratings.csv", "a,x,5", "a,y,5")
    with runs.record_run(home, "night-1", "nightly-retrain", {}):
        ingest(home, dataset, [], "night-1")
    write_csv(path, "a,x,5", "b,x,5", "b,y,5")
    write_csv(home.landing / "ratings-bad.csv", "broken")
    with runs.record_run(home, "night-2", "nightly-retrain", {}):
        ingest(home, dataset, [], "night-2")
    texts = [describe_success(home, run_id, report="").text for run_id in ("night-1", "night-2")]
    assert "changed" not in texts[0] and "Not read" not in texts[0]
    assert "1 new file, 1 of them changed with 3 events" in texts[1]
    assert "Not read: ratings-bad.csv: " in texts[1] and "line 2: 1 fields" in texts[1]
