"""Inputs that were once misread, or refused for a wrong reason."""

import gzip
from pathlib import Path

import polars as pl
import pytest

from benchmarks import fuzz_readers
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.ingest import load
from oneclass.tasks.ingest.landing import FileRefused
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home, Limits
from tests.conftest import query_rows

OWN = Dataset(name="own", max_reject_share=1)


def read_content(home: Home, path: Path, content: str | bytes, dataset: Dataset = OWN) -> tuple[list, list]:
    """Events and rejects of a file with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    ingest(home, dataset, [path], "run")
    events = query_rows(home, "select line_number, user_id, item_id, value from raw.events order by all")
    return events, query_rows(home, "select line_number, reason from raw.rejects order by all")


@pytest.mark.parametrize("name", ["file_row_number", "File_Row_Number"])
def test_parquet_may_have_a_column_of_row_numbers(home, tmp_path, name):
    frame = pl.DataFrame({"user": map(str, range(30_000))}).with_columns(
        pl.lit(7).alias(name), item=pl.lit("x"), value=1
    )
    frame.write_parquet(path := tmp_path / "log.parquet", row_group_size=3_000)
    events, rejects = read_content(home, path, path.read_bytes())
    assert [(line, int(user)) for line, user, _, _ in events] == [(n + 1, n) for n in range(30_000)]
    assert rejects == []


LAST = ("d", '5" nail', 4)
QUOTED = {
    "in the user": ('"b,x,5,\n"c,x,5,', None),
    "in a note": ('b,x,5,"good\nz,y,5,"', [("b", "x", 5), LAST]),
    "around whole lines": ('b,x,5,"good\nz,""y"",5,\n\nv,w,5,"', [("b", "x", 5), LAST]),
    "with text behind": ('b,x,5,"good"\nb,y,5,"bad\nz"one', None),
    "never closed": ('b,x,5,"good\nz,y,5,', None),
}


@pytest.mark.parametrize("name", QUOTED)
def test_a_quoted_field_of_several_lines_makes_one_event_and_quotes_that_do_not_pair_none(home, tmp_path, name):
    lines, meant = QUOTED[name]
    content = f'user,item,value,note\na,x,5,\n{lines}\nd,5" nail,4,\n'
    if meant is None:
        with pytest.raises(FileRefused, match=r"log.csv, line [34]: its quotes do not pair. Mend the line."):
            read_content(home, tmp_path / "log.csv", content)
    else:
        events, rejects = read_content(home, tmp_path / "log.csv", content)
        assert ([event[1:] for event in events], rejects) == ([("a", "x", 5), *meant], [])


@pytest.mark.parametrize("bad", ["9,4,2004-0:1-01", "12:ab", "ab:", "\n,,2004-01-01\n"])
def test_a_bad_line_of_the_netflix_format_is_rejected(home, tmp_path, bad):
    events, rejects = read_content(home, tmp_path / "log", f"7:\n10,5,2004-01-01\n11,5,2004-01-01\n{bad}\n")
    assert (len(events), len(rejects)) == (2, 1)


@pytest.mark.parametrize("longest, packed", [(1 << 26, bytes), (1 << 26, gzip.compress), (2_500_000, bytes)])
def test_a_very_long_line_is_rejected(home, tmp_path, monkeypatch, longest, packed):
    monkeypatch.setattr(load, "MAX_LINE_BYTES", longest)
    line = "b" * 3_000_000 + ",x"
    text = packed("\r\n".join(["user,item", "a,x", line, *["c,x"] * 9_000, line, "d,x", ""]).encode())
    events, rejects = read_content(home, tmp_path / "log", text)
    assert (len(events), len(rejects)) == (9_002, 2)


def test_memory_that_does_not_suffice_is_reported_in_one_sentence(tmp_path):
    home = Home(tmp_path / "var", "small", Limits(threads=1, memory=30_000_000))
    frame = pl.DataFrame({"user": ["a", "b" * 60_000_000], "item": ["x", "y"]})
    frame.write_parquet(path := tmp_path / "log.parquet")
    with pytest.raises(OneclassError, match="DuckDB needs more memory than there is"):
        ingest(home, OWN, [path], "run")


@pytest.mark.parametrize("layout, content", [("adjacency", "u 1\nv {} 3\n"), ("recognised", "user,item\na,x\nb,{}\n")])
def test_an_id_is_no_longer_than_ten_thousand_bytes(home, tmp_path, layout, content):
    dataset = OWN.model_copy(update={"layout": layout})
    assert read_content(home, tmp_path / "at.txt", content.format("9" * 10_000), dataset)[1] == []
    _, rejects = read_content(home, tmp_path / "above.txt", content.format("9" * 10_001), dataset)
    assert rejects == [(content.count("\n"), "the item's id is longer than 10000 bytes")]


@pytest.mark.slow
def test_no_hostile_log_is_misread(tmp_path):
    counts, findings = fuzz_readers.fuzz_readers(tmp_path, seed=0, rounds=1, batch=10)
    assert [f"{one.seed}: {one.difference}" for one in findings] == []
    assert sum(counts.values()) == 50 and {name for name, _ in counts} == set(fuzz_readers.FORMATS)


@pytest.mark.parametrize("format, broken", [("no header", "low"), ("parquet", "high")])
def test_a_reader_that_misreads_is_found(tmp_path, monkeypatch, format, broken):
    choose = load._choose_conditions
    monkeypatch.setattr(load, "_choose_conditions", lambda *given: choose(*given) | {broken: 1.0})
    monkeypatch.setattr(fuzz_readers, "FORMATS", {format: fuzz_readers.FORMATS[format]})
    _, findings = fuzz_readers.fuzz_readers(tmp_path, seed=0, rounds=1, batch=10)
    assert findings and {one.format for one in findings} == {format}
