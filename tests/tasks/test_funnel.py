"""The funnel from lines to edges, against plain Python counts on random logs."""

from collections import Counter
from datetime import date, datetime
from itertools import pairwise

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneclass import sql
from oneclass.tasks.binarize import funnel
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.preview import count_steps
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import runs, warehouse

FILTERS = ("min_item_edges", "min_user_edges", "k_core")
EVENTS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"), st.integers(0, 5), st.integers(1, 9) | st.none()),
    max_size=40,
)


def likes_by_hand(events, threshold, first, last):
    """The events of a period, of (user, item, value, day), and those of them that are likes."""
    inside = [row for row in events if not (first or last) or (row[3] and (first or 1) <= row[3] <= (last or 31))]
    return inside, [row[:2] for row in inside if row[2] >= threshold]


def filter_by_hand(pairs, filters):
    """The pairs that each filter leaves, one after another."""

    def drop(pairs, side, least):
        degree = Counter(pair[side] for pair in pairs)
        return {pair for pair in pairs if degree[pair[side]] >= least}

    for side, name in ((1, "min_item_edges"), (0, "min_user_edges")):
        if filters[name] > 1:
            yield (pairs := drop(pairs, side, filters[name]))
    if filters["k_core"] > 1:
        while (fewer := drop(drop(pairs, 1, filters["k_core"]), 0, filters["k_core"])) != pairs:
            pairs = fewer
        yield pairs


@pytest.fixture(scope="module")
def logs():
    """A database with the tables of `raw`."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(sql.schema()[0])
        yield connection


@settings(max_examples=80, deadline=None)
@given(
    events=EVENTS,
    threshold=st.integers(0, 5),
    filters=st.fixed_dictionaries(dict.fromkeys(FILTERS, st.integers(0, 3))),
    days=st.tuples(st.none() | st.integers(1, 9), st.none() | st.integers(1, 9)),
    rejects=st.lists(st.sampled_from(["names no item", "value is not a number"]), max_size=6),
)
def test_every_step_loses_what_plain_python_counts(logs, events, threshold, filters, days, rejects):
    since, until = (day and date(2024, 1, day) for day in days)
    inside, likes = likes_by_hand(events, threshold, *days)
    left = [set(likes), *filter_by_hand(set(likes), filters)]
    with logs.cursor() as connection:
        connection.begin()
        for line, (user, item, value, day) in enumerate(events, 1):
            row = [user, item, value, day and datetime(2024, 1, day, 12), line]
            connection.execute("insert into raw.events values (?, ?, ?, ?, 1, ?, null)", row)
        for line, reason in enumerate(rejects, 100):
            connection.execute("insert into raw.rejects values (1, ?, 'x', ?)", [line, reason])
        steps = funnel.count_event_steps(connection, BinarizeSettings(threshold=threshold), since, until)
        connection.execute("create temp table edges (user_code varchar, item_code varchar)")
        for pair in set(likes):
            connection.execute("insert into edges values (?, ?)", pair)
        steps.append(funnel.count_pairs(BinarizeSettings(), steps[-1].remaining, *funnel.count_edges(connection)))
        steps += funnel.filter_edges(connection, **filters)
        connection.rollback()
    assert steps[0] == ("lines", steps[0].reason, 0, len(events) + len(rejects), None, None)
    assert {step.reason: step.lost for step in steps[1:] if step.unit == "lines"} == Counter(rejects)
    counts = [len(events), *[len(inside)] * any(days), len(likes), *map(len, left)]
    assert [step.remaining for step in steps[len(set(rejects)) :]] == counts
    assert all(step.lost == before.remaining - step.remaining for before, step in pairwise(steps))
    sides = [(len({user for user, _ in pairs}), len({item for _, item in pairs})) for pairs in left]
    assert [(step.users, step.items) for step in steps if step.unit == "likes"] == sides


def test_a_run_stores_the_steps_that_a_preview_shows(home, tmp_path, caplog):
    rows = [f"u{n % 9},i{n % 13},{n % 5}" for n in range(60)] + ["u1,,5", "u1,i1,five", "u0,i0,4"]
    (path := tmp_path / "log.csv").write_text("user,item,rating\n" + "\n".join(rows) + "\n")
    filters = {"threshold": 2, "min_item_edges": 3, "min_user_edges": 3}
    dataset = Dataset(name="small", binarize=filters, max_reject_share=0.5)
    caplog.set_level("INFO")
    with runs.record_run(home, "run", "backfill", {}):
        ingest(home, dataset, [path], "run")
        sizes = binarize(home, BinarizeSettings(**filters), "run")
    assert binarize(home, BinarizeSettings(**filters), "again") == sizes  # from the cache
    with warehouse.open_warehouse(home, read_only=True) as connection:
        query = (
            "select unit, reason, lost, remaining, users, items from operations.funnel where run_id = ? order by step"
        )
        stored, again = (connection.execute(query, [run]).fetchall() for run in ("run", "again"))
    with warehouse.open_warehouse(home) as connection:
        assert stored == again == count_steps(connection, dataset)
    assert stored[0][3] == 63 and stored[-1][3:] == (sizes.edges, sizes.users, sizes.items)
    assert "-1: value is not a number" in caplog.text and "-1: names no item" in caplog.text
