"""The command as its user runs it: the whole sequence on a real Prefect server and a real warehouse."""

import json
import re
import threading
import time

import duckdb
import numpy as np
import psutil
import pytest

from oneclass.data_contracts import STAGES
from oneclass.flows import commands, pipeline
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import resolve_settings
from oneclass.models.mrf.dense import MRFDense
from oneclass.models.popularity import Popularity
from oneclass.tasks import capacity
from oneclass.tasks.stores.home import Home
from tests.conftest import real_log
from tests.flows.conftest import FAST, ML, query_rows
from tests.processes import inflate_cost


@pytest.fixture(autouse=True)
def server(prefect_server):
    return prefect_server


def run_backfill(home, *arguments):
    return commands.main("backfill", [*FAST, "--home", str(home), *map(str, arguments)])


def read_contents(home, dataset="ml-latest-small"):
    """Everything a reader sees, but for run ids and times."""
    whole = "curated.interactions splits.strong_generalization splits.leave_one_out diagnostics.degrees "
    whole += "diagnostics.power_law_fits diagnostics.hidden_graph_ratios published.recommendations"
    of_runs = "metrics comparisons ranks_by_degree like_by_degree calibration beyond_accuracy"
    tables = dict.fromkeys(whole.split(), "*") | {f"evaluation.{one}": "* exclude run_id" for one in of_runs.split()}
    latest = "(select run_id from operations.runs order by started_at desc limit 1)"
    found = {}
    for table, columns in tables.items():
        of_run = f" where run_id = {latest}" if "run_id" in columns else ""
        found[table] = query_rows(home, f"select {columns} from {table}{of_run} order by all", dataset)
    published = home / dataset / "published"
    found |= {file.name: file.read_bytes() for file in sorted(published.iterdir()) if file.suffix in (".csv", ".md")}
    return found


def test_a_log_becomes_published_tables(first):
    home, printed = first
    assert "strong_generalization" in printed and "mrf_dense" in printed and "index.html" in printed
    assert query_rows(home, "select state, flow from operations.runs") == [("completed", "backfill")]
    metrics = query_rows(home, "select distinct protocol, model from evaluation.metrics order by all")
    assert len(metrics) == 2 * 3
    files = "evaluation.parquet evaluation.csv evaluation.md recommendations.parquet lists.parquet published.duckdb"
    published = {file.name for file in (home / "ml-latest-small" / "published").iterdir()}
    assert published == {*files.split(), "manifest.json", "model"}
    checked = query_rows(home, "select distinct stage from operations.contract_results where success")
    assert {stage for (stage,) in checked} == {*STAGES}
    report = home / "ml-latest-small" / "report"
    assert in_the_overview(home) == ["completed"]
    shown = json.loads((report / "summary.json").read_text())["shown"]
    [[night, value, _]] = shown["trend"]  # although the run is recorded as running while its report is written
    started = query_rows(home, "select started_at from operations.runs")[0][0]
    assert night == f"{started:%Y-%m-%d}" and value == pytest.approx(shown["value"])


def in_the_overview(home):
    """The states of the data sets on the page over all of them."""
    return re.findall(r'class="state [\w-]+">(.*?)<', (home / "index.html").read_text())


@pytest.mark.slow
def test_a_second_run_ingests_nothing_and_gives_the_same_bits(after_first, ratings):
    files, before = query_rows(after_first, "select * from operations.log_files"), read_contents(after_first)
    assert run_backfill(after_first, "--source", ratings) == 0
    assert query_rows(after_first, "select count(*) from operations.runs") == [(2,)]
    assert query_rows(after_first, "select * from operations.log_files") == files
    assert read_contents(after_first) == before


@pytest.mark.slow
def test_one_thread_and_two_give_the_same_bits(first, tmp_path, ratings):
    assert run_backfill(tmp_path, "--source", ratings, "--threads", 1) == 0
    assert read_contents(tmp_path) == read_contents(first[0])


@pytest.mark.slow
def test_a_given_split_publishes_its_table_and_no_recommendations(tmp_path, capsys):
    for name, shift in (("train.txt", 0), ("test.txt", 1)):
        lines = [
            f"{user} " + " ".join(str((user % 2) + 2 * ((user // 2 + 3 * k + shift) % 20)) for k in range(5))
            for user in range(60)
        ]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    home, files = tmp_path / "home", [str(tmp_path / name) for name in ("train.txt", "test.txt")]
    arguments = ["--dataset", "gowalla", "--models", "popularity,mrf_dense", "--home", str(home), "--split-files"]
    assert commands.main("backfill", [*arguments, files[0], files[0]]) == 2
    assert "two different logs" in capsys.readouterr().err
    assert commands.main("backfill", [*arguments, *files]) == 0
    assert query_rows(home, "select distinct protocol from evaluation.metrics", "gowalla") == [("given",)]
    assert query_rows(home, "select count(*) from published.recommendations", "gowalla") == [(0,)]
    roles = query_rows(home, "select role, count(*) from splits.given group by role order by role", "gowalla")
    assert roles == [("test", 300), ("train", 300)]


def test_a_breach_stops_the_run_and_what_was_published_stays(after_first, tmp_path, capfd):
    home = after_first
    target, before = (home / "ml-latest-small" / "published").resolve(), read_contents(home)
    assert target.is_relative_to(home)
    bad = tmp_path / "more.csv"
    bad.write_text("userId,movieId,rating,timestamp\n1,1,7,1000000000\n")
    capfd.readouterr()
    assert run_backfill(home, "--source", bad) == 1
    stderr = capfd.readouterr().err
    assert "value is above value_max = 5" in stderr and "Traceback" not in stderr
    assert (home / "ml-latest-small" / "published").resolve() == target
    states = query_rows(home, "select state from operations.runs order by started_at")
    assert states == [("completed",), ("failed",)] and in_the_overview(home) == ["failed"]
    failed = "select samples from operations.contract_results where not success and severity = 'error'"
    [(samples,)] = query_rows(home, failed)
    assert json.loads(samples)
    with duckdb.connect(str(home / "ml-latest-small" / "warehouse.duckdb")) as connection:
        connection.execute("delete from operations.runs where state = 'failed'")
    assert read_contents(home) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "log", "edges"),
    [("ml-100k", "ml-100k/u.data", 55_375), ("lastfm", "lastfm-hetrec2011/user_artists.dat", 92_834)],
)
def test_a_real_log_becomes_its_edges(tmp_path, dataset, log, edges):
    given = BackfillParameters(
        dataset=dataset, home=str(tmp_path), source=[str(real_log(log))], protocols=["leave_one_out"]
    )
    assert "leave_one_out" in pipeline.build_splits(resolve_settings(given), "run").digests
    assert query_rows(tmp_path, "select count(*) from curated.interactions", dataset) == [(edges,)]


@pytest.mark.slow
def test_the_second_night_publishes_what_a_run_over_everything_does(prefect_server, ratings, tmp_path):
    """The first night has the first users, the second the others and a line more of one that is known."""
    header, *lines = ratings.read_text().splitlines()
    files = [tmp_path / f"ratings-{number}.csv" for number in (1, 2)]
    for file, part in zip(files, (lines[1:1470], [lines[0], *lines[1470:1540]]), strict=True):
        file.write_text("\n".join([header, *part]) + "\n")
    nights, whole = tmp_path / "nights", tmp_path / "whole"
    settings = ["--set", "binarize.threshold=1", "train.tune=off", "publish.model=slim"]
    for home, logs in ((nights, files[:1]), (nights, files[1:]), (whole, files)):
        words = [*ML, "--models", "popularity,mrf_dense,mrf_sparse,slim", "--home", str(home), "--threads", "2"]
        assert commands.main("backfill", [*words, "--source", *map(str, logs), *settings]) == 0
    assert read_contents(nights) == read_contents(whole)


@pytest.mark.slow
def test_a_night_without_the_published_model_publishes_it_again_on_new_events(after_first):
    landing = after_first / "ml-latest-small" / "landing"
    landing.mkdir(exist_ok=True)
    new_user = "".join(f"999,{film},5,1000000200\n" for film in range(1, 12, 2))
    (landing / "ratings-new.csv").write_text("userId,movieId,rating,timestamp\n" + new_user)
    words = ["--home", str(after_first), "--models", "popularity", "--set", "publish.max_age=1e-9"]
    (champion,) = query_rows(after_first, "select challenger from operations.promotions")
    assert commands.main("nightly_retrain", [*ML, *words]) == 0
    promotions = "select champion, challenger, promoted from operations.promotions order by rowid desc limit 1"
    assert champion != ("popularity/score",) and query_rows(after_first, promotions) == [(*champion, *champion, True)]
    assert query_rows(after_first, "select count(*) from published.recommendations where user_id = '999'") == [(20,)]
    summary = json.loads((after_first / "ml-latest-small" / "report" / "summary.json").read_text())
    assert summary["ended"]["state"] == "stale"  # no publication is young enough for this limit


@pytest.mark.slow
def test_one_failing_model_leaves_the_others_alone(prefect_server, ratings, tmp_path, monkeypatch, capsys):
    def broken(self, interactions, options):
        raise ValueError("no such luck")

    words = [*ML, "--home", str(tmp_path / "home"), "--source", str(ratings)]
    words += ["--models", "popularity,mrf_dense", "--protocols", "strong_generalization"]
    monkeypatch.setattr(Popularity, "_fit", broken)
    assert commands.main("backfill", words) == 1
    message = capsys.readouterr().err
    assert "popularity failed and was left out: train: popularity cannot be fitted: no such luck" in message
    home = Home(tmp_path / "home", "ml-latest-small")
    assert query_rows(home.root, "select state from operations.evaluated_runs") == [("partly_failed",)]
    assert query_rows(home.root, "select distinct model from evaluation.metrics") == [("mrf_dense",)]
    promotions = query_rows(home.root, "select challenger, promoted from operations.promotions")
    assert promotions == [("mrf_dense/score", True)]
    assert (home.published / "recommendations.parquet").exists()


@pytest.mark.slow
def test_a_model_that_needs_more_memory_than_there_is_is_refused_if_named_and_else_left_out(
    prefect_server, ratings, tmp_path, monkeypatch, capsys, caplog
):
    words = ["--dataset", "films", "--home", str(tmp_path / "home"), "--source", str(ratings)]
    words += ["--protocols", "strong_generalization", "--set", "train.tune=off"]
    (tmp_path / "home" / "datasets").mkdir(parents=True)
    declared = "binarize.threshold = 4\ndefault_models = ['popularity', 'mrf_dense']\n"
    (tmp_path / "home" / "datasets" / "films.toml").write_text(declared)
    home = Home(tmp_path / "home", "films")
    inflate_cost(monkeypatch, MRFDense)  # 6,400 GB for 40 items
    assert commands.main("backfill", [*words, "--models", "popularity,mrf_dense"]) == 2
    assert "mrf_dense: a fit on 40 items needs about 6400.1 GB of memory" in capsys.readouterr().err
    assert not home.published.exists()
    assert commands.main("backfill", words) == 0
    assert "mrf_dense is left out: a fit on 40 items needs about 6400.1 GB" in caplog.text
    assert "6400.1 GB of memory" in (home.report / "index.html").read_text()
    models = query_rows(home.root, "select distinct model from evaluation.metrics order by model", "films")
    assert models == [("popularity",), ("sansa",)]


@pytest.mark.slow
def test_where_fits_take_long_models_surely_below_the_best_have_one(ratings, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(capacity, "LONG_SECONDS", 0)
    monkeypatch.setattr(capacity, "adjust_against_best", np.zeros_like)
    words = ["--dataset", "films", "--home", str(tmp_path), "--source", str(ratings), "--set", "train.tune=off"]
    models = ("popularity", "mrf_dense", "item_knn", "wmf", "random_graph", "blend")
    assert commands.main("backfill", [*words, "--models", ",".join(models)]) == 0
    fits = query_rows(tmp_path, "select distinct model, protocol from operations.model_fits", "films")
    assert {model for model, split in fits if split == "leave_one_out"} == {"popularity", "mrf_dense", "random_graph"}
    marked = [line for line in capsys.readouterr().out.splitlines() if "†" in line and line.startswith("|")]
    assert [line.split()[1] for line in marked] == ["wmf", "item_knn"]
    page = (tmp_path / "films" / "report" / "index.html").read_text()
    assert page.count(">only here<") == 2 and "item_knn left out" in page and "put it below mrf_dense" in page


def find_workers():
    """The worker processes of the run's own cluster."""
    return [one for one in psutil.Process().children() if "spawn_main" in " ".join(one.cmdline())]


def kill_one_after(folder, killed, pattern="*"):
    """Kill a worker once something of that name is in a folder."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if any(folder.glob(pattern)) and (found := find_workers()):
            found[0].kill()
            killed.append(found[0].pid)
            return
        time.sleep(0.01)


@pytest.mark.slow
def test_two_workers_one_of_which_is_killed_give_the_tables_of_a_plain_run(first, tmp_path, ratings):
    killed = []
    killer = threading.Thread(target=kill_one_after, args=(tmp_path / "ml-latest-small" / "models", killed))
    killer.start()
    assert run_backfill(tmp_path, "--source", ratings, "--workers", 2) == 0
    killer.join()
    assert killed and read_contents(tmp_path) == read_contents(first[0])
    assert find_workers() == []
