"""The evaluation of splits of one's own against ranks counted by hand."""

import numpy as np
import polars as pl
import pytest

from oneclass import Interactions, ItemKNN, MRFDense, Popularity, Split, evaluate
from oneclass import tune as tune_model

GENERATOR = np.random.default_rng(3)
LIKES = [
    (user, 100 + item, 86_400 * int(GENERATOR.integers(1, 90)))
    for user in range(120)
    for item in sorted({int(draw) % 40 + user % 2 * 30 for draw in GENERATOR.zipf(1.3, 12)})
]
LOG = pl.DataFrame(LIKES, schema=["user_id", "item_id", "time"], orient="row")


def split_log(after: int) -> Split:
    """Train on the events before a day, and test on the others."""
    is_late = pl.col("time") >= 86_400 * after
    return Split(f"day {after}", LOG.filter(~is_late), LOG.filter(is_late))


def test_pairs_on_both_sides_are_left_out_with_their_number():
    split = split_log(60)
    repeated = split.train.events.head(30)
    with pytest.warns(UserWarning, match=r"split mine: 30 of \d+ test pairs are training pairs too") as warned:
        mine = Split("mine", split.train, pl.concat([split.test.events, repeated]))
    assert warned[0].filename == __file__
    without = evaluate(Popularity(), split, metrics=["ndcg@10"], threads=1)
    assert evaluate(Popularity(), mine, metrics=["ndcg@10"], threads=1).metrics.equals(without.metrics)


def naive_ndcg(train: Interactions, test: Interactions, k: int) -> list[float]:
    """Each test user's nDCG@k of the list by popularity, of equally popular items those that came first in the log."""
    likes = train.events.unique(["user_id", "item_id"], keep="first", maintain_order=True)
    degree = dict(likes["item_id"].value_counts().rows())
    both = pl.concat([train.events["item_id"], test.events["item_id"]]).unique(maintain_order=True).to_list()
    order = sorted(both, key=lambda item: -degree.get(item, 0))
    values = []
    for user in test.user_ids:
        known = set(likes.filter(user_id=user)["item_id"])
        targets = set(test.events.filter(user_id=user)["item_id"])
        ranked = [item for item in order if item not in known][:k]
        gain = sum(1 / np.log2(place + 2) for place, item in enumerate(ranked) if item in targets)
        values.append(gain / sum(1 / np.log2(place + 2) for place in range(min(k, len(targets)))))
    return values


def test_a_split_is_evaluated_as_it_is():
    split = split_log(60)
    found = evaluate(Popularity(), split, metrics=["ndcg@10"], threads=1)
    values = naive_ndcg(split.train, split.test, 10)
    row = found.metrics.row(0, named=True)
    assert row["users"] == len(values) and row["value"] == pytest.approx(np.mean(values))
    assert row["standard_error"] == pytest.approx(np.std(values) / np.sqrt(len(values)))
    assert "split" not in found.metrics.columns


def test_several_splits_have_a_row_each_and_a_mean():
    splits = [split_log(40), split_log(60)]
    models = {"knn": ItemKNN(), "popularity": Popularity()}
    found = evaluate(models, splits, metrics=["ndcg@10", "coverage@20"], threads=1)
    of_popularity = found.metrics.filter(model="popularity", metric="ndcg@10")
    expected = [float(np.mean(naive_ndcg(one.train, one.test, 10))) for one in splits]
    assert of_popularity["split"].to_list() == [split.name for split in splits]
    assert of_popularity["value"].to_list() == pytest.approx(expected)
    assert dict(found.table().select("model", "ndcg@10").rows())["popularity"] == pytest.approx(np.mean(expected))
    assert found.comparisons["split"].n_unique() == 2


def test_settings_are_searched_on_the_training_pairs_of_a_split():
    found = tune_model(MRFDense(), split_log(60), trials=2, threads=1)
    assert found.trials["value"].is_not_null().all() and len(found.trials) == 2


def test_a_split_has_no_protocol_and_names_differ():
    split = split_log(60)
    for options in ({"protocol": "leave_one_out"}, {"seed": 3}):
        with pytest.raises(ValueError, match="leave protocol and seed out"):
            evaluate(Popularity(), split, **options)
    with pytest.raises(ValueError, match="two have one name"):
        evaluate(Popularity(), [split, split])
    with pytest.raises(ValueError, match="2 splits; give one"):
        tune_model(MRFDense(), [split, split_log(70)])
    with pytest.raises(ValueError, match="ids of train are .*Int64.*; give both alike"):
        Split("mine", [("ann", "tea")], [(1, "tea")])
