"""Kinds of events with weights, against sums of fractions in plain Python."""

from collections import defaultdict
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import duckdb
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from oneclass import sql
from oneclass.data_contracts import contracts
from oneclass.tasks.binarize import aggregate
from oneclass.tasks.binarize.aggregate import LikeSelection
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import matrices
from tests.conftest import load_entries, query_rows
from tests.tasks.conftest import cut_next_events_at

KINDS = {"purchase": 5.0, "cart": 2.5, "view": 0.1, "return": -5.0, "search": 0.0}
ORDERS = [  # user, item, value, time, kind
    ("ada", "mug", 1, datetime(2026, 3, 1, 9), "view"),
    ("ada", "mug", 1, datetime(2026, 3, 2, 9), "cart"),
    ("ada", "mug", 1, datetime(2026, 3, 3, 9), "purchase"),
    ("ada", "pot", 2, datetime(2026, 3, 3, 9), "purchase"),
    ("ada", "pot", 1, datetime(2026, 3, 9, 9), "return"),
    ("ada", "pan", 1, datetime(2026, 3, 4, 9), "purchase"),
    ("ada", "pan", 1, datetime(2026, 3, 8, 9), "return"),
    ("ada", "pan", 1, datetime(2026, 3, 12, 9), "purchase"),
    ("ben", "mug", 1, datetime(2026, 3, 5, 9), "purchase"),
    ("ben", "mug", 1, datetime(2026, 3, 6, 9), "return"),
    ("ben", "pot", 7, datetime(2026, 3, 6, 9), "view"),
    ("ben", "pot", 3, datetime(2026, 3, 7, 9), "view"),
    ("ben", "pan", 9, datetime(2026, 3, 7, 9), "view"),
    ("ben", "pan", 4, datetime(2026, 3, 7, 9), "search"),
    ("eve", "pan", 2, datetime(2026, 3, 13, 9), "cart"),
]


def load_edges(home):
    columns = "user_id, item_id, event_count, weight, first_at, last_at, first_line"
    return query_rows(home, f"select {columns} from curated.interactions order by user_index, item_index")


def added_up(events, settings, until=datetime.max):
    """(user, item) -> (events, sum, first time as a like, last time, line) of each pair that is a like."""
    latest = max((when for *_, when, _ in events if when and when <= until), default=None)
    pairs = defaultdict(list)
    for line, (user, item, value, when, kind) in enumerate(events, 1):
        weight = Fraction(settings.event_weights.get(kind, 0)) if settings.event_weights else Fraction(1)
        added = weight.limit_denominator(10**6) * Fraction(str(value))
        if weight == 0 or (settings.half_life_days and when is None) or (when and when > until):
            continue
        if settings.half_life_days:
            age = (latest - when) / timedelta(days=1)
            added *= Fraction(2.0 ** (-age / settings.half_life_days))
        pairs[user, item].append((when or datetime.min, line, Decimal(round(added * 10**9)) / 10**9))
    likes = {}
    for pair, own in pairs.items():
        own.sort()
        totals = [sum(added for *_, added in own[: end + 1]) for end in range(len(own))]
        if totals[-1] < Decimal(str(settings.threshold)):
            continue
        first = max((n + 1 for n, total in enumerate(totals) if total < Decimal(str(settings.threshold))), default=0)
        times = [when for when, *_ in own[first:] if when > datetime.min]
        taken = [when for when, _, added in own if added > 0 and when > datetime.min]
        last = max([*times[:1], *taken], default=None)
        likes[pair] = (len(own), float(totals[-1]), min(times, default=None), last, own[first][1])
    return likes


def assert_agrees(rows, events, settings, until=datetime.max):
    expected = added_up(events, settings, until)
    found = {row[:2]: row[2:] for row in rows}
    assert {pair: row[:1] + row[2:] for pair, row in found.items()} == {
        pair: row[:1] + row[2:] for pair, row in expected.items()
    }
    assert {pair: row[1] for pair, row in found.items()} == pytest.approx(
        {pair: row[1] for pair, row in expected.items()}, rel=1e-9, abs=1e-8
    )


@pytest.mark.parametrize("fading", [{}, {"half_life_days": 4.5, "threshold": 1.5}])
@pytest.mark.parametrize("until", [None, date(2026, 3, 7)])
def test_weights_of_an_orders_log_add_up(home, log_events, fading, until):
    """They fade from the last event of the period."""
    settings = BinarizeSettings(event_weights=KINDS, **fading)
    log_events(ORDERS)
    binarize(home, settings, "run", until=until)
    rows = load_edges(home)
    assert_agrees(rows, ORDERS, settings, until=datetime(2026, 3, 8) if until else datetime.max)
    weights = {row[:2]: row[3] for row in rows}
    if not fading and not until:  # one of two pots came back; ten views of 0.1 are exactly 1
        assert (weights["ada", "pot"], weights["ben", "pot"]) == (5.0, 1.0) and ("ben", "mug") not in weights


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["x", "y"]),
        st.sampled_from([1, 2, 0.1, 0.7, -1, 3.25]),
        st.one_of(st.none(), st.integers(0, 40).map(lambda hours: datetime(2026, 1, 1) + timedelta(hours=hours))),
        st.sampled_from([*KINDS]),
    ),
    min_size=1,
    max_size=40,
)


@pytest.fixture(scope="module")
def tables():
    """A database with the warehouse's tables alone."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for statement in contracts.schema():
            connection.execute(statement)
        yield connection


@hypothesis_settings(max_examples=80, deadline=None)
@given(
    events=EVENTS,
    threshold=st.sampled_from([0.1, 1, 2.6]),
    half_life=st.sampled_from([None, 0.5, 3]),
    has_kinds=st.booleans(),
)
def test_any_stream_of_events_agrees_with_sums_of_fractions(tables, events, threshold, half_life, has_kinds):
    settings = BinarizeSettings(
        event_weights=KINDS if has_kinds else {},
        sum_values=not has_kinds,
        half_life_days=half_life,
        threshold=threshold,
    )
    tables.execute("delete from raw.events")
    rows = [(*event[:4], 1, line, event[4]) for line, event in enumerate(events, 1)]
    tables.executemany("insert into raw.events values (?, ?, ?, ?, ?, ?, ?)", rows)
    aggregate.create_weighted_events(tables, settings, None, None)
    tables.execute(sql.statement("binarize/weighted_pairs"), {"threshold": threshold})
    columns = "user_id, item_id, event_count, weight, first_at, last_at, position & 1099511627775"
    by_stage = tables.execute(f"select {columns} from weighted_pairs order by all").fetchall()
    assert_agrees(by_stage, events, settings)


def test_what_is_known_before_the_cut_of_next_events_holds_no_later_event(home, log_events, monkeypatch):
    """The pan came back before the cut and was bought again after it, so it is a target; the mug's second purchase
    after the cut adds nothing.
    """
    later = ("ada", "mug", 1, datetime(2026, 3, 20, 9), "purchase")
    log_events([*ORDERS, later, ("ada", "tap", 2, datetime(2026, 3, 3, 9), "cart")])
    log_events([("eve", item, 1, datetime(2026, 3, 1, 9), "purchase") for item in ("mug", "pan", "pot")], file_id=2)
    likes = BinarizeSettings(event_weights=KINDS, explicit_negatives=True)
    binarize(home, likes, "run")
    cut_next_events_at(monkeypatch, date(2026, 3, 11))
    plan = SplitPlan(SplitSettings(), ["next_events"], seed=1, likes=LikeSelection(likes))
    stored = matrices.load_split(home, split(home, "run", plan).digests["next_events"])
    negatives = query_rows(
        home,
        "select user_id, item_id, liked_at from indexed.observed_negatives join indexed.users using (user_index) "
        "join indexed.items using (item_index) order by all",
    )
    assert query_rows(home, "select user_id, item_id, role from splits.next_events order by all") == [
        ("ada", "mug", "train"), ("ada", "pan", "next"), ("ada", "pot", "train"), ("ada", "tap", "train"),
        ("ben", "pot", "train"), ("eve", "mug", "train"), ("eve", "pan", "train"), ("eve", "pot", "train"),
    ]  # fmt: skip
    first = load_entries(home, stored.train[0], stored.users[:1], stored.items)
    assert first == pytest.approx({("ada", "mug"): 7.6, ("ada", "pot"): 5.0, ("ada", "tap"): 5.0})
    assert negatives == [
        ("ada", "mug", datetime(2026, 3, 2, 9)), ("ada", "pan", datetime(2026, 3, 12, 9)),
        ("ben", "mug", None), ("ben", "pan", None), ("ben", "pot", datetime(2026, 3, 7, 9)),
    ]  # fmt: skip


def test_a_return_is_no_taking_again(home, log_events, monkeypatch):
    """Of three items bought before the cut one is bought again, one comes back in part, and one is not seen again."""
    cut = datetime(2026, 3, 11)
    events = [("ada", item, 2, cut - timedelta(days=3), "purchase") for item in ("mug", "pan", "pot")]
    events += [("ada", "mug", 1, cut, "purchase"), ("ada", "pan", 1, cut + timedelta(days=1), "return")]
    log_events(events)
    likes = BinarizeSettings(event_weights=KINDS)
    binarize(home, likes, "run")
    cut_next_events_at(monkeypatch, cut.date())
    plan = SplitPlan(SplitSettings(), ["next_events"], seed=1, likes=LikeSelection(likes), seen="include")
    stored = matrices.load_split(home, split(home, "run", plan).digests["next_events"])
    roles = query_rows(home, "select item_id, role from splits.next_events order by all")
    assert roles == [("mug", "again"), ("pan", "train"), ("pot", "train")]
    assert stored.train.data.tolist() == [10, 10, 10]  # nothing of what came later


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sum_values": True, "threshold": 0}, "threshold = 0: must be above 0 where values add up"),
        ({"event_weights": {"view": float("inf")}}, "the weight of view is inf"),
        ({"half_life_days": 0}, "half_life_days"),
    ],
)
def test_settings_that_cannot_add_up_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        BinarizeSettings(**given)
