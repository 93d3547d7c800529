"""What users considered and did not like, from the log to the matrices and the fit: nothing held out is trained on."""

from collections import defaultdict
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from oneclass.models.random_graph.model import RandomGraphSettings
from oneclass.tasks.binarize.aggregate import LikeSelection
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import fits, matrices
from tests.conftest import load_entries, query_rows
from tests.tasks.conftest import cut_next_events_at, train_model

PROTOCOLS = ["strong_generalization", "leave_one_out", "next_events"]
THRESHOLD = 4


@pytest.fixture
def events(home, log_events):
    """(user, item, stars, time) of 90 users, some items rated twice; what the log says, in plain Python."""
    generator = np.random.default_rng(4)
    first, made = datetime(2026, 1, 1), []
    for user in range(90):
        items = generator.choice(40, generator.integers(4, 25), replace=False)
        for item in [*items, *items[:3]]:
            day = first + timedelta(days=int(generator.integers(0, 300)))
            made.append((f"u{user}", f"i{item}", int(generator.integers(1, 6)), day))
    log_events(made)
    return made


def disliked_pairs(events):
    best: dict = {}
    for user, item, stars, _ in events:
        best[user, item] = max(stars, best.get((user, item), 0))
    users, items = ({pair[side] for pair, stars in best.items() if stars >= THRESHOLD} for side in (0, 1))
    return {pair for pair, stars in best.items() if stars < THRESHOLD and pair[0] in users and pair[1] in items}


def split_home(home, *, observed=True):
    likes = BinarizeSettings(threshold=THRESHOLD, explicit_negatives=observed)
    binarize(home, likes, "run")
    plan = SplitPlan(SplitSettings(held_out_share=0.2), PROTOCOLS, seed=1, likes=LikeSelection(likes))
    return split(home, "run", plan).digests


def load_negatives(home, digest):
    """The pairs of a split's negatives: those to fit on, and those of each part."""
    read = matrices.load_split(home, digest)
    parts = {name: part for name, part in read.parts.items() if part.explicit_negatives is not None}
    held_out = {
        name: load_entries(home, part.explicit_negatives, part.users, read.items).keys() for name, part in parts.items()
    }
    return load_entries(home, read.explicit_negatives, read.users, read.items).keys(), held_out, read


def test_in_every_protocol_training_and_held_out_ones_are_disjoint(home, events):
    digests, everything = split_home(home), disliked_pairs(events)
    found = query_rows(home, "select user_id, item_id, first_at from curated.explicit_negatives")
    assert sorted(found) == sorted(
        (*pair, min(day for *one, _, day in events if tuple(one) == pair)) for pair in everything
    )
    assert load_negatives(home, digests[ALL_EDGES])[:2] == (everything, {})

    trained, held_out, split_ = load_negatives(home, digests["leave_one_out"])
    assert trained | held_out["test"] == everything and not trained & held_out["test"]
    part = split_.parts["test"]
    shares = np.diff(part.targets.indptr) / (np.diff(part.targets.indptr) + np.diff(part.histories.indptr))
    disliked_by = np.diff(split_.explicit_negatives[part.rows].indptr) + np.diff(part.explicit_negatives.indptr)
    wanted, error = shares @ disliked_by, np.sqrt((shares * (1 - shares)) @ disliked_by)
    assert abs(part.explicit_negatives.nnz - wanted) < 4 * error

    trained, held_out, split_ = load_negatives(home, digests["strong_generalization"])
    training_users = {user for user, _ in load_entries(home, split_.train, split_.users, split_.items)}
    items = {item for _, item in load_entries(home, split_.train, split_.users, split_.items)}
    assert trained == {pair for pair in everything if pair[0] in training_users and pair[1] in items}
    assert held_out.keys() == {"validation", "test"} and all(held_out.values())
    for name, found in held_out.items():
        part = split_.parts[name]
        users = {user for user, _ in load_entries(home, part.targets, part.users, split_.items)}
        assert found < everything and {user for user, _ in found} <= users and not users & training_users


def test_next_events_has_the_negatives_that_the_log_had_at_the_cut(home, events):
    trained, held_out, split_ = load_negatives(home, split_home(home)["next_events"])
    likes = load_entries(home, split_.train, split_.users, split_.items).keys()
    targets = load_entries(home, split_.parts["test"].targets, split_.parts["test"].users, split_.items).keys()
    firsts = query_rows(home, "select user_id, item_id, first_at from curated.interactions")
    cut = min(day for *pair, day in firsts if tuple(pair) in targets)
    before = [(user, item, stars) for user, item, stars, day in events if day.date() < cut.date()]
    liked = {(user, item) for user, item, stars in before if stars >= THRESHOLD}
    disliked_then = {(user, item) for user, item, stars in before if stars < THRESHOLD} - liked
    users, items = ({pair[side] for pair in likes} for side in (0, 1))
    assert held_out == {} and trained == {pair for pair in disliked_then if pair[0] in users and pair[1] in items}
    assert trained & targets and not trained & likes  # some are liked later, which the log of then does not know


@pytest.mark.slow
def test_a_fit_gets_them(home, events, caplog):
    settings, found = RandomGraphSettings(factors=3, iterations=3, explicit_negatives=True), []
    for observed in (True, False):
        digest = split_home(home, observed=observed)["leave_one_out"]
        fit = train_model(home, digest, "random_graph", settings, protocol="leave_one_out")
        found.append(fits.load_fit(home, "random_graph", fit.digest).posterior.items.mean)
    assert not np.array_equal(*found)
    assert "tells of nothing that users considered and did not like" in caplog.text


DAY, MIN_VALUE = datetime(2026, 3, 1), 3.0


def draw_events(seed, *, days=30, undated=0.05):
    """Events of 40 users over some days; popular items, items of one event, repeats, low ratings, some without a
    time.
    """
    generator = np.random.default_rng(seed)
    for number in range(900):
        at = DAY + timedelta(minutes=int(generator.integers(days * 24 * 60)))
        user, item = int(generator.integers(40)), int(generator.zipf(1.4) % 25) if number % 40 else 100 + number
        yield f"u{user}", f"i{item}", int(generator.integers(1, 6)), None if generator.random() < undated else at


def by_hand(events, share, next_from, since=None):
    """(first day, role of every edge, count of every edge that trains)."""
    times = defaultdict(list)
    for user, item, value, at in events:
        if value >= MIN_VALUE and (since is None or (at is not None and at.date() >= since)):
            times[user, item].append(at)
    first = {edge: min((at for at in of_edge if at), default=None) for edge, of_edge in times.items()}
    days = sorted(at.date() for at in first.values() if at)
    cut = next_from or days[int(np.ceil((1 - share) * len(days))) - 1]
    trains = {edge for edge, at in first.items() if at and at.date() < cut}
    users, items = ({edge[side] for edge in trains} for side in (0, 1))
    roles = {}
    for (user, item), at in first.items():
        known = at is not None and user in users and item in items
        roles[user, item] = "train" if (user, item) in trains else "next" if known else "dropped"
    counts = {}
    for edge in trains:
        later = any(at and at.date() >= cut for at in times[edge])
        counts[edge] = sum(at is not None and at.date() < cut for at in times[edge]) if later else len(times[edge])
    return cut, roles, counts


def split_log(home, settings=SplitSettings(), since=None, protocols=("next_events",)):  # noqa: B008  (frozen)
    likes = BinarizeSettings(threshold=MIN_VALUE)
    binarize(home, likes, "run", since=since)
    return split(home, "run", SplitPlan(settings, protocols, seed=1, likes=LikeSelection(likes, since=since)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "share", "next_from", "since"),
    [
        (1, 0.1, None, None),
        (2, 0.4, None, None),
        (3, 0.1, date(2026, 3, 20), None),
        (4, 0.1, None, date(2026, 3, 8)),
    ],
)
def test_what_came_before_the_cut_trains_and_nothing_later_is_counted(
    home, log_events, monkeypatch, seed, share, next_from, since
):
    monkeypatch.setattr("oneclass.tasks.split.protocols.NEXT_SHARE", share)
    if next_from:
        cut_next_events_at(monkeypatch, next_from)
    events = list(draw_events(seed))
    log_events(events)
    digests = split_log(home, since=since).digests
    cut, roles, counts = by_hand(events, share, next_from, since)
    found = query_rows(home, "select user_id, item_id, role from splits.next_events")
    assert {(user, item): role for user, item, role in found} == roles and len(found) == len(roles)
    assert {"train", "next", "dropped"} == set(roles.values()), "the log should have every role"
    stored = matrices.load_split(home, digests["next_events"])
    part = stored.parts["test"]
    assert load_entries(home, stored.train, stored.users, stored.items) == counts
    assert set(load_entries(home, part.targets, part.users, stored.items)) == {e for e in roles if roles[e] == "next"}
    assert (part.histories != stored.train[part.rows]).nnz == 0 and (np.diff(part.targets.indptr) > 0).all()
    assert (stored.users[part.rows] == part.users).all()
    assert (np.diff(stored.train.tocsc().indptr) > 0).all()  # no item that nothing is known of
    assert (ALL_EDGES in digests) and cut > DAY.date()
