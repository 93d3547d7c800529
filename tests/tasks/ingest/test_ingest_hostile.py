"""Inputs that were once misread, or refused for a wrong reason."""

import gzip
import io
import tarfile
from pathlib import Path

import polars as pl
import pytest

from benchmarks import fuzz_readers
from oneclass.tasks import datasets
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.ingest import sources, statements
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home, Limits
from tests.conftest import query_rows

OWN = Dataset(name="own", title="Some log", max_reject_share=1)
EVENTS = "select line_number, user_id, item_id, value from raw.events order by all"
REJECTS = "select line_number, reason from raw.rejects order by all"


def read_content(home: Home, path: Path, content: str | bytes, dataset: Dataset | str = OWN) -> tuple[list, list]:
    """Events and rejects of a file with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_file(home, path, dataset)


def read_file(home: Home, path: Path, dataset: Dataset | str = OWN) -> tuple[list, list]:
    if isinstance(dataset, str):
        dataset = datasets.load_dataset(dataset, home.root).model_copy(update={"max_reject_share": 1.0})
    ingest(home, dataset, [path], "run")
    return query_rows(home, EVENTS), query_rows(home, REJECTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["file_row_number", "File_Row_Number"])
def test_parquet_may_have_a_column_of_row_numbers(home, tmp_path, name):
    frame = pl.DataFrame({"user": map(str, range(300_000))}).with_columns(
        pl.lit(7).alias(name), item=pl.lit("x"), value=1
    )
    frame.write_parquet(path := tmp_path / "log.parquet", row_group_size=10_000)
    events, rejects = read_file(home, path)
    assert [(line, int(user)) for line, user, _, _ in events] == [(n + 1, n) for n in range(300_000)]
    assert rejects == []


QUOTED = {
    "in the user": ('"b\nc",x,5,', {3, 4}),
    "in the item": ('b,"x\ny",5,', {3, 4}),
    "in a note": ('b,x,5,"good\nz,y,5,"', {3, 4}),
    "with quotes in it": ('b,x,5,"a ""good""\nz,""y"",5,one"', {3, 4}),
    "around whole lines": ('b,x,5,"good\nz,y,5,\n\nv,w,5,"', {3, 4, 6}),
    "two in a row": ('b,x,5,"good\none"\nb,y,5,"bad\none"', {3, 4, 5, 6}),
    "never ended": ('"b,x,5,', {3}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUOTED)
def test_a_quoted_field_of_several_lines_makes_no_phantoms(home, tmp_path, name):
    lines, spoilt = QUOTED[name]
    last = 4 + lines.count("\n")
    events, rejects = read_content(home, tmp_path / "log.csv", f'user,item,value,note\na,x,5,\n{lines}\nd,5" nail,4,\n')
    assert events == [(2, "a", "x", 5), (last, "d", '5" nail', 4)]
    assert {line for line, _ in rejects} == spoilt


def test_quotes_a_hundred_lines_apart_spoil_their_own_lines_alone(home, tmp_path):
    between = "b,y,5,\n" * 100
    events, rejects = read_content(
        home, tmp_path / "log.csv", f'user,item,value,note\na,x,5,"one\n{between}c,z,5,two"\n'
    )
    assert {line for line, *_ in events} == set(range(3, 104)) and [line for line, _ in rejects] == [2]


def test_of_two_members_of_an_archive_with_one_name_the_last_counts(home, tmp_path):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for stars in (b"1", b"5"):
            for name in ("mv_1.txt", "mv_2.txt"):
                content = b"%s:\n10,%s,2004-01-01\n" % (name[3:4].encode(), stars)
                (member := tarfile.TarInfo(name)).size = len(content)
                tar.addfile(member, io.BytesIO(content))
    events, rejects = read_content(home, tmp_path / "log.tar", archive.getvalue(), "netflix")
    assert (events, rejects) == ([(2, "10", "1", 5), (2, "10", "2", 5)], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "dataset, content, reason",
    [
        (OWN, "user,item,value\na,x,5_0\n", "value is not a number"),
        (OWN, "user,item,timestamp\na,x,1_000_000_000\n", "time is not a date or time"),
        (OWN, "user,item,timestamp\na,x,0x10\n", "time is not a date or time"),
        ("netflix", "7:\n10,5_0,2004-01-01\n9,5,2004-01-01\n", "value is not a number"),
        ("citeulike-a", "1_0 1 2 3 4 5 6 7 8 9 10\n", "does not begin with a count"),
    ],
)
def test_what_only_programmers_call_a_number_is_none(home, tmp_path, dataset, content, reason):
    _, rejects = read_content(home, tmp_path / "log", content, dataset)
    assert len(rejects) == 1 and rejects[0][1].startswith(reason)


def test_a_text_in_parquet_that_only_programmers_call_a_number(home, tmp_path):
    frame = pl.DataFrame({"user": ["a", "b_1"], "item": ["x", "y"], "value": ["5_0", "4"]})
    frame.write_parquet(path := tmp_path / "log.parquet")
    assert read_file(home, path) == ([(2, "b_1", "y", 4)], [(1, "value is not a number")])


@pytest.mark.slow
@pytest.mark.parametrize("zeros", [1, 3, 4, 7, 8, 512, 100_000])
def test_zeros_after_a_gzip(home, tmp_path, zeros):
    content = gzip.compress(b"user,item\na,x\n") + bytes(zeros)
    assert read_content(home, tmp_path / "log.csv.gz", content) == ([(2, "a", "x", 1)], [])


@pytest.mark.slow
@pytest.mark.parametrize("end, packed", [("\n", bytes), ("\r\n", gzip.compress), ("\r", bytes)])
def test_a_line_that_is_too_long_is_named(home, tmp_path, monkeypatch, end, packed):
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1_500_000)
    line = "b" * 1_200_000 + ",x"
    text = end.join(["user,item", "a,x", line, *["c,x"] * 300_000, line, line + "x" * 400_000, "d,x", ""])
    with pytest.raises(InputError, match=r"log, line 300005: has 1,600,002 bytes, more than the 1,500,000 .* break"):
        read_content(home, tmp_path / "log", packed(text.encode()))
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1_600_002)
    events, rejects = read_file(home, tmp_path / "log")
    assert len(events) == 300_002
    assert rejects == [(n, "the user's id is longer than 10000 bytes") for n in (3, 300_004, 300_005)]


def test_memory_that_does_not_suffice_is_reported_in_one_sentence(tmp_path):
    home = Home(tmp_path / "var", "small", Limits(threads=1, memory=30_000_000))
    frame = pl.DataFrame({"user": ["a", "b" * 60_000_000], "item": ["x", "y"]})
    frame.write_parquet(path := tmp_path / "log.parquet")
    with pytest.raises(OneclassError, match="log.parquet: cannot be read in the memory .* smaller files"):
        ingest(home, OWN, [path], "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    "dataset, content, longest",
    [
        ("gowalla", "u 1\nv {} 3\n", 10_000),
        ("citeulike-a", "1 7\n2 {} 3\n", 10_000),
        (OWN, "user,item\na,x\nb,{}\n", 10_000),
    ],
)
def test_an_id_is_no_longer_than_ten_thousand_bytes(home, tmp_path, dataset, content, longest):
    _, rejects = read_content(home, tmp_path / "at.txt", content.format("9" * longest), dataset)
    assert rejects == []
    _, rejects = read_content(home, tmp_path / "above.txt", content.format("9" * (longest + 1)), dataset)
    assert [line for line, _ in rejects] == [content.count("\n")] and "longer than 10000 bytes" in rejects[0][1]


@pytest.mark.slow
@pytest.mark.parametrize("header", ["user,item", "Item;User", "user_id\titem_id", "user,item,timestamp"])
def test_a_header_with_nothing_that_could_be_a_value(home, tmp_path, header):
    delimiter = next(one for one in ",;\t" if one in header)
    line = delimiter.join(["1000000000"] * len(header.split(delimiter)))
    assert read_content(home, tmp_path / "log", f"{header}\n{line}\n") == ([(2, "1000000000", "1000000000", 1)], [])


def test_a_column_that_could_be_a_value_must_be_named(home, tmp_path):
    with pytest.raises(InputError, match="has the columns user, item, stars, and none of them is known as value"):
        read_content(home, tmp_path / "log", "user,item,stars\na,x,5\n")


def test_no_hostile_log_is_misread(tmp_path):
    counts, findings = fuzz_readers.fuzz_readers(tmp_path, seed=0, rounds=1, batch=10)
    assert [f"{one.seed}: {one.difference}" for one in findings] == []
    assert sum(counts.values()) == 50 and {name for name, _ in counts} == set(fuzz_readers.FORMATS)


@pytest.mark.parametrize("format, broken", [("no header", "below"), ("parquet", "above")])
def test_a_reader_that_misreads_is_found(tmp_path, monkeypatch, format, broken):
    bounds = statements.event_bounds
    monkeypatch.setattr(statements, "event_bounds", lambda dataset: bounds(dataset) | {broken: "value = 5"})
    monkeypatch.setattr(fuzz_readers, "FORMATS", {format: fuzz_readers.FORMATS[format]})
    _, findings = fuzz_readers.fuzz_readers(tmp_path, seed=0, rounds=1, batch=10)
    assert findings and {one.format for one in findings} == {format}
