"""The command `flows.tune` as its user runs it, on a real Prefect server and a real warehouse."""

import json
import tomllib

import numpy as np
import optuna
import polars as pl
import pytest

import oneclass
from oneclass.flows import commands
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import resolve_settings
from oneclass.models.registry import MODELS
from tests.flows.conftest import ML, query_rows

pytestmark = pytest.mark.slow

BPR = ["--model", "bpr_uniform", "--set", "bpr_uniform.fold_in_epochs=4", "bpr_uniform.epochs=2"]
WRONG_ARGUMENTS = [
    (["--model", "bpr_uniforn"], "model bpr_uniforn: unknown. Did you mean bpr_uniform?"),
    (["--model", "popularity"], "--model popularity: has no settings to tune. Models that have:"),
    ([*BPR, "--protocol", "leave_two_out"], "protocol leave_two_out: unknown"),
    ([*BPR, "--protocol", "given"], "--protocol given: the latest run has no split of it; it has strong_gener"),
    ([*BPR, "binarize.threshold=4"], "--set: binarize is not bpr_uniform, whose settings are searched."),
]
SEARCHED = set(MODELS["bpr_uniform"].Settings.search_space) - {"epochs"}


def split_log(dataset, home, log, *arguments):
    """Run the pipeline with popularity alone, whose splits are searched on."""
    words = ["--dataset", dataset, "--home", home, "--source", log, "--models", "popularity", *arguments]
    assert commands.main("backfill", list(map(str, words))) == 0


def run_tune(dataset, home, *arguments):
    return commands.main("tune", ["--dataset", dataset, "--home", str(home), *map(str, arguments)])


def test_tuning_leaves_settings_that_the_next_run_takes(tmp_path, ratings, capsys, prefect_server):
    assert run_tune(ML[1], tmp_path, *BPR) == 2
    assert "warehouse.duckdb: does not exist. Run flows.backfill on ml-latest-small" in capsys.readouterr().err
    split_log(ML[1], tmp_path, ratings, "--protocols", "strong_generalization")
    for arguments, message in WRONG_ARGUMENTS:
        assert run_tune(ML[1], tmp_path, *arguments) == 2 and message in capsys.readouterr().err
    assert not (tmp_path / ML[1] / "tuning").exists()
    assert run_tune(ML[1], tmp_path, *BPR, "--trials", 1) == 0
    assert run_tune(ML[1], tmp_path, *BPR, "--trials", 3) == 0  # the third in all
    file = tmp_path / "ml-latest-small" / "tuning" / "bpr_uniform.toml"
    printed = capsys.readouterr().out
    assert "the best of 3 trials" in printed and f"--config {file}" in printed
    found = tomllib.loads(file.read_text())["bpr_uniform"]
    assert found.keys() == SEARCHED | {"fold_in_epochs", "epochs"}
    assert found["fold_in_epochs"] == 4 and found["epochs"] == 2
    recorded = query_rows(tmp_path, "select flow from operations.runs where state = 'completed' order by started_at")
    assert recorded == [("backfill",), ("tune",), ("tune",)]
    assert query_rows(tmp_path, "select distinct model from evaluation.metrics") == [("popularity",)]
    given = {"dataset": ML[1], "home": str(tmp_path), "models": ["bpr_uniform"], "config": [str(file)]}
    run = resolve_settings(BackfillParameters(**given))
    assert run.models["bpr_uniform"].model_dump().items() >= found.items()


def test_a_run_searches_by_itself_and_the_next_one_takes_what_was_found(tmp_path, capsys, prefect_server):
    log = tmp_path / "log.csv"
    generator = np.random.default_rng(4)
    likes = [(u, i) for u in range(700) for i in generator.choice(40, size=16, replace=False) if i % 2 == u % 2]
    log.write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in likes))
    command = ["--dataset", "mine", "--home", str(tmp_path), "--models", "popularity,mrf_dense", "--threads", "2"]
    for _ in range(2):
        assert commands.main("backfill", [*command, "--source", str(log), "--protocols", "strong_generalization"]) == 0
    fits = "select count(distinct digest) from operations.model_fits where model = 'mrf_dense'"
    assert query_rows(tmp_path, fits, "mine") == [(2,)]  # one a protocol and one on every edge, in both runs the same
    settings = "select origin, settings from operations.model_settings order by rowid"
    (first, found), (second, taken) = query_rows(tmp_path, settings, "mine")
    assert (first, second) == ("search", "kept") and found == taken and json.loads(found)["l2"] is not None
    assert "searched on" in (tmp_path / "mine" / "report" / "index.html").read_text()
    assert commands.main("promote", ["--dataset", "mine", "--home", str(tmp_path), "--model", "mrf_dense"]) == 0
    assert query_rows(tmp_path, fits, "mine") == [(2,)]  # what was searched, not the defaults


def test_the_weight_of_new_likes_is_searched_where_histories_keep_their_order(tmp_path, capsys, prefect_server):
    generator, lines = np.random.default_rng(5), ["user,item,value,time"]
    for user in range(200):  # eight likes of one taste, then eight of another: what comes next is of the second
        tastes = generator.choice(4, size=2, replace=False)
        items = np.concatenate([12 * taste + generator.permutation(12)[:8] for taste in tastes])
        lines += [f"{user},{item},1,2024-01-{day + 1:02}" for day, item in enumerate(items)]
    (log := tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    fixed = ["slim.l1=1", "slim.l2=5", "slim.alpha=0", "slim.user_weight_exponent=0"]
    search = ["--model", "slim", "--trials", 4, "--protocol", "next_events", "--set", *fixed]
    split_log("mine", tmp_path, log)
    assert run_tune("mine", tmp_path, *search) == 2
    assert "--set: fixes every setting of slim that is searched" in capsys.readouterr().err
    split_log("mine", tmp_path, log, "--set", "split.order=true")
    assert run_tune("mine", tmp_path, *search) == 0
    file = tmp_path / "mine" / "tuning" / "slim.toml"
    assert tomllib.loads(file.read_text())["slim"]["recency_exponent"] > 0
    given = BackfillParameters(dataset="mine", home=str(tmp_path), source=[str(log)], config=[str(file)])
    assert resolve_settings(given).split.order


def test_the_library_searches_as_the_command_does(ratings, tmp_path, prefect_server):
    likes = pl.read_csv(ratings).filter(pl.col("rating") >= 4).drop("rating")
    likes.write_csv(log := tmp_path / "log.csv")
    split_log("mine", tmp_path, log, "--protocols", "leave_one_out")
    assert run_tune("mine", tmp_path, "--model", "mrf_dense", "--trials", 4) == 0
    database = f"sqlite:///{tmp_path / 'mine' / 'tuning' / 'study.db'}"
    [study] = optuna.get_all_study_summaries(storage=database)
    trials = optuna.load_study(study_name=study.study_name, storage=database).trials
    found = oneclass.tune(oneclass.MRFDense(), likes, protocol="leave_one_out", trials=4, threads=2).trials
    assert found["value"].to_list() == [trial.value for trial in trials]
    assert found["l2"].to_list() == [trial.user_attrs["settings"]["l2"] for trial in trials]


def test_a_log_too_small_to_evaluate_gets_recommendations_and_is_not_tuned_on(tmp_path, capsys, prefect_server):
    log = tmp_path / "ratings.csv"
    log.write_text("userId,movieId,rating\n" + "".join(f"{user},{user},5\n" for user in range(3)))
    split_log("mine", tmp_path / "home", log)
    assert query_rows(tmp_path / "home", "select count(*) from evaluation.metrics", "mine") == [(0,)]
    assert query_rows(tmp_path / "home", "select count(*) from published.recommendations", "mine") == [(6,)]
    assert run_tune("mine", tmp_path / "home", *BPR, "--protocol", "leave_one_out") == 2
    assert "too small to tune on" in capsys.readouterr().err
