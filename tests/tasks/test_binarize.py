"""Binarize against a few lines of plain Python, and rule by rule on small logs."""

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest

from oneclass.tasks.binarize import aggregate
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.errors import InputError
from oneclass.tasks.stores import resources, warehouse
from tests.conftest import real_log


def load_interactions(home, columns="user_id, item_id, event_count"):
    with warehouse.open_warehouse(home, read_only=True) as connection:
        return connection.execute(
            f"select {columns} from curated.interactions order by user_index, item_index"
        ).fetchall()


def test_a_like_is_a_value_at_or_above_the_threshold(home, log_events):
    log_events([("a", "x", 3.5), ("a", "y", 4), ("b", "x", 5)])
    result = binarize(home, BinarizeSettings(threshold=4), "run")
    assert load_interactions(home) == [("a", "y", 1), ("b", "x", 1)]
    assert (result.edges, result.users, result.items) == (2, 2, 2)


def test_repeats_fold_into_one_edge_with_its_count_and_times(home, log_events):
    days = [datetime(2026, 1, day) for day in (5, 3, 9)]
    log_events([("a", "x", 1, days[0]), ("a", "x", 2, days[1]), ("a", "x", 0, datetime(2020, 1, 1))])
    log_events([("a", "x", 1, days[2])], file_id=2)
    binarize(home, BinarizeSettings(), "run")
    found = load_interactions(home, "event_count, first_at, last_at, first_file_id, first_line")
    assert found == [(3, days[1], days[2], 1, 1)]


def test_indices_follow_the_order_of_first_appearance(home, log_events):
    log_events([("z", "q", 1), ("a", "p", 1), ("z", "p", 1)])
    binarize(home, BinarizeSettings(), "run")
    assert load_interactions(home, "user_id, user_index, item_id, item_index") == [
        ("z", 0, "q", 0),
        ("z", 0, "p", 1),
        ("a", 1, "p", 1),
    ]


@pytest.mark.slow
def test_tomorrows_log_moves_no_index(home, log_events):
    log_events([("z", "q", 1), ("a", "p", 1)])
    binarize(home, BinarizeSettings(), "run")
    before = set(load_interactions(home, "user_id, user_index, item_id, item_index"))
    log_events([("b", "a", 1), ("a", "q", 1)], file_id=2)
    binarize(home, BinarizeSettings(), "run")
    assert before < set(load_interactions(home, "user_id, user_index, item_id, item_index"))


def load_public_log():
    """(user, item, value, time) of every rating of ml-latest-small, and each again that has a mark below four."""
    with real_log("ml-latest-small/ratings.csv").open() as lines:
        rows = [line.rstrip().split(",") for line in lines][1:]
    events = [(user, item, float(mark), datetime.fromtimestamp(int(at), UTC).replace(tzinfo=None))
              for user, item, mark, at in rows]  # fmt: skip
    return events + [(user, item, mark + 1, at + timedelta(days=9)) for user, item, mark, at in events if mark < 4]


def test_edges_of_a_public_log_are_those_of_a_recount(home, log_events):
    log_events(events := load_public_log())
    settings = BinarizeSettings(threshold=3.5)
    since, until = datetime(1998, 1, 1), datetime(2015, 6, 30)
    binarize(home, settings, "run", since=since.date(), until=until.date())
    dated = [(*event, line) for line, event in enumerate(events, 1) if since <= event[3] < until + timedelta(days=1)]
    expected = defaultdict(list)
    for user, item, value, time, line in dated:
        if value >= settings.threshold:
            expected[user, item].append((time, line))
    columns = "user_id, item_id, event_count, first_at, last_at, first_line"
    assert {row[:2]: row[2:] for row in load_interactions(home, columns)} == {
        pair: (len(own), min(own)[0], max(own)[0], min(line for _, line in own)) for pair, own in expected.items()
    }
    assert len(expected) > 20_000 and any(len(own) == 2 for own in expected.values())


def test_since_and_until_take_whole_days(home, log_events):
    log_events([("a", str(day), 1, datetime(2026, 1, day, 23, 59)) for day in range(1, 6)])
    binarize(home, BinarizeSettings(), "run", since=date(2026, 1, 2), until=date(2026, 1, 4))
    assert [item for (item,) in load_interactions(home, "item_id")] == ["2", "3", "4"]


def test_until_the_last_day_of_the_calendar(home, log_events):
    log_events([("a", "x", 1, datetime(2026, 1, 1))])
    assert binarize(home, BinarizeSettings(), "run", until=date.max).edges == 1


def test_logs_without_an_event_are_reported(home, log_events):
    with warehouse.open_warehouse(home), pytest.raises(InputError, match="the logs hold no event"):
        binarize(home, BinarizeSettings(), "run")


def test_since_on_a_log_without_times_is_reported(home, log_events):
    log_events([("a", "x", 1)])
    with pytest.raises(InputError, match="--since and --until need the times"):
        binarize(home, BinarizeSettings(), "run", since=date(2026, 1, 1))


def test_a_period_without_events_is_named_with_the_log_s_own(home, log_events):
    log_events([("a", "x", 1, datetime(2024, 5, 31, 22, 30)), ("b", "x", 1, datetime(2024, 6, 2))])
    with pytest.raises(
        InputError, match="of 2 events none lies up to 2024-05-30: they go from 2024-05-31 to 2024-06-02"
    ):
        binarize(home, BinarizeSettings(), "run", until=date(2024, 5, 30))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            BinarizeSettings(threshold=9),
            r"none of 2 events has a value of at least binarize.threshold = 9 \(the highest of all is 3",
        ),
    ],
)
def test_an_empty_result_is_reported_and_changes_nothing(home, log_events, settings, message):
    log_events([("a", "x", 1), ("b", "x", 3)])
    binarize(home, BinarizeSettings(), "run")
    before = load_interactions(home, "*")
    with pytest.raises(InputError, match=message):
        binarize(home, settings, "run")
    assert load_interactions(home, "*") == before


def test_settings_refuse_what_cannot_be():
    with pytest.raises(ValueError, match="threshold"):
        BinarizeSettings(threshold=float("nan"))


@pytest.mark.slow
@pytest.mark.parametrize(("block", "room"), [(1, 1 << 30), (50, 1 << 30), (1 << 20, 1 << 30), (50, 3000), (50, 1)])
def test_edges_are_the_same_in_blocks_of_any_size(home, log_events, monkeypatch, block, room):
    """A user's repeats fold, whatever their order, and times are of those events that have one."""
    monkeypatch.setattr(aggregate, "EVENTS_PER_BLOCK", block)
    monkeypatch.setattr(resources, "free_memory", lambda: 3 * room)
    generator = np.random.default_rng(1)
    days = [None, *(datetime(2026, 1, day) for day in range(1, 9))]
    events = [
        (f"u{user}", f"i{item}", 1, days[day])
        for user, item, day in zip(*(generator.integers(0, high, 600) for high in (30, 12, 9)), strict=True)
    ]
    log_events(events)
    binarize(home, BinarizeSettings(), "run")
    expected = defaultdict(list)
    for line, (user, item, _, day) in enumerate(events, 1):
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
