"""One model that fails does not stop the others: the run ends as partly failed, and its result stands."""

import sys

from flows import backfill
from models.popularity import Popularity
from tasks.stores import warehouse
from tasks.stores.home import Home


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
    with warehouse.connect(home, read_only=True) as connection:
        assert connection.execute("select state from operations.evaluated_runs").fetchall() == [("partly_failed",)]
        assert connection.execute("select distinct model from evaluation.metrics").fetchall() == [("mrf_dense",)]
        assert connection.execute("select challenger, promoted from operations.promotions").fetchall() == [
            ("mrf_dense/score", True)
        ]
    assert (home.published / "recommendations.parquet").exists()
    assert (tmp_path / "told").read_text() == "partly failed"
