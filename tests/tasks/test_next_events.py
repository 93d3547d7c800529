"""Seen items and what users considered and did not like, from the log to matrices and metrics, by plain recounts."""

import json
from collections import Counter, defaultdict
from datetime import date, datetime, timedelta

import numpy as np
import pytest

from oneclass.models.evaluation.ranks_apart import NEW, REPEATED
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.aggregate import LikeSelection
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import matrices, runs
from tests.conftest import load_entries, load_ids, query_rows
from tests.models.evaluation.test_metrics import compute_naively
from tests.tasks.conftest import cut_next_events_at, fit_models, split_likes, train_model

CUT = date(2026, 5, 1)
SETTINGS = SplitSettings()


@pytest.fixture
def cut(monkeypatch):
    cut_next_events_at(monkeypatch, CUT)


def draw_returns(loyalty, users=120):
    """Events of users who take an item that they had before with the probability `loyalty`, over 150 days."""
    random, events = np.random.default_rng(5), []
    for user in range(users):
        taken, times = [], np.sort(random.uniform(0, 150 * 86400, random.integers(2, 25)))
        for seconds in times:
            again = [item for item in taken if random.random() < loyalty]
            item = again[0] if again else int(random.zipf(1.4)) % 40
            if loyalty or item not in taken:
                events.append((f"u{user}", f"i{item}", 1, datetime(2026, 1, 1) + timedelta(seconds=int(seconds))))
                taken.append(item)
    return events


def recount_pairs(events):
    """(pairs before the cut, pairs of known users and items from then on, all pairs from then on)."""
    before = {event[:2] for event in events if event[3].date() < CUT}
    after = {event[:2] for event in events if event[3].date() >= CUT}
    users, items = ({pair[side] for pair in before} for side in (0, 1))
    known = {(user, item) for user, item in after if user in users and item in items}
    return before, known, after


def split_next(home, seen="auto", settings=SETTINGS):
    return split(home, "run", SplitPlan(settings, ["next_events"], seed=1, seen=seen))


@pytest.fixture
def returning(home, log_events, cut):
    """Events of users who come back to items, binarized."""
    log_events(events := draw_returns(loyalty=0.2))
    binarize(home, BinarizeSettings(), "run")
    return events


def test_auto_includes_seen_items_that_users_come_back_to_which_are_targets_and_train(home, returning):
    before, known, after = recount_pairs(returning)
    repeated = known & before
    share = 100 * len(repeated) / len(known)
    assert share > 20 and len({user for user, _ in repeated}) > 50
    with runs.record_run(home, "run", "backfill", {"publish": {"seen": "auto"}}):
        found = split_next(home)
    assert found.seen_items.reason.startswith(f"{share:.1f} % of {len(known)} pairs of known users")
    ((settings,),) = query_rows(home, "select settings from operations.runs")
    assert json.loads(settings) == {"publish": {"seen": "auto"}, "seen_items": "include"}
    stored = matrices.load_split(home, found.digests["next_events"])
    roles = {(user, item): role for user, item, role in query_rows(home, "from splits.next_events")}
    expected = dict.fromkeys(after - known, "dropped") | dict.fromkeys(known, "next") | dict.fromkeys(before, "train")
    part = stored.parts["test"]
    assert roles == expected | dict.fromkeys(repeated, "again") and pairs_of(home, stored, part) == known
    assert part.seen_items and part.excluded.shape == part.targets.shape and part.excluded.nnz == 0
    counted = Counter(event[:2] for event in returning if event[3].date() < CUT)
    assert load_entries(home, stored.train, stored.users, stored.items) == counted

    assert split_next(home) == found  # of the stored result
    excluding = split_next(home, "exclude")
    stored = matrices.load_split(home, excluding.digests["next_events"])
    assert not excluding.seen_items.included and pairs_of(home, stored, stored.parts["test"]) == known - before


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (draw_returns(loyalty=0), "0.0 % of"),  # no pair comes again
        (draw_returns(loyalty=0.2, users=40), "lists include seen items from 5 % and 50 users on"),  # too few
        ([event[:3] for event in draw_returns(loyalty=0.2)], "no event has a time"),
    ],
)
@pytest.mark.usefixtures("cut")
def test_auto_excludes_seen_items_otherwise(home, log_events, events, reason):
    log_events(events)
    binarize(home, BinarizeSettings(), "run")
    found = split(home, "run", SplitPlan(SETTINGS, ["leave_one_out"], seed=1)).seen_items
    assert not found.included and reason in found.reason


def pairs_of(home, stored, part):
    return set(load_entries(home, part.targets, part.users, stored.items))


def test_metrics_count_repeats_and_tell_new_and_repeated_targets_apart(home, returning):
    """Popularity, ranked by sorting in plain Python."""
    before, known, _ = recount_pairs(returning)
    digest = split_next(home, "include").digests["next_events"]
    stored = matrices.load_split(home, digest)
    users, items = load_ids(home, "user"), load_ids(home, "item")
    popular = Counter(item for _, item in before)
    columns = [items[index] for index in stored.items]
    scores, nothing, expected = np.array([popular[item] for item in columns]), np.zeros(len(columns), bool), {}
    for index in stored.parts["test"].users:
        own, wanted = (np.array([(users[index], item) in pairs for item in columns]) for pairs in (before, known))
        for metric, left_out in (("ndcg@100", nothing), (NEW, own), (REPEATED, ~own)):
            targets, of_users = wanted & ~left_out, expected.setdefault(metric, [])
            of_users.append(compute_naively(scores, left_out, targets)["ndcg@100"] if targets.any() else None)
    models = {"popularity": MODELS["popularity"].Settings()}
    evaluate(home, "run", "next_events", [fit_models(home, digest, models, protocol="next_events")])
    table = {metric: of for metric, *of in query_rows(home, "select metric, value, users from evaluation.metrics")}
    for metric, of_users in expected.items():
        present = [value for value in of_users if value is not None]
        assert table[metric] == [pytest.approx(np.mean(present)), len(present)]
        assert None in of_users or metric == "ndcg@100"


THRESHOLD = 4


@pytest.fixture
def events(log_events):
    """(user, item, stars, time), some items rated twice; what the log says, in plain Python."""
    log_events(made := [*draw_events(4, undated=0)])
    return made


def disliked_pairs(events):
    best: dict = {}
    for user, item, stars, _ in events:
        best[user, item] = max(stars, best.get((user, item), 0))
    users, items = ({pair[side] for pair, stars in best.items() if stars >= THRESHOLD} for side in (0, 1))
    return {pair for pair, stars in best.items() if stars < THRESHOLD and pair[0] in users and pair[1] in items}


def split_home(home):
    likes = BinarizeSettings(threshold=THRESHOLD, explicit_negatives=True)
    return split_likes(home, "strong_generalization", "leave_one_out", likes=likes, held_out_share=0.2)


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
    error = np.sqrt((shares * (1 - shares)) @ disliked_by)
    assert abs(part.explicit_negatives.nnz - shares @ disliked_by) < 4 * error

    trained, held_out, split_ = load_negatives(home, digests["strong_generalization"])
    training_users = {user for user, _ in load_entries(home, split_.train, split_.users, split_.items)}
    items = {item for _, item in load_entries(home, split_.train, split_.users, split_.items)}
    assert trained == {pair for pair in everything if pair[0] in training_users and pair[1] in items}
    assert held_out.keys() == {"validation", "test"} and all(held_out.values())
    for name, found in held_out.items():
        part = split_.parts[name]
        users = {user for user, _ in load_entries(home, part.targets, part.users, split_.items)}
        assert found < everything and {user for user, _ in found} <= users and not users & training_users


def test_a_fit_gets_them_and_the_validation_users(home, events, monkeypatch):
    given, fit = [], MODELS["popularity"]._fit
    monkeypatch.setattr(MODELS["popularity"], "_fit", lambda *call: given.append(call) or fit(*call))
    digest = split_home(home)["strong_generalization"]
    train_model(home, digest, "popularity", protocol="strong_generalization")
    [(_, likes, options)], stored = given, matrices.load_split(home, digest)
    validation = stored.parts["validation"]
    pairs = [(likes, stored.train), (options.explicit_negatives, stored.explicit_negatives)]
    pairs += [(getattr(options.validation, name), getattr(validation, name)) for name in ("histories", "targets")]
    assert all((found != expected).nnz == 0 and found.nnz for found, expected in pairs)


DAY, MIN_VALUE = datetime(2026, 3, 1), 3.0


def draw_events(seed, undated=0.05):
    """Events of 40 users over a month: popular items, rare ones, repeats, low ratings, some without a time."""
    generator = np.random.default_rng(seed)
    for number in range(900):
        at = DAY + timedelta(minutes=int(generator.integers(30 * 24 * 60)))
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


@pytest.mark.parametrize(
    ("seed", "share", "next_from", "since"),
    [
        (1, 0.4, None, None),
        pytest.param(2, 0.1, date(2026, 3, 20), None, marks=pytest.mark.slow),
        pytest.param(3, 0.1, None, date(2026, 3, 8), marks=pytest.mark.slow),
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
    likes = BinarizeSettings(threshold=MIN_VALUE)
    binarize(home, likes, "run", since=since)
    plan = SplitPlan(SETTINGS, ["next_events"], seed=1, likes=LikeSelection(likes, since=since))
    digest = split(home, "run", plan).digests["next_events"]
    cut, roles, counts = by_hand(events, share, next_from, since)
    found = query_rows(home, "select user_id, item_id, role from splits.next_events")
    assert {(user, item): role for user, item, role in found} == roles and len(found) == len(roles)
    assert {"train", "next", "dropped"} == set(roles.values()), "the log should have every role"
    part = (stored := matrices.load_split(home, digest)).parts["test"]
    assert load_entries(home, stored.train, stored.users, stored.items) == counts
    assert set(load_entries(home, part.targets, part.users, stored.items)) == {e for e in roles if roles[e] == "next"}
    assert (part.histories != stored.train[part.rows]).nnz == 0 and (np.diff(part.targets.indptr) > 0).all()
    assert (stored.users[part.rows] == part.users).all() and cut > DAY.date()
    assert (np.diff(stored.train.tocsc().indptr) > 0).all()  # no item that nothing is known of
