"""Evaluations of the same fits on the same split are taken, those that changed are not."""

from datetime import datetime, timedelta

import numpy as np
import pytest

from models.catalogue import MODELS
from tasks.binarize import BinarizeSettings, binarize
from tasks.evaluate import stage
from tasks.evaluate.stage import evaluate
from tasks.split import SplitSettings, split
from tasks.stores import warehouse
from tasks.train import train
from tests.conftest import two_tastes

BEGAN = datetime(2026, 1, 2)
OF_RUN = (
    "metrics",
    "comparisons",
    "beyond_accuracy",
    "ranks_by_degree",
    "ranks_by_both_degrees",
    "like_by_degree",
    "calibration",
)


@pytest.fixture
def night(home, monkeypatch):
    """Evaluate as a run does; `judged` counts the models that were ranked anew."""
    two_tastes(home)
    binarize(home, BinarizeSettings(), "r0")
    digests = split(home, SplitSettings(), "r0", protocols=["leave_one_out"], seed=1).digests
    judged, of_model = [], stage._of_model
    monkeypatch.setattr(stage, "_of_model", lambda model, *more: judged.append(model.name) or of_model(model, *more))
    fitted = {}

    def run(name, models=("popularity", "random_graph"), **settings):
        number = int(name.removeprefix("r"))
        with warehouse.connect(home) as connection:
            connection.execute(
                "insert into operations.runs by name select ? as run_id, ? as started_at, 'backfill' as flow, "
                "'completed' as state, 'tiny' as dataset, '{}' as settings, '' as code_version "
                "where not exists (from operations.runs where run_id = ?)",
                [name, BEGAN + timedelta(days=number), name],
            )
        for model in models:
            chosen = MODELS[model].Settings(**settings.get(model, {}))
            arguments = {"protocol": "leave_one_out", "matrices_digest": digests["leave_one_out"], "model": model}
            fitted[model] = train(home, name, **arguments, settings=chosen, seed=0).digest
        return evaluate(home, name, "leave_one_out", digests["leave_one_out"], {m: fitted[m] for m in models})

    return run, judged


def tables(home, run_id):
    with warehouse.connect(home, read_only=True) as connection:
        query = "select * exclude run_id from evaluation.{} where run_id = ? order by all"
        return {table: connection.execute(query.format(table), [run_id]).fetchall() for table in OF_RUN}


def change(home, statement):
    with warehouse.connect(home) as connection:
        connection.execute(statement)


def test_a_run_with_nothing_new_takes_the_rows_of_the_last(home, night):
    run, judged = night
    first = run("r1")
    assert judged == ["popularity", "random_graph"]
    assert run("r2") == first and run("r2") == first  # a retry too
    assert judged == ["popularity", "random_graph"]
    assert tables(home, "r1") == tables(home, "r2") and all(tables(home, "r2").values())


def test_other_fits_or_another_order_are_judged_anew(night):
    run, judged = night
    run("r1")
    run("r2", random_graph={"factors": 3})
    run("r3", models=("random_graph", "popularity"))
    assert judged == ["popularity", "random_graph"] * 2 + ["random_graph", "popularity"]
    run("r4", models=("random_graph", "popularity"))
    assert len(judged) == 6


@pytest.mark.parametrize("table", OF_RUN)
def test_rows_that_changed_or_went_are_not_taken(home, night, table, caplog):
    run, judged = night
    run("r1")
    true = tables(home, "r1")
    change(home, f"delete from evaluation.{table} where rowid = (select min(rowid) from evaluation.{table})")
    run("r2")
    assert judged == ["popularity", "random_graph"] * 2 and tables(home, "r2") == true
    assert "the evaluation by run r1 changed since; made anew" in caplog.text
    change(home, f"delete from evaluation.{table} where run_id = 'r1'")
    run("r3")  # that of r2 stands
    assert len(judged) == 4 and tables(home, "r3") == true


def test_an_evaluation_without_one_of_its_models_is_made_again(home, night, monkeypatch):
    run, judged = night
    kind = MODELS["random_graph"]
    with monkeypatch.context() as patch:
        patch.setattr(kind, "_each_score", lambda model, histories, users: iter([np.full(histories.shape, np.nan)] * 3))
        assert set(run("r1").failed) == {"random_graph"}
    assert run("r2").failed == {} and len(judged) == 4
