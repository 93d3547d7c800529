"""Splits against their definitions: properties on small logs, and liang2018 against a plain transcription."""

from collections import Counter, defaultdict
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.split import matrix as matrix_of_edges
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import matrices
from tests.conftest import home_in, load_entries, log_into, query_rows, real_log
from tests.tasks.conftest import copy_of, md5_number, split_likes


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A home with a log of 80 users with skewed degrees, binarized; and its pairs."""
    generator = np.random.default_rng(3)
    pairs = dict.fromkeys(
        (int(u) * 7 % 80 + 1, int(i))
        for u, i in zip(generator.zipf(1.3, size=2500) % 80, generator.zipf(1.2, size=2500) % 60, strict=True)
    )
    pairs |= dict.fromkeys((user, 900 + user) for user in range(1, 81))  # items that one user alone has
    home = home_in(tmp_path_factory.mktemp("logged"))
    log_into(home, [(user, item, 1) for user, item in pairs])
    binarize(home, BinarizeSettings(), "run")
    return home, list(pairs)


log = copy_of("logged")


def load_strong(home, **settings):
    return split(home, "run", SplitPlan(SplitSettings(**settings), ["strong_generalization"], seed=1))


def split_by_hash(pairs, seed, share):
    """Parts and roles of hashed strong_generalization, and the edge that leave_one_out holds out of each user."""
    edges = defaultdict(list)
    for user, item in pairs:
        edges[str(user)].append(str(item))
    draws = {user: md5_number(f"{seed}:part:{user}") % 1000000007 / 1000000007 for user in edges}
    parts = {u: "test" if d < share else "validation" if d < 2 * share else "train" for u, d in draws.items()}
    trained = {item for user, own in edges.items() if parts[user] == "train" for item in own}
    roles = {(user, item): (part, "fit" if part == "train" else "dropped" if item not in trained else "fold_in")
             for user, part in parts.items() for item in edges[user]}  # fmt: skip
    known = {u: [item for item in own if item in trained] for u, own in edges.items() if parts[u] != "train"}
    short = sum(2 <= len(own) < 5 for own in known.values()) > sum(len(own) >= 5 for own in known.values())
    for user, own in known.items():
        targets = 1 if short and 2 <= len(own) < 5 else len(own) // 5
        for item in sorted(own, key=lambda item: md5_number(f"{seed}:target:{user}:{item}"))[:targets]:
            roles[user, item] = parts[user], "target"
    lowest = {user: min(own, key=lambda item: md5_number(f"{seed}:leave_one_out:{user}:{item}"))
              for user, own in edges.items() if len(own) > 1}  # fmt: skip
    return roles, lowest


@pytest.mark.parametrize(
    ("log_name", "share"), [("random", 0.2), ("short", 0.3), ("some short", 0.2), ("ml-latest-small", 0.1)]
)
def test_hashed_splits_are_those_of_a_recount(home, log_events, logged, monkeypatch, log_name, share):
    monkeypatch.setattr(matrix_of_edges, "ROWS_PER_BATCH", 100)  # so that a log comes in several batches
    draws = np.random.default_rng(8)
    if log_name == "random":
        pairs = logged[1]
    elif "short" in log_name:
        degrees = [*draws.integers(1, 6, 300), *[10] * (400 * (log_name == "some short"))]
        pairs = [(user, item) for user, degree in enumerate(degrees) for item in draws.choice(40, degree, False)]
    else:
        rows = real_log("ml-latest-small/ratings.csv").read_text().splitlines()[1:]
        pairs = [tuple(row.split(",")[:2]) for row in rows]
    log_events([(user, item, 1) for user, item in pairs])
    binarize(home, BinarizeSettings(), "run")
    protocols = ["strong_generalization", "leave_one_out"]
    digests = split(home, "run", SplitPlan(SplitSettings(held_out_share=share), protocols, seed=7)).digests
    roles, lowest = split_by_hash(pairs, 7, share)
    found = query_rows(home, "from splits.strong_generalization")
    assert {(user, item): (part, role) for user, item, part, role in found} == roles
    held_out = query_rows(home, "select user_id, item_id from splits.leave_one_out where role = 'held_out'")
    assert dict(held_out) == lowest
    by_role = defaultdict(set)
    for pair, role in roles.items():
        by_role[role].add(pair)
    stored = matrices.load_split(home, digests["strong_generalization"])
    assert load_pairs(home, stored.train, stored.users, stored.items) == by_role["train", "fit"]
    for name, part in stored.parts.items():
        targets, users = by_role[name, "target"], {user for user, _ in by_role[name, "target"]}
        assert load_pairs(home, part.targets, part.users, stored.items) == targets and targets
        histories = {pair for pair in by_role[name, "fold_in"] if pair[0] in users}
        assert load_pairs(home, part.histories, part.users, stored.items) == histories and part.rows is None

    everything, targets = {(str(user), str(item)) for user, item in pairs}, set(lowest.items())
    stored = matrices.load_split(home, digests["leave_one_out"])
    assert load_pairs(home, stored.train, stored.users, stored.items) == everything - targets
    part = stored.parts["test"]
    assert load_pairs(home, part.targets, part.users, stored.items) == targets
    assert (part.histories != stored.train[part.rows]).nnz == 0
    stored = matrices.load_split(home, digests[ALL_EDGES])
    assert load_pairs(home, stored.train, stored.users, stored.items) == everything


def load_pairs(home, matrix, users, items):
    return set(load_entries(home, matrix, users, items))


@pytest.mark.parametrize(
    ("users", "share", "bounds_pairs"), [(32, 0.4, True), (31, 0.2, True), (8, 0.1, False), (7, 0.05, False)]
)
def test_the_share_of_held_out_users_is_halved_until_few_are_evaluated(home, log, users, share, bounds_pairs):
    """Of 80 users; the split is that of the smaller share."""
    items = len({item for _, item in log})
    bound = ("MAX_RANKED_PAIRS", users * items) if bounds_pairs else ("MAX_EVALUATED_USERS", users)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"oneclass.tasks.split.protocols.{bound[0]}", bound[1])
        found = load_strong(home, held_out_share=0.4)
    assert found.digests == load_strong(home, held_out_share=share).digests


def split_by_liang(log, held_out, min_user_edges):
    """The published preprocessing of Liang et al. 2018, step by step in pandas and numpy's legacy generator."""
    data = pd.DataFrame(log, columns=["user", "item"])
    degree = data.groupby("user").size()
    data = data[data["user"].isin(degree.index[degree >= min_user_edges])]
    users = np.array(sorted(data["user"].unique()))
    np.random.seed(98765)
    users = users[np.random.permutation(len(users))]
    parts = {
        "train": users[: len(users) - 2 * held_out],
        "validation": users[len(users) - 2 * held_out : -held_out],
        "test": users[-held_out:],
    }
    training = data[data["user"].isin(parts["train"])]
    items = training["item"].unique()
    found = {(u, i): ("train", "fit") for u, i in training.itertuples(index=False)}
    for part in ("validation", "test"):
        held = data[data["user"].isin(parts[part])]
        found |= {(u, i): (part, "dropped") for u, i in held.itertuples(index=False)}
        np.random.seed(98765)
        for user, group in held[held["item"].isin(items)].groupby("user"):
            drawn = np.random.choice(len(group), int(0.2 * len(group)), replace=False) if len(group) >= 5 else []
            for place, item in enumerate(group["item"]):
                found[user, item] = (part, "target" if place in drawn else "fold_in")
    return found, items


def test_liang2018_agrees_with_the_published_steps(home, log):
    made = load_strong(home, scheme="liang2018", held_out_users=15, min_user_edges=5)
    expected, items = split_by_liang(log, 15, 5)
    rows = query_rows(home, "from splits.strong_generalization")
    found = {(int(user), int(item)): (part, role) for user, item, part, role in rows}
    assert found == expected
    item_ids = dict(query_rows(home, "select distinct item_index, item_id from curated.interactions"))
    stored = matrices.load_split(home, made.digests["strong_generalization"])
    assert [int(item_ids[index]) for index in stored.items] == list(items)
    for settings, message in (
        ({}, "needs split.held_out_users"),
        ({"held_out_users": 40}, "split.held_out_users = 40"),
    ):
        with pytest.raises(InputError, match=message):
            load_strong(home, scheme="liang2018", **settings)


def test_items_with_as_many_edges_as_asked_stay_and_then_users(home, log):
    """The least is a degree that an item has; users are counted by the items that stay."""
    of_items = Counter(item for _, item in log)
    least = sorted(of_items.values())[100]
    expected = [(user, item) for user, item in log if of_items[item] >= least]
    of_users = Counter(user for user, _ in expected)
    fewest = sorted(of_users.values())[len(of_users) // 2]
    load_strong(home, min_item_edges=least, min_user_edges=fewest)
    rows = query_rows(home, "select user_id, item_id from splits.strong_generalization")
    found = {(int(user), int(item)) for user, item in rows}
    assert found == {(user, item) for user, item in expected if of_users[user] >= fewest}
    assert 0 < len(found) < len(expected) < len(log)


def test_given_files_keep_their_roles_and_an_edge_in_both_trains(home, log_events):
    train, test = {("a", "x"), ("a", "y"), ("b", "x")}, {("a", "z"), ("b", "x"), ("b", "y")}
    for file_id, pairs in ((1, train), (2, test)):
        log_events([(*pair, 1) for pair in sorted(pairs)], file_id=file_id)
    binarize(home, BinarizeSettings(), "run")
    made = split(home, "run", SplitPlan(SplitSettings(), ["given"], seed=0, given_files=([1], [2])))
    expected = {(*pair, "train") for pair in train} | {(*pair, "test") for pair in test - train}
    assert set(query_rows(home, "from splits.given")) == expected and ALL_EDGES not in made.digests
    part = (stored := matrices.load_split(home, made.digests["given"])).parts["test"]
    assert load_pairs(home, part.targets, part.users, stored.items) == test - train


def test_leave_one_out_of_a_sample_of_users_leaves_all_edges_of_the_others(home, log, monkeypatch):
    def leave_out(most, pairs=1 << 40):
        monkeypatch.setattr("oneclass.tasks.split.protocols.MAX_EVALUATED_USERS", most)
        monkeypatch.setattr("oneclass.tasks.split.protocols.MAX_RANKED_PAIRS", pairs)
        digest = split(home, "run", SplitPlan(SplitSettings(), ["leave_one_out"], seed=1)).digests["leave_one_out"]
        table = dict(query_rows(home, "select user_id, item_id from splits.leave_one_out where role = 'held_out'"))
        stored = matrices.load_split(home, digest)
        part = stored.parts["test"]
        assert stored.train.nnz + len(table) == len(log) and stored.train.shape[0] == 80
        assert len(part.users) == part.targets.nnz == len(table)
        return table

    everybody, sample = leave_out(1000), leave_out(9)
    by_hash = sorted(everybody, key=lambda user: md5_number(f"1:leave_one_out:{user}"))
    assert sample == {user: everybody[user] for user in by_hash[:9]}
    assert leave_out(999, pairs=10 * len({item for _, item in log}) - 1) == sample


def test_a_log_that_leaves_nothing_to_train_on_lacks_that_protocol_alone(home, log, caplog):
    load_strong(home)
    plan = SplitPlan(SplitSettings(min_user_edges=10**6), ["strong_generalization", "leave_one_out"], seed=1)
    assert set(split(home, "run", plan).digests) == {"leave_one_out", ALL_EDGES}
    assert "strong_generalization: left out, because no edge is left to train on" in caplog.text
    assert query_rows(home, "select count(*) from splits.strong_generalization") == [(0,)]


ROLES = {  # the training edges, and the targets, of each protocol
    "strong_generalization": ("role = 'fit'", "part = 'test' and role = 'target'"),
    "leave_one_out": ("role = 'train'", "role = 'held_out'"),
    "next_events": ("role = 'train'", "role = 'next'"),
}


def test_later_edges_and_items_are_those_of_a_count(home, log_events):
    """Of sixty users over thirty days, some events without a time, split by all protocols."""
    generator = np.random.default_rng(5)
    rows = zip(*(generator.integers(0, high, 1200) for high in (60, 50, 30 * 24)), strict=True)
    start, hour = datetime(2026, 3, 1), timedelta(hours=1)
    log_events([(u, i, 1, start + int(at) * hour if number % 9 else None) for number, (u, i, at) in enumerate(rows)])
    split_likes(home, *ROLES)
    found = {row[0]: row[1:] for row in query_rows(home, "from diagnostics.leakage")}
    assert set(found) == set(ROLES)
    timed = "join indexed.interactions using (user_index, item_index) where first_at is not null"
    for protocol, conditions in ROLES.items():
        edges_of = f"select first_at::date, item_index from indexed.{protocol} {timed}"
        trained, held_out = (query_rows(home, f"{edges_of} and {condition}") for condition in conditions)
        first_days = {item: min(day for day, of in trained if of == item) for _, item in trained}
        edges = np.mean([sum(day > at for day, _ in trained) for at, _ in held_out])
        items = np.mean([sum(day > at for day in first_days.values()) for at, _ in held_out])
        counts = len(held_out), len(trained), len(first_days)
        assert found[protocol] == (*counts, pytest.approx(edges), pytest.approx(items))
    assert found["next_events"][-2:] == (0, 0) and min(found["strong_generalization"][-2:]) > 0
