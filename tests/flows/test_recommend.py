"""The commands `flows.recommend` and `flows.cite` on the home of the first run."""

import json
import re

import polars as pl
import pytest

from oneclass.flows import commands
from tests.flows.conftest import ML, query_rows


@pytest.fixture(scope="module")
def asked(first):
    """The arguments that every command takes, and the published lists of the user 7, best first."""
    lists = pl.read_parquet(first[0] / "ml-latest-small" / "published" / "recommendations.parquet")
    return [*ML, "--home", str(first[0])], lists.filter(pl.col("user_id") == "7").sort("rank")


def test_a_user_gets_the_published_list(asked, capsys):
    arguments, expected = asked
    assert commands.main("recommend", [*arguments, "--user", "7", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["item_id"] for row in answer["items"]] == expected["item_id"].to_list()
    assert answer["model"] and answer["publication"] and answer["unknown"] == []
    assert commands.main("recommend", [*arguments, "--user", "7", "--n", "2"]) == 0
    assert re.search(rf"^ +2 +{expected['item_id'][1]} ", capsys.readouterr().out, flags=re.MULTILINE)


def test_a_history_of_known_and_unknown_items_is_answered(asked, capsys):
    arguments, _ = asked
    given = ["--item", "1", "3", "--item", "no such film", "--n", "3", "--json"]
    assert commands.main("recommend", [*arguments, *given]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["unknown"] == ["no such film"]
    assert len(answer["items"]) == 3 and not {row["item_id"] for row in answer["items"]} & {"1", "3"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--user", "nobody"], "user nobody: is not among the"),
        ([], "--user, --item and --list: give one of them"),
        (["--user", "7", "--dataset", "ml-latest-smal"], "unknown. Did you mean ml-latest-small?"),
        (["--user", "7", "--dataset", "demo"], "Run `python -m flows.backfill --dataset demo`"),
    ],
)
def test_unanswerable_requests_are_reported(asked, capsys, given, message):
    assert commands.main("recommend", [*asked[0], *given]) == 2
    assert message in capsys.readouterr().err


def test_a_citation_has_the_table_and_the_settings_of_the_run(first, ratings):
    assert commands.main("cite", [*ML, "--home", str(first[0])]) == 0
    [cited] = (first[0] / ML[1] / "citations").iterdir()
    stored = query_rows(first[0], "select protocol, model, score, metric, value from evaluation.metrics")
    [(run_id, version)] = query_rows(first[0], "select run_id, code_version from operations.runs")
    digests = dict(query_rows(first[0], "select path, sha256 from operations.log_files"))
    table = pl.read_csv(cited / "table.csv")
    assert set(table.select("protocol", "model", "score", "metric", "value").rows()) <= set(stored)
    assert set(table["model"]) == {"popularity", "mrf_dense", "bpr_uniform"}
    latex = (cited / "table.tex").read_text()
    assert r"\textbf{" in latex and r"bpr\_uniform & " in latex and latex.count("{") == latex.count("}")
    described = json.loads((cited / "run.json").read_text())
    assert described["settings"]["models"]["bpr_uniform"]["epochs"] == 2
    assert (described["run"], described["code_version"]) == (run_id, version)
    assert {file["path"]: file["sha256"] for file in described["files"]} == digests and str(ratings) in digests


def test_an_unknown_run_is_refused_with_those_there_are(first, capsys):
    assert commands.main("cite", [*ML, "--home", str(first[0]), "--run", "nothing"]) == 2
    assert "--run nothing: " in (said := capsys.readouterr().err) and "The latest: " in said
