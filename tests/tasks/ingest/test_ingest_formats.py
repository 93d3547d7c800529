"""Every format, on logs of a few lines: events and rejects with their file and line, however a file is packed."""

import gzip
from datetime import datetime

import polars as pl
import pytest

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest import files
from tests.tasks.ingest.conftest import read_logs, write_file

NEW_YEAR, EPOCH = datetime(2004, 1, 1), datetime(2001, 9, 9, 1, 46, 40)
STATED = Dataset(name="own", columns={"user": "who", "item": "what", "value": "stars", "time": "day"})
FORMATS = {  # data set, content, events
    "netflix": ("netflix", "1:\n10,4,2004-01-01\n11,3,2004-01-01\n2:\n10,5,2004-01-01\n",
                [(2, "10", "1", 4, NEW_YEAR), (3, "11", "1", 3, NEW_YEAR), (5, "10", "2", 5, NEW_YEAR)]),
    "ratings.csv": ("ml-20m", "userId,movieId,rating,timestamp\n1,2,3.5,1000000000\n", [(2, "1", "2", 3.5, EPOCH)]),
    "quotes": ("ml-1m", 'rating,x,item_id,user_id\n4,"so,\n""very"" good\n",x,"a, b"\n5,,"c ""d""",e\n',
               [(2, "a, b", "x", 4, None), (3, "e", 'c "d"', 5, None)]),
    "triplets": ("msd", 'b"8\tSOAKI\t1\nb9\tSOBBM\t7\n',
                 [(1, 'b"8', "SOAKI", 1, None), (2, "b9", "SOBBM", 7, None)]),
    "user_artists.dat": ("lastfm", "userID\tartistID\tweight\n2\t51\t13883\n", [(2, "2", "51", 13883, None)]),
    "adjacency": ("gowalla", "0 7 8 \n1\n2  9\n",
                  [(1, "0", "7", 1, None), (1, "0", "8", 1, None), (3, "2", "9", 1, None)]),
    "counted": ("citeulike-a", "2 7 8\n0\n1 9\n",
                [(1, "1", "7", 1, None), (1, "1", "8", 1, None), (3, "3", "9", 1, None)]),
    "stated names": (STATED, "day;who;what;stars\n2004-01-01;é;b;2,5\n", [(2, "é", "b", 2.5, NEW_YEAR)]),
    "blank lines above": ("ml-1m", "\n \nuser,item\n#1,x\nb,C#\n", [(4, "#1", "x", 1, None), (5, "b", "C#", 1, None)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_each_format(home, tmp_path, name):
    dataset, content, expected = FORMATS[name]
    assert read_logs(home, dataset, [write_file(tmp_path / "log", content)]) == ([(1, *one) for one in expected], [])


def test_nulls_of_a_table_are_rejected_and_blanks_around_ids_dropped(home, tmp_path):
    table = pl.DataFrame({"user_id": [" u ", None, "v"], "item_id": [7.0, 8.0, 9.5], "rating": [5, 4, None]})
    table.write_parquet(tmp_path / "log")
    events, rejects = read_logs(home, "ml-1m", [tmp_path / "log"])
    assert events == [(1, 1, "u", "7", 5, None)]
    assert [(line, reason) for _, line, _, reason in rejects] == [(2, "names no user"), (3, "value is not a number")]


VARIANTS = {
    "no last end": lambda text: text.rstrip(b"\n"),
    "CR": lambda text: text.replace(b"\n", b"\r"),
    "several ends": lambda text: text.replace(b"\n", b"\r\n", 1),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "blank lines": lambda text: text + b"\n \n",
    "gzip of two members": lambda text: gzip.compress(text[:9]) + gzip.compress(text[9:]),
}


@pytest.mark.parametrize("name", ["netflix", "stated names", "counted"])
def test_line_ends_marks_and_packings_change_nothing(home, tmp_path, name):
    dataset, text, expected = FORMATS[name]
    paths = [write_file(tmp_path / variant, change(text.encode())) for variant, change in VARIANTS.items()]
    events, rejects = read_logs(home, dataset, paths)
    found = {variant: [event[1:] for event in events if event[0] == at] for at, variant in enumerate(VARIANTS, 1)}
    assert found == dict.fromkeys(VARIANTS, expected) and rejects == []


def test_a_text_is_read_in_pieces_to_its_end(home, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK_BYTES", 33)  # within characters and line ends
    text = "\r\n".join(["user_id,item_id", *(f"zoë{n},é{n % 7}" for n in range(200)), ""])
    contents = {"one": text.encode("utf-16"), "two": text.encode() + b"b,x\n"}
    events, rejects = read_logs(home, "ml-1m", [write_file(tmp_path / name, one) for name, one in contents.items()])
    expected = [*[(f"zoë{n}", f"é{n % 7}") for n in range(200)] * 2, ("b", "x")]
    assert ([event[2:4] for event in events], rejects) == (expected, [])


GOOD = {
    "netflix": "7:\n10,4,2004-01-01\n",
    "ml-1m": "user_id,item_id,rating,timestamp\na,b,3,1000000000\n",
    "citeulike-a": "2 1 2\n",
}
BAD = [
    ("netflix", "10,four,2004-01-01", "value is not a number"),
    ("netflix", "10,4,2004-02-30", "time is not a date or time"),
    ("netflix", "10,4,2999-01-01", "time is later than the clock by over max_future_days = 1 of the data set's file"),
    ("netflix", "10,5.5,2004-01-01", "value is above value_max = 5 of the data set's file"),
    ("netflix", "1\udcff,4,2004-01-01", "not UTF-8"),
    ("netflix", "10,4,2004-01-01,5", "4 fields instead of 3"),
    ("ml-1m", "a,,3,1", "names no item"),
    ("ml-1m", "a\udcff,b,3,1", "not UTF-8"),
    ("ml-1m", "x" * 5000, "1 fields instead of 4"),
    ("citeulike-a", "3 1 2", "counts 3 items, but 2 follow"),
]


@pytest.mark.parametrize("name, line, reason", BAD)
def test_a_bad_line_is_kept_and_its_neighbours_are_read(home, tmp_path, name, line, reason):
    """Records are counted, with the header; a line that is none has its number in the file."""
    good = GOOD[name]
    last = good.splitlines()[-1]
    content = f"{good}{line}\n{last}\n".encode(errors="surrogateescape")
    events, rejects = read_logs(home, name, [write_file(tmp_path / "log", content)])
    at, is_record = good.count("\n"), "fields instead" not in reason
    assert {event[1] for event in events} == {at, at + 1 + is_record}
    [(_, number, text, why)] = rejects
    assert (number, text) == (at + 1, line.encode(errors="surrogateescape").decode(errors="replace")[:1000])
    assert reason in why
