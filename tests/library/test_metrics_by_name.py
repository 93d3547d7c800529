"""`oneclass.evaluate(metrics=...)` by name and by functions: means, errors and paired tests."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from oneclass import Interactions, ItemKNN, MRFDense, Popularity, UserRanks, evaluate

GENERATOR = np.random.default_rng(4)
LIKES = [
    (user, 100 + item)
    for user in range(150)
    for item in sorted({int(draw) % 40 + user % 2 * 30 for draw in GENERATOR.zipf(1.3, 12)})
]
FIXED = ["recall@20", "recall@50", "recall_of_all@20", "ndcg@100", "ndcg@20", "mean_rank", "mean_rank_midtie"]
MODELS = {"strong": MRFDense(l2=5.0), "popularity": Popularity()}
RENAMED = {name: name.upper() for name in FIXED}  # not of the tables, so computed from the ranks
OF_USERS = ["hr@1", "hit_rate@10", "precision@10", "recall@10", "mrr", "mrr@1", "map", "percentile_rank", "auc"]
NAMES = [*FIXED, *RENAMED.values(), "coverage@20", *OF_USERS, "recall_of_all@10", "hit_rate@5"]


@pytest.fixture(scope="module")
def one_out():
    """Both models by every metric with `leave_one_out`, where each user has one target."""
    return evaluate(MODELS, LIKES, metrics=NAMES, protocol="leave_one_out", threads=1)


@pytest.fixture(params=["one split", "folds"])
def found(request):
    if request.param == "one split":
        return request.getfixturevalue("one_out")
    return evaluate(MODELS, LIKES, metrics=NAMES, folds=2, threads=1)


def test_values_errors_and_comparisons_are_those_of_the_tables(found):
    assert found.metrics["metric"].to_list() == NAMES * 2
    for table in (found.metrics, found.comparisons):
        first = table.filter(pl.col("metric").is_in(FIXED)).with_columns(pl.col("metric").replace(RENAMED))
        second = table.filter(pl.col("metric").is_in(list(RENAMED.values())))
        assert first.sort(pl.all()).equals(second.sort(pl.all())) and len(first)
    assert found.comparisons.filter(metric="hr@1")["p_value"].item() < 1


def test_a_hit_rate_is_a_share_of_users(one_out):
    """On leave_one_out each user has one target, so precision, recall and hit rate are one number but for k."""
    rows = {row["metric"]: row for row in one_out.metrics.filter(model="popularity").iter_rows(named=True)}
    values, row = {name: row["value"] for name, row in rows.items()}, rows["hit_rate@10"]
    hits, users = row["value"], row["users"]
    assert 0 < hits < 1 and hits * users == pytest.approx(round(hits * users))
    assert row["standard_error"] == pytest.approx(np.sqrt(hits * (1 - hits) / users))
    assert values["recall@10"] == values["recall_of_all@10"] == hits and values["precision@10"] == pytest.approx(
        hits / 10
    )
    assert 0 < values["mrr@1"] < values["mrr"] == values["map"]
    assert values["percentile_rank"] == pytest.approx(1 - values["auc"])


def test_pairs_are_compared_user_by_user(one_out):
    """With one target a user's hit is 0 or 1, so the counts of a paired test follow from three evaluations."""
    [row] = one_out.comparisons.filter(metric="hit_rate@5").iter_rows(named=True)
    values = one_out.metrics.filter(metric="hit_rate@5")["value"]
    assert row["difference"] == pytest.approx(values[0] - values[1]) and row["difference"] > 0
    expected = 2 * stats.t.sf(row["difference"] / row["standard_error"], row["users"] - 1)
    assert row["p_value"] == pytest.approx(expected) and row["adjusted_p_value"] == row["p_value"]


def test_known_items_are_ranked_apart_from_new_ones():
    likes = Interactions(LIKES, items={"item_id": range(100, 170), "side": ["a"] * 30 + ["b"] * 10 + ["c"] * 30})
    found = evaluate(ItemKNN(), likes, protocol="cold_items", metrics=["ndcg@20", "NDCG@20"], threads=1)
    one, other = found.metrics.drop("metric").rows()
    assert one == other and one[-1] > 10


def test_a_function_gets_a_users_ranks_by_their_ids():
    seen: list[UserRanks] = []

    def precision(user):
        seen.append(user)
        return (user.places <= 3).sum() / 3

    def odd_users_ndcg(user):
        ideal = sum(1 / np.log2(place + 1) for place in range(1, min(len(user.targets), 100) + 1))
        found = sum(1 / np.log2(place + 1) for place in user.places if place <= 100) / ideal
        return float(found) if user.user_id % 2 else np.nan

    metrics = ["precision@3", precision, "ndcg@100", odd_users_ndcg]
    found = evaluate(MODELS, LIKES, folds=2, metrics=metrics, threads=1)
    table = found.metrics
    assert table["metric"].to_list() == ["precision@3", "precision", "ndcg@100", "odd_users_ndcg"] * 2
    values, drop = table["value"].to_list(), ["metric", "value", "standard_error", "difference", "p_value"]
    assert values[1] == pytest.approx(values[0], abs=1e-12) and values[5] == pytest.approx(values[4], abs=1e-12)
    pairs = {name: found.comparisons.filter(metric=name).drop(drop, strict=False).rows() for name in table["metric"]}
    assert pairs["precision"] and pairs["precision"][0][:-1] == pytest.approx(pairs["precision@3"][0][:-1])
    users = table["users"].to_list()
    assert users[3] == sum(user.user_id % 2 for user in seen[: users[0]]) and len(seen) == 2 * users[0]
    likes = set(LIKES)
    for user in seen:
        assert all((user.user_id, item) in likes for item in user.targets) and len(user.targets) == len(user.places)
        assert (np.diff(user.places) > 0).all() and 1 <= user.places[0] <= user.places[-1] <= user.candidates < 70


def test_texts_stay_texts_and_an_undefined_metric_has_no_row():
    def undefined(user):
        return np.nan

    texts = [(f"{user:03}", f"{item:04}") for user, item in LIKES]
    metrics = [undefined, lengths_of_ids]
    found = evaluate(Popularity(), texts, protocol="leave_one_out", metrics=metrics, threads=1)
    assert found.metrics.select("metric", "value").rows() == [("lengths_of_ids", 304)]


def lengths_of_ids(user: UserRanks) -> float:
    return 100 * len(user.user_id) + len(user.targets[0])


def test_wrong_functions_are_refused():
    def nothing(user):
        return None

    def broken(user):
        return user.places[9]

    def auc(user):
        return 1.0

    with pytest.raises(TypeError, match=r"metric nothing: returns None for user \d+; return a number"):
        evaluate(Popularity(), LIKES, protocol="leave_one_out", metrics=[nothing], threads=1)
    with pytest.raises(IndexError) as raised:
        evaluate(Popularity(), LIKES, protocol="leave_one_out", metrics=[broken], threads=1)
    assert raised.value.__notes__[0].startswith("in the metric broken, of user ")
    for metrics, message in {
        (auc,): "auc is the name of another metric; rename",
        (nothing, nothing): "nothing is the name of another metric",
    }.items():
        with pytest.raises(ValueError, match=message):
            evaluate(Popularity(), LIKES, metrics=metrics)


def test_unknown_names_are_refused_before_a_fit_with_what_there_is():
    for name in ("sharpness@7", "recall", "ndcg@0", "calibration@7", 7):
        known = rf"metrics {name}: unknown\. There are precision@k, recall@k, .*, auc, .* with any"
        with pytest.raises(ValueError, match=known):
            evaluate(Popularity(), LIKES, metrics=["ndcg@10", name], protocol="leave_one_out")
