"""The landing folder: files set aside, ingested files, files never read, and names that no folder should have."""

import gzip
import os
from pathlib import Path

import polars as pl
import pytest

from oneclass.data_contracts import ContractBroken
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.ingest import landing, layouts, load
from oneclass.tasks.ingest.landing import IngestSettings
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.run_summary import describe_success
from oneclass.tasks.stores import runs
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.tasks.ingest.conftest import count_events, list_set_aside, write_csv, write_file

MOVE = IngestSettings(keep_files="move")
USERS = "select user_id from raw.events order by 1"
UNREADABLE = gzip.compress(b"user_id,item_id,rating\na,x,5\n")[:-9]
BROKEN = b"user_id,item_id,rating\na,x,5\nbroken\n"


def list_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def run_night(home: Home, dataset: Dataset, run_id: str) -> str:
    """Run a night that ingests the landing folder alone, and return its state."""
    with runs.record_run(home, run_id, "nightly-retrain", {}):
        ingest(home, dataset, [], run_id)
    return describe_success(home, run_id, report="").state


def write_damaged_parquet(path: Path) -> bytes:
    """Write Parquet whose first rows can be read, but not the others."""
    users = [f"u{n}" for n in range(99_999)]
    pl.DataFrame({"user": users, "sku": "x", "event": "view"}).write_parquet(path, row_group_size=9_999)
    content = path.read_bytes()
    return content[: len(content) // 2] + b"\xff" * 9_999 + content[len(content) // 2 + 9_999 :]


def test_whatever_a_file_of_a_night_does_the_others_are_read(home, tmp_path, caplog):
    header, damaged = "user,sku,event\n", write_damaged_parquet(tmp_path / "whole.parquet")
    bad = {
        "may/cut.csv": (gzip.compress(header.encode())[:-9], "Compressed file ended before the end"),
        "names.csv": ("a,b\n1,2\n", "Which column is the user and which the item?"),
        "kindless.csv": ("user,sku\nb,y\n", "Which column is the kind of event?"),
        "lines.csv": (f"{header}a,x,view\nbroken\n", "line 3: 1 fields instead of 3. In all 1 of 2"),
        "range.csv": ("user,sku,event,value\na,x,view,5\na,y,view,-7\n", "line 3: value is below value_min = 1"),
        "bytes.csv": (header.encode() + b"M\xfcller,K\xe4se,view\n" * 9, 'encoding = "windows-125'),
        "order.csv": (f"{header}b,y,view\nsku,user,event\ny,b,view\n", "line 3: is another header"),
        "deep.json": (f'{{"user": {"[" * 200_000}{"]" * 200_000}, "sku": "x"}}\n', "RecursionError"),
        "u.data": ("1\t2\t3\t881250949\n" * 3, "without a header"),
        "date=2025-03-01/part.csv": (f"{header}b,y,view\n", "which only a query reads"),
        "out/part-1.csv": ("", "is empty"),
        "empty.parquet": (b"PAR1", "is not a complete Parquet file"),
        "one.parquet": (damaged, "cannot be read"),
        "two.parquet": (damaged.replace(b"\xff" * 9, b"\xfe" * 9), "cannot be read"),
    }
    good = {"a.csv": f"{header}a,x,view\n", "out/part-0.csv": header, "_SUCCESS": "", "_log/0": "{"}
    for name, content in ({name: content for name, (content, _) in bad.items()} | good).items():
        write_file(home.landing / name, content)
    own = Dataset.model_validate({"name": "own", "events": {"view": 1}, "value_min": 1})
    ingest(home, own, [], "run-1")
    assert query_rows(home, "select user_id, item_id from raw.events") == [("a", "x")]
    assert list_set_aside(home, "run-1") == sorted(str(home.landing / name) for name in bad)
    for name, (content, why) in bad.items():
        aside = home.landing / "quarantine" / name
        note = aside.with_name(f"{aside.name}.why.txt").read_text()
        assert aside.read_bytes() == (content.encode() if isinstance(content, str) else content)
        assert why in note and str(home.landing / name) in note.split("Why: ")[1] and "put it back" in note
        assert f"{home.landing / name}: set aside" in caplog.text
    assert all((home.landing / name).exists() for name in good)
    write_file(home.landing / "lines.csv", f"{header}b,x,view\n")
    assert "new" in [one.outcome for one in ingest(home, own, [], "run-2")] and count_events(home) == 2


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_file_is_not_refused_for_what_is_not_its_fault(tmp_path, error):
    with pytest.raises(type(error)), landing.refuse_unreadable(tmp_path):
        raise error


@pytest.mark.slow
def test_every_night_tells_of_files_that_are_not_read_until_they_are_gone(home, dataset):
    for name in ("ratings-1.csv", "ratings-2.csv"):
        write_csv(home.landing / name, f"{name},x,5")
    assert run_night(home, dataset, "run-0") != "files unread"
    write_csv(home.landing / "orders-2.csv", "b,x,5")
    write_csv(home.landing / "ratings-1.csv", "a,x,5", "b,x,5", "b,y,5")
    write_csv(home.landing / "ratings-2.csv", "broken", "b,x,5")
    for run_id in ("run-1", "run-2"):
        assert run_night(home, dataset, run_id) == "files unread"
        text = describe_success(home, run_id, report="").text
        assert "2 new files, 1 of them changed with 4 events" in text
        assert "Not read: orders-2.csv: its name matches none of the patterns" in text
        assert "Not read: ratings-2.csv: " in text
        assert query_rows(home, USERS) == [("a",), ("b",), ("b",), ("ratings-2.csv",)]
    for path in [home.landing / "orders-2.csv", *(home.landing / "quarantine").iterdir()]:
        path.unlink()
    assert run_night(home, dataset, "run-3") != "files unread"


def test_where_no_file_is_left_and_nothing_is_there_the_run_stops(home, dataset):
    write_file(home.landing / "deep" / "ratings.csv", UNREADABLE)
    with pytest.raises(InputError, match="ended before the end"):
        ingest(home, dataset, [], "run-1")
    assert list_files(home.landing) == {"quarantine/deep/ratings.csv", "quarantine/deep/ratings.csv.why.txt"}
    with pytest.raises(InputError, match="holds no raw files"):
        ingest(home, dataset, [], "run-2")


@pytest.mark.parametrize("content", [UNREADABLE, BROKEN])
@pytest.mark.parametrize("replace", [False, True])
def test_a_file_that_is_named_is_never_moved(home, dataset, content, replace):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    bad = write_file(home.landing / "ratings-2.csv", content)
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
    growing, detect = write_csv(home.landing / "ratings-2.csv", "b,x,5"), layouts.detect_text

    def meanwhile(path, *more):
        if path == str(growing):
            write_csv(growing, "b,x,5", "b,y,5")
        return detect(path, *more)

    monkeypatch.setattr(layouts, "detect_text", meanwhile)
    ingest(home, dataset, [], "run-1")
    assert list_set_aside(home, "run-1") == []
    assert query_rows(home, USERS) == [("a",)] and growing.exists() and "left for the next run" in caplog.text
    monkeypatch.undo()
    ingest(home, dataset, [], "run-2")
    assert count_events(home) == 3


@pytest.mark.parametrize("change", [Path.unlink, lambda path: write_csv(path, "b,x,5")])
def test_a_log_that_changes_while_duckdb_reads_is_refused(change, home, dataset, tmp_path, monkeypatch):
    path, load_log = write_csv(tmp_path / "log.csv", "a,x,5"), load._load_log
    monkeypatch.setattr(load, "_load_log", lambda *given: (load_log(*given), change(path)))
    with pytest.raises(OneclassError, match=r"log.csv: was changed or taken away while it was read. Run again"):
        ingest(home, dataset, [path], "run")
    assert query_rows(home, "from raw.events") == []


@pytest.mark.parametrize("settings", [IngestSettings(), MOVE])
def test_ingested_files_stay_or_are_moved_also_after_a_run_that_died_before(home, dataset, settings):
    for name in ("ratings-1.csv", "may/ratings-2.csv"):
        write_csv(home.landing / name, f"{name},x,5")
    write_csv(home.landing / "notes.csv", "not a log of this data set")
    before = list_files(home.landing)
    ingest(home, dataset, [], "run-1")
    with pytest.raises(ContractBroken, match="value_in_range"):  # of what was read in before the bounds were narrowed
        ingest(home, dataset.model_copy(update={"value_max": 4}), [], "broken", settings)
    assert list_files(home.landing) == before
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


NOT_UTF8 = [b"ratings-\xe9.csv", b"ratings-\xff\n.csv", b"ratings" + b"\xe9" * 244 + b".csv", b"d\xe9p/ratings-1.csv"]
UNUSUAL = [b"ratings\nlines.csv", b"ratings-\x1b[2J\r.csv", "ratings-\u2028.csv".encode(), b"ratings[1].csv",
           b"d" * 250 + b"/ratings-1.csv", *(b"ratings" + b"x" * size + b".csv" for size in (229, 237, 244)),
           b"ratings" + "é".encode() * 122 + b".csv"]  # fmt: skip


def put_files(folder: Path, names: list[bytes], content: str) -> list[Path]:
    """Write files with these names, each with the same beginning and other last lines."""
    return [
        write_file(Path(os.fsdecode(bytes(folder) + b"/" + name)), f"{content}b,y{at}\n")
        for at, name in enumerate(names)
    ]


def test_files_are_read_or_set_aside_with_a_note_whatever_their_names(home, dataset, caplog):
    good = put_files(home.landing, UNUSUAL, "user_id,item_id\na,x\n")
    nameless = put_files(home.landing, NOT_UTF8, "user_id,item_id\na,x\n")
    bad = nameless + put_files(home.landing, [b"bad/" + name for name in UNUSUAL], "user_id,item_id\na\n")
    contents = sorted(path.read_bytes() for path in bad)
    with pytest.raises(InputError, match=r"ratings-\\udce9.csv: its name is not UTF-8 text. Rename it."):
        ingest(home, dataset, nameless[:1], "by hand")
    ingest(home, dataset, [], "run", MOVE)
    aside = list_set_aside(home, "run")
    assert (count_events(home), len(aside)) == (2 * len(good), len(bad)) and not any(map(Path.exists, good + bad))
    notes = list((home.landing / "quarantine").rglob("*.why.txt"))
    assert sorted(note.with_name(note.name.removesuffix(".why.txt")).read_bytes() for note in notes) == contents
    texts = [note.read_text() for note in notes]
    assert sum("its name is not UTF-8 text. Rename it." in text for text in texts) == len(nameless)
    warnings = [record.getMessage() for record in caplog.records if "set aside" in record.getMessage()]
    assert all(sum(str(note) in warning for warning in warnings) == 1 for note in notes)
    shown = [*warnings, *map(str, notes), *aside, *(line for text in texts for line in text.split("\n"))]
    assert all(map(str.isprintable, shown))


def test_files_of_one_name_all_stay_in_the_quarantine(home, dataset):
    write_csv(home.landing / "ratings-0.csv", "a,x,5")
    written = [BROKEN + b"%d\n" % night for night in range(3)]
    for night, content in enumerate(written):
        write_file(home.landing / "ratings.csv", content)
        ingest(home, dataset, [], f"run-{night}")
    kept = [path.read_bytes() for path in (home.landing / "quarantine").rglob("*") if path.is_file()]
    assert len(kept) == 2 * len(written) and sorted(one for one in kept if one.startswith(BROKEN)) == written


def test_a_file_that_cannot_be_moved_stays_and_holds_up_no_other(home, dataset, caplog):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    write_file(home.landing / "quarantine", "no folder")
    bad = write_file(home.landing / "ratings-2.csv", BROKEN)
    ingest(home, dataset, [], "run")
    assert count_events(home) == 1 and bad.exists() and "cannot be set aside" in caplog.text


def test_a_folder_a_pattern_and_files_by_name_are_the_same_and_one_named_twice_is_read_once(home, dataset, tmp_path):
    (folder := tmp_path / "logs").mkdir()
    paths = put_files(folder, [b"ratings1.csv", b"ratings2.csv", b"ratings[1].csv"], "user_id,item_id\na,x\n")
    write_file(folder / "notes.md", "no log")
    assert [one.outcome for one in ingest(home, dataset, [paths[2], paths[2]], "run")] == ["new", "skipped"]
    assert count_events(home) == 2
    for number, named in enumerate(([folder], [folder / "*.csv"], paths)):
        assert [one.log.location for one in ingest(home, dataset, named, f"run-{number}")] == paths
