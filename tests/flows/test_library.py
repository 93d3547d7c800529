"""`oneclass.evaluate` gives the numbers of a run on the same log, digit for digit."""

from datetime import datetime, timedelta

import numpy as np
import optuna
import polars as pl
import pytest

import oneclass
from oneclass.flows import commands
from tests.flows.test_backfill import query_rows

COLUMNS = "model, score, metric, value, standard_error, users"
PAIRS = "metric, model, score, other_model, other_score, difference, standard_error, p_value, users, adjusted_p_value"
PROTOCOLS = ["strong_generalization", "leave_one_out", "next_events"]
MODELS = {"popularity": oneclass.Popularity(), "mrf_dense": oneclass.MRFDense(l2=6.0), "wmf": oneclass.WMF(factors=8)}


@pytest.fixture(scope="module")
def ran(prefect_server, tmp_path_factory):
    """(home, log) of a run on 400 users of two tastes who come back."""
    folder, generator = tmp_path_factory.mktemp("library"), np.random.default_rng(2)
    lines = ["userId,movieId,timestamp"]
    for user in range(400):
        films = {user % 2 * 40 + int(film) % 40 for film in generator.zipf(1.3, 16)}
        for film in generator.permutation(sorted(films)):
            time = datetime(2026, 1, 1) + timedelta(hours=int(generator.integers(0, 2000)))
            lines.append(f"{user + 1},{film + 1},{time}")
    (log := folder / "log.csv").write_text("\n".join(lines) + "\n")
    words = ["--dataset", "mine", "--source", str(log), "--home", str(folder / "home"), "--threads", "2"]
    settings = ["train.tune=off", "mrf_dense.l2=6.0", "wmf.factors=8"]
    words += ["--models", ",".join(MODELS), "--protocols", ",".join(PROTOCOLS), "--set", *settings]
    assert commands.main("backfill", words) == 0
    return folder / "home", log


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_evaluation_has_the_tables_of_a_run(ran, protocol):
    home, log = ran
    found = oneclass.evaluate(MODELS, pl.read_csv(log), protocol=protocol, threads=2)
    tables = " union all ".join(
        f"select {COLUMNS} from evaluation.{table} where protocol = '{protocol}'"
        for table in ("metrics", "beyond_accuracy")
    )
    expected = query_rows(home, tables, "mine")
    assert len(expected) > 30 and {row[0] for row in expected} == set(MODELS)
    assert sorted(found.metrics.rows()) == sorted(expected)
    pairs = query_rows(home, f"select {PAIRS} from evaluation.comparisons where protocol = '{protocol}'", "mine")
    assert sorted(found.comparisons.select(PAIRS.split(", ")).rows()) == sorted(pairs) and pairs


@pytest.mark.slow
def test_a_search_has_the_trials_of_a_run(ran):
    home, log = ran
    words = ["--dataset", "mine", "--home", str(home), "--model", "mrf_dense", "--trials", "4"]
    words += ["--protocol", "leave_one_out"]
    assert commands.main("tune", words) == 0
    database = f"sqlite:///{home / 'mine' / 'tuning' / 'study.db'}"
    [study] = optuna.get_all_study_summaries(storage=database)
    trials = optuna.load_study(study_name=study.study_name, storage=database).trials
    found = oneclass.tune(oneclass.MRFDense(), pl.read_csv(log), protocol="leave_one_out", trials=4, threads=2)
    assert found.trials["value"].to_list() == [trial.value for trial in trials]
    assert found.trials["l2"].to_list() == [trial.user_attrs["settings"]["l2"] for trial in trials]
