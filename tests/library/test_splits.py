"""Splits of interactions by hand, and their evaluation against ranks counted by hand."""

from datetime import date, datetime

import numpy as np
import polars as pl
import pytest

from oneclass import Interactions, ItemKNN, MRFDense, Popularity, Split, evaluate, split_last, split_share, split_times
from oneclass import tune as tune_model

EVENTS = [
    ("ann", "tea", 1.0, 30),
    ("ann", "milk", 1.0, 10),
    ("ann", "rye", 1.0, 20),
    ("bob", "tea", 1.0, 40),
    ("cid", "milk", 1.0, 15),
    ("cid", "tea", 1.0, 25),
    ("ann", "milk", 1.0, 50),  # again: the pair's time is that of its first event
]
TABLE = Interactions([(user, item, weight, day * 86_400) for user, item, weight, day in EVENTS])
GENERATOR = np.random.default_rng(3)
LIKES = [
    (user, 100 + item, 86_400 * int(GENERATOR.integers(1, 90)))
    for user in range(120)
    for item in sorted({int(draw) % 40 + user % 2 * 30 for draw in GENERATOR.zipf(1.3, 12)})
]
LOG = pl.DataFrame(LIKES, schema=["user_id", "item_id", "time"], orient="row")


def list_pairs(table: Interactions) -> list[tuple]:
    return sorted(table.events.select("user_id", "item_id").rows())


def test_the_last_items_by_the_time_of_their_first_event():
    found = split_last(TABLE, 1)
    assert found.name == "last 1" and list_pairs(found.test) == [("ann", "tea"), ("cid", "tea")]
    assert list_pairs(found.train) == [
        ("ann", "milk"),
        ("ann", "milk"),
        ("ann", "rye"),
        ("bob", "tea"),
        ("cid", "milk"),
    ]
    assert list_pairs(split_last(TABLE, 2).test) == [("ann", "rye"), ("ann", "tea")]  # only ann has more than two


def test_without_times_rows_are_in_order():
    assert list_pairs(split_last([("ann", "b"), ("ann", "a"), ("ann", "c"), ("ann", "a")]).test) == [("ann", "c")]


def test_a_share_is_rounded_down_and_drawn_by_the_seed():
    rows = [(user, item) for user, items in (("few", 4), ("five", 5), ("many", 14)) for item in range(items)]
    one, other = split_share(rows, 0.2, seeds=[1, 2])
    for split in (one, other):
        assert split.test.events["user_id"].value_counts(sort=True).rows() == [("many", 2), ("five", 1)]
        assert sorted(list_pairs(split.train) + list_pairs(split.test)) == sorted(rows)
    assert [one.name, other.name] == ["seed 1", "seed 2"] and list_pairs(one.test) != list_pairs(other.test)
    [again] = split_share(list(reversed(rows)), 0.2, seeds=[1])
    assert list_pairs(again.test) == list_pairs(one.test)
    drawn = [pair for seed in range(60) for pair in list_pairs(split_share(rows, 0.2, seeds=[seed])[0].test)]
    assert {item for user, item in drawn if user == "five"} == set(range(5))


def test_the_latest_share():
    [found] = split_share(TABLE, 0.5, latest=True)
    assert list_pairs(found.test) == [("ann", "tea"), ("cid", "tea")] and found.name == "latest 0.5"


def test_cuts_divide_time_and_a_pair_that_comes_again_is_not_to_be_found():
    first, second = split_times(TABLE, ["1970-01-21", datetime(1970, 1, 31)])
    assert first.name == "from 1970-01-21" and second.name == "from 1970-01-31"
    assert list_pairs(first.train) == [("ann", "milk"), ("cid", "milk")]
    assert list_pairs(first.test) == [("ann", "rye"), ("cid", "tea")]
    assert list_pairs(second.test) == [("ann", "tea"), ("bob", "tea")]  # milk comes again
    assert len(second.train.events) == 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: split_last(TABLE, 3), "last 3.*no test event is left"),
        (lambda: split_last(TABLE, 0), "n = 0"),
        (lambda: split_share(TABLE, 1.0), "share = 1.0"),
        (lambda: split_share(TABLE, 0.1), "no test event is left"),
        (lambda: split_times(TABLE, [date(1969, 1, 1)]), "no training event is left"),
        (lambda: split_times(TABLE, ["1970-02-01", "1970-01-01"]), "ascending"),
        (lambda: split_times([("ann", "tea")], ["1970-02-01"]), "needs times"),
        (lambda: Split("mine", [("ann", "tea")], [(1, "tea")]), "ids of train are .*Int64.*; give both alike"),
    ],
)
def test_what_cannot_be_split_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_pairs_on_both_sides_are_left_out_with_their_number():
    split = split_last(LOG, 2)
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
    split = split_last(LOG, 2)
    found = evaluate(Popularity(), split, metrics=["ndcg@10"], threads=1)
    values = naive_ndcg(split.train, split.test, 10)
    row = found.metrics.row(0, named=True)
    assert row["users"] == len(values) and row["value"] == pytest.approx(np.mean(values))
    assert row["standard_error"] == pytest.approx(np.std(values) / np.sqrt(len(values)))
    assert "split" not in found.metrics.columns


def test_several_splits_have_a_row_each_and_a_mean():
    splits = split_times(LOG, ["1970-02-10", "1970-03-01"])
    models = {"knn": ItemKNN(), "popularity": Popularity()}
    found = evaluate(models, splits, metrics=["ndcg@10", "coverage@20"], threads=1)
    of_popularity = found.metrics.filter(model="popularity", metric="ndcg@10")
    expected = [float(np.mean(naive_ndcg(one.train, one.test, 10))) for one in splits]
    assert of_popularity["split"].to_list() == [split.name for split in splits]
    assert of_popularity["value"].to_list() == pytest.approx(expected)
    row = found.over_splits().row(
        by_predicate=(pl.col("model") == "popularity") & (pl.col("metric") == "ndcg@10"), named=True
    )
    assert (row["value"], row["least"], row["most"]) == pytest.approx((np.mean(expected), min(expected), max(expected)))
    assert row["standard_deviation"] == pytest.approx(np.std(expected, ddof=1)) and row["splits"] == 2
    assert dict(found.table().select("model", "ndcg@10").rows())["popularity"] == pytest.approx(np.mean(expected))
    assert found.comparisons["split"].n_unique() == 2


def test_settings_are_searched_on_the_training_pairs_of_a_split():
    found = tune_model(MRFDense(), split_last(LOG, 1), trials=2, threads=1)
    assert found.trials["value"].is_not_null().all() and len(found.trials) == 2


def test_a_split_has_no_protocol_and_names_differ():
    split = split_last(LOG, 1)
    for options in ({"protocol": "leave_one_out"}, {"seed": 3}):
        with pytest.raises(ValueError, match="leave protocol and seed out"):
            evaluate(Popularity(), split, **options)
    with pytest.raises(ValueError, match="two have one name"):
        evaluate(Popularity(), [split, split])
    with pytest.raises(ValueError, match="2 splits; give one"):
        tune_model(MRFDense(), [split, split_last(LOG, 2)])
    with pytest.raises(ValueError, match="several different ones"):
        evaluate(Popularity(), LOG, seed=[1, 1])
