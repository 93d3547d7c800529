"""Every format, on small logs: events and rejects with their file and line; long lines, and what is declared anew."""

import gzip

import polars as pl
import pytest

from benchmarks import fuzz_readers
from oneclass.data_contracts import ContractBroken
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest import files, load
from oneclass.tasks.ingest.stage import ingest
from tests.conftest import query_rows
from tests.tasks.ingest.conftest import read_logs, write_file

LONG_ID = "9" * 10_000
FORMATS = {  # data set, content, events
    "quotes": ("ml-1m", 'rating,x,item_id,user_id\n4,"so,\n""very"" good\n",x,"a, b"\n5,,"c ""d""",e\n',
               [(2, "a, b", "x", 4, None), (3, "e", 'c "d"', 5, None)]),
    "triplets": ("msd", 'b"8\tSOAKI\t7\n', [(1, 'b"8', "SOAKI", 7, None)]),
    "adjacency": ("gowalla", f"0 7 8 \n1\n2  {LONG_ID}\n",
                  [(1, "0", "7", 1, None), (1, "0", "8", 1, None), (3, "2", LONG_ID, 1, None)]),
    "blank lines above": ("ml-1m", "\n \nuser,item\n#1,x\nb,C#\n", [(4, "#1", "x", 1, None), (5, "b", "C#", 1, None)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_each_format(home, tmp_path, name):
    dataset, content, expected = FORMATS[name]
    assert read_logs(home, dataset, [write_file(tmp_path / "log", content)]) == ([(1, *one) for one in expected], [])


@pytest.mark.parametrize("name", ["file_row_number", "File_Row_Number"])
def test_nulls_of_a_table_are_rejected_and_blanks_around_ids_dropped(home, tmp_path, name):
    table = pl.DataFrame({"user_id": [" u ", None, "v"], "item_id": [7.0, 8.0, 9.5], "rating": [5, 4, None], name: 7})
    pl.concat([table] * 2).write_parquet(tmp_path / "log", row_group_size=2)
    events, rejects = read_logs(home, "ml-1m", [tmp_path / "log"])
    assert events == [(1, 1, "u", "7", 5, None), (1, 4, "u", "7", 5, None)]
    assert [line for _, line, _, reason in rejects if reason == "names no user"] == [2, 5]
    assert [line for _, line, _, reason in rejects if reason == "value is not a number"] == [3, 6]


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
    ("netflix", ",,2004-01-01", "names no user"),
    ("netflix", "10,4,2999-01-01", "time is later than the clock by over max_future_days = 1 of the data set's file"),
    ("netflix", "10,5.5,2004-01-01", "value is above value_max = 5 of the data set's file"),
    ("netflix", "1\udcff,4,2004-01-01", "not UTF-8"),
    ("netflix", "10,4,2004-01-01,5", "4 fields instead of 3"),
    ("netflix", "12:ab", "no readable MOVIE: header stands above it"),
    ("ml-1m", "a,,1", "names no item"),
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
