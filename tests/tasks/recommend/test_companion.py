"""What like adds to lists: how sure each item is and why, whichever model ranks, and lists that explore."""

import shutil

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix

import oneclass
from oneclass.models.numerics.constrained_top_k import Constraints
from oneclass.models.random_graph.model import RandomGraph
from oneclass.tasks.protocols import ALL_EDGES
from oneclass.tasks.publish.choice import choose_companion
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.recommend import load
from oneclass.tasks.recommend.exploration import OPTIMISM, Exploration, find_candidates, order_picks, pick_items
from oneclass.tasks.recommend.like_calibration import IDENTITY, UNVERIFIED, Calibrations, LikeCalibration
from oneclass.tasks.recommend.text import format_table
from oneclass.tasks.rules.selection import Selection
from oneclass.tasks.rules.settings import DeclaredRules, Rules
from oneclass.tasks.stores import fits, matrices, warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import home_in, query_rows
from tests.tasks.conftest import publish_fit, publish_model, split_likes, train_model

HALVED = Calibrations(
    LikeCalibration((0.0, 0.8, 1.0), (0.0, 0.4, 1.0), 0.5), LikeCalibration((0.0, 0.5, 1.0), (0.0, 1.0, 1.0), 1.0)
)
RANKED = ["item_id", "rank", "score"]


@pytest.fixture(scope="module")
def published(by_model, split_once, tmp_path_factory):
    """(home, digest of all edges, what answers by a deviation that likes do not confirm); calibrated at last."""
    home, digest = home_in(tmp_path_factory.mktemp("companion")), split_once[1]
    shutil.copytree(by_model[0].root, home.root, symlinks=True)
    for model in ("mrf_dense", "popularity"):
        publish_model(home, digest, model, f"{model}-beside", companion="random_graph")
    publish_model(home, digest, "popularity", "unconfirmed", companion="random_graph", calibrations=UNVERIFIED)
    unconfirmed = load(home.root, "small")
    publish_model(home, digest, "popularity", "calibrated", companion="random_graph", calibrations=HALVED)
    return home, digest, unconfirmed


def read_lists(home: Home, run_id: str) -> pl.DataFrame:
    return pl.read_parquet(home.publications / run_id / "recommendations.parquet").sort("user_id", "rank")


@pytest.mark.parametrize("model", ["popularity", "mrf_dense"])
def test_it_fills_every_row_and_leaves_the_ranking(published, model):
    home, *_ = published
    alone, beside = (read_lists(home, run_id) for run_id in (f"of-{model}", f"{model}-beside"))
    assert beside.select("user_id", *RANKED).equals(alone.select("user_id", *RANKED))
    assert alone["like_mean"].null_count() == alone["like_sd"].null_count() == len(alone) == 300
    assert beside["like_mean"].null_count() == 0 and beside["like_mean"].is_between(0, 1).all()
    assert (beside["like_sd"] > 0).all()
    named = alone["because"].list.len().fill_null(0) > 0  # by the model itself: these stay
    assert named.mean() > 0.9 if model == "mrf_dense" else not named.any()
    assert beside.filter(named)["because"].to_list() == alone.filter(named)["because"].to_list()


def test_its_likes_and_nearest_items_are_those_of_the_fit(published):
    home, digest, _ = published
    [(fit,)] = query_rows(home, "select distinct digest from operations.model_fits where model = 'random_graph'")
    model, split = fits.load_fit(home, "random_graph", fit), matrices.load_split(home, digest)
    means, deviations = model.like(split.train, users=np.arange(60, dtype=np.int32))
    v = model.posterior.items.mean.astype(np.float64)
    cosine = (v @ v.T) / np.outer(np.linalg.norm(v, axis=1), np.linalg.norm(v, axis=1))
    shop = load(home.root, home.dataset)
    column = {item: number for number, item in enumerate(shop.items["item_id"])}
    row = {user: number for number, user in enumerate(shop.users["user_id"])}
    columns = "user_id", "item_id", "like_mean", "like_sd", "because"
    for user, item, mean, deviation, because in read_lists(home, "popularity-beside").select(columns).iter_rows():
        pair = row[user], column[item]
        assert (mean, deviation) == (pytest.approx(means[pair], abs=1e-6), pytest.approx(deviations[pair], abs=1e-6))
        near = {one: cosine[column[one], column[item]] for one in shop.history(user) if one != item}
        assert (because or []) == [one for one in sorted(near, key=lambda one: -near[one])[:3] if near[one] > 0]


def test_likes_are_published_as_calibrated(published):
    home, *_ = published
    raw, calibrated = (read_lists(home, run_id) for run_id in ("popularity-beside", "calibrated"))
    mean = raw["like_mean"].to_numpy()
    expected = np.where(mean < 0.8, mean / 2, 3 * mean - 2)
    np.testing.assert_allclose(calibrated["like_mean"], expected, atol=1e-6)
    np.testing.assert_allclose(calibrated["like_sd"], raw["like_sd"] / 2, atol=1e-6)
    assert raw["explicit_like_mean"].null_count() == len(raw)
    np.testing.assert_allclose(calibrated["explicit_like_mean"], np.minimum(2 * mean, 1), atol=1e-6)
    assert (calibrated["explicit_like_sd"] > 0).all()


def test_what_likes_do_not_confirm_stays_empty_in_files_and_answers(published, tmp_path):
    home, digest, shop = published
    raw, lists = (read_lists(home, run_id) for run_id in ("popularity-beside", "unconfirmed"))
    assert lists["like_sd"].null_count() == len(lists) and lists["like_mean"].equals(raw["like_mean"])
    columns, answer = ["item_id", "like_mean", "like_sd"], shop.recommend_for("u3", n=5)
    assert answer.select(columns).equals(lists.filter(pl.col("user_id") == "u3").select(columns))
    assert f"{answer['like_mean'][0]:.3f}" in (table := format_table(shop, answer, [])) and "±" not in table
    shutil.copytree(home.root, (copy := home_in(tmp_path)).root, symlinks=True)
    contradicted = Calibrations(IDENTITY._replace(holds=False))
    publish_model(copy, digest, "popularity", "none", companion="random_graph", calibrations=contradicted)
    empty = [pl.lit(None, lists.schema[name]).alias(name) for name in ("like_mean", "like_sd")]
    assert read_lists(copy, "none").equals(raw.with_columns(empty))  # the reasons stay


def test_requests_answer_as_the_files_say(published):
    home, *_ = published
    shop, lists = load(home.root, home.dataset), read_lists(home, "calibrated")
    columns = [*RANKED[::2], "like_mean", "like_sd", "because", "explicit_like_mean", "explicit_like_sd"]
    lists = lists.with_columns(pl.col("because").fill_null([]))
    for user in ("u3", "u40"):
        expected = lists.filter(pl.col("user_id") == user).select(columns)
        assert shop.recommend_for(user, n=5).select(columns).equals(expected)
    many = shop.recommend_many(pl.DataFrame({"user_id": lists["user_id"].unique(maintain_order=True)}), n=5)
    assert many.sort("user_id", "rank").select(columns).equals(lists.select(columns))
    unseen = shop.recommend(["i1", "i2"], n=5)
    assert unseen["like_mean"].is_between(0, 1).all() and set(unseen["because"].explode()) <= {"i1", "i2"}


def test_the_best_on_validation_is_chosen(home, caplog):
    caplog.set_level("INFO", "oneclass.tasks.publish.choice")
    first, second = models = ["paired_symbols", "random_graph"]
    with warehouse.open_warehouse(home) as connection:
        connection.executemany(
            "insert into evaluation.metrics values ('run', 'next_events', ?, ?, 'validation_ndcg@100', ?, 0.01, 9)",
            [(first, "like", 0.1), (first, "popularity_x_odds", 0.3), (second, "like", 0.2)],
        )

    def choose(published, companion="auto", candidates=models):
        return choose_companion(home, "run", PublishSettings(companion=companion), published, candidates, "next_events")

    assert choose("mrf_dense") == first
    assert choose("mrf_dense", candidates=["mrf_dense", second]) == second
    assert choose(second) is None  # it says so itself
    assert choose(second, first) == first
    assert choose("mrf_dense", "none") is None and not caplog.records
    assert choose("mrf_dense", candidates=["mrf_dense"]) is None and "add random_graph to --models" in caplog.text


N = 10
NOBODY = np.empty(0, dtype=np.int32)


def test_pinned_items_stay_and_a_list_without_further_candidates_draws_none():
    random, users = np.random.default_rng(3), np.arange(4)
    ids = np.stack([random.permutation(200)[:50] for _ in users]).astype(np.int32)
    like = random.beta(2, 4, ids.shape).astype(np.float32), (0.02 + 0.2 * random.random(ids.shape)).astype(np.float32)
    explores = Exploration(share=0.4, night=0, seed=0)
    picks, propensities = pick_items(explores, ids, like, users, N, ids[0, :8])
    assert (picks[0, :8] == np.arange(8)).all() and (propensities[0, :8] == 1).all()
    assert (propensities[0, 8:] < 1).all()
    picks, propensities = pick_items(explores, ids[:, :5], (like[0][:, :5], like[1][:, :5]), users, N, NOBODY)
    assert (picks[:, :5] == np.arange(5)).all() and (propensities[:, :5] == 1).all()


def test_a_list_shows_pinned_items_first_then_the_highest_scores_and_padding_last():
    picks, candidates = np.array([[0, 1, 3, -1, -1]]), np.array([[7, 4, 9, 5]], dtype=np.int32)
    order = order_picks(picks, candidates, np.array([[-3.0, -5.0, -1.0, -2.0]]), candidates[0, :1])
    assert order.tolist() == [[0, 2, 1, 3, 4]]


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
