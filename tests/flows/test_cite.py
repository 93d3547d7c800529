"""The folder of `flows.cite`: exact values, marks, settings, and the script that makes the table again."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import duckdb
import polars as pl
import pytest

from oneclass.flows import commands
from oneclass.models.evaluation.metrics import Comparison
from oneclass.tasks.citation import format_csv, format_latex
from oneclass.tasks.leaderboard import LeaderboardRow
from tests.flows.conftest import ML

BEST = LeaderboardRow("leave_one_out", "a_b", "score", 9, {"mean_rank": (1 / 3, 0.1), "ndcg@100": (0.5, None)}, "best")
LEVEL = LeaderboardRow(
    "leave_one_out", "c", "like", 9, {"mean_rank": (0.25, 0.1)}, "level", against_best=Comparison(-1 / 12, 0.2, 0.7, 9)
)


@pytest.fixture(scope="module")
def cited(first, tmp_path_factory):
    """The folder of the first run."""
    folder = tmp_path_factory.mktemp("cited") / "table"
    assert commands.main("cite", [*ML, "--home", str(first[0]), "--out", str(folder)]) == 0
    return folder


def test_latex_marks_the_best_and_those_level_with_it():
    text = format_latex([BEST, LEVEL], "Fish & chips")
    assert r"a\_b & score & \textbf{0.3333} $\pm$ 0.1000 & 0.5000 \\" in text
    assert r"c & like & 0.2500$^{=}$ $\pm$ 0.1000 & -- \\" in text
    assert r"\caption{Fish \& chips: " in text and text.count("{") == text.count("}")


def test_csv_has_exact_values_and_marks():
    frame = pl.read_csv(format_csv([BEST, LEVEL]).encode())
    assert frame["value"].to_list() == [1 / 3, 0.5, 0.25]
    assert frame["standing"].to_list() == ["best", None, "level"]
    assert frame["difference_from_best"].to_list() == [None, None, -1 / 12]


def test_table_and_settings_are_those_of_the_run(first, cited, ratings):
    with duckdb.connect(str(first[0] / "ml-latest-small" / "warehouse.duckdb"), read_only=True) as connection:
        stored = connection.execute("select protocol, model, score, metric, value from evaluation.metrics").fetchall()
        [(run_id, version)] = connection.execute("select run_id, code_version from operations.runs").fetchall()
        digests = dict(connection.execute("select path, sha256 from operations.log_files").fetchall())
    table = pl.read_csv(cited / "table.csv")
    assert set(table[:, :5].rows()) <= set(stored)
    assert set(table["model"]) == {"popularity", "mrf_dense", "bpr_uniform"}
    assert "**" in (cited / "table.md").read_text()
    settings = tomllib.loads((cited / "settings.toml").read_text())
    assert settings["bpr_uniform"]["epochs"] == 2 and settings["train"] == {"tune": "off"}
    described = json.loads((cited / "run.json").read_text())
    assert (described["run"], described["code_version"]) == (run_id, version)
    assert {file["path"]: file["sha256"] for file in described["files"]} == digests and str(ratings) in digests
    assert set(table["protocol"]) <= described["splits"].keys() and all(described["splits"].values())


def test_an_unknown_run_is_refused_with_those_there_are(first, capsys):
    assert commands.main("cite", [*ML, "--home", str(first[0]), "--run", "nothing"]) == 2
    assert "--run nothing: " in (said := capsys.readouterr().err) and "The latest: " in said


@pytest.mark.slow
@pytest.mark.parametrize(("epochs", "status"), [("2", 0), ("3", 1)])
def test_the_script_makes_the_table_again_and_fails_if_it_differs(cited, prefect_server, tmp_path, epochs, status):
    folder = shutil.copytree(cited, tmp_path / "table")
    settings = (folder / "settings.toml").read_text()
    (folder / "settings.toml").write_text(settings.replace("epochs = 2", f"epochs = {epochs}"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = {"env": {**os.environ, "PATH": path, "PREFECT_API_URL": prefect_server}, "capture_output": True}
    done = subprocess.run(["sh", folder / "reprint.sh", tmp_path / "home"], **given, check=False)
    assert done.returncode == status, done.stderr
