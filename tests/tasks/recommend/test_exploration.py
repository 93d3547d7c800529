"""Lists that explore: what stays, what is drawn, the propensities, and the published lists."""

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

import oneclass
from oneclass.models.numerics.constrained_top_k import Constraints
from oneclass.models.random_graph.model import RandomGraph
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend.exploration import OPTIMISM, Exploration, find_candidates, order_picks, pick_items
from oneclass.tasks.rules.selection import Selection
from oneclass.tasks.rules.settings import DeclaredRules, Rules
from tests.tasks.conftest import publish_fit, split_likes, train_model

USERS, CANDIDATES, N = 4, 50, 10
NOBODY = np.empty(0, dtype=np.int32)
EXPLORES = Exploration(share=0.4, night=0, seed=0)


def draw_orders(seed):
    random = np.random.default_rng(seed)
    ids = np.stack([random.permutation(200)[:CANDIDATES] for _ in range(USERS)]).astype(np.int32)
    ids[3, 30:] = -1
    means = random.beta(2, 4, ids.shape).astype(np.float32)
    return ids, (means, (0.02 + 0.2 * random.random(ids.shape)).astype(np.float32))


def test_pinned_items_stay_and_short_lists_are_padded():
    ids, like = draw_orders(3)
    pinned = ids[0, :8]
    picks, propensities = pick_items(EXPLORES, ids, like, np.arange(USERS), N, pinned)
    assert (picks[0, :8] == np.arange(8)).all() and (propensities[0, :8] == 1).all()
    assert (propensities[0, 8:] < 1).all()
    picks, propensities = pick_items(EXPLORES, ids[:, :5], tuple(part[:, :5] for part in like), np.arange(4), N, NOBODY)
    assert (picks[:, :5] == np.arange(5)).all() and (propensities[:, :5] == 1).all()


def test_a_list_shows_pinned_items_first_then_the_highest_scores_and_padding_last():
    picks, candidates = np.array([[0, 1, 3, -1, -1]]), np.array([[7, 4, 9, 5]], dtype=np.int32)
    scores = np.array([[-3.0, -5.0, -1.0, -2.0]])
    order = order_picks(picks, candidates, scores, np.array([7], dtype=np.int32))
    assert order.tolist() == [[0, 2, 1, 3, 4]]
    assert order_picks(picks, candidates, scores, NOBODY).tolist() == [[2, 0, 1, 3, 4]]


def test_candidates_are_the_best_then_in_turn_the_next_and_the_promising_within_limits():
    random = np.random.default_rng(5)
    users, items, limit = 6, 90, 3
    scores = random.normal(size=(users, items)).astype(np.float32)
    like = random.random(scores.shape).astype(np.float32), 0.3 * random.random(scores.shape).astype(np.float32)
    liked, category = random.random(scores.shape) < 0.1, random.integers(0, 12, items).astype(np.int32)
    limits = np.full(12, limit, dtype=np.int32)
    constraints = Constraints(np.ones((1, items), dtype=bool), None, NOBODY, np.arange(items + 1), category, limits)
    selection = Selection(6, constraints, np.zeros(users, dtype=np.int32))
    found = find_candidates(scores, like, csr_matrix(liked, dtype=np.float32), selection)
    for user in range(users):
        best, promising = (
            follow_order(np.argsort(-values, kind="stable"), liked[user], category, limit, 30)
            for values in (scores[user], like[0][user] + OPTIMISM * like[1][user])
        )
        turns = {item: place + 0.5 for place, item in enumerate(promising)}
        turns |= {item: min(place, turns.get(item, np.inf)) for place, item in enumerate(best)}
        in_turn = best[:6] + sorted({*turns} - {*best[:6]}, key=turns.get)
        assert found[user][found[user] >= 0].tolist() == follow_order(in_turn, liked[user], category, limit, 30)


def follow_order(order, liked, category, limit, length):
    """Follow an order of items past those that are liked or whose category is full."""
    chosen = []
    for item in order:
        if not liked[item] and sum(category[one] == category[item] for one in chosen) < limit and len(chosen) < length:
            chosen.append(int(item))
    return chosen


def test_published_lists_explore_and_their_value_can_be_estimated(home, log_events, monkeypatch):
    """Of 300 users with two tastes, under rules."""
    monkeypatch.setattr("oneclass.tasks.publish.plan.EXPLORED_SHARE", 0.4)
    random = np.random.default_rng(0)
    log_events([(f"u{u}", f"i{i}", 1) for u in range(300) for i in 40 * (u % 2) + random.permutation(50)[:12]])
    digest = split_likes(home, "leave_one_out")[ALL_EDGES]
    fit = train_model(home, digest, "random_graph", RandomGraph.Settings(iterations=15)).digest
    settings, rules = PublishSettings(top_n=N, explore="thompson"), DeclaredRules(rules=Rules(banned=["i3", "i60"]))
    publish_fit(home, "run", settings, "random_graph", "popularity_x_odds", fit, digest, declared=rules, seed=5)
    explored = pl.read_parquet(home.published / "exploration.parquet")
    best = pl.read_parquet(home.published / "recommendations.parquet")
    assert explored["policy"].unique().to_list() == ["thompson"]
    assert not set(explored["item_id"]) & {"i3", "i60"}
    assert explored.group_by("list_id").len()["len"].to_list() == [N] * 300
    sure = explored.filter(pl.col("propensity") == 1).join(best, on=["user_id", "item_id", "rank"], how="semi")
    assert sure.height >= 6 * 300
    others = explored.join(best, on=["user_id", "item_id"], how="anti")
    assert 150 < others.height and (others["propensity"] < 0.5).all()
    likes = explored.with_columns(reaction=(pl.col("item_id").hash(1) % 2).cast(pl.Float64))
    target = explored.select("list_id", "user_id").unique().join(best, on="user_id").select("list_id", "item_id")
    found = oneclass.off_policy(likes, target)
    assert abs(found.supported_share - 1) < 0.1
    truth = (best["item_id"].hash(1) % 2).sum() / 300
    value, error = found.table.filter(pl.col("estimator") == "snips").select("value", "standard_error").row(0)
    assert abs(value - truth) < 4 * error + 1e-9
