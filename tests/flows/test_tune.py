"""The command `flows.tune` as its user runs it, on a real Prefect server and a real warehouse."""

import html
import json
import tomllib

import duckdb
import numpy as np
import optuna
import polars as pl
import pytest

import oneclass
from oneclass.flows import commands
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import resolve_settings
from oneclass.models.registry import MODELS
from oneclass.tasks.errors import OneclassError
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from tests.flows.conftest import ML, query_rows

pytestmark = pytest.mark.slow

BPR = ["--model", "bpr_uniform", "--set", "bpr_uniform.fold_in_epochs=4", "bpr_uniform.epochs=2"]
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
    assert run_tune(ML[1], tmp_path, *BPR, "--trials", 1) == 0
    assert run_tune(ML[1], tmp_path, *BPR, "--trials", 3) == 0  # the third in all
    file = tmp_path / "ml-latest-small" / "tuning" / "bpr_uniform.toml"
    printed = capsys.readouterr().out
    assert "the best of 3 trials" in printed and f"--config {file}" in printed
    text = file.read_text()
    found = tomllib.loads(text)["bpr_uniform"]
    assert found.keys() == SEARCHED | {"fold_in_epochs", "epochs"}
    assert found["fold_in_epochs"] == 4 and found["epochs"] == 2
    assert "the best of 3 trials" in text

    with duckdb.connect(str(tmp_path / "ml-latest-small" / "warehouse.duckdb")) as connection:
        recorded = connection.execute("select flow, state from operations.runs order by started_at").fetchall()
        assert recorded == [("backfill", "completed"), ("tune", "completed"), ("tune", "completed")]
        assert connection.execute("select distinct model from evaluation.metrics").fetchall() == [("popularity",)]

    more = tmp_path / "more.toml"
    more.write_text("[publish]\ntop_n = 7\n")
    config = [str(file), str(more)]
    given = BackfillParameters(dataset="ml-latest-small", home=str(tmp_path), models=["bpr_uniform"], config=config)
    run = resolve_settings(given)
    assert run.models["bpr_uniform"].model_dump().items() >= found.items() and run.publish.top_n == 7


def test_a_run_searches_by_itself_and_the_next_one_takes_what_was_found(tmp_path, capsys, prefect_server):
    log = tmp_path / "log.csv"
    generator = np.random.default_rng(4)
    likes = [(u, i) for u in range(700) for i in generator.choice(40, size=16, replace=False) if i % 2 == u % 2]
    log.write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in likes))
    command = ["--dataset", "mine", "--home", str(tmp_path), "--models", "popularity,mrf_dense", "--threads", "2"]
    assert commands.main("backfill", [*command, "--source", str(log), "--protocols", "strong_generalization"]) == 0
    assert commands.main("backfill", [*command, "--source", str(log), "--protocols", "strong_generalization"]) == 0
    home = Home(tmp_path, "mine")
    with warehouse.open_warehouse(home, read_only=True) as connection:
        rows = connection.execute("select origin, settings from operations.model_settings order by rowid").fetchall()
        fits = connection.execute("select count(distinct digest) from operations.model_fits where model = 'mrf_dense'")
        assert fits.fetchone() == (2,)  # one a protocol and one on every edge, in both runs the same
    (first, found), (second, taken) = rows
    assert (first, second) == ("search", "kept") and found == taken and json.loads(found)["l2"] is not None
    report = (home.report / "index.html").read_text()
    assert "searched on" in report and "Where the models' settings come from" in html.unescape(report)

    assert commands.main("promote", ["--dataset", "mine", "--home", str(tmp_path), "--model", "mrf_dense"]) == 0
    with warehouse.open_warehouse(home, read_only=True) as connection:
        fits = connection.execute("select count(distinct digest) from operations.model_fits where model = 'mrf_dense'")
        assert fits.fetchone() == (2,)  # what was searched, not the defaults


def search_before_and_after(home, lines, asked, of_run, more):
    """Search on splits that lack what the setting weighs, when nothing is left to search, and on splits that keep it.

    Returns:
        what the search found, and the settings of a run that takes it.
    """
    (log := home / "log.csv").write_text("\n".join(lines) + "\n")
    split_log("mine", home, log, *of_run)
    assert run_tune("mine", home, *asked) == 2
    split_log("mine", home, log, *of_run, *([] if "--set" in of_run else ["--set"]), more)
    assert run_tune("mine", home, *asked) == 0
    [file] = (home / "mine" / "tuning").glob("*.toml")
    given = BackfillParameters(dataset="mine", home=str(home), source=[str(log)], config=[str(file)])
    return tomllib.loads(file.read_text()), resolve_settings(given)


def test_the_weight_of_new_likes_is_searched_by_what_came_next(tmp_path, capsys, prefect_server):
    generator, lines = np.random.default_rng(5), ["user,item,value,time"]
    for user in range(200):  # eight likes of one taste, then eight of another: what comes next is of the second
        tastes = generator.choice(4, size=2, replace=False)
        items = np.concatenate([12 * taste + generator.permutation(12)[:8] for taste in tastes])
        lines += [f"{user},{item},1,2024-01-{day + 1:02}" for day, item in enumerate(items)]
    fixed = ["slim.l1=1", "slim.l2=5", "slim.alpha=0", "slim.user_weight_exponent=0"]
    search = ["--model", "slim", "--trials", 4, "--protocol", "next_events", "--set", *fixed]
    found, run = search_before_and_after(tmp_path, lines, search, [], "split.order=true")
    assert "--set: fixes every setting of slim that is searched" in capsys.readouterr().err
    assert found["slim"]["recency_exponent"] > 0 and run.split.order


def test_the_weight_of_what_was_considered_is_searched_where_it_is_kept(tmp_path, prefect_server):
    generator, lines = np.random.default_rng(5), ["user,item,value"]
    for user in range(300):  # of a taste of 20 items a user considers 15, and likes two or three of them
        items = 20 * generator.integers(8) + generator.permutation(20)[:15]
        lines += [f"{user},{item},{5 if place < 2 + user % 2 else 2}" for place, item in enumerate(items)]
    fixed = ["factors=16", "iterations=10", "unobserved_weight=0.1", "regularization=0.01", "user_weight_exponent=0"]
    search = ["--model", "wmf", "--trials", 4, "--set", *(f"wmf.{setting}" for setting in fixed)]
    of_run = ["--protocols", "strong_generalization", "--set", "binarize.threshold=4", "split.held_out_share=0.3"]
    found, run = search_before_and_after(tmp_path, lines, search, of_run, "binarize.explicit_negatives=true")
    assert found["wmf"]["explicit_negative_weight"] > 0 and run.binarize.explicit_negatives


@pytest.fixture(scope="module")
def split_home(tmp_path_factory, prefect_server, ratings):
    """A home with the splits of one protocol."""
    home = tmp_path_factory.mktemp("split")
    split_log(ML[1], home, ratings, "--protocols", "strong_generalization")
    return home


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "bpr_uniforn"], "model bpr_uniforn: unknown. Did you mean bpr_uniform?"),
        (["--model", "popularity"], "--model popularity: has no settings to tune. Models that have:"),
        ([*BPR, "--trials", "0"], "for --trials. Must be >= 1."),
        ([*BPR, "--protocol", "leave_two_out"], "protocol leave_two_out: unknown"),
        ([*BPR, "--protocol", "given"], "--protocol given: the latest run has no split of it; it has strong_gener"),
        (
            [*BPR, *(f"bpr_uniform.{name}={getattr(MODELS['bpr_uniform'].Settings(), name)}" for name in SEARCHED)],
            "--set: fixes every setting of bpr_uniform that is searched",
        ),
        ([*BPR, "binarize.threshold=4"], "--set: binarize is not bpr_uniform, whose settings are searched."),
    ],
)
def test_a_wrong_argument_is_reported_before_anything_is_written(split_home, capsys, arguments, message):
    assert run_tune(ML[1], split_home, *arguments) == 2
    assert message in capsys.readouterr().err
    assert not (split_home / ML[1] / "tuning").exists()


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
    likes = pl.read_csv(log).rename({"userId": "user_id", "movieId": "item_id"}).drop("rating")
    with pytest.raises(OneclassError, match="every trial failed. The last one: no validation user has an edge"):
        oneclass.tune(oneclass.MRFDense(), likes, protocol="leave_one_out", trials=1)
