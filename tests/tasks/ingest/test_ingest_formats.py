"""Formats, on small logs: events and rejects with their file and line, right values, and what is refused or doubted."""

import gzip
import io
import logging
import os
import re

import duckdb
import polars as pl
import pytest

from benchmarks import fuzz_readers
from oneclass.data_contracts import ContractBroken
from oneclass.tasks import datasets
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import files, load
from oneclass.tasks.ingest.stage import ingest
from tests.conftest import home_in, query_rows
from tests.tasks.ingest.conftest import read_logs, write_file
from tests.tasks.ingest.test_layouts import as_workbook, write_zip

LONG_ID = "9" * 10_000


def test_a_text_is_read_in_pieces_to_its_end(home, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK_BYTES", 33)  # within characters and line ends
    same = [(f"zoë{n}", f"é{n % 7}") for n in range(200)]
    text = "\r\n".join(["user_id,item_id", *map(",".join, same), ""])
    contents = [text.encode("utf-16"), text.encode() + b"b,x\n", gzip.compress(text.encode()) + gzip.compress(b"c,x\n")]
    events, rejects = read_logs(home, "ml-1m", [write_file(tmp_path / str(at), one) for at, one in enumerate(contents)])
    assert ([event[2:4] for event in events], rejects) == ([*same, *same, ("b", "x"), *same, ("c", "x")], [])


GOOD = {"netflix": "7:\n10,4,2004-01-01\n", "ml-1m": "user,item,time\na,b,1000000000\n", "citeulike-a": "2 1 2\n"}
BAD = [
    ("netflix", "10,four,2004-01-01", "value is not a number"),
    ("netflix", "10,4,2004-02-30", "time is not a date or time"),
    ("netflix", "10,4,2999-01-01", "time is later than the clock by over max_future_days = 1 of the data set's file"),
    ("netflix", "10,5.5,2004-01-01", "value is above value_max = 5 of the data set's file"),
    ("netflix", "1\udcff,4,2004-01-01", "not UTF-8"),
    ("ml-1m", "x" * 5000, "1 fields instead of 3"),
    ("ml-1m", f"a,{LONG_ID}9,1000000000", "the item's id is longer than 10000 bytes"),
    ("citeulike-a", "3 1 2", "counts 3 items, but 2 follow"),
]


@pytest.mark.parametrize("name, line, reason", BAD)
def test_a_bad_line_is_kept_and_its_neighbours_are_read(home, tmp_path, name, line, reason):
    """Records are counted, with headers; a line that is none has its number in the file."""
    content = f"{GOOD[name]}{line}\n{GOOD[name]}".encode(errors="surrogateescape")
    events, rejects = read_logs(home, name, [write_file(tmp_path / "log", content)])
    at, is_record = GOOD[name].count("\n"), "fields instead" not in reason
    assert {event[1] for event in events} == {at, 2 * at + is_record}
    [(_, number, text, why)] = rejects
    assert (number, text) == (at + 1, line.encode(errors="surrogateescape").decode(errors="replace")[:1000])
    assert reason in why


@pytest.mark.parametrize("longest, packed", [(1 << 26, bytes), (1 << 26, gzip.compress), (2_500_000, bytes)])
def test_a_very_long_line_is_rejected(home, tmp_path, monkeypatch, longest, packed):
    monkeypatch.setattr(load, "MAX_LINE_BYTES", longest)
    line = "b" * 3_000_000 + ",x"
    text = "\r\n".join(["user,item", "a,x", line, *["c,x"] * 9_000, line, "d,x", ""])
    events, rejects = read_logs(home, "ml-1m", [write_file(tmp_path / "log", packed(text.encode()))])
    assert (len(events), len(rejects)) == (9_002, 2)


def test_replace_reads_unchanged_logs_again_by_other_kinds_and_bounds(home, tmp_path):
    """Without it, a kind of event that is taken out breaks the contract."""
    log = write_file(tmp_path / "log", "user,sku,value,event\na,x,1,view\na,y,4,buy\nb,x,2,view\nb,y,5,view\n")
    own, fewer = Dataset(name="own", max_reject_share=1, events={"view": 1, "buy": 5}), {"events": {"view": 1}}
    ingest(home, own, [log], "run")
    with pytest.raises(ContractBroken, match="kind_known"):
        ingest(home, own.model_copy(update=fewer), [log], "again")
    kept_by = [(fewer, [1, 2, 5]), ({"value_min": 2.0}, [4, 2, 5]), ({}, [1, 4, 2, 5]), ({"value_max": 4.0}, [1, 4, 2])]
    for night, (declared, kept) in enumerate(kept_by):
        ingest(home, own.model_copy(update=declared), [log], f"run-{night}", replace=True)
        assert query_rows(home, "select value from raw.events order by line_number") == [(value,) for value in kept]


def test_no_hostile_log_is_misread(tmp_path):
    counts, findings = fuzz_readers.fuzz_readers(tmp_path, seed=0, rounds=1, batch=10)
    assert [f"{one.seed}: {one.difference}" for one in findings] == []
    assert sum(counts.values()) == 50 and {name for name, _ in counts} == set(fuzz_readers.FORMATS)


KINDS = pl.DataFrame({"user": [*"aabb"], "sku": [*"xyxy"], "event": ["view", " buy ", "gift", ""]})
KINDS.write_parquet(KINDS_IN_PARQUET := io.BytesIO())
WEIGHTS, UNKNOWN = {"events": {"view": 0.5, "buy": 5}}, "unknown kind of event gift; names no kind of event"
EVENTS = "select concat_ws(' ', user_id, item_id, occurred_at, event) from raw.events order by file_id, line_number"
CSV, TAR = gzip.compress(b"user_id,item_id\n" + b"1,2\n" * 9999), bytes(257) + b"ustar" + bytes(250)
REFUSED = {  # content, the data set's file, the sentence
    "empty gzip": (gzip.compress(b""), {}, "is empty. Give a log with at least one line"),
    "flipped byte": (CSV[:-6] + b"\1" + CSV[-5:], {}, "CRC check failed"),
    "zip of two": (write_zip({"readme.txt": "", "log.csv": "a"}), {}, "2 files: readme.txt, log.csv. Unpack it"),
    "tar.gz": (gzip.compress(TAR), {"encoding": "cp1252"}, "is a binary file. Unpack it"),
    "HTML named .xls": ("<html><table>\n<tr><th>user</th><th>sku</th></tr>\n", {}, "is HTML or XML"),
    "different sheets": (as_workbook([["By Ann"]], [["user", "sku"], ["a", "x"]]), {}, "different rows: s0, s1"),
    "columns of a width": ("user  sku   n\na     x     k\nb     y     k\n", {}, "aligns its columns by blanks"),
    "words as values": ("user,sku,stars\na,x,4 of 5\n", {}, "values such as '4 of 5' are no numbers"),
    "words as times": ("user,sku,date\na,x,3 janv. 2024\n", {}, "such as '3 janv. 2024', are in no known form"),
    "years of two digits": ("user,sku,date\na,x,24/01/14\n", {}, '"%d/%m/%y"    # or "%y/%m/%d"'),
    "two of a name": ("user,sku,date,date\na,x,2024-01-01,k\n", {"columns": {"time": "date"}}, "Two are called date:"),
    "UTF-16 without a mark": ("user,sku\nJö,Öl\n".encode("utf-16-le"), {}, 'encoding = "utf-16-le"'),
    "text behind a quote": ('user,sku,n\na,x,\nb,x,"k"\nb,y,"k\nz"o\nd,x,\n', {}, "line 4: its quotes do not pair"),
    "quote never closed": ('user,sku,n\na,x,\nb,x,"k\nz,y,\nd,5" nail,\n', {}, "line 3: its quotes do not pair"),
    "unpaired quote": ('user,"sku\na,x\n', {}, "line 1: the quotes of its header do not pair"),
    "no header": ("1,2,3\n1,2,3\n", {}, "3 columns, delimiter \",\", without a header. Which column is the user and"),
    "comma": ("user;sku;value\na;x;1,500\n", {}, "may have a decimal comma or separate thousands"),
    "lists": ("user,sku\na,\"['x', 'y']\"\n", {}, "column sku: has several values in a cell, such as ['x', 'y']"),
    ".NET's ticks": ("user,sku,time\na,x,638765432100000000\n", {}, "ticks since another year"),
    "Apple's seconds": ("user,sku,time\na,x,763467211\nb,x,763467219\n", {}, "ticks since another year"),
    "another order, the user first": ("user,sku,N\na,x,k\nuser,n,sku\nb,k,y\n", {}, "line 3: is another header"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_file_and_says_what_was_found(tmp_path, name):
    content, declared, said = REFUSED[name]
    path = write_file(tmp_path / "log", content)
    with pytest.raises(InputError) as refusal:
        ingest(home := home_in(tmp_path), Dataset(name="own", **declared), [path], "run")
    assert str(refusal.value).startswith(str(path)) and said in str(refusal.value)
    assert not home.root.exists() or not query_rows(home, EVENTS)


@pytest.mark.parametrize("first", ["item_id\tuser_id\tqty\nx\ta\t1\n", "sku\twho\tqty\nx\ta\t1\n"])
@pytest.mark.parametrize("second", ["7\t8\t1\n9\t8\t2\n", "y\tb\t1\nz\tb\t2\n"])
def test_a_part_without_the_header_of_the_first_is_refused(home, tmp_path, first, second):
    declared = {"columns": {"user": "who", "item": "sku"}} if "who" in first else {}
    parts = [write_file(tmp_path / f"x_a{at}", part) for at, part in enumerate((first, second))]
    with pytest.raises(InputError, match="x_a1.* (has no|without a) header"):
        ingest(home, Dataset(name="own", **declared), parts, "run")
    ingest(home, Dataset(name="own", **declared), parts[:1], "run-1")  # nor is it read a night later
    with pytest.raises(InputError, match="x_a1.* (has no|without a) header"):
        ingest(home, Dataset(name="own", **declared), parts[1:], "run-2")


def test_a_folder_that_holds_a_column_is_refused_with_the_query_that_reads_it(home, tmp_path):
    for kind in ("view", "return"):
        path = write_file(tmp_path / "out" / f"event={kind}" / "part-0.csv", "user_id,item_id\na,x\n")
    for source in (tmp_path / "out", tmp_path / "out" / "*" / "*.csv", path.parent, path):
        with pytest.raises(InputError, match="which only a query reads") as refusal:
            ingest(home, Dataset(name="own"), [source], "run")
        query = re.search(r'query = "(.*)"', str(refusal.value))[1]
        assert sorted(duckdb.sql(query).fetchall()) == [("a", "x", "return"), ("a", "x", "view")]


READ = {  # content, events, what is said of the others, what is declared if anything
    "kinds": (KINDS.write_csv(), ["a x view", "a y buy"], UNKNOWN, WEIGHTS),
    "kinds in Parquet": (KINDS_IN_PARQUET.getvalue(), ["a x view", "a y buy"], UNKNOWN, WEIGHTS),
    "kinds without a header": (KINDS.write_csv(include_header=False), ["a x view", "a y buy"], UNKNOWN,
                               {"columns": {"user": 1, "item": 2, "event": 3}, **WEIGHTS}),
    "records in quotes": ('user,sku,n\na,x,\nb,x,"k\nz,""y"",\n\nv,w,"\nd,5" nail,\n', ["a x", "b x", 'd 5" nail'], ""),
    "UTF-16 without a mark": ("user,sku\nJo,x\n".encode("utf-16-le"), ["Jo x"], "", {"encoding": "utf-16-le"}),
    "unquoted commas": ("user,title,sku\na,Tea,x\nb,Tea, green,x\nc,Tea,x\n", ["a x", "c x"], "4 fields instead of 3"),
    "Shopify's time": ("user,sku,created_at\na,x,2025-03-03 12:06:51 +0100\nb,x,2025-03-03 12:06:51 -0530\n",
                       ["a x 2025-03-03 11:06:51", "b x 2025-03-03 17:36:51"], ""),
    "no seconds": ("user,sku,time\n" + "a,x,1000000000\n" * 3 + "b,x,0x3B9ACA00\nc,x,1_00000000\n",
                   ["a x 2001-09-09 01:46:40"] * 3, "time is not a date or time"),
    "Apple's later seconds": ("user,sku,time\na,x,793467211\nb,x,793467219\n",
                              ["a x 1995-02-22 15:33:31", "b x 1995-02-22 15:33:39"], "times lie before 2000"),
    "infinite values": ("user,sku,value\na,x,2\nb,x,inf\nc,x,nan\n", ["a x"], "value is not finite"),
    "1970": ("user,sku,date\na,x,1970-01-01\nb,x,2025-03-01\nc,x,2025-03-02\n",
             ["b x 2025-03-01 00:00:00", "c x 2025-03-02 00:00:00"], "33% of the times are 1970-01-01"),
    "equal times": ("user,sku,date\na,x,2025-03-01\nb,x,2025-03-01\n",
                    ["a x 2025-03-01 00:00:00", "b x 2025-03-01 00:00:00"], "all times are equal"),
    "rounded ids": ("user,sku\n8.55E+12,x\nb,y\n", ["8.55E+12 x", "b y"], "1 ids of the user are rounded"),
    "unseen blanks": ("user,sku\na,x\na\u00a0,y\n\u200ba,z\n", ["a x", "a y", "a z"], "2 ids of the user have blanks"),
    "normal forms": ("user,sku\nJo\u0308,x\nJ\u00f6,y\n", ["Jo\u0308 x", "J\u00f6 y"], "two normal forms of Unicode"),
    "two encodings": (b"user,sku\nJ\xc3\xb6,x\nJ\xf6,y\n", ["J\u00f6 x"], "not UTF-8 text"),
    "blank lines above": ("\n \nuser,item\n#1,x\nb,C#\n", ["#1 x", "b C#"], ""),
    "NUL in a note": ("user,sku,note\na,x,\nb,y,\0\n", ["a x", "b y"], ""),
    "NUL in an id": ("user,sku,note\na,x,\nb\0,y,\n", ["a x"], "not UTF-8 text"),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_log_has_the_right_events_and_the_others_are_spoken_of(home, tmp_path, caplog, name):
    content, events, said, *declared = READ[name]
    dataset = Dataset(name="own", max_reject_share=1, **dict(*declared))
    ingest(home, dataset, [write_file(tmp_path / "log", content)], "run")
    assert query_rows(home, EVENTS) == [(event,) for event in events]
    spoken = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    spoken += [reason for (reason,) in query_rows(home, "select reason from raw.rejects")]
    assert said in "; ".join(spoken) if said else not spoken


def test_a_source_that_is_not_there(tmp_path):
    write_file(tmp_path / "folder" / "movies.csv", "movieId,title\n")
    os.mkfifo(tmp_path / "pipe")
    home, dataset = home_in(tmp_path), datasets.load_dataset("ml-100k", tmp_path)
    said = {"nowhere": "no such file", "*.csv": "none that matches", "folder": "no file called", "pipe": "no such file"}
    for source, text in said.items():
        with pytest.raises(InputError, match=re.escape(text)):
            ingest(home, dataset, [tmp_path / source], "run")
    with pytest.raises(InputError, match=rf"{home.landing}: holds no raw files(?s:.*){dataset.sha256['u.data']}"):
        ingest(home, dataset, [], "run")
    assert not home.root.exists()
