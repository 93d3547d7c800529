"""Binarize against a few lines of plain Python, and rule by rule on small logs."""

from collections import defaultdict
from datetime import date, datetime

import numpy as np
import pytest

from oneclass.tasks.binarize import aggregate
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import resources, warehouse
from tests.conftest import query_rows


def load_interactions(home, columns="user_id, item_id, event_count"):
    return query_rows(home, f"select {columns} from curated.interactions order by user_index, item_index")


def test_indices_follow_the_order_of_first_appearance(home, log_events):
    log_events([("z", "q", 1), ("a", "p", 1), ("z", "p", 1)])
    binarize(home, BinarizeSettings(), "run")
    assert load_interactions(home, "user_id, user_index, item_id, item_index") == [
        ("z", 0, "q", 0),
        ("z", 0, "p", 1),
        ("a", 1, "p", 1),
    ]


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
