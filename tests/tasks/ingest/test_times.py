"""The SQL that converts the text of a time: seconds in ten digits, and text that only looks like them."""

from datetime import datetime, timedelta

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneclass.tasks.ingest.times import FIRST_SECOND, LAST_SECOND, to_utc

CONVERTED = f"select {to_utc((), 'UTC')} from (select unnest($1) as time)"


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
