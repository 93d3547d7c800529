"""The funnel from lines to edges, against plain Python counts on random logs."""

from collections import Counter
from datetime import date, datetime
from itertools import pairwise

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneclass.data_contracts import contracts
from oneclass.tasks.binarize import funnel
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.preview import count_steps
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import runs, warehouse
from tests.conftest import query_rows

EVENTS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"), st.integers(0, 5), st.integers(1, 9) | st.none()),
    max_size=40,
)


def likes_by_hand(events, threshold, first, last):
    """The events of a period, of (user, item, value, day), and those of them that are likes."""
    inside = [row for row in events if not (first or last) or (row[3] and (first or 1) <= row[3] <= (last or 31))]
    return inside, [row[:2] for row in inside if row[2] >= threshold]


@pytest.fixture(scope="module")
def logs():
    """A database with the tables of `raw`."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for statements in contracts.schema():
            connection.execute(statements)
        yield connection


@settings(max_examples=80, deadline=None)
@given(
    events=EVENTS,
    threshold=st.integers(0, 5),
    days=st.tuples(st.none() | st.integers(1, 9), st.none() | st.integers(1, 9)),
    rejects=st.lists(st.sampled_from(["names no item", "value is not a number"]), max_size=6),
)
def test_every_step_loses_what_plain_python_counts(logs, events, threshold, days, rejects):
    since, until = (day and date(2024, 1, day) for day in days)
    inside, likes = likes_by_hand(events, threshold, *days)
    users, items = ({pair[side] for pair in likes} for side in (0, 1))
    with logs.cursor() as connection:
        connection.begin()
        for line, (user, item, value, day) in enumerate(events, 1):
            row = [user, item, value, day and datetime(2024, 1, day, 12), line]
            connection.execute("insert into raw.events values (?, ?, ?, ?, 1, ?, null)", row)
        for line, reason in enumerate(rejects, 100):
            connection.execute("insert into raw.rejects values (1, ?, 'x', ?)", [line, reason])
        steps = funnel.count_event_steps(connection, BinarizeSettings(threshold=threshold), since, until)
        sizes = len(set(likes)), len(users), len(items)
        steps.append(funnel.count_pairs(BinarizeSettings(), steps[-1].remaining, *sizes))
        connection.rollback()
    assert steps[0] == ("lines", steps[0].reason, 0, len(events) + len(rejects), None, None)
    assert {step.reason: step.lost for step in steps[1:] if step.unit == "lines"} == Counter(rejects)
    counts = [len(events), *[len(inside)] * any(days), len(likes), len(set(likes))]
    assert [step.remaining for step in steps[len(set(rejects)) :]] == counts
    assert all(step.lost == before.remaining - step.remaining for before, step in pairwise(steps))
    assert [(step.users, step.items) for step in steps if step.unit == "likes"] == [sizes[1:]]


def test_a_run_stores_the_steps_that_a_preview_shows(home, tmp_path, caplog):
    rows = [f"u{n % 9},i{n % 13},{n % 5}" for n in range(60)] + ["u1,,5", "u1,i1,five", "u0,i0,4"]
    (path := tmp_path / "log.csv").write_text("user,item,rating\n" + "\n".join(rows) + "\n")
    likes = BinarizeSettings(threshold=2)
    dataset = Dataset(name="small", binarize={"threshold": 2}, max_reject_share=0.5)
    caplog.set_level("INFO")
    with runs.record_run(home, "run", "backfill", {}):
        ingest(home, dataset, [path], "run")
        sizes = binarize(home, likes, "run")
    assert binarize(home, likes, "again") == sizes  # from the cache
    query = "select unit, reason, lost, remaining, users, items from operations.funnel where run_id = ? order by step"
    stored, again = (query_rows(home, query, run) for run in ("run", "again"))
    with warehouse.open_warehouse(home) as connection:
        assert stored == again == count_steps(connection, dataset)
    assert stored[0][3] == 63 and stored[-1][3:] == (sizes.edges, sizes.users, sizes.items)
    assert "-1: value is not a number" in caplog.text and "-1: names no item" in caplog.text
