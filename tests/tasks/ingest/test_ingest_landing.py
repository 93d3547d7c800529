"""The landing folder: files set aside, ingested files, files never read, and names that no folder should have."""

import contextlib
import gzip
import os
import sys
from pathlib import Path

import polars as pl
import pytest

from oneclass.data_contracts import ContractBroken
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import landing, layouts, load
from oneclass.tasks.ingest.landing import IngestSettings
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.run_summary import RunDescription, describe_success
from oneclass.tasks.stores import runs
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.tasks.ingest.conftest import count_events, list_set_aside, write_csv, write_file

MOVE = IngestSettings(keep_files="move")
USERS = "select user_id from raw.events order by 1"
UNREADABLE = gzip.compress(b"user_id,item_id,rating\na,x,5\n", mtime=0)[:-9]
BROKEN = b"user_id,item_id,rating\na,x,5\nbroken\n"


def list_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def run_night(home: Home, dataset: Dataset, run_id: str) -> RunDescription:
    """Run a night that ingests the landing folder alone, and return what is told of it."""
    with runs.record_run(home, run_id, "nightly-retrain", {}):
        ingest(home, dataset, [], run_id)
    return describe_success(home, run_id, report="")


def test_whatever_a_file_of_a_night_does_the_others_are_read(home, tmp_path, caplog):
    header, whole = "user,sku,event\n", tmp_path / "whole.parquet"
    users = [f"u{n}" for n in range(99_999)]
    pl.DataFrame({"user": users, "sku": "x", "event": "view"}).write_parquet(whole, row_group_size=9_999)
    content = whole.read_bytes()  # of the damaged file the first rows can be read
    damaged = content[: len(content) // 2] + b"\xff" * 9_999 + content[len(content) // 2 + 9_999 :]
    bad = {
        "may/cut.csv": (gzip.compress(header.encode())[:-9], "Compressed file ended before the end"),
        "kindless.csv": ("user,sku\nb,y\n", "Which column is the kind of event?"),
        "lines.csv": (f"{header}a,x,view\nbroken\n", "line 3: 1 fields instead of 3. In all 1 of 2"),
        "range.csv": ("user,sku,event,value\na,x,view,5\na,y,view,-7\n", "line 3: value is below value_min = 1"),
        "deep.json": (f'{{"user": {"[" * 200_000}{"]" * 200_000}, "sku": "x"}}\n', "RecursionError"),
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
    for name in ("ratings-1.csv", "ratings-2.csv", "_SUCCESS"):
        write_csv(home.landing / name, f"{name},x,5")
    assert run_night(home, dataset, "first").state != "files unread"
    write_csv(home.landing / "orders-2.csv", "b,x,5")
    write_csv(home.landing / "ratings-1.csv", "a,x,5", "b,x,5", "b,y,5")
    written = [BROKEN + b"1\n", BROKEN + b"2\n"]
    for night, content in enumerate(written):
        write_file(home.landing / "ratings-2.csv", content)
        told = run_night(home, dataset, f"night-{night}")
        assert told.state == "files unread" and " ratings-2.csv: " in told.text
        assert "Not read: orders-2.csv: its name matches none of the patterns" in told.text
        assert ("in landing/quarantine since an earlier night" in told.text) == (night > 0)
        assert query_rows(home, USERS) == [("a",), ("b",), ("b",), ("ratings-2.csv",)]
    aside = sorted(path for path in (home.landing / "quarantine").rglob("*") if path.is_file())
    assert {path.read_bytes() for path in aside} > set(written) and len(aside) == 2 * len(written)
    for path in [home.landing / "orders-2.csv", *aside]:
        path.unlink()
    assert run_night(home, dataset, "last").state != "files unread"


def test_files_of_other_programs_and_those_put_away_are_no_input(home, dataset):
    names = {"done/ratings.csv", "_delta_log/ratings.csv", "_SUCCESS", "may/.ratings.csv"}
    for name in names:
        write_csv(home.landing / name, "b,x,5")
    write_file(home.landing / "deep" / "ratings.csv", UNREADABLE)
    for reason in ("ended before the end", "holds no raw files"):
        with pytest.raises(InputError, match=reason):
            ingest(home, dataset, [], reason)
        aside = {"quarantine/deep/ratings.csv", "quarantine/deep/ratings.csv.why.txt"}
        assert list_files(home.landing) == names | aside
    write_csv(home.landing / "ratings.csv", "a,x,5")
    for run_id, sources in {"night": [], "by hand": [home.landing]}.items():
        ingest(home, dataset, sources, run_id)
        assert query_rows(home, USERS) == [("a",)]


@pytest.mark.parametrize(("content", "replace"), [(UNREADABLE, False), (BROKEN, True)])
def test_a_file_that_is_named_is_never_moved(home, dataset, content, replace):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    bad = write_file(home.landing / "ratings-2.csv", content)
    with pytest.raises((InputError, ContractBroken)):
        ingest(home, dataset, [] if replace else [home.landing], "run", MOVE, replace=replace)
    assert list_files(home.landing) == {"ratings-1.csv", "ratings-2.csv"} and bad.read_bytes() == content


@pytest.mark.parametrize("change", [lambda path: write_csv(path, "b,x,5", "b,y,5"), Path.unlink])
@pytest.mark.parametrize("function", [layouts.detect_text, load._load_log, landing.quarantine_files])
def test_a_file_that_changes_during_a_night_stays_for_the_next(home, dataset, caplog, monkeypatch, function, change):
    """It changes at the end of a function: before DuckDB reads it, meanwhile, or after the commit."""
    ingest(home, dataset, [write_csv(home.landing / "ratings-1.csv", "a,x,5")], "before")
    path = write_csv(home.landing / "ratings-2.csv", "b,x,5")
    module, name = sys.modules[function.__module__], function.__name__
    monkeypatch.setattr(module, name, lambda *given: (function(*given), change(path))[0])
    refuses = pytest.raises(InputError, match=r"2.csv: was changed or taken away while it was read. Run again")
    with refuses if module is load else contextlib.nullcontext():
        ingest(home, dataset, [], "meanwhile", MOVE)
    monkeypatch.undo()
    read = [("a",), ("b",)] if module is landing else [("a",)]
    assert query_rows(home, USERS) == read and list_set_aside(home, "meanwhile") == []
    assert ("left for the next run" in caplog.text) == (module is layouts)
    assert (grown := path.exists()) == (change != Path.unlink)
    ingest(home, dataset, [], "after", MOVE)
    assert query_rows(home, USERS) == ([("a",), ("b",), ("b",)] if grown else read)
    assert list_files(home.landing) == {"done/ratings-1.csv", *["done/ratings-2.csv"] * grown}


def test_ingested_files_are_moved_also_after_a_run_that_died_before(home, dataset):
    for name in (names := {"ratings-1.csv", "may/ratings-2.csv"}):
        write_csv(home.landing / name, f"{name},x,5")
    write_csv(home.landing / "notes.csv", "not a log of this data set")
    ingest(home, dataset, [], "run-1")
    with pytest.raises(ContractBroken, match="value_in_range"):  # of what was read in before the bounds were narrowed
        ingest(home, dataset.model_copy(update={"value_max": 4}), [], "broken", MOVE)
    assert list_files(home.landing) == {"notes.csv", *names}
    for run_id in ("run-2", "run-3"):
        ingest(home, dataset, [], run_id, MOVE)
        assert count_events(home) == 2
        assert list_files(home.landing) == {"notes.csv", *(f"done/{name}" for name in names)}
    write_csv(home.landing / "ratings-1.csv", "b,x,5")
    ingest(home, dataset, [], "changed", MOVE)
    assert query_rows(home, USERS) == [("b",), ("may/ratings-2.csv",)]
    assert len([*home.landing.rglob("ratings-1.csv")]) == 2


NOT_UTF8 = [b"ratings-\xe9.csv", b"ratings-\xff\n.csv", b"ratings" + b"\xe9" * 244 + b".csv", b"d\xe9p/ratings-1.csv"]
UNUSUAL = [
    b"ratings-\x1b[2J\r\n.csv",
    b"ratings[1].csv",
    b"ratings" + b"x" * 244 + b".csv",
    b"d" * 250 + b"/ratings-1.csv",
]


def put_files(folder: Path, names: list[bytes], lines: str) -> list[Path]:
    """Write files with these names, each with the same lines but the last."""
    return [write_csv(folder / os.fsdecode(name), lines, f"b,y{at},5") for at, name in enumerate(names)]


def test_files_are_read_or_set_aside_with_a_note_whatever_their_names(home, dataset, caplog):
    good = put_files(home.landing, UNUSUAL, "a,x,5")
    bad = put_files(home.landing, NOT_UTF8, "a,x,5") + put_files(home.landing / "bad", UNUSUAL, "a")
    contents = sorted(path.read_bytes() for path in bad)
    with pytest.raises(InputError, match=r"ratings-\\udce9.csv: its name is not UTF-8 text. Rename it."):
        ingest(home, dataset, bad[:1], "by hand")
    ingest(home, dataset, [], "run", MOVE)
    aside = list_set_aside(home, "run")
    assert (count_events(home), len(aside)) == (2 * len(good), len(bad)) and not any(map(Path.exists, good + bad))
    notes = {path: path.read_text() for path in (home.landing / "quarantine").rglob("*.why.txt")}
    assert sorted(note.with_name(note.name.removesuffix(".why.txt")).read_bytes() for note in notes) == contents
    warnings = [record.getMessage() for record in caplog.records if "set aside" in record.getMessage()]
    assert all(sum(str(note) in warning for warning in warnings) == 1 for note in notes)
    shown = [*warnings, *map(str, notes), *aside, *(line for text in notes.values() for line in text.split("\n"))]
    assert all(map(str.isprintable, shown))


def test_a_file_that_cannot_be_moved_stays_and_holds_up_no_other(home, dataset, caplog):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    write_file(home.landing / "quarantine", "no folder")
    bad = write_file(home.landing / "ratings-2.csv", BROKEN)
    ingest(home, dataset, [], "run")
    assert count_events(home) == 1 and bad.exists() and "cannot be set aside" in caplog.text
