"""Binarize and the funnel from lines to edges against a few lines of plain Python."""

from collections import Counter, defaultdict
from datetime import date, datetime
from itertools import pairwise

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneclass.data_contracts import contracts
from oneclass.tasks.binarize import aggregate, funnel
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.preview import count_steps
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import resources, runs, warehouse
from tests.conftest import query_rows


def load_interactions(home, columns="user_id, item_id, event_count"):
    return query_rows(home, f"select {columns} from curated.interactions order by user_index, item_index")


def test_since_and_until_take_whole_days(home, log_events):
    log_events([("a", str(day), 1, datetime(2026, 1, day, 23, 59)) for day in range(1, 6)])
    binarize(home, BinarizeSettings(), "run", since=date(2026, 1, 2), until=date(2026, 1, 4))
    assert [item for (item,) in load_interactions(home, "item_id")] == ["2", "3", "4"]
    assert binarize(home, BinarizeSettings(), "last", until=date.max).edges == 5


TIMED = [("a", "x", 1, datetime(2024, 5, 31, 22, 30)), ("b", "x", 3, datetime(2024, 6, 2))]
UNTIMED = [event[:3] for event in TIMED]


@pytest.mark.parametrize(
    ("events", "asked", "message"),
    [
        ([], {}, "the logs hold no event"),
        (UNTIMED, {"since": date(2026, 1, 1)}, "--since and --until need the times"),
        (UNTIMED, {"half_life_days": 3}, "half_life_days needs the times of events"),
        (TIMED, {"until": date(2024, 5, 30)},
         "of 2 events none lies up to 2024-05-30: they go from 2024-05-31 to 2024-06-02"),
        (TIMED, {"threshold": 9},
         r"none of 2 events has a value of at least binarize.threshold = 9 \(the highest of all is 3"),
        (TIMED, {"threshold": 9, "sum_values": True}, "reaches binarize.threshold = 9: .* add up to 3 at most"),
    ],
)  # fmt: skip
def test_where_no_like_is_left_the_reason_is_said_and_nothing_changes(home, log_events, events, asked, message):
    asked = dict(asked)
    period = {name: asked.pop(name) for name in ("since", "until") if name in asked}
    with warehouse.open_warehouse(home):
        pass
    if events:
        log_events(events)
        binarize(home, BinarizeSettings(), "run")
    before = load_interactions(home, "*")
    with pytest.raises(InputError, match=message):
        binarize(home, BinarizeSettings(**asked), "run", **period)
    assert load_interactions(home, "*") == before


MORE_BLOCKS = [(1, 1 << 30), (1 << 20, 1 << 30), (50, 3000), (50, 1)]


@pytest.mark.parametrize(
    ("block", "room"), [(50, 1 << 30), *(pytest.param(*one, marks=pytest.mark.slow) for one in MORE_BLOCKS)]
)
def test_edges_are_the_same_in_blocks_of_any_size(home, log_events, monkeypatch, block, room):
    """Values count from the threshold on; a user's repeats fold, whatever their order; times are of events with one."""
    monkeypatch.setattr(aggregate, "EVENTS_PER_BLOCK", block)
    monkeypatch.setattr(resources, "free_memory", lambda: 3 * room)
    generator = np.random.default_rng(1)
    days = [None, *(datetime(2026, 1, day) for day in range(1, 9))]
    events = [
        (f"u{user}", f"i{item}", value, days[day])
        for user, item, day, value in zip(*(generator.integers(0, high, 900) for high in (30, 12, 9, 6)), strict=True)
    ]
    log_events(events)
    result = binarize(home, BinarizeSettings(threshold=2), "run")
    expected = defaultdict(list)
    for line, (user, item, value, day) in enumerate(events, 1):
        if value >= 2:
            expected[user, item].append((line, day))
    wanted = {
        edge: (
            len(found),
            min((day for _, day in found if day), default=None),
            max((day for _, day in found if day), default=None),
            found[0][0],
        )
        for edge, found in expected.items()
    }
    columns = "user_id, item_id, event_count, first_at, last_at, first_line"
    assert {row[:2]: row[2:] for row in load_interactions(home, columns)} == wanted
    assert (result.edges, result.users, result.items) == (len(wanted), 30, 12)


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
