"""Files on disk: how often their bytes are read, those that change meanwhile, and names that no folder should have."""

import os
import time
from pathlib import Path

import pytest

from oneclass.flows import commands
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.ingest import load
from oneclass.tasks.ingest.landing import IngestSettings
from oneclass.tasks.ingest.sources import scan_logs
from oneclass.tasks.ingest.stage import ingest
from tests.conftest import query_rows
from tests.tasks.ingest.conftest import count_events, list_set_aside, write_file

OWN = Dataset(name="own", files=("*.csv",))
BAD, GOOD = b"user_id,item_id\na\n", b"user_id,item_id\na,x\n"
NOT_UTF8 = [b"r-\xe9.csv", b"r-\xff\n.csv", b"r-" + b"\xe9" * 249 + b".csv", b"d\xe9p/r-1.csv"]
UNUSUAL = [b"two\nlines.csv", b"r-\x1b[2J\r.csv", "r-\u2028.csv".encode(), b"r[1].csv", b"d" * 250 + b"/r-1.csv",
           *(b"x" * (size - 4) + b".csv" for size in (239, 247, 248, 255)), "é".encode() * 125 + b".csv"]  # fmt: skip


def write_old(path: Path, content: str | bytes) -> Path:
    """Write a file and date it back, as one that was written some time before the run."""
    write_file(path, content)
    os.utime(path, (past := time.time() - 60, past))
    return path


def put_files(folder: Path, names: list[bytes], content: bytes) -> list[Path]:
    return [
        write_file(Path(os.fsdecode(bytes(folder) + b"/" + name)), content + b"b,y%d\n" % at)
        for at, name in enumerate(names)
    ]


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(GOOD.replace(b"x", b"y"))])
def test_a_log_that_changes_while_duckdb_reads_is_refused(change, home, tmp_path, monkeypatch):
    path, load_log = write_old(tmp_path / "log.csv", GOOD), load._load_log
    monkeypatch.setattr(load, "_load_log", lambda *given: (load_log(*given), change(path)))
    with pytest.raises(OneclassError, match=r"log.csv: was changed or taken away while it was read. Run again"):
        ingest(home, OWN, [path], "run")
    assert query_rows(home, "from raw.events") == []


def test_a_folder_a_pattern_and_files_by_name_are_the_same_and_one_named_twice_is_read_once(home, tmp_path):
    paths = put_files(tmp_path / "logs", [b"1.csv", b"2.csv", b"[1].csv"], GOOD)
    write_file(tmp_path / "logs" / "notes.md", "no log")
    for sources in ([tmp_path / "logs"], [tmp_path / "logs" / "*.csv"], paths):
        assert [log.location for log in scan_logs(sources, OWN)] == paths
    assert [one.outcome for one in ingest(home, OWN, [paths[2], paths[2]], "run")] == ["new", "skipped"]
    assert count_events(home) == 2


@pytest.mark.parametrize("keep_files", ["keep", "move"])
def test_files_are_read_or_set_aside_with_a_note_whatever_their_names(home, caplog, keep_files):
    good, nameless = put_files(home.landing, UNUSUAL, GOOD), put_files(home.landing, NOT_UTF8, GOOD)
    bad = nameless + put_files(home.landing, [b"bad/" + name for name in UNUSUAL], BAD)
    contents = sorted(path.read_bytes() for path in bad)
    ingest(home, OWN, [], "run", IngestSettings(keep_files=keep_files))
    aside = list_set_aside(home, "run")
    assert (count_events(home), len(aside)) == (2 * len(good), len(bad)) and not any(map(Path.exists, bad))
    assert [path.exists() for path in good] == [keep_files == "keep"] * len(good)
    assert {path for (path,) in query_rows(home, "select path from operations.log_files")} == set(map(str, good))
    notes = list((home.landing / "quarantine").rglob("*.why.txt"))
    assert sorted(note.with_name(note.name.removesuffix(".why.txt")).read_bytes() for note in notes) == contents
    texts = [note.read_text() for note in notes]
    assert sum("its name is not UTF-8 text. Rename it." in text for text in texts) == len(nameless)
    warnings = [record.getMessage() for record in caplog.records if "set aside" in record.getMessage()]
    assert all(sum(str(note) in warning for warning in warnings) == 1 for note in notes)
    shown = [*warnings, *map(str, notes), *aside, *(line for text in texts for line in text.split("\n"))]
    assert all(map(str.isprintable, shown))
    ingest(home, OWN, [], "run-2")
    assert list_set_aside(home, "run-2") == []


def test_names_that_clash_in_the_quarantine_all_stay(home):
    """On five nights: one name, one beginning of long names, the name of a note, and a folder named as a file."""
    everything, long, written = Dataset(name="own"), b"x" * 240, []
    nights = [
        [b"r.csv", long + b"1.csv", long + b"2.csv"], [b"r.csv", b"r.csv.2.csv", long + b"1.csv"],
        [b"r.csv/r.csv", b"r.csv.2/r.csv"], [b"r.csv.why.txt", b"r\xe9.csv", b"r\\udce9.csv"], [b"r\xe9.csv", b"r.csv"],
    ]  # fmt: skip
    for night, names in enumerate(nights):
        written += [path.read_bytes() for path in put_files(home.landing, names, BAD + b"%d\n" % night)]
        write_file(home.landing / "good.csv", GOOD)
        ingest(home, everything, [], f"run-{night}")
        assert len(list_set_aside(home, f"run-{night}")) == len(names)
        for folder in home.landing.glob("r.csv*"):
            folder.rmdir()
    kept = [path.read_bytes() for path in (home.landing / "quarantine").rglob("*") if path.is_file()]
    assert len(kept) == 2 * len(written) and sorted(one for one in kept if one.startswith(BAD)) == sorted(written)


def test_a_file_that_cannot_be_moved_stays_and_holds_up_no_other(home, caplog):
    write_file(home.landing / "good.csv", GOOD)
    write_file(home.landing / "quarantine", "no folder")
    (bad,) = put_files(home.landing, [b"bad.csv"], BAD)
    ingest(home, OWN, [], "run")
    assert count_events(home) == 1 and bad.exists() and "cannot be set aside" in caplog.text


def test_a_name_that_is_not_utf8_is_one_sentence_on_the_terminal(tmp_path, capsys):
    (bad,) = put_files(tmp_path, [b"ratings-\xe9.csv"], GOOD)
    for source in (bad, tmp_path):
        assert commands.main("backfill", ["--dataset=ml-1m", f"--home={tmp_path}/var", f"--source={source}"]) == 2
        assert (
            capsys.readouterr().err.strip()
            == f"{bad.parent}/ratings-\\udce9.csv: its name is not UTF-8 text. Rename it."
        )
