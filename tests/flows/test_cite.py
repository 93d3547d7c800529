"""The folder of `flows.cite`: exact values, marks, settings, checklist, and the script that makes the table again."""

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import duckdb
import polars as pl
import pytest

from oneclass.flows import commands
from oneclass.models.evaluation.metrics import Comparison
from oneclass.tasks.citation.checklist import build_checklist
from oneclass.tasks.citation.record import load_run, load_split_hashes
from oneclass.tasks.citation.rerun import format_settings, list_arguments
from oneclass.tasks.citation.tables import format_csv, format_latex
from oneclass.tasks.datasets import Dataset, load_dataset
from oneclass.tasks.leaderboard import LeaderboardRow
from oneclass.tasks.stores import checksums, fits
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.runs import get_code_version
from tests.flows.conftest import FAST, ML

BEST = LeaderboardRow("leave_one_out", "a_b", "score", 9, {"mean_rank": (1 / 3, 0.1), "ndcg@100": (0.5, None)}, "best")
LEVEL = LeaderboardRow(
    "leave_one_out", "c", "like", 9, {"mean_rank": (0.25, 0.1)}, "level", against_best=Comparison(-1 / 12, 0.2, 0.7, 9)
)


def run_cite(home, *arguments, status=0):
    assert commands.main("cite", [*ML, "--home", str(home), *arguments]) == status


@pytest.fixture(scope="module")
def cited(first, tmp_path_factory):
    """The folder of the first run."""
    folder = tmp_path_factory.mktemp("cited") / "table"
    run_cite(first[0], "--out", str(folder))
    return folder


@pytest.fixture(scope="module")
def searched(prefect_server, ratings, tmp_path_factory):
    """The folder of a run that searched the settings of its models, and its home."""
    home = tmp_path_factory.mktemp("searched")
    models = ["--models", "popularity,item_knn,rp3beta,bpr_uniform", "--protocols", "leave_one_out"]
    tuned = ["--set", "bpr_uniform.epochs=2", "train.tune=always", 'evaluate.metrics=["precision@7"]']
    assert commands.main("backfill", [*FAST, "--home", str(home), "--source", str(ratings), *models, *tuned]) == 0
    run_cite(home, "--out", str(home / "table"))
    return home / "table", home


def test_latex_marks_the_best_and_those_level_with_it():
    text = format_latex([BEST, LEVEL], "Fish & chips")
    assert r"a\_b & score & \textbf{0.3333} $\pm$ 0.1000 & 0.5000 \\" in text
    assert r"c & like & 0.2500$^{=}$ $\pm$ 0.1000 & -- \\" in text
    assert r"\caption{Fish \& chips: " in text and text.count("{") == text.count("}")


def test_csv_has_exact_values():
    frame = pl.read_csv(format_csv([BEST, LEVEL]).encode())
    assert frame["value"].to_list() == [1 / 3, 0.5, 0.25]
    assert frame["standing"].to_list() == ["best", None, "level"]
    assert frame["difference_from_best"].to_list() == [None, None, -1 / 12]


def test_tables_are_those_of_the_warehouse(first, cited):
    with duckdb.connect(str(first[0] / "ml-latest-small" / "warehouse.duckdb"), read_only=True) as connection:
        stored = connection.execute("select protocol, model, score, metric, value from evaluation.metrics").fetchall()
        pairs = connection.execute("select count(*) from evaluation.comparisons").fetchone()[0]
        fits = connection.execute("select distinct digest from operations.model_fits").fetchall()
    values = {tuple(row[:4]): row[4] for row in stored}
    metrics = pl.read_csv(cited / "metrics.csv")
    found = {tuple(row[:4]): row[4] for row in metrics.iter_rows()}
    assert values.items() <= found.items()
    assert ("leave_one_out", "popularity", "score", "coverage@20") in found
    assert pl.read_csv(cited / "comparisons.csv").height == pairs
    rows = json.loads((cited / "rows.json").read_text())
    assert [row["model"] for row in rows] == ["popularity", "mrf_dense", "bpr_uniform"]
    assert {fit["digest"] for row in rows for fit in row["fits"]} <= {digest for (digest,) in fits}
    bpr = rows[2]
    assert bpr["settings"]["epochs"] == 2 and bpr["search"]["origin"] == "given" and "factors" in bpr["search"]["space"]


def test_every_trial_of_a_search_is_listed(cited, searched):
    trials = pl.read_csv(searched[0] / "trials.csv")
    rows = {row["model"]: row for row in json.loads((searched[0] / "rows.json").read_text())}
    run = json.loads((searched[0] / "run.json").read_text())["run"]
    assert trials["model"].unique(maintain_order=True).to_list() == ["bpr_uniform", "item_knn", "rp3beta"]
    with duckdb.connect(str(searched[1] / "ml-latest-small" / "warehouse.duckdb"), read_only=True) as connection:
        stored = connection.execute("select model, seconds from operations.search_trials order by number").fetchall()
    for model, of_model in trials.group_by("model"):
        search = rows[model[0]]["search"]
        assert of_model["number"].to_list() == list(range(1, search["trials"] + 1))
        best = of_model.filter(state="done").sort("value", descending=True, maintain_order=True).row(0, named=True)
        assert (best["value"], best["standard_error"]) == (search["reached"], search["standard_error"])
        assert {*of_model["run_id"]} == {run} and search["seconds"] > 0  # processor time, unlike that of a trial
        assert of_model["seconds"].to_list() == [seconds for name, seconds in stored if name == model[0]]
        assert {*search["space"]} - {"epochs"} <= {*json.loads(best["settings"])}
    assert pl.read_csv(cited / "trials.csv").is_empty()


def test_a_blend_that_the_run_weighed_is_weighed_again(first):
    record = load_run(Home(first[0], "ml-latest-small"), Dataset(name="ml-latest-small"), None)
    chosen = {"blend": {"origin": "search", "settings": {"components": [{"model": "mrf_dense", "weight": 0.5}]}}}
    fits = pl.concat([record.fits, record.fits[-1:].with_columns(model=pl.lit("blend"))])
    metrics = pl.concat([record.metrics, record.metrics[-1:].with_columns(model=pl.lit("blend"))])
    blended = replace(record, fits=fits, metrics=metrics, model_settings=chosen)
    assert "blend" in list_arguments(blended)[5] and "blend" not in tomllib.loads(format_settings(blended))
    chosen["blend"]["origin"] = "given"
    assert tomllib.loads(format_settings(blended))["blend"] == chosen["blend"]["settings"]


def test_the_machine_and_the_times_are_those_of_the_run(first, cited):
    warehouse_file = str(first[0] / "ml-latest-small" / "warehouse.duckdb")
    with duckdb.connect(warehouse_file, read_only=True) as connection:
        [(processor, memory)] = connection.execute(
            "select processor, memory_bytes from operations.run_machines"
        ).fetchall()
    described = json.loads((cited / "run.json").read_text())
    assert described["machine"]["processor"] == processor and described["machine"]["memory_bytes"] == memory
    assert described["machine"]["used_cores"] == 2
    of_fits = [fit["cpu_seconds"] for row in json.loads((cited / "rows.json").read_text()) for fit in row["fits"]]
    assert min(of_fits) > 0 and described["fit_cpu_seconds"] == pytest.approx(sum(of_fits))


def test_a_run_of_an_earlier_version_has_no_machine(after_first, tmp_path):
    with duckdb.connect(str(after_first / "ml-latest-small" / "warehouse.duckdb")) as connection:
        connection.execute("delete from operations.run_machines")
    for folder in (after_first / "ml-latest-small" / "models").glob("popularity/*"):
        facts = checksums.load_facts(folder, fits.RECORD_FILE)
        del facts["cpu_seconds"]
        checksums.write_manifest(folder, fits.RECORD_FILE, facts)
    run_cite(after_first, "--out", str(tmp_path / "table"))
    described = json.loads((tmp_path / "table" / "run.json").read_text())
    assert described["machine"] is None and described["fit_cpu_seconds"] is None
    evidence = "rows.json, fits.cpu_seconds is null: popularity (strong_generalization), popularity (leave_one_out)"
    assert read_answers(tmp_path / "table")["Are times and memory stated?"] == ("no", evidence)


def read_answers(folder):
    rows = re.findall(r"^\| \w+ \| (.+?) \| (yes|no) \| (.*) \|$", (folder / "checklist.md").read_text(), re.MULTILINE)
    return {question: (answer, evidence) for question, answer, evidence in rows}


@contextlib.contextmanager
def change_warehouse(home, statement, *values):
    """Change the warehouse of a home for the block, and yield what the checklist answers then."""
    file = home / "ml-latest-small" / "warehouse.duckdb"
    before = file.read_bytes()
    with duckdb.connect(str(file)) as connection:
        connection.execute(statement, values)
    try:
        yield answer_checklist(home)
    finally:
        file.write_bytes(before)


def answer_checklist(root):
    """Return what the checklist answers about the last run of a home, as `read_answers` reads it."""
    home = Home(root, "ml-latest-small")
    record = load_run(home, load_dataset(home.dataset, root), None)
    hashes = {protocol: load_split_hashes(home, digest) for protocol, digest in record.splits.items()}
    items = build_checklist(record, get_code_version(), hashes)
    return {item.question: ("yes" if item.answer else "no", item.evidence) for item in items}


def test_the_written_checklist_has_all_answers(searched):
    folder, home = searched
    assert read_answers(folder) == answer_checklist(home)


@pytest.mark.parametrize(
    ("joules", "answer"), [(None, ("no", "is null: RAPL was not readable")), (12.5, ("yes", "= 12, by RAPL"))]
)
def test_energy_is_stated_if_the_run_measured_it(searched, joules, answer):
    with change_warehouse(searched[1], "update operations.run_machines set energy_joules = ?", joules) as found:
        assert found["Is the energy stated?"] == (answer[0], f"run.json, machine.energy_joules {answer[1]}")


def test_the_checklist_says_no_with_the_reason(cited):
    found = read_answers(cited)
    assert found["Does one command make the table again?"] == ("yes", "sh reprint.sh")
    assert found["Are the splits identified?"][0] == "yes"
    answer, evidence = found["Are all models tuned on these data?"]
    assert answer == "no" and "bpr_uniform 0" in evidence
    assert found["Are results repeated over several seeds?"] == ("no", "run.json, seed: one, 0, for splits and draws")


COPIED = "insert into evaluation.metrics by name select * replace ('{}' as metric) from evaluation.metrics"
UNTUNED = "update operations.model_settings set {} where model = 'item_knn'"
CHANGES = {
    "Is the preprocessing stated, with what it removed?": (
        "delete from operations.funnel",
        "run.json, preprocessing is empty",
    ),
    "Are metrics defined with their normalisation?": (COPIED.format("delight@5"), "run.json, metrics lacks delight@5"),
    "Are all items ranked?": (COPIED.format("ndcg@100_new_items"), "ndcg@100_new_items rank new items among new ones"),
    "Are there standard errors?": (
        "update evaluation.metrics set standard_error = null where model = 'item_knn'",
        "table.csv, standard_error is empty: item_knn/score (leave_one_out)",
    ),
    "Is every trial of a search stated?": (
        "delete from operations.search_trials where model = 'rp3beta' and number = 2",
        "trials.csv lacks those of rp3beta",
    ),
    "Are all packages of the run pinned?": ("delete from operations.run_packages", "the run recorded none"),
    "Are the raw files identified?": ("delete from operations.log_files", "run.json, files is empty"),
    "Are all models tuned on these data?": (
        UNTUNED.format("trials = null, origin = 'default'"),
        "rows.json, search.trials: item_knn 0",
    ),
    "Are settings chosen without the test part?": (
        "update operations.model_settings set origin = 'given' where model = 'item_knn'",
        "rows.json, search.origin: the run does not know how of item_knn (given)",
    ),
    "Are there simple baselines?": (
        "delete from operations.model_fits where model in ('item_knn', 'rp3beta')",
        "table.csv, model: popularity, of popularity, item_knn, rp3beta",
    ),
    "Are differences tested, corrected for their number?": (
        "delete from evaluation.comparisons",
        "table.csv, corrected_p_value is empty",
    ),
    "Is the hardware of the run stated?": ("delete from operations.run_machines", "run.json, machine is null"),
    "Is it the code that wrote this folder?": (
        "update operations.runs set code_version = '0.0'",
        "run.json, code_version: 0.0; this folder: ",
    ),
    "Does each fit start anew?": (
        """update operations.runs set settings = json_merge_patch(settings, '{"train": {"warm_start": true}}')""",
        "run.json, warm_start = true",
    ),
}


@pytest.mark.parametrize("question", CHANGES)
def test_each_answer_is_read_from_the_record(searched, question):
    folder, home = searched
    assert read_answers(folder)[question][0] == "yes"
    statement, evidence = CHANGES[question]
    with change_warehouse(home, statement) as found:
        answer, reason = found[question]
    assert answer == "no" and evidence in reason


def test_budgets_are_equal_if_every_model_had_as_many_trials(searched):
    folder, home = searched
    question = "Do all tuned models have equal budgets?"
    answer, evidence = read_answers(folder)[question]  # the better half of the models gets more trials
    assert answer == "no" and re.search(r"rows\.json, search\.trials: .*item_knn \d+", evidence)
    with change_warehouse(home, "update operations.model_settings set trials = 9 where trials > 0") as found:
        assert found[question][0] == "yes"


@pytest.mark.parametrize(("version", "answer"), [("0.2+abc", "yes"), ("0.2+abc-dirty", "no")])
def test_a_commit_with_changes_does_not_identify_the_code(searched, version, answer):
    with change_warehouse(searched[1], "update operations.runs set code_version = ?", version) as found:
        assert found["Is the code that ran identified?"][0] == answer


def test_what_the_home_lacks_is_neither_public_nor_identified_nor_stated(searched, tmp_path):
    before, home = read_answers(searched[0]), shutil.copytree(searched[1], tmp_path / "home", symlinks=True)
    (home / "datasets").mkdir()
    (home / "datasets" / "ml-latest-small.toml").write_text('title = "Mine"\n')
    shutil.rmtree(home / "ml-latest-small" / "matrices")
    shutil.rmtree(home / "ml-latest-small" / "models" / "rp3beta")
    found = answer_checklist(home)
    for question, evidence in {
        "Is the data set named, with its licence?": r"run\.json, dataset\..*",
        "Can a reader get the raw data?": r"run\.json, dataset\..*",
        "Are the splits identified?": ".*no longer stored: .*leave_one_out.*",
        "Are search spaces and final settings stated?": r"rows\.json, fits\.effective is null: rp3beta "
        r"\(leave_one_out\)",
    }.items():
        assert before[question][0] == "yes" and found[question][0] == "no"
        assert re.fullmatch(evidence, found[question][1])


def test_the_lock_has_the_packages_of_the_run(after_first, tmp_path):
    with duckdb.connect(str(after_first / "ml-latest-small" / "warehouse.duckdb")) as connection:
        [(packages,)] = connection.execute("select packages from operations.run_packages").fetchall()
        assert f'"duckdb": "{duckdb.__version__}"' in packages
        connection.execute("""update operations.run_packages set packages = '{"numpy": "1.2.3"}'""")
    run_cite(after_first, "--out", str(tmp_path / "table"))
    lines = (tmp_path / "table" / "environment.lock").read_text().splitlines()
    assert lines == [f"# Python {platform.python_version()}", "numpy==1.2.3"]


def test_runs_that_differ_in_the_seed_alone_repeat_a_table(searched, tmp_path):
    """A copy of the run with another seed does, one that differs in a setting too does not."""
    folder, home = searched
    assert not (folder / "seeds.csv").exists()
    copied = shutil.copytree(home, tmp_path / "home", symlinks=True)
    with duckdb.connect(str(copied / "ml-latest-small" / "warehouse.duckdb")) as connection:
        for run_id, patch in (("again", '{"seed": 7}'), ("other", '{"seed": 8, "binarize": {"threshold": 1}}')):
            connection.execute(
                "insert into operations.runs by name select * replace (? as run_id, "
                "json_merge_patch(settings, ?) as settings) from operations.runs where flow = 'backfill' limit 1",
                [run_id, patch],
            )
            connection.execute(
                "insert into evaluation.metrics by name select * replace (? as run_id, value / 2 as value) "
                "from evaluation.metrics where run_id not in ('again', 'other')",
                [run_id],
            )
    run_id = json.loads((folder / "run.json").read_text())["run"]
    run_cite(copied, "--out", str(tmp_path / "table"), "--run", run_id)
    seeds = pl.read_csv(tmp_path / "table" / "seeds.csv")
    assert seeds["run_id"].unique(maintain_order=True).to_list() == [run_id, "again"]
    of_best = seeds.filter(model="rp3beta", metric="mean_rank")
    assert of_best["seed"].to_list() == [0, 7] and of_best["value"][1] == of_best["value"][0] / 2
    answer = read_answers(tmp_path / "table")["Are results repeated over several seeds?"]
    assert answer == ("yes", "seeds.csv: 0, 7, for splits and draws")


def test_further_metrics_are_computed_again(searched):
    folder, _ = searched
    assert tomllib.loads((folder / "run.toml").read_text())["evaluate"] == {"metrics": ["precision@7"]}
    assert "precision@7" in pl.read_csv(folder / "metrics.csv")["metric"]


def test_a_log_that_has_changed_cannot_be_cited_as_repeatable(first, ratings):
    text = ratings.read_text()
    try:
        ratings.write_text(text + "121,1,5,1000000121\n")
        answer, evidence = answer_checklist(first[0])["Does one command make the table again?"]
    finally:
        ratings.write_text(text)
    assert answer == "no" and str(ratings) in evidence


def test_an_unknown_run_is_refused_with_those_there_are(first, capsys):
    run_cite(first[0], "--run", "nothing", status=2)
    assert re.search(r"--run nothing: .* The latest: [0-9a-f-]{36}", capsys.readouterr().err)


@pytest.mark.slow
def test_the_script_makes_the_same_table(cited, prefect_server, tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PREFECT_API_URL": prefect_server}
    command = ["sh", str(cited / "reprint.sh"), str(tmp_path / "home")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("The table is the same, bit for bit.\n")


@pytest.mark.slow
def test_the_script_fails_if_the_table_differs(cited, prefect_server, tmp_path):
    changed = shutil.copytree(cited, tmp_path / "changed")
    settings = (changed / "run.toml").read_text()
    (changed / "run.toml").write_text(settings.replace("epochs = 2", "epochs = 3"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PREFECT_API_URL": prefect_server}
    command = ["sh", str(changed / "reprint.sh"), str(tmp_path / "home")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "differ" in done.stdout
