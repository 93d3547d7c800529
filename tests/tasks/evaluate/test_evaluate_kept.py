"""Evaluations of the same fits on the same split are taken, those that changed are not."""

import shutil
from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pytest

from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.evaluate import jobs
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import execute_statement, home_in, query_rows, two_tastes
from tests.tasks.conftest import train_model

pytestmark = pytest.mark.slow

BEGAN = datetime(2026, 1, 2)
SHORT = {"popularity": {}, "random_graph": {"factors": 2, "iterations": 2}}
OF_RUN = (
    "metrics",
    "comparisons",
    "beyond_accuracy",
    "strata",
    "ranks_by_degree",
    "ranks_by_both_degrees",
    "like_by_degree",
    "calibration",
)


@pytest.fixture(scope="module")
def split_once(tmp_path_factory):
    """A home with the log of two tastes, split, and the digests of the split."""
    home = home_in(tmp_path_factory.mktemp("split"))
    two_tastes(home)
    binarize(home, BinarizeSettings(), "r0")
    return home, split(home, "r0", SplitPlan(SplitSettings(), ["leave_one_out"], seed=1)).digests


@pytest.fixture
def home(split_once, tmp_path):
    home = split_once[0]
    return Home(shutil.copytree(home.root, tmp_path / "var", symlinks=True), home.dataset, home.limits)


@pytest.fixture
def judged(monkeypatch):
    """The models that are ranked anew from now on."""
    found, collected = [], jobs.gather_batches
    monkeypatch.setattr(jobs, "gather_batches", lambda name, pending: found.append(name) or collected(name, pending))
    return found


@pytest.fixture
def run(home, split_once, judged):
    """Evaluate as a run of a name does."""
    return partial(evaluate_fits, home, split_once[1])


def evaluate_fits(home, digests, name, models=("popularity", "random_graph"), **settings):
    """What a run of that name finds, with settings of its own for some models."""
    with warehouse.open_warehouse(home) as connection:
        connection.execute(
            "insert into operations.runs by name select ? as run_id, ? as started_at, 'backfill' as flow, "
            "'completed' as state, 'tiny' as dataset, '{}' as settings, '' as code_version "
            "where not exists (from operations.runs where run_id = ?)",
            [name, BEGAN + timedelta(days=int(name.removeprefix("r"))), name],
        )
    fitted = {}
    for model in models:
        chosen = MODELS[model].Settings(**SHORT[model] | settings.get(model, {}))
        given = {"protocol": "leave_one_out", "run_id": name}
        fitted[model] = train_model(home, digests["leave_one_out"], model, chosen, **given).digest
    return evaluate(home, name, "leave_one_out", [(digests["leave_one_out"], fitted)])


def load_tables(home, run_id):
    query = "select * exclude run_id from evaluation.{} where run_id = ? order by all"
    return {table: query_rows(home, query.format(table), run_id) for table in OF_RUN}


def test_a_run_with_nothing_new_takes_the_rows_of_the_last(home, run, judged):
    first = run("r1")
    assert judged == ["popularity", "random_graph"]
    assert run("r2") == first and run("r2") == first  # a retry too
    assert judged == ["popularity", "random_graph"]
    assert load_tables(home, "r1") == load_tables(home, "r2") and all(load_tables(home, "r2").values())


def test_other_fits_or_another_order_are_judged_anew(run, judged):
    run("r1")
    run("r2", random_graph={"factors": 3})
    run("r3", models=("random_graph", "popularity"))
    assert judged == ["popularity", "random_graph"] * 2 + ["random_graph", "popularity"]
    run("r4", models=("random_graph", "popularity"))
    assert len(judged) == 6


def test_rows_that_changed_or_went_are_not_taken(home, run, judged, caplog):
    run("r1")
    true = load_tables(home, "r1")
    for number, table in enumerate(OF_RUN, 2):
        whole = f"evaluation.{table}"
        of_last = f"select min(rowid) from {whole} where run_id = 'r{number - 1}'"
        execute_statement(home, f"delete from {whole} where rowid = ({of_last})")
        judged.clear()
        caplog.clear()
        run(f"r{number}")
        assert judged == ["popularity", "random_graph"] and load_tables(home, f"r{number}") == true
        assert f"the evaluation by run r{number - 1} changed since; made anew" in caplog.text


def test_an_evaluation_without_one_of_its_models_is_made_again(run, judged, monkeypatch):
    kind = MODELS["random_graph"]
    with monkeypatch.context() as patch:
        patch.setattr(
            kind, "_iterate_scores", lambda model, histories, users: iter([np.full(histories.shape, np.nan)] * 3)
        )
        assert set(run("r1").failed) == {"random_graph"}
    assert run("r2").failed == {} and len(judged) == 4
