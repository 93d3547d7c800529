"""`oneclass.evaluate` and `oneclass.tune` in memory: names, metrics by name or function, and splits of one's own."""

import itertools
import tempfile

import numpy as np
import polars as pl
import pytest
from scipy import stats

from oneclass import Interactions, ItemKNN, MRFDense, Popularity, Split, UserRanks, evaluate, tune
from oneclass import tune as tune_model
from oneclass.models.settings import Choice
from oneclass.tasks.errors import OneclassError

GENERATOR = np.random.default_rng(1)
LIKES = [
    (user, 100 + item)
    for user in range(160)
    for item in sorted({int(draw) % 40 + user % 2 * 30 for draw in GENERATOR.zipf(1.3, 12)})
]


@pytest.fixture(scope="module")
def evaluated():
    models = {"weak": MRFDense(l2=2000.0), "strong": MRFDense(l2=5.0), "popularity": Popularity()}
    return evaluate(models, LIKES, protocol="leave_one_out", threads=2)


def test_one_model_may_come_with_several_settings_and_the_best_list_is_first(evaluated):
    assert evaluated.metrics["model"].unique(maintain_order=True).to_list() == ["weak", "strong", "popularity"]
    values = evaluated.metrics.filter(metric="ndcg@100")
    assert values["value"].n_unique() == 3 and values["standard_error"].min() > 0
    of_model = dict(values.select("model", "value").iter_rows())
    pairs = evaluated.comparisons.filter(metric="ndcg@100").select("model", "other_model", "difference").rows()
    assert {pair[:2] for pair in pairs} == set(itertools.combinations(of_model, 2))
    for model, other, difference in pairs:
        assert difference == pytest.approx(of_model[model] - of_model[other])
    table, wide = evaluated.table(), evaluated.metrics.pivot("metric", index=["model", "score"], values="value")
    assert set(table.columns) == set(wide.columns) and table[table.columns[2]].is_sorted(descending=True)


def test_no_file_is_written_and_a_bar_shows_the_fits(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *given, **more: pytest.fail("a folder is made"))
    options = {"protocol": "leave_one_out", "metrics": ["mrr"], "threads": 1}
    shown = evaluate({"weak": Popularity()}, LIKES, seed=2, progress=True, **options)
    said = capsys.readouterr()
    assert "popularity" in said.err and "100%" in said.err and not said.out
    silent = evaluate({"weak": Popularity()}, LIKES, seed=2, **options)
    assert not capsys.readouterr().err
    assert silent.metrics.equals(shown.metrics)
    tune(MRFDense(), LIKES, trials=2, threads=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("folds")  # of logs below the bound, as in a run
@pytest.mark.parametrize(("number", "users"), [(None, 160), (3, 160), (1, 16)])
def test_folds_are_those_asked_for(number, users):
    found = evaluate(Popularity(), LIKES, folds=number, metrics=["ndcg@100"], threads=1)
    [count] = found.metrics["users"]
    assert 150 < count <= users if users == 160 else 5 < count < 40  # a few have too few likes for a target


class Broken(Popularity):
    name = "broken"

    def _fit(self, interactions, options):
        raise KeyError("no luck today")


def test_a_model_that_fails_is_left_out_with_its_error():
    options = {"protocol": "leave_one_out", "threads": 1}
    found = evaluate([Broken(), Popularity()], LIKES, metrics=["ndcg@100"], **options)
    assert found.metrics["model"].to_list() == ["popularity"]
    assert list(found.failed) == ["broken"] and "KeyError('no luck today')" in found.failed["broken"]
    with pytest.raises(OneclassError, match="no model can be fitted: broken cannot be"):
        evaluate(Broken(), LIKES, **options)


def test_attributes_make_cold_items_possible_and_known_items_are_ranked_apart_from_new_ones():
    kinds = pl.DataFrame({"item_id": range(100, 170), "side": ["a"] * 30 + ["b"] * 10 + ["c"] * 30})
    likes = Interactions(LIKES, items=kinds.with_columns(tags=pl.concat_list("side", pl.lit("x, y | z"))))
    metrics = ["ndcg@100_new_items", "ndcg@20", "NDCG@20"]
    new, known, same = evaluate(ItemKNN(), likes, protocol="cold_items", metrics=metrics, threads=1).metrics.rows()
    assert new[new.index("ndcg@100_new_items") + 1] > 0.2
    assert [cell for cell in known if cell != "ndcg@20"] == [cell for cell in same if cell != "NDCG@20"]
    assert known[-1] > 10


def test_weights_are_added_and_small_ones_stay_likes(evaluated):
    weighted = [(user, item, 0.25) for user, item in LIKES]
    found = evaluate({"strong": MRFDense(l2=5.0)}, weighted, protocol="leave_one_out", metrics=["ndcg@100"], threads=1)
    assert found.metrics.equals(evaluated.metrics.filter(model="strong", metric="ndcg@100"))


def test_tuning_begins_at_the_models_settings_and_returns_the_best():
    found = tune(
        MRFDense(l2=9000.0, seed=2, threads=2), LIKES, trials=4, threads=1, space={"l2": Choice((1.0, 9.0, 90.0))}
    )
    assert found.trials["number"].to_list() == [1, 2, 3, 4] and found.trials["l2"][0] == 9000.0
    best = found.trials.sort("value", descending=True, maintain_order=True).row(0, named=True)
    assert found.best.get_params() == MRFDense(l2=best["l2"], seed=2, threads=2).get_params()
    assert best["value"] > found.trials["value"].min()


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="protocol 'random': take one of strong_generalization, leave_one_out"):
        evaluate(Popularity(), LIKES, protocol="random")
    with pytest.raises(ValueError, match="a mapping of names"):
        evaluate([MRFDense(l2=1.0), MRFDense(l2=2.0)], LIKES)
    with pytest.raises(TypeError, match="popularity is a str; give an estimator"):
        evaluate({"popularity": "popularity"}, LIKES)
    with pytest.raises(ValueError, match="metrics ndcg@100_new_items: not of this protocol, .* have .*ndcg@100"):
        evaluate(Popularity(), LIKES, protocol="leave_one_out", metrics=["ndcg@100_new_items"])
    with pytest.raises(ValueError, match="next_events.*time"):
        evaluate(Popularity(), LIKES, protocol="next_events")
    with pytest.raises(ValueError, match="popularity: nothing to search; give space"):
        tune(Popularity(), LIKES)
    with pytest.raises(ValueError, match="mrf_dense: has no setting depth"):
        tune(MRFDense(), LIKES, space={"depth": Choice((1, 2))})


LOG = pl.DataFrame(LIKES, schema=["user_id", "item_id"], orient="row").with_columns(
    time=86_400 * pl.Series(GENERATOR.integers(1, 90, len(LIKES)))
)


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
    with pytest.raises(ValueError, match="leave protocol and seed out"):
        evaluate(Popularity(), split, protocol="leave_one_out")
    with pytest.raises(ValueError, match="two have one name"):
        evaluate(Popularity(), [split, split])
    with pytest.raises(ValueError, match="2 splits; give one"):
        tune_model(MRFDense(), [split, split_log(70)])
    with pytest.raises(ValueError, match="ids of train are .*Int64.*; give both alike"):
        Split("mine", [("ann", "tea")], [(1, "tea")])


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
def evaluation(request):
    if request.param == "one split":
        return request.getfixturevalue("one_out")
    return evaluate(MODELS, LIKES, metrics=NAMES, folds=2, threads=1)


def test_values_errors_and_comparisons_are_those_of_the_tables(evaluation):
    assert evaluation.metrics["metric"].to_list() == NAMES * 2
    for table in (evaluation.metrics, evaluation.comparisons):
        first = table.filter(pl.col("metric").is_in(FIXED)).with_columns(pl.col("metric").replace(RENAMED))
        second = table.filter(pl.col("metric").is_in(list(RENAMED.values())))
        assert first.sort(pl.all()).equals(second.sort(pl.all())) and len(first)
    assert evaluation.comparisons.filter(metric="hr@1")["p_value"].item() < 1


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


def test_a_function_gets_a_users_ranks_by_their_ids():
    seen: list[UserRanks] = []

    def precision(user):
        seen.append(user)
        return (user.places <= 3).sum() / 3

    def odd_users(user):
        return 1.0 if user.user_id % 2 else np.nan

    found = evaluate(MODELS, LIKES, folds=2, metrics=["precision@3", precision, odd_users], threads=1)
    table, drop = found.metrics, ["metric", "value", "standard_error", "difference", "p_value"]
    assert table["metric"].to_list() == ["precision@3", "precision", "odd_users"] * 2
    values, users = table["value"].to_list(), table["users"].to_list()
    assert values[1] == pytest.approx(values[0], abs=1e-12) and values[4] == pytest.approx(values[3], abs=1e-12)
    pairs = {name: found.comparisons.filter(metric=name).drop(drop, strict=False).rows() for name in table["metric"]}
    assert pairs["precision"] and pairs["precision"][0][:-1] == pytest.approx(pairs["precision@3"][0][:-1])
    assert users[2] == sum(user.user_id % 2 for user in seen[: users[0]]) and len(seen) == 2 * users[0]
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

    options = {"protocol": "leave_one_out", "threads": 1}
    with pytest.raises(TypeError, match=r"metric nothing: returns None for user \d+; return a number"):
        evaluate(Popularity(), LIKES, metrics=[nothing], **options)
    with pytest.raises(IndexError) as raised:
        evaluate(Popularity(), LIKES, metrics=[broken], **options)
    assert raised.value.__notes__[0].startswith("in the metric broken, of user ")
    with pytest.raises(ValueError, match="auc is the name of another metric; rename"):
        evaluate(Popularity(), LIKES, metrics=[auc], **options)


def test_unknown_names_are_refused_before_a_fit_with_what_there_is():
    for name in ("recall", "ndcg@0"):
        with pytest.raises(ValueError, match=rf"metrics {name}: unknown\. There are precision@k, .*, auc, .* with any"):
            evaluate(Popularity(), LIKES, metrics=["ndcg@10", name], protocol="leave_one_out")
