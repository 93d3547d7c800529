"""Kinds of events with weights, against sums of fractions in plain Python."""

from collections import defaultdict
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass import sql
from oneclass.data_contracts import contracts
from oneclass.tasks.binarize import aggregate
from oneclass.tasks.binarize.aggregate import LikeSelection
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.split.protocols import find_likes
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import matrices, warehouse
from oneclass.tasks.stores.matrices import Part
from tests.conftest import home_in, load_ids, log_into, query_rows
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


START, CUT = datetime(2026, 3, 1), datetime(2026, 4, 1)


def draw_orders(seed):
    """Events of all kinds of some users over 40 days, in no order; two of five purchases come back."""
    random = np.random.default_rng(seed)
    for _ in range(800):
        user, item = int(300 * random.random() ** 3), random.zipf(1.2) % 60
        kind = random.choice([*KINDS], p=[0.3, 0.1, 0.5, 0, 0.1])
        at = START + timedelta(seconds=int(random.uniform(0, 40 * 86400)))
        yield f"u{user}", f"i{item}", int(random.integers(1, 3)), at, str(kind)
        if kind == "purchase" and random.random() < 0.4:
            yield f"u{user}", f"i{item}", 1, at + timedelta(days=random.uniform(0, 15)), "return"


def split_orders(folder, events, likes, seen):
    """Return a home of the events, and what each split has by the ids of users and items.

    That is edges, explicit negatives, places in each user's order, sums of ages, and targets.
    """
    log_into(home := home_in(folder), events)
    binarize(home, likes, "run")
    settings = SplitSettings(order=True, validation="latest")
    plan = SplitPlan(settings, ["next_events"], 1, LikeSelection(likes), seen=seen, times=True)
    ids = []
    for side, place in ("user", 0), ("item", 1):  # those without a like come after the others, by id
        known, everyone = load_ids(home, side), {event[place] for event in events}
        ids.append([*(known[index] for index in range(len(known))), *sorted(everyone - {*known.values()})])

    found = {}
    for name, digest in split(home, "run", plan).digests.items():
        stored = matrices.load_split(home, digest)
        (part,) = stored.parts.values() or [Part(None, csr_matrix(stored.train.shape), stored.users)]
        ages = np.add.reduceat(stored.event_ages.days, stored.event_ages.starts[:-1])
        trained = [(stored.train, stored.users, data) for data in (stored.train.data, stored.recency_ranks, ages)]
        others = (stored.explicit_negatives, stored.users), (part.targets, part.users)
        found[name] = [
            {
                (ids[0][users[row]], ids[1][stored.items[column]]): value
                for row, column, value in zip(*matrix.tocoo().coords, data.tolist(), strict=True)
            }
            for matrix, users, data in (*trained, *((*other, other[0].data) for other in others))
        ]
    return home, found


@pytest.mark.parametrize("seen", ["include", "exclude"])
@pytest.mark.parametrize("fading", [{}, {"half_life_days": 9.0, "threshold": 1.5}])
def test_next_events_learns_what_a_log_says_that_ends_at_the_cut(tmp_path, monkeypatch, fading, seen):
    """Against sums of fractions, and against a run on the log of then, whose targets are to validate now."""
    likes, events = BinarizeSettings(event_weights=KINDS, explicit_negatives=True, **fading), [*draw_orders(3)]
    before = [event for event in events if event[3] < CUT]
    _, then = split_orders(tmp_path / "then", before, likes, seen)
    cut_next_events_at(monkeypatch, CUT.date())
    home, now = split_orders(tmp_path / "now", events, likes, seen)
    assert now["next_events"][:4] == then["all_edges"][:4] and all(then["all_edges"][:4])
    assert now["next_events_validation"] == then["next_events"] and then["next_events"][4]

    edges, liked = (added_up(of, likes) for of in (before, events))
    train, _, _, _, targets = now["next_events"]
    assert train == pytest.approx({pair: row[1] for pair, row in edges.items()})
    users, items = ({pair[side] for pair in edges} for side in (0, 1))
    taken = {pair for pair, row in liked.items() if row[3] >= CUT and (seen == "include" or pair not in edges)}
    assert targets.keys() == {(user, item) for user, item in taken if user in users and item in items}
    assert {pair for pair in edges if pair not in liked} and users - {user for user, _ in liked}

    with warehouse.open_warehouse(home) as connection:
        past = find_likes(connection, LikeSelection(likes), CUT.date()).edges
        for changed, leaks in (
            ("select 1", False),
            ("delete from indexed.next_events where role in ('train', 'again') and item_index % 2 = 1", True),
            ("update indexed.next_events set role = 'train' where role = 'next' and item_index % 2 = 1", True),
        ):
            connection.execute(f"begin; {changed}; delete from diagnostics.leakage")
            connection.execute(sql.statement("split/leakage", past=past), {"seed": "1", "folds": 1})
            figures = connection.execute("select future_edges > 0 from diagnostics.leakage").fetchall()
            connection.rollback()
            assert figures == [(leaks,)]


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
