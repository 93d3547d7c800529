"""The folder of `flows.cite`: exact values, marks and settings."""

import json

import duckdb
import polars as pl
import pytest

from oneclass.flows import commands
from oneclass.models.evaluation.metrics import Comparison
from oneclass.tasks.citation import format_latex
from oneclass.tasks.leaderboard import LeaderboardRow
from tests.flows.conftest import ML

BEST = LeaderboardRow("leave_one_out", "a_b", "score", 9, {"mean_rank": (1 / 3, 0.1), "ndcg@100": (0.5, None)}, "best")
LEVEL = LeaderboardRow(
    "leave_one_out",
    "c",
    "like",
    9,
    {"mean_rank": (0.25, 0.1), "ndcg@100": (0.4, None)},
    "level",
    against_best=Comparison(-1 / 12, 0.2, 0.7, 9),
)


@pytest.fixture(scope="module")
def cited(first):
    """The folder of the first run."""
    assert commands.main("cite", [*ML, "--home", str(first[0])]) == 0
    [folder] = (first[0] / "ml-latest-small" / "citations").iterdir()
    return folder


def test_latex_marks_the_best_and_those_level_with_it():
    text = format_latex([BEST, LEVEL], "Fish & chips")
    assert r"a\_b & score & \textbf{0.3333 $\pm$ 0.1000} & 0.5000 &  \\" in text
    assert r"c & like & 0.2500 $\pm$ 0.1000 = & 0.4000 & -0.0833 $\pm$ 0.2000 \\" in text
    assert r"\caption{Fish \& chips: " in text and text.count("{") == text.count("}")


def test_table_and_settings_are_those_of_the_run(first, cited, ratings):
    with duckdb.connect(str(first[0] / "ml-latest-small" / "warehouse.duckdb"), read_only=True) as connection:
        stored = connection.execute("select protocol, model, score, metric, value from evaluation.metrics").fetchall()
        [(run_id, version)] = connection.execute("select run_id, code_version from operations.runs").fetchall()
        digests = dict(connection.execute("select path, sha256 from operations.log_files").fetchall())
    table = pl.read_csv(cited / "table.csv")
    assert set(table.select("protocol", "model", "score", "metric", "value").rows()) <= set(stored)
    assert set(table["model"]) == {"popularity", "mrf_dense", "bpr_uniform"}
    assert r"\textbf{" in (cited / "table.tex").read_text()
    described = json.loads((cited / "run.json").read_text())
    assert described["settings"]["models"]["bpr_uniform"]["epochs"] == 2
    assert (described["run"], described["code_version"]) == (run_id, version)
    assert {file["path"]: file["sha256"] for file in described["files"]} == digests and str(ratings) in digests


def test_an_unknown_run_is_refused_with_those_there_are(first, capsys):
    assert commands.main("cite", [*ML, "--home", str(first[0]), "--run", "nothing"]) == 2
    assert "--run nothing: " in (said := capsys.readouterr().err) and "The latest: " in said
