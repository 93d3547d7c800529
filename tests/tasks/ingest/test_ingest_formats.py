"""Every format, on logs of a few lines: events with their file and line, however a file is packed."""

import bz2
import gzip
import io
import lzma
from datetime import date, datetime
from unittest import mock

import polars as pl
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest import files
from oneclass.tasks.stores.home import Home, Limits
from tests.conftest import LIMITS, real_log, write_tables
from tests.tasks.ingest.conftest import read_logs, write_file
from tests.tasks.ingest.test_layouts import write_zip

NEW_YEAR, EPOCH = datetime(2004, 1, 1), datetime(2001, 9, 9, 1, 46, 40)
NULLS = pl.DataFrame({"user_id": [1, None, 3], "item_id": [7.0, 8.0, 9.5], "rating": [5, 4, None]})
STATED = Dataset(name="own", columns={"user": "who", "item": "what", "value": "stars", "time": "day"})
FORMATS = {  # data set, content, events
    "netflix": ("netflix", "1:\n10,4,2004-01-01\n11,3,2004-01-01\n2:\n10,5,2004-01-01\n",
                [(2, "10", "1", 4, NEW_YEAR), (3, "11", "1", 3, NEW_YEAR), (5, "10", "2", 5, NEW_YEAR)]),
    "u.data": ("ml-100k", "196\t242\t3\t1000000000\n", [(1, "196", "242", 3, EPOCH)]),
    "ratings.dat": ("ml-1m", "1::1193::5::1000000000\n", [(1, "1", "1193", 5, EPOCH)]),
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
    "names of rows": (Dataset(name="own", row_names=True), "user,item\n1,a,x\n", [(2, "a", "x", 1, None)]),
    "blank lines above": ("ml-1m", "\n \nuser,item\n#1,x\nb,C#\n", [(4, "#1", "x", 1, None), (5, "b", "C#", 1, None)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_each_format(home, tmp_path, name):
    dataset, content, expected = FORMATS[name]
    assert read_logs(home, dataset, [write_file(tmp_path / "log", content)]) == ([(1, *one) for one in expected], [])


def test_nulls_of_a_table_are_rejected(home, tmp_path):
    NULLS.write_parquet(tmp_path / "log")
    events, rejects = read_logs(home, "ml-1m", [tmp_path / "log"])
    assert events == [(1, 1, "1", "7", 5, None)]
    assert [(line, reason) for _, line, _, reason in rejects] == [(2, "names no user"), (3, "value is not a number")]


PACKINGS = {
    "no last end": lambda text: text.rstrip(b"\n"),
    "CRLF": lambda text: text.replace(b"\n", b"\r\n"),
    "CR": lambda text: text.replace(b"\n", b"\r"),
    "several ends": lambda text: text.replace(b"\n", b"\r\n", 1),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "blank lines": lambda text: text + b"\n \n",
    "gzip": gzip.compress,
    "gzip of two members": lambda text: gzip.compress(text[:9]) + gzip.compress(text[9:]),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd.compress,
    "zip": lambda text: write_zip({"__MACOSX/._log.csv": b"\0", "log/log.csv": text}),
}


@pytest.mark.parametrize("name", ["netflix", "stated names", "counted"])
def test_line_ends_marks_and_packings_change_nothing(home, tmp_path, name):
    dataset, text, expected = FORMATS[name]
    paths = [write_file(tmp_path / packing, pack(text.encode())) for packing, pack in PACKINGS.items()]
    events, rejects = read_logs(home, dataset, paths)
    found = {packing: [event[1:] for event in events if event[0] == at] for at, packing in enumerate(PACKINGS, 1)}
    assert found == dict.fromkeys(PACKINGS, expected) and rejects == []


def test_a_text_is_read_in_pieces_to_its_end(home, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK_BYTES", 33)  # within characters and line ends
    text = "\r\n".join(["user_id,item_id", *(f"zoë{n},é{n % 7}" for n in range(200)), ""])
    contents = {"one": text.encode("utf-16"), "two": text.encode() + b"b,x\n"}
    events, rejects = read_logs(home, "ml-1m", [write_file(tmp_path / name, one) for name, one in contents.items()])
    expected = [*[(f"zoë{n}", f"é{n % 7}") for n in range(200)] * 2, ("b", "x")]
    assert ([event[2:4] for event in events], rejects) == (expected, [])


def test_a_line_longer_than_duckdbs_own_limit(home, tmp_path):
    items = [str(item) for item in range(400_000)]
    events, rejects = read_logs(home, "gowalla", [write_file(tmp_path / "log", f"7 {' '.join(items)}\n8 1\n")])
    assert len(" ".join(items)) > 2_000_000 and rejects == []
    assert [event[3] for event in events] == [*sorted(items), "1"]


RATING = st.tuples(st.integers(1, 99), st.integers(1, 5), st.dates(date(1999, 1, 1), date(2005, 12, 31)))
DAMAGED = ["", "  ", "17", "17,4", "17,x,2004-01-01", ",4,2004-01-01", "17,nan,2004-01-01", "17,4,2004-13-01", "x:",
           "1,2,3,4"]  # fmt: skip
LINE = st.one_of(
    st.integers(1, 17770).map("{}:".format),
    *[RATING.map(lambda rating: ",".join(map(str, rating)))] * 2,
    st.sampled_from(DAMAGED),
)


def read_naively(file_id: int, lines: list[str]) -> tuple[list, list]:
    """Read Netflix's format line by line: events, and where the rejects are: a line of too many fields is no record."""
    events, rejects, movie, record = [], [], "", 0
    for number, line in enumerate(lines, 1):
        if line.count(",") > 2:
            rejects.append((file_id, number))
        elif line:
            record += 1
            if ":" in line:
                movie = line[:-1] if line[:-1].isdigit() else ""
                rejects += [] if movie else [(file_id, record)]
            elif line.strip():
                try:
                    user, stars, day = line.split(",")
                    assert user and movie and stars.isdigit()
                    events.append((file_id, record, user, movie, int(stars), datetime.fromisoformat(day)))
                except (ValueError, AssertionError):
                    rejects.append((file_id, record))
    return events, rejects


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(LINE, max_size=30), min_size=1, max_size=4))
def test_netflix_files_as_read_line_by_line(tmp_path_factory, bodies):
    folder = tmp_path_factory.mktemp("netflix")
    contents = [["1:", "5,3,2004-01-01", *body, *["5,3,2004-01-01"] * len(body)] for body in bodies]
    paths = [write_file(folder / f"combined_{i}.txt", "\n".join(lines)) for i, lines in enumerate(contents)]
    write_tables(home := Home(folder, "netflix", LIMITS))
    events, rejects = read_logs(home, "netflix", paths)
    expected = [read_naively(file_id, lines) for file_id, lines in enumerate(contents, 1)]
    assert events == sorted(event for found, _ in expected for event in found)
    assert [reject[:2] for reject in rejects] == sorted(reject for _, found in expected for reject in found)


PIECES = st.sampled_from([b"a", b"bcd", b" ", b":", b"\n", b"\r", b"\r\n", b"\0", "é".encode(), b"\xff"])


@given(st.lists(PIECES).map(b"".join), st.integers(1, 9))
def test_a_scan_counts_as_python_does(content, chunk):
    with mock.patch.object(files, "CHUNK_BYTES", chunk):
        found = files.scan_stream(io.BytesIO(content))
    text = content.decode(errors="replace")
    assert (found.size, found.colons, found.has_nul) == (len(content), text.count(":"), "\0" in text)
    assert found.lines == len(io.StringIO(text, newline=None).readlines())
    assert found.max_line_bytes >= max(map(len, content.replace(b"\r", b"\n").split(b"\n")))
    assert (found.is_utf8, found.is_ascii, found.has_blank) == ("\ufffd" not in text, content.isascii(), " " in text)
    ends = {line.strip("abcdé :\0\ufffd") for line in io.StringIO(text, newline="").readlines()} - {""}
    assert found.is_uniform == (ends <= {"\n"} or ends == {"\r\n"})


@pytest.mark.slow
def test_every_line_of_ml_1m_is_where_it_stands(home):
    path = real_log("ml-1m/ratings.csv")
    expected = pl.read_csv(path, schema_overrides=[pl.String, pl.String, pl.Float64]).with_row_index("line", offset=2)
    events, rejects = read_logs(Home(home.root, home.dataset, Limits(threads=4, memory=1 << 30)), "ml-1m", [path])
    assert len(expected) == 1_000_209 and rejects == []
    assert [event[1:5] for event in events] == expected.rows()
