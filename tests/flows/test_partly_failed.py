"""One model that fails does not stop the others: the run ends as partly failed, and its result stands."""

import sys

import pytest

from oneclass.flows import backfill
from oneclass.models.mrf.dense import MRFDense
from oneclass.models.popularity import Popularity
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home

pytestmark = pytest.mark.slow


def test_one_failing_model_leaves_the_others_alone(prefect_server, ratings, tmp_path, monkeypatch, capsys):
    def broken(self, interactions, options):
        raise ValueError("no such luck")

    told = f"notify.command={sys.executable} -c \"import os; open('{tmp_path}/told', 'w').write(os.environ['ONECLASS_STATE'])\""
    words = ["--dataset", "ml-latest-small", "--home", str(tmp_path / "home"), "--source", str(ratings), "--set", told]
    models = ["--models", "popularity,mrf_dense", "--protocols", "strong_generalization"]
    monkeypatch.setattr(Popularity, "_fit", broken)
    assert backfill.main([*words, *models]) == 1
    message = capsys.readouterr().err
    assert "popularity failed and was left out: train: popularity cannot be fitted: no such luck" in message
    home = Home(tmp_path / "home", "ml-latest-small")
    with warehouse.open_warehouse(home, read_only=True) as connection:
        assert connection.execute("select state from operations.evaluated_runs").fetchall() == [("partly_failed",)]
        assert connection.execute("select distinct model from evaluation.metrics").fetchall() == [("mrf_dense",)]
        assert connection.execute("select challenger, promoted from operations.promotions").fetchall() == [
            ("mrf_dense/score", True)
        ]
    assert (home.published / "recommendations.parquet").exists()
    assert (tmp_path / "told").read_text() == "partly failed"


def test_a_model_that_needs_more_memory_than_there_is_fails_alone_and_is_made_once_there_is(
    prefect_server, ratings, tmp_path, monkeypatch, capsys
):
    words = ["--dataset", "ml-latest-small", "--home", str(tmp_path / "home"), "--source", str(ratings)]
    words += ["--models", "popularity,mrf_dense", "--protocols", "strong_generalization", "--set", "mrf_dense.l2=6.0"]
    with monkeypatch.context() as short:
        short.setattr(MRFDense, "item_matrices", 10**9)  # 6,400 GB for 40 items
        assert backfill.main(words) == 1
    message = capsys.readouterr().err
    assert (
        "mrf_dense failed and was left out: train: mrf_dense (strong_generalization): needs about 6400.1 GB" in message
    )
    assert "Give the run more memory, or leave the model out (--models)" in message
    assert backfill.main(words) == 0
    with warehouse.open_warehouse(Home(tmp_path / "home", "ml-latest-small"), read_only=True) as connection:
        assert connection.execute("select state from operations.runs order by started_at").fetchall() == [
            ("partly_failed",),
            ("completed",),
        ]
