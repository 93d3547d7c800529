"""Files whose names no folder should have: each is read or set aside, and holds up no other file."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from oneclass.flows import commands
from oneclass.tasks import datasets
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.stage import ingest
from tests.conftest import query_rows
from tests.tasks.ingest.test_ingest_stage import write_csv

BAD = b"user_id,item_id,rating\na,x,5\0\n"
GOOD = b"user_id,item_id,rating\nodd,x,5\n"
NOT_UTF8 = [
    b"ratings-r\xe9sum\xe9.csv",
    b"ratings-\xff\n.csv",
    b"ratings-" + b"\xe9" * 243 + b".csv",
    b"d\xe9p/ratings-1.csv",
]
UNUSUAL = [
    b"ratings-two\nlines.csv",
    b"ratings-\x1b[2J\r.csv",
    "ratings-\u2028.csv".encode(),
    *(b"ratings-" + b"x" * (size - 12) + b".csv" for size in (239, 243, 247, 248, 250, 255)),
    b"ratings-" + "\u00e9".encode() * 121 + b".csv",  # a cut may fall within a character
    b"ratings-" + b"x" * 100 + b"." + b"y" * 130 + b".csv.gz.csv",
    b"d" * 250 + b"/" + b"ratings-1.csv",
]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return datasets.load_dataset("ml-1m", tmp_path)


def put_file(folder: Path, name: bytes, content: bytes) -> Path:
    path = Path(os.fsdecode(bytes(folder) + b"/" + name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def read_contents(folder: Path) -> list[bytes]:
    """The contents of all files that are no notes."""
    return sorted(
        path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".why.txt")
    )


@pytest.mark.parametrize("names", [NOT_UTF8, UNUSUAL], ids=["not UTF-8", "unusual"])
def test_files_that_cannot_be_read_are_set_aside_whatever_their_names(home, dataset, caplog, names):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    write_csv(home.landing / "ratings-z.csv", "z,x,5")
    bad = {BAD + name: put_file(home.landing, name, BAD + name) for name in names}
    result = ingest(home, dataset, [], "run")
    assert result.total_events == 2 and not any(path.exists() for path in bad.values())
    quarantine = home.landing / "quarantine"
    assert read_contents(quarantine) == sorted(bad) and len(result.set_aside) == len(names)
    warnings = [record.getMessage() for record in caplog.records if "set aside" in record.getMessage()]
    notes = list(quarantine.rglob("*.why.txt"))
    assert len(warnings) == len(notes) == len(names)
    assert sorted(note.with_name(note.name.removesuffix(".why.txt")).read_bytes() for note in notes) == sorted(bad)
    for note in notes:
        assert str(note).isprintable() and note.name.endswith(".csv.why.txt")
        assert all(line.isprintable() for line in note.read_text().split("\n"))
        [warning] = [text for text in warnings if f"{note}" in text]
        assert warning.isprintable() and any(path in warning for path in result.set_aside)
    stored = query_rows(home, "select path, name from operations.arrivals where outcome = 'set aside' order by path")
    assert [path for path, _ in stored] == sorted(result.set_aside)
    assert all(path.endswith(name) and path.isprintable() for path, name in stored)
    assert ingest(home, dataset, [], "run-2").set_aside == ()


def test_good_files_whose_names_are_not_utf8_are_set_aside_until_they_are_renamed(home, dataset):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    for number, name in enumerate(NOT_UTF8):
        put_file(home.landing, name, GOOD.replace(b"odd", b"odd-%d" % number))
    assert ingest(home, dataset, [], "run").total_events == 1
    notes = list((home.landing / "quarantine").rglob("*.why.txt"))
    assert len(notes) == len(NOT_UTF8)
    for number, note in enumerate(notes):
        assert "its name is not UTF-8 text. Rename it." in note.read_text()
        note.with_name(note.name.removesuffix(".why.txt")).rename(home.landing / f"ratings-renamed-{number}.csv")
    assert ingest(home, dataset, [], "run-2").total_events == 1 + len(NOT_UTF8)


@pytest.mark.parametrize("keep_files", ["keep", "move"])
def test_good_files_are_read_whatever_their_names(home, dataset, keep_files):
    good = [GOOD.replace(b"odd", b"odd-%d" % number) for number in range(len(UNUSUAL))]
    odd = [put_file(home.landing, name, content) for name, content in zip(UNUSUAL, good, strict=True)]
    assert ingest(home, dataset, [], "run", IngestSettings(keep_files=keep_files)).total_events == len(odd)
    assert [path.exists() for path in odd] == [keep_files == "keep"] * len(odd)
    assert read_contents(home.landing / "done") == (sorted(good) if keep_files == "move" else [])
    assert {path for (path,) in query_rows(home, "select path from operations.log_files")} == set(map(str, odd))


def test_names_that_are_not_utf8_are_left_out_of_a_named_folder_with_a_warning_each(home, dataset, tmp_path, caplog):
    folder = tmp_path / "logs"
    good, bad = write_csv(folder / "ratings-1.csv", "a,x,5"), [put_file(folder, name, GOOD) for name in NOT_UTF8]
    result = ingest(home, dataset, [folder], "run")
    assert result.new == (str(good),) and all(path.read_bytes() == GOOD for path in bad)
    warnings = [record.getMessage() for record in caplog.records if record.name.endswith("ingest.sources")]
    assert len(warnings) == len(NOT_UTF8)
    assert all("its name is not UTF-8 text" in warning and warning.isprintable() for warning in warnings)
    good.unlink()
    for source in (folder, *bad):
        with pytest.raises(InputError, match="its name is not UTF-8 text. Rename it."):
            ingest(home, dataset, [source], "run-2")


def test_no_name_matches_and_one_is_not_utf8(home, dataset, caplog):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    ingest(home, dataset, [], "run")
    (home.landing / "ratings-1.csv").unlink()
    put_file(home.landing, b"orders-\xe9.csv", GOOD)
    assert ingest(home, dataset, [], "run-2").total_events == 1
    assert "orders-\\udce9.csv" in caplog.text
    assert query_rows(home, "select name from operations.arrivals where outcome = 'unmatched'") == [
        ("orders-\\udce9.csv",)
    ]


def test_names_that_clash_in_the_quarantine_all_stay(home, dataset):
    """On five nights: one name, one beginning of long names, the name of a note, and a folder named as a file."""
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    long = b"ratings-" + b"x" * 235
    nights = [
        [b"ratings.csv", long + b"1.csv", long + b"2.csv"],
        [b"ratings.csv", b"ratings.csv.2.csv", long + b"1.csv"],
        [b"ratings.csv/ratings.csv", b"ratings.csv.2/ratings.csv"],
        [b"ratings.csv", b"ratings-r\xe9.csv", b"ratings-r\\udce9.csv"],
        [b"ratings-\xe9.csv", b"ratings-\xe8.csv"],
    ]
    written = []
    for night, names in enumerate(nights):
        for name in names:
            written.append(BAD + b"%d %s\n" % (night, name))
            put_file(home.landing, name, written[-1])
        assert len(ingest(home, dataset, [], f"run-{night}").set_aside) == len(names)
        for folder in home.landing.glob("ratings.csv*"):
            folder.rmdir()
    quarantine = home.landing / "quarantine"
    assert read_contents(quarantine) == sorted(written)
    assert len(list(quarantine.rglob("*.why.txt"))) == len(written)


def test_a_note_takes_the_place_of_no_file(home, tmp_path):
    everything = datasets.load_dataset("ml-1m", tmp_path)
    everything = type(everything).model_validate({**everything.model_dump(), "files": ["*"]})
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    note = put_file(home.landing, b"ratings.csv.why.txt", BAD + b"1")
    ingest(home, everything, [], "run-1")
    assert not note.exists()
    put_file(home.landing, b"ratings.csv", BAD + b"2")
    ingest(home, everything, [], "run-2")
    quarantined = [path.read_bytes() for path in (home.landing / "quarantine").rglob("*") if path.is_file()]
    assert {BAD + b"1", BAD + b"2"} < set(quarantined) and len(quarantined) == 4


def test_a_file_that_cannot_be_moved_stays_and_holds_up_no_other(home, dataset, caplog):
    write_csv(home.landing / "ratings-1.csv", "a,x,5")
    (home.landing / "quarantine").write_text("a file where the folder should be")
    bad = put_file(home.landing, b"ratings-2.csv", BAD)
    assert ingest(home, dataset, [], "run").total_events == 1
    assert bad.read_bytes() == BAD and "cannot be set aside" in caplog.text
    (home.landing / "quarantine").unlink()
    ingest(home, dataset, [], "run-2")
    assert not bad.exists()


def test_a_name_that_is_not_utf8_is_one_sentence_on_the_terminal(tmp_path, capsys):
    bad = put_file(tmp_path, b"ratings-\xe9.csv", GOOD)
    arguments = ["--dataset", "ml-1m", "--home", str(tmp_path / "var"), "--source", str(bad)]
    assert commands.main("backfill", arguments) == 2
    assert capsys.readouterr().err.strip() == f"{tmp_path}/ratings-\\udce9.csv: its name is not UTF-8 text. Rename it."
    assert not (tmp_path / "var").exists()


@pytest.mark.parametrize("names", [(b"mv_\xe9.txt", b"mv_\xe8.txt"), (b"mv_\xff\n.txt", "mv_\u00e9.txt".encode())])
def test_members_of_an_archive_whose_names_are_not_utf8_are_read(home, tmp_path, names):
    home.landing.mkdir(parents=True)
    with tarfile.open(home.landing / "download.tar", "w", format=tarfile.GNU_FORMAT) as archive:
        for movie, name in enumerate(names, 1):
            content = f"{movie}:\n{movie}7,3,2005-01-01\n".encode()
            member = tarfile.TarInfo(os.fsdecode(name))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    netflix = datasets.load_dataset("netflix", tmp_path).model_copy(update={"files": ("*.tar",)})
    for run in ("first", "second"):
        assert ingest(home, netflix, [], run).total_events == 2
    assert query_rows(home, "select user_id, item_id from raw.events order by all") == [("17", "1"), ("27", "2")]
    shown = [name.decode(errors="backslashreplace") for name in names]
    assert [
        Path(path).name for (path,) in query_rows(home, "select path from operations.log_files order by file_id")
    ] == shown
