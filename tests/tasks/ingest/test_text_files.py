"""Text logs in other encodings, with comments and a line of totals; and texts that only look like times."""

import hashlib
from datetime import datetime, timedelta

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import files as containers
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.ingest.times import FIRST_SECOND, LAST_SECOND, to_utc
from tests.conftest import query_rows

SHOP = Dataset(name="shop", title="shop", files=("*.csv",))
EVENTS = "select user_id, item_id from raw.events order by line_number"
CONVERTED = f"select {to_utc((), 'UTC')} from (select unnest($1) as time)"


def test_a_log_in_another_encoding_is_read_in_pieces_to_its_end(home, tmp_path, monkeypatch):
    monkeypatch.setattr(containers, "CHUNK_BYTES", 33)  # within a character of two bytes
    log = tmp_path / "log.csv"
    log.write_bytes("\n".join(["user_id,item_id", *(f"zoë{n},é{n % 7}" for n in range(200)), ""]).encode("utf-16"))
    assert ingest(home, SHOP, [log], "run").total_events == 200
    assert query_rows(home, EVENTS) == [(f"zoë{n}", f"é{n % 7}") for n in range(200)]
    assert query_rows(home, "select sha256 from operations.log_files") == [
        (hashlib.sha256(log.read_bytes()).hexdigest(),)
    ]


@pytest.mark.parametrize("head", ["# exported on Monday", '# one\n\n# two, "three"', "sep=,"])
def test_lines_above_the_header_may_be_comments_but_no_others(home, tmp_path, head):
    log = tmp_path / "log.csv"
    log.write_text(f"{head}\nuser_id,item_id\na,x\n#1,x\nb,C#\n")
    ingest(home, SHOP, [log], "run")
    assert query_rows(home, EVENTS) == [("a", "x"), ("#1", "x"), ("b", "C#")]


@pytest.mark.parametrize("head", ['# one, "two\n', '# one,"two" three\n', '\n"shop"7,'])
def test_an_unpaired_quote_above_the_records_is_refused(home, tmp_path, head):
    log = tmp_path / "log.csv"
    log.write_text(f"{head}user_id,item_id\na,x\n")
    with pytest.raises(InputError, match=r"log.csv, line \d: its quotes do not pair"):
        ingest(home, SHOP, [log], "run")


def test_a_line_of_totals_that_is_left_out_is_named(home, tmp_path, caplog):
    log = tmp_path / "log.csv"
    log.write_text("user_id,item_id,rating\na,x,5\nb,y,4\nTotal,,9\n")
    assert ingest(home, SHOP, [log], "run").total_events == 2
    assert "a line is left out, as no event: Total,,9" in caplog.text


def load_times(*texts: str) -> list[datetime | None]:
    return [time for (time,) in duckdb.execute(CONVERTED, [list(texts)]).fetchall()]


@settings(deadline=None, max_examples=50)
@given(seconds=st.lists(st.integers(FIRST_SECOND, LAST_SECOND), min_size=1, max_size=20))
def test_seconds_are_instants(seconds):
    expected = [datetime(1970, 1, 1) + timedelta(seconds=number) for number in seconds]
    assert load_times(*map(str, seconds)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "0x3B9ACA00",
        "0X77359400",
        "1_00000000",
        "1_000000e3",
        "0b11111111",
        "1000000000x",
        "10000000 0",
        "4102444800",
        "0",
    ],
)
def test_what_only_looks_like_seconds_is_no_time(text):
    assert load_times(text) == [None]
