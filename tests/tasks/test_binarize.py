"""Binarize against plain Python: the funnel from lines to edges, and kinds of events with weights in fractions."""

from collections import Counter, defaultdict
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import duckdb
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass import sql
from oneclass.data_contracts import contracts
from oneclass.tasks.binarize import aggregate
from oneclass.tasks.binarize.aggregate import LikeSelection
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.preview import count_steps
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import matrices, resources, runs, warehouse
from oneclass.tasks.stores.matrices import Part
from tests.conftest import home_in, load_ids, log_into, query_rows
from tests.tasks.conftest import cut_next_events_at


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
        (TIMED, {"until": date(2024, 5, 30)},
         "of 2 events none lies up to 2024-05-30: they go from 2024-05-31 to 2024-06-02"),
        (TIMED, {"threshold": 9},
         r"none of 2 events has a value of at least binarize.threshold = 9 \(the highest of all is 3"),
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


@pytest.mark.parametrize(("block", "room"), [(50, 1 << 30), (1 << 20, 1 << 30), (50, 3000)])
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
    lines, times = defaultdict(list), defaultdict(list)
    for line, (user, item, value, day) in enumerate(events, 1):
        if value >= 2:
            lines[user, item].append(line)
            times[user, item] += [day] if day else []
    wanted = {
        edge: (len(own), min(times[edge], default=None), max(times[edge], default=None), own[0])
        for edge, own in lines.items()
    }
    columns = "user_id, item_id, event_count, first_at, last_at, first_line"
    assert {row[:2]: row[2:] for row in load_interactions(home, columns)} == wanted
    assert (result.edges, result.users, result.items) == (len(wanted), 30, 12)


EVENTS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"), st.integers(0, 5), st.integers(1, 9) | st.none()),
    max_size=40,
)


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
    first, last = days
    inside = [row for row in events if not (first or last) or (row[3] and (first or 1) <= row[3] <= (last or 31))]
    likes = [row[:2] for row in inside if row[2] >= threshold]
    users, items = ({pair[side] for pair in likes} for side in (0, 1))
    with logs.cursor() as connection:
        connection.begin()
        for line, (user, item, value, day) in enumerate(events, 1):
            row = [user, item, value, day and datetime(2024, 1, day, 12), line]
            connection.execute("insert into raw.events values (?, ?, ?, ?, 1, ?, null)", row)
        for line, reason in enumerate(rejects, 100):
            connection.execute("insert into raw.rejects values (1, ?, 'x', ?)", [line, reason])
        steps = aggregate.count_event_steps(connection, BinarizeSettings(threshold=threshold), since, until)
        sizes = len(set(likes)), len(users), len(items)
        steps.append(aggregate.count_pairs(BinarizeSettings(), steps[-1].remaining, *sizes))
        connection.rollback()
    assert steps[0] == ("lines", steps[0].reason, 0, len(events) + len(rejects), None, None)
    assert {step.reason: step.lost for step in steps[1:] if step.unit == "lines"} == Counter(rejects)
    counts = [len(events), *[len(inside)] * any(days), len(likes), len(set(likes))]
    assert [step.remaining for step in steps[len(set(rejects)) :]] == counts
    assert all(step.lost == before.remaining - step.remaining for before, step in pairwise(steps))
    assert [(step.users, step.items) for step in steps if step.unit == "likes"] == [sizes[1:]]


def test_a_run_stores_the_steps_that_a_preview_shows(home, tmp_path):
    rows = [f"u{n % 9},i{n % 13},{n % 5}" for n in range(60)] + ["u1,,5", "u1,i1,five", "u0,i0,4"]
    (path := tmp_path / "log.csv").write_text("user,item,rating\n" + "\n".join(rows) + "\n")
    likes = BinarizeSettings(threshold=2)
    dataset = Dataset(name="small", binarize={"threshold": 2}, max_reject_share=0.5)
    with runs.record_run(home, "run", "backfill", {}):
        ingest(home, dataset, [path], "run")
        sizes = binarize(home, likes, "run")
    assert binarize(home, likes, "again") == sizes  # from the cache
    query = "select unit, reason, lost, remaining, users, items from operations.funnel where run_id = ? order by step"
    stored, again = (query_rows(home, query, run) for run in ("run", "again"))
    with warehouse.open_warehouse(home) as connection:
        assert stored == again == count_steps(connection, dataset)
    assert stored[0][3] == 63 and stored[-1][3:] == (sizes.edges, sizes.users, sizes.items)


WEIGHTS = "user_id, item_id, event_count, weight, first_at, last_at, first_line"
KINDS = {"purchase": 5.0, "cart": 2.5, "view": 0.1, "return": -5.0, "search": 0.0}


def added_up(events, settings, until=datetime.max):
    """(user, item) -> (events, sum, first time as a like, last time, line) of each pair that is a like."""
    latest = max((when for *_, when, _ in events if when and when <= until), default=None)
    pairs = defaultdict(list)
    for line, (user, item, value, when, kind) in enumerate(events, 1):
        weight = Fraction(settings.event_weights.get(kind, 0)) if settings.event_weights else Fraction(1)
        added = weight.limit_denominator(10**6) * Fraction(str(value))
        if weight == 0 or (settings.half_life_days and when is None) or (when or datetime.max) > until:
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
    assert {row[:2] for row in rows} == expected.keys()
    for user, item, events_of_pair, weight, *rest in rows:
        count, total, *others = expected[user, item]
        assert (events_of_pair, rest) == (count, others) and weight == pytest.approx(total, rel=1e-9, abs=1e-8)


WEIGHED_EVENTS = st.lists(
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


@settings(max_examples=80, deadline=None)
@example([("a", "x", 7, None, "view"), ("a", "x", 3, None, "view")], 1, None, None, True)  # ten of 0.1 are exactly 1
@given(
    events=WEIGHED_EVENTS,
    threshold=st.sampled_from([0.1, 1, 2.6]),
    half_life=st.sampled_from([None, 0.5, 3]),
    until=st.sampled_from([None, date(2026, 1, 1)]),
    has_kinds=st.booleans(),
)
def test_any_stream_of_events_agrees_with_sums_of_fractions(logs, events, threshold, half_life, until, has_kinds):
    likes = BinarizeSettings(
        event_weights=KINDS if has_kinds else {},
        sum_values=not has_kinds,
        half_life_days=half_life,
        threshold=threshold,
    )
    rows = [(*event[:4], 1, line, event[4]) for line, event in enumerate(events, 1)]
    with logs.cursor() as connection:
        connection.begin()
        connection.executemany("insert into raw.events values (?, ?, ?, ?, ?, ?, ?)", rows)
        aggregate.create_weighted_events(connection, likes, None, until)
        connection.execute(sql.statement("binarize/weighted_pairs"), {"threshold": threshold})
        columns = "user_id, item_id, event_count, weight, first_at, last_at, position & 1099511627775"
        found = connection.execute(f"select {columns} from weighted_pairs order by all").fetchall()
        connection.rollback()
    assert_agrees(found, events, likes, until=datetime(2026, 1, 1, 23, 59, 59) if until else datetime.max)


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


SUMS = {"event_weights": KINDS}


@pytest.mark.parametrize(
    ("given", "seen"),
    [(SUMS, "exclude"), ({**SUMS, "half_life_days": 9.0, "threshold": 1.5}, "include"), ({"threshold": 2}, "include")],
)
def test_next_events_learns_what_a_log_says_that_ends_at_the_cut(tmp_path, monkeypatch, given, seen):
    """Against sums of fractions, and against a run on the log of then, whose targets are to validate now."""
    likes, events = BinarizeSettings(explicit_negatives=True, **given), [*draw_orders(3)]
    before = [event for event in events if event[3] < CUT]
    _, then = split_orders(tmp_path / "then", before, likes, seen)
    cut_next_events_at(monkeypatch, CUT.date())
    home, now = split_orders(tmp_path / "now", events, likes, seen)
    assert now["next_events"][:4] == then["all_edges"][:4] and all(then["all_edges"][:4])
    if likes.adds_values:
        assert_agrees(load_interactions(home, WEIGHTS), events, likes)
    assert now["next_events_validation"] == then["next_events"] and then["next_events"][4]

    sums, logs = likes, (before, events)
    if not likes.adds_values:  # then an edge counts the events that reach the threshold
        sums = BinarizeSettings(sum_values=True)
        logs = [[(*one[:2], 1, *one[3:]) for one in of if one[2] >= likes.threshold] for of in logs]
    edges, liked = (added_up(of, sums) for of in logs)
    train, _, _, _, targets = now["next_events"]
    assert train == pytest.approx({pair: row[1] for pair, row in edges.items()})
    users, items = ({pair[side] for pair in edges} for side in (0, 1))
    taken = {pair for pair, row in liked.items() if row[3] >= CUT and (seen == "include" or pair not in edges)}
    assert targets.keys() == {(user, item) for user, item in taken if user in users and item in items}
    gone = {pair for pair in edges if pair not in liked}  # since events take each other back
    assert bool(gone) == bool(users - {user for user, _ in liked}) == likes.adds_values

    assert query_rows(home, "select future_edges from diagnostics.leakage where protocol = 'next_events'") == [(0,)]


@pytest.mark.parametrize("given", [{"sum_values": True, "threshold": 0}, {"event_weights": {"view": float("inf")}}])
def test_settings_that_cannot_add_up_are_refused(given):
    with pytest.raises(ValueError, match="threshold = 0: must be above 0 where values add up|finite number"):
        BinarizeSettings(**given)
