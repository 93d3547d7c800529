"""`oneclass.evaluate(metrics=...)` at any k: the ranks of the run's own tables, means, errors and paired tests."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from oneclass import Interactions, ItemKNN, MRFDense, Popularity, evaluate

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


def test_unknown_names_are_refused_before_a_fit_with_what_there_is():
    for name in ("sharpness@7", "recall", "ndcg@0", "coverage@7"):
        known = rf"metrics {name}: unknown\. There are precision@k, recall@k, .*, auc, .*, coverage@20"
        with pytest.raises(ValueError, match=known):
            evaluate(Popularity(), LIKES, metrics=["ndcg@10", name], protocol="leave_one_out")
