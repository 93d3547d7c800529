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


RENAMED = {name: name.upper() for name in FIXED}  # not of the tables, so computed from the ranks
OF_LISTS = ["coverage@20", "novelty@20", "popularity_percentile@20", "popularity_lift@20", "gini@20"]
OF_USERS = ["hr@1", "hit_rate@10", "precision@10", "recall@10", "mrr", "mrr@1", "map", "percentile_rank", "auc"]
OF_CONTENT = ["serendipity@10", "coverage@10", "intra_list_similarity@10", "calibration[side]@10"]
NAMES = [*FIXED, *RENAMED.values(), *OF_LISTS, *(name.upper() for name in OF_LISTS), "coverage@5"]
NAMES += [*OF_USERS, "recall_of_all@10", "hit_rate@5", *OF_CONTENT]
KINDS = pl.DataFrame({"item_id": range(100, 170), "side": ["a"] * 30 + ["b"] * 10 + ["c"] * 30, "price": range(70)})


@pytest.fixture(scope="module")
def one_out():
    """Both models by every metric with `leave_one_out`, where each user has one target."""
    table = Interactions(LIKES, items=KINDS)
    return evaluate(MODELS, table, metrics=NAMES, protocol="leave_one_out", threads=1)


@pytest.fixture(scope="module")
def folded():
    return evaluate(MODELS, Interactions(LIKES, items=KINDS), metrics=NAMES, folds=2, threads=1)


@pytest.fixture(params=["one split", "folds"])
def found(request):
    return request.getfixturevalue("folded" if request.param == "folds" else "one_out")


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
    found = evaluate(
        ItemKNN(), Interactions(LIKES, items=KINDS), protocol="cold_items", metrics=["ndcg@20", "NDCG@20"], threads=1
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
        known = rf"metrics {name}: unknown\. There are precision@k, recall@k, .*, auc, .*, coverage@k, .* with any"
        with pytest.raises(ValueError, match=known):
            evaluate(Popularity(), LIKES, metrics=["ndcg@10", name], protocol="leave_one_out")


def test_metrics_of_lists_are_those_of_the_tables_at_any_k(found):
    whole = [*OF_LISTS, *(name.upper() for name in OF_LISTS)]
    for model in MODELS:
        of_model = found.metrics.filter(model=model)
        rows = {row[0]: row[1:] for row in of_model.drop("model").select("metric", pl.exclude("metric")).iter_rows()}
        assert all(rows[name] == rows[name.upper()] for name in OF_LISTS)
        values = dict(of_model.select("metric", "value").rows())
        assert values["coverage@5"] < values["coverage@20"]
    assert of_model.filter(metric="coverage@20")["standard_error"].item() is None
    compared = found.comparisons.filter(pl.col("metric").is_in([*whole, "coverage@5"]))
    assert compared["metric"].to_list() == ["NOVELTY@20", "POPULARITY_PERCENTILE@20"]


def test_metrics_of_lists_are_of_the_items_that_the_model_recommends(one_out):
    """Popularity shows its own list: nothing of it surprises, and every list of a few items is nearly the same."""
    of_model = [dict(one_out.metrics.filter(model=model).select("metric", "value").rows()) for model in MODELS]
    strong, popular = ([values[name] for name in OF_CONTENT] for values in of_model)
    assert popular[0] == 0 < strong[0] and popular[1] < strong[1]
    assert 0 < strong[2] < 1 and strong[3] < popular[3]  # users take one of two sides, or both kinds of one
    assert {OF_CONTENT[0], OF_CONTENT[2], OF_CONTENT[3]} == {*one_out.comparisons["metric"]} & {*OF_CONTENT}


def test_calibration_needs_an_attribute_of_texts():
    for name, items in {"genre": KINDS, "price": KINDS, "side": None}.items():
        message = "take one of side" if items is not None else r"by Interactions\(items=\.\.\.\)"
        with pytest.raises(
            ValueError, match=rf"calibration\[{name}\]@3: the items have no attribute {name}; .*{message}"
        ):
            evaluate(Popularity(), Interactions(LIKES, items=items), metrics=[f"calibration[{name}]@3"])
