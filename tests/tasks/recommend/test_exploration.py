"""Lists that explore: what stays, what is drawn, and the propensities, against many nights; and a publication's."""

import duckdb
import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix

import oneclass
from benchmarks.accuracy.exploration import build_policies, draw_shop
from oneclass.models.generator.density_ratio import GroundTruth
from oneclass.models.numerics.constrained_top_k import Constraints
from oneclass.models.random_graph.model import RandomGraph
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish import simulated_shop
from oneclass.tasks.publish.choice import ChosenModel
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.publish.simulated_shop import live, simulate_nights
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.recommend.exploration import OPTIMISM, Exploration, find_candidates, order_picks, pick_items
from oneclass.tasks.rules.selection import Selection
from oneclass.tasks.rules.settings import DeclaredRules, Rules
from oneclass.tasks.split.stage import store_all_edges
from oneclass.tasks.train import train
from tests.conftest import home_in, log_into

USERS, CANDIDATES, N = 4, 50, 10
NOBODY = np.empty(0, dtype=np.int32)
POLICY = Exploration("thompson", share=0.4, bonus=1.0, rate=0.5, night=0, seed=0)


def draw(seed):
    random = np.random.default_rng(seed)
    ids = np.stack([random.permutation(200)[:CANDIDATES] for _ in range(USERS)]).astype(np.int32)
    ids[3, 30:] = -1
    means = random.beta(2, 4, ids.shape).astype(np.float32)
    return ids, (means, (0.02 + 0.2 * random.random(ids.shape)).astype(np.float32))


@pytest.mark.parametrize("policy", ["thompson", "mixture"])
def test_propensities_are_the_shares_of_nights_in_which_an_item_is_shown(policy):
    ids, like = draw(1)
    rows, nights = np.arange(USERS), 3000
    shown, told = np.zeros(ids.shape), np.full(ids.shape, np.nan)
    for night in range(nights):
        picks, propensities = pick_items(POLICY._replace(policy=policy, night=night), ids, like, rows, N, NOBODY)
        assert (np.diff(picks, axis=1) > 0).all() and (picks[:, :6] == np.arange(6)).all()
        np.add.at(shown, (rows[:, None], picks), 1)
        told[rows[:, None], picks] = propensities
    share, error = shown / nights, np.sqrt(0.25 / nights)
    assert (told[:, :6] == 1).all()
    assert np.nanmax(np.abs(share - told)) < 4.5 * error
    assert np.isnan(told[3, 30:]).all()
    assert (np.nan_to_num(told).sum(axis=1) <= N + 1e-6).all()
    if policy == "mixture":  # the best items are shown in the lists that do not explore, at least
        assert (told[:, :N] >= 0.5).all()


def test_a_bonus_shows_the_largest_sums_of_mean_and_deviation():
    ids, (means, deviations) = draw(2)
    picks, propensities = pick_items(
        POLICY._replace(policy="bonus", bonus=2.0), ids, (means, deviations), np.arange(USERS), N, NOBODY
    )
    for user in range(USERS):
        count = int((ids[user] >= 0).sum())
        values = {place: means[user, place] + 2 * deviations[user, place] for place in range(6, count)}
        best = sorted(values, key=values.get, reverse=True)[:4]
        assert picks[user].tolist() == [*range(6), *sorted(best)]
    assert (propensities == 1).all()


def test_pinned_items_stay_and_short_lists_are_padded():
    ids, like = draw(3)
    pinned = ids[0, :8]
    picks, propensities = pick_items(POLICY, ids, like, np.arange(USERS), N, pinned)
    assert (picks[0, :8] == np.arange(8)).all() and (propensities[0, :8] == 1).all()
    assert (propensities[0, 8:] < 1).all()
    picks, propensities = pick_items(POLICY, ids[:, :5], tuple(part[:, :5] for part in like), np.arange(4), N, NOBODY)
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
            follow(np.argsort(-values, kind="stable"), liked[user], category, limit, 30)
            for values in (scores[user], like[0][user] + OPTIMISM * like[1][user])
        )
        turns = {item: place + 0.5 for place, item in enumerate(promising)}
        turns |= {item: min(place, turns.get(item, np.inf)) for place, item in enumerate(best)}
        in_turn = best[:6] + sorted({*turns} - {*best[:6]}, key=turns.get)
        assert found[user][found[user] >= 0].tolist() == follow(in_turn, liked[user], category, limit, 30)


def follow(order, liked, category, limit, length):
    """Follow an order of items past those that are liked or whose category is full."""
    chosen = []
    for item in order:
        if not liked[item] and sum(category[one] == category[item] for one in chosen) < limit and len(chosen) < length:
            chosen.append(int(item))
    return chosen


def test_draws_find_more_likes_of_new_items_and_lose_no_clicks_in_a_simulated_shop():
    shop, policies = draw_shop(25, seed=9), build_policies(0.5, seed=9)
    greedy, explores = (live(shop, policies[name], 25, seed=9, threads=2) for name in ("greedy", "thompson"))
    assert explores.new_likes.sum() > 2 * greedy.new_likes.sum()
    assert explores.regret[-10:].mean() < greedy.regret[-10:].mean()
    assert explores.clicks[:7].sum() > 0.95 * greedy.clicks[:7].sum()


def test_nights_are_simulated_from_a_known_truth(monkeypatch):
    monkeypatch.setattr(simulated_shop, "NIGHTS", 4)
    random = np.random.default_rng(2)
    traits = (random.normal(size=(count, 3)).astype(np.float32) for count in (60, 50))
    truth = GroundTruth(*traits, np.full(50, -1, dtype=np.float32), random.random(60), random.random(50))
    rows = simulate_nights(truth, Exploration("thompson", 0.5, 1.0, 0.5, 20_000, 3), threads=2)
    assert rows.equals(simulate_nights(truth, Exploration("thompson", 0.5, 1.0, 0.5, 20_001, 3), threads=2))
    assert rows["policy"].to_list() == ["greedy"] * 4 + ["thompson"] * 4
    assert rows["night"].to_list() == [1, 2, 3, 4] * 2
    best = rows["clicks"] + rows["regret"]  # of the best lists, in the same shop
    assert best[0] == pytest.approx(best[4]) and best[3] != pytest.approx(best[7])
    assert rows["regret"].min() >= 0 and rows["clicks"][0] != rows["clicks"][4]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A log of 300 users with two tastes, published with lists that explore, under rules; and the folder."""
    home, random = home_in(tmp_path_factory.mktemp("explored")), np.random.default_rng(0)
    log_into(home, [(f"u{u}", f"i{i}", 1) for u in range(300) for i in 40 * (u % 2) + random.permutation(50)[:12]])
    binarize(home, BinarizeSettings(), "run")
    digest = store_all_edges(home, order=False, timed=None)
    fit = train(
        home,
        "run",
        protocol=ALL_EDGES,
        matrices_digest=digest,
        model="random_graph",
        settings=RandomGraph.Settings(iterations=15),
        seed=0,
    )
    publish(
        home,
        "run",
        PublishSettings(top_n=N, explore="mixture", explore_share=0.4),
        choice=ChosenModel("random_graph", "popularity_x_odds"),
        model_digest=fit.digest,
        matrices_digest=digest,
        declared=DeclaredRules(rules=Rules(banned=["i3", "i60"])),
        seed=5,
    )
    return home.published


def test_published_lists_explore_and_their_value_can_be_estimated(published):
    explored = pl.read_parquet(published / "exploration.parquet")
    best = pl.read_parquet(published / "recommendations.parquet")
    assert explored["policy"].unique().to_list() == ["mixture"]
    assert not set(explored["item_id"]) & {"i3", "i60"}
    assert explored.group_by("list_id").len()["len"].to_list() == [N] * 300
    sure = explored.filter(pl.col("propensity") == 1).join(best, on=["user_id", "item_id", "rank"], how="semi")
    assert sure.height >= 6 * 300
    others = explored.join(best, on=["user_id", "item_id"], how="anti")
    assert 150 < others.height and (others["propensity"] < 0.5).all()
    with duckdb.connect(str(published / "published.duckdb"), read_only=True) as connection:
        assert connection.sql("from exploration").pl().equals(explored.sort("user_id", "rank"))
    likes = explored.with_columns(reaction=(pl.col("item_id").hash(1) % 2).cast(pl.Float64))
    target = explored.select("list_id", "user_id").unique().join(best, on="user_id").select("list_id", "item_id")
    found = oneclass.off_policy(likes, target)
    assert abs(found.supported_share - 1) < 0.1
    truth = (best["item_id"].hash(1) % 2).sum() / 300
    value, error = found.table.filter(pl.col("estimator") == "snips").select("value", "standard_error").row(0)
    assert abs(value - truth) < 4 * error + 1e-9
