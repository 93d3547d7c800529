"""`oneclass.evaluate` and `oneclass.tune` in memory: names, choices, errors, and what they leave behind."""

import logging
import tempfile

import numpy as np
import polars as pl
import pytest

from oneclass import Interactions, ItemKNN, Model, MRFDense, Popularity, evaluate, tune
from oneclass.models.settings import Choice
from oneclass.tasks.errors import OneclassError

GENERATOR = np.random.default_rng(1)
LIKES = [
    (f"u{user:03}", f"i{item}")
    for user in range(160)
    for item in sorted({int(draw) % 40 + user % 2 * 30 for draw in GENERATOR.zipf(1.3, 12)})
]


@pytest.fixture(scope="module")
def evaluated():
    models = {"weak": MRFDense(l2=2000.0), "strong": MRFDense(l2=5.0), "popularity": Popularity()}
    return evaluate(models, LIKES, protocol="leave_one_out", threads=2)


def test_one_model_may_come_with_several_settings(evaluated):
    assert evaluated.metrics["model"].unique(maintain_order=True).to_list() == ["weak", "strong", "popularity"]
    values = evaluated.metrics.filter(metric="ndcg@100")
    assert values["value"].n_unique() == 3 and values["standard_error"].min() > 0
    pairs = evaluated.comparisons.filter(metric="ndcg@100")
    assert set(pairs.select("model", "other_model").rows()) == {
        ("weak", "strong"),
        ("weak", "popularity"),
        ("strong", "popularity"),
    }
    of_model = dict(values.select("model", "value").iter_rows())
    for row in pairs.iter_rows(named=True):
        assert row["difference"] == pytest.approx(of_model[row["model"]] - of_model[row["other_model"]])


def test_the_table_has_the_best_list_first(evaluated):
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
    assert logging.getLogger("oneclass").level in (logging.NOTSET, logging.INFO)


def test_metrics_of_another_protocol_are_refused():
    with pytest.raises(ValueError, match="metrics ndcg@100_new_items: not of this protocol, .* have .*ndcg@100"):
        evaluate(Popularity(), LIKES, protocol="leave_one_out", metrics=["ndcg@100_new_items"], threads=1)


@pytest.mark.slow
@pytest.mark.usefixtures("folds")  # of logs below the bound, as in a run
@pytest.mark.parametrize(("number", "users"), [(None, 160), (3, 160), (1, 16)])
def test_folds_are_those_asked_for(number, users):
    found = evaluate(Popularity(), LIKES, folds=number, metrics=["ndcg@100"], threads=1)
    [count] = found.metrics["users"]
    assert 150 < count <= users if users == 160 else 5 < count < 40  # a few have too few likes for a target


class Learner(Model):
    """A model of one's own: what it learns is in no method beside `_fit` and `_scores`."""

    def _fit(self, interactions, options):
        self.order = -np.arange(interactions.shape[1], dtype=np.float32)

    def _scores(self, histories, users, score):
        return np.tile(self.order, (histories.shape[0], 1))


class Broken(Popularity):
    name = "broken"

    def _fit(self, interactions, options):
        raise KeyError("no luck today")


def test_a_model_of_ones_own_is_in_the_table_and_one_that_fails_is_left_out_with_its_error():
    models = [Learner(), Broken(), Popularity()]
    found = evaluate(models, LIKES, protocol="leave_one_out", metrics=["ndcg@100"], threads=1)
    learner, popularity = found.metrics["value"]
    assert found.metrics["model"].to_list() == ["learner", "popularity"] and 0 < learner < popularity
    assert list(found.failed) == ["broken"] and "KeyError('no luck today')" in found.failed["broken"]
    with pytest.raises(OneclassError, match="no model can be fitted: broken cannot be") as raised:
        evaluate(Broken(), LIKES, protocol="leave_one_out", threads=1)
    assert isinstance(raised.value.__cause__, KeyError)


def test_attributes_make_cold_items_possible():
    kinds = pl.DataFrame({"item_id": [f"i{item}" for item in range(70)], "side": ["a"] * 30 + ["b"] * 10 + ["c"] * 30})
    likes = Interactions(LIKES, items=kinds.with_columns(tags=pl.concat_list("side", pl.lit("x, y | z"))))
    found = evaluate(ItemKNN(), likes, protocol="cold_items", metrics=["ndcg@100_new_items"], threads=1)
    assert found.metrics["value"].item() > 0.2


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
    with pytest.raises(ValueError, match="next_events.*time"):
        evaluate(Popularity(), LIKES, protocol="next_events")
    with pytest.raises(ValueError, match="popularity: nothing to search; give space"):
        tune(Popularity(), LIKES)
    with pytest.raises(ValueError, match="mrf_dense: has no setting depth"):
        tune(MRFDense(), LIKES, space={"depth": Choice((1, 2))})
