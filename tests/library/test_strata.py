"""`oneclass.evaluate(strata=...)` against metrics of one's own that pick the users or targets of a stratum."""

from collections import Counter

import numpy as np
import polars as pl
import pytest

from oneclass import MRFDense, Popularity, evaluate

GENERATOR = np.random.default_rng(4)
LIKES = [
    (user, 100 + item)
    for user in range(150)
    for item in sorted({int(draw) % 40 + user % 2 * 30 for draw in GENERATOR.zipf(1.3, 4 + user % 3 * 6)})
]


def hits(user):
    return float(user.places[0] <= 10)


def average_hits(values) -> tuple[float, float, int]:
    return float(np.mean(values)), float(np.std(values) / np.sqrt(len(values))), len(values)


@pytest.fixture(scope="module")
def one_out():
    """The users' ranks with `leave_one_out`, where each has one target, and the evaluation of a set of strata."""
    seen = []

    def spy(user):
        seen.append(user)
        return 0.0

    evaluate(Popularity(), LIKES, protocol="leave_one_out", metrics=spy, threads=1)
    options = {"protocol": "leave_one_out", "metrics": ["hit_rate@10", hits, "coverage@20"], "threads": 1}
    return seen, lambda strata: evaluate(Popularity(), LIKES, strata=strata, **options)


def naive_thirds(value_of: dict) -> dict:
    ordered = sorted(value_of.values())
    low, middle = (ordered[int(np.ceil(len(ordered) * part / 3)) - 1] for part in (1, 2))
    return {key: "low" if x <= low else "middle" if x <= middle else "high" for key, x in value_of.items()}


def check_strata(table: pl.DataFrame, stratum_of: dict, seen: list) -> None:
    assert table["metric"].unique(maintain_order=True).to_list() == ["hit_rate@10", "hits"]
    names = set(stratum_of.values())
    assert set(table["stratum"]) == names and len(table) == 2 * len(names)
    for row in table.iter_rows(named=True):
        of = [hits(user) for user in seen if row["stratum"] == stratum_of[user.user_id]]
        assert (row["value"], row["standard_error"], row["users"]) == pytest.approx(average_hits(of))
        assert row["targets"] == len(of)


def test_users_by_the_length_of_their_histories(one_out):
    seen, run = one_out
    found = run("activity")
    lengths = Counter(user for user, _ in LIKES)
    thirds = naive_thirds({user.user_id: lengths[user.user_id] - 1 for user in seen})
    check_strata(found.strata, thirds, seen)
    assert found.metrics["metric"].to_list() == ["hit_rate@10", "hits", "coverage@20"]
    ranges = {
        third: [lengths[user] - 1 for user, of in thirds.items() if of == third] for third in set(thirds.values())
    }
    for row in found.strata.iter_rows(named=True):
        assert (row["least"], row["most"]) == (min(ranges[row["stratum"]]), max(ranges[row["stratum"]]))


def test_targets_by_the_popularity_of_their_items(one_out):
    seen, run = one_out
    likes = Counter(item for _, item in LIKES)
    likes.subtract(user.targets[0] for user in seen)
    thirds = naive_thirds(likes)
    table = run("popularity").strata
    check_strata(table, {user.user_id: thirds[user.targets[0]] for user in seen}, seen)
    values = dict(table.filter(metric="hits").select("stratum", "value").rows())
    assert values["low"] < values["high"]


def test_other_targets_stay_in_the_ranking():
    """A metric of one's own is called again for each stratum, by which the targets and places that count are known."""
    models, seen = {"strong": MRFDense(l2=5.0), "popularity": Popularity()}, []

    def spy(user):
        seen.append(user)
        return 0.0

    found = evaluate(models, LIKES, folds=2, metrics=["recall@5", spy], strata="popularity", threads=1)
    users, thirds = found.metrics["users"][0], {}
    calls = iter(seen)
    for model in models:
        of_model, divided = [next(calls) for _ in range(users)], {}
        for row in found.strata.filter(model=model, metric="recall@5").iter_rows(named=True):
            of_stratum = [next(calls) for _ in range(row["users"])]
            recalls = [(user.places <= 5).sum() / min(5, len(user.places)) for user in of_stratum]
            assert (row["value"], row["standard_error"], row["users"]) == pytest.approx(average_hits(recalls))
            assert row["targets"] == sum(len(user.targets) for user in of_stratum)
            for user in of_stratum:
                divided.setdefault(user.user_id, []).extend(zip(user.places, user.targets, strict=True))
                assert all(thirds.setdefault(item, row["stratum"]) == row["stratum"] for item in user.targets)
        assert {user.user_id: list(zip(user.places, user.targets, strict=True)) for user in of_model} == {
            user: sorted(pairs) for user, pairs in divided.items()
        }
    assert next(calls, None) is None and set(thirds.values()) == {"low", "middle", "high"}


def test_without_metrics_strata_have_those_of_the_tables():
    found = evaluate(Popularity(), LIKES, protocol="leave_one_out", strata="activity", threads=1)
    fixed = ["recall@20", "recall@50", "recall_of_all@20", "ndcg@100", "ndcg@20", "mean_rank", "mean_rank_midtie"]
    assert found.strata is not None and found.strata["metric"].unique(maintain_order=True).to_list() == fixed
    weighted = found.strata.group_by("metric").agg((pl.col("value") * pl.col("users")).sum() / pl.col("users").sum())
    whole = found.metrics.filter(pl.col("metric").is_in(fixed)).select("metric", "value")
    assert dict(weighted.rows()) == pytest.approx(dict(whole.rows()))


def test_unknown_strata_are_refused():
    with pytest.raises(ValueError, match="strata 'mood': take one of activity, popularity"):
        evaluate(Popularity(), LIKES, strata="mood")
    with pytest.raises(ValueError, match=r"coverage@20 are of whole lists; add a metric of users, such as ndcg@10"):
        evaluate(Popularity(), LIKES, strata="activity", metrics="coverage@20")
