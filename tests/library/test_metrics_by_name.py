"""`oneclass.evaluate(metrics=...)` at any k: the ranks of the run's own tables, means, errors and paired tests."""

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


@pytest.mark.parametrize("options", [{"protocol": "leave_one_out"}, {"folds": 2}], ids=["one split", "folds"])
def test_values_errors_and_comparisons_are_those_of_the_tables(options):
    renamed = {name: name.upper() for name in FIXED}  # not of the tables, so computed from the ranks
    found = evaluate(MODELS, LIKES, metrics=[*FIXED, *renamed.values(), "hr@1"], threads=2, **options)
    assert found.metrics["metric"].to_list() == [*FIXED, *renamed.values(), "hr@1"] * 2
    for table in (found.metrics, found.comparisons):
        first = table.filter(pl.col("metric").is_in(FIXED)).with_columns(pl.col("metric").replace(renamed))
        second = table.filter(pl.col("metric").is_in(list(renamed.values())))
        assert first.sort(pl.all()).equals(second.sort(pl.all())) and len(first)
    assert found.comparisons.filter(metric="hr@1")["p_value"].item() < 1


def test_a_hit_rate_is_a_share_of_users():
    """On leave_one_out each user has one target, so precision, recall and hit rate are one number but for k."""
    names = ["hit_rate@10", "precision@10", "recall@10", "recall_of_all@10", "mrr", "mrr@1", "map", "percentile_rank"]
    found = evaluate(Popularity(), LIKES, protocol="leave_one_out", metrics=[*names, "auc"], threads=2).metrics
    hits, precision, recall, recall_of_all, mrr, mrr_at_1, mean_precision, percentile, auc = found["value"]
    users, error = found["users"][0], found["standard_error"][0]
    assert 0 < hits < 1 and hits * users == pytest.approx(round(hits * users))
    assert error == pytest.approx(np.sqrt(hits * (1 - hits) / users))
    assert (recall, recall_of_all, precision) == (hits, hits, pytest.approx(hits / 10))
    assert 0 < mrr_at_1 < mrr == mean_precision and percentile == pytest.approx(1 - auc)


def test_pairs_are_compared_user_by_user():
    """With one target a user's hit is 0 or 1, so the counts of a paired test follow from three evaluations."""
    found = evaluate(MODELS, LIKES, protocol="leave_one_out", metrics=["hit_rate@5"], threads=2)
    [row] = found.comparisons.iter_rows(named=True)
    values = found.metrics["value"]
    assert row["difference"] == pytest.approx(values[0] - values[1]) and row["difference"] > 0
    expected = 2 * stats.t.sf(row["difference"] / row["standard_error"], row["users"] - 1)
    assert row["p_value"] == pytest.approx(expected) and row["adjusted_p_value"] == row["p_value"]


def test_known_items_are_ranked_apart_from_new_ones():
    kinds = pl.DataFrame({"item_id": range(100, 170), "side": ["a"] * 30 + ["b"] * 10 + ["c"] * 30})
    found = evaluate(
        ItemKNN(), Interactions(LIKES, items=kinds), protocol="cold_items", metrics=["ndcg@20", "NDCG@20"], threads=2
    )
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
    found = evaluate(MODELS, LIKES, folds=2, metrics=metrics, threads=2)
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


def test_texts_stay_texts():
    found = evaluate(
        Popularity(),
        [(f"{user:03}", f"{item:04}") for user, item in LIKES],
        protocol="leave_one_out",
        metrics=lengths_of_ids,
        threads=2,
    )
    assert found.metrics["value"].item() == 304


def lengths_of_ids(user: UserRanks) -> float:
    return 100 * len(user.user_id) + len(user.targets[0])


def test_wrong_functions_are_refused():
    def nothing(user):
        return None

    def broken(user):
        return user.places[9]

    def undefined(user):
        return np.nan

    def auc(user):
        return 1.0

    with pytest.raises(TypeError, match=r"metric nothing: returns None for user \d+; return a number"):
        evaluate(Popularity(), LIKES, protocol="leave_one_out", metrics=[nothing], threads=2)
    assert evaluate(Popularity(), LIKES, protocol="leave_one_out", metrics=undefined, threads=2).metrics.is_empty()
    with pytest.raises(IndexError) as raised:
        evaluate(Popularity(), LIKES, protocol="leave_one_out", metrics=[broken], threads=2)
    assert raised.value.__notes__[0].startswith("in the metric broken, of user ")
    for metrics, message in {
        (auc,): "auc is the name of another metric; rename",
        (nothing, nothing): "nothing is the name of another metric",
        (lambda user: 1.0,): "has no name for its rows; define it with def",
    }.items():
        with pytest.raises(ValueError, match=message):
            evaluate(Popularity(), LIKES, metrics=metrics)
    with pytest.raises(TypeError, match="7 is a int; give names and functions"):
        evaluate(Popularity(), LIKES, metrics=[7])


def test_unknown_names_are_refused_before_a_fit_with_what_there_is():
    for name in ("sharpness@7", "recall", "ndcg@0", "calibration@7"):
        known = rf"metrics {name}: unknown\. There are precision@k, recall@k, .*, coverage@k, .*, auc, "
        with pytest.raises(ValueError, match=known):
            evaluate(Popularity(), LIKES, metrics=["ndcg@10", name], protocol="leave_one_out")


KINDS = pl.DataFrame({"item_id": range(100, 170), "side": ["a"] * 30 + ["b"] * 10 + ["c"] * 30, "price": range(70)})


@pytest.mark.parametrize("options", [{"protocol": "leave_one_out"}, {"folds": 2}], ids=["one split", "folds"])
def test_metrics_of_lists_are_those_of_the_tables_at_any_k(options):
    fixed = ["coverage@20", "novelty@20", "popularity_percentile@20", "popularity_lift@20", "gini@20"]
    names = [*fixed, *(name.upper() for name in fixed), "coverage@5"]
    found = evaluate(MODELS, LIKES, metrics=names, threads=2, **options)
    assert found.metrics["metric"].to_list() == names * 2
    for model in MODELS:
        rows = found.metrics.filter(model=model).drop("model", "metric").rows()
        assert rows[:5] == rows[5:10] and rows[10][1] < rows[0][1]
    assert found.comparisons["metric"].to_list() == ["NOVELTY@20", "POPULARITY_PERCENTILE@20"]


def test_metrics_of_lists_are_of_the_items_that_the_model_recommends():
    """Popularity shows its own list: nothing of it surprises, and every list of a few items is nearly the same."""
    names = ["serendipity@10", "coverage@10", "intra_list_similarity@10", "calibration[side]@10"]
    found = evaluate(MODELS, Interactions(LIKES, items=KINDS), metrics=names, protocol="leave_one_out", threads=2)
    strong, popular = (found.metrics.filter(model=model)["value"].to_list() for model in MODELS)
    assert popular[0] == 0 < strong[0] and popular[1] < strong[1]
    assert 0 < strong[2] < 1 and strong[3] < popular[3]  # users take one of two sides, or both kinds of one
    assert set(found.comparisons["metric"]) == {names[0], names[2], names[3]}


def test_calibration_needs_an_attribute_of_texts():
    for name, items in {"genre": KINDS, "price": KINDS, "side": None}.items():
        message = "take one of side" if items is not None else r"by Interactions\(items=\.\.\.\)"
        with pytest.raises(
            ValueError, match=rf"calibration\[{name}\]@3: the items have no attribute {name}; .*{message}"
        ):
            evaluate(Popularity(), Interactions(LIKES, items=items), metrics=[f"calibration[{name}]@3"])
