"""The page on exploring: its columns are those of the table, and its block runs on what its command publishes."""

import re

import duckdb
import polars as pl
import pytest

from oneclass import sql
from tests.typed import indented_blocks, read_page, run_line

PAGE = read_page("docs/how-to/explore.md")
FAST = ["--models", "random_graph", "--protocols", "strong_generalization", "--set", "train.tune=off"]


def test_the_page_names_every_column_but_the_users():
    with duckdb.connect() as connection:
        for statement in sql.schema():
            connection.execute(statement)
        columns = connection.sql("from published.exploration").columns
    named = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, flags=re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(named))) == sorted(set(columns) - {"user_id"})


@pytest.mark.slow
def test_the_command_publishes_what_the_block_reads(tmp_path, monkeypatch, capsys, prefect_server):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONECLASS_HOME", raising=False)
    [command] = [line for line in indented_blocks(PAGE) if line.startswith("python -m flows.backfill")]
    run_line(command, *FAST, "random_graph.iterations=20")
    exec(re.search(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)[1], names := {})  # noqa: S102
    assert names["found"].table["estimator"].to_list() == ["ips", "snips"]
    assert abs(names["found"].supported_share - 1) < 0.1
    best = pl.read_parquet("var/demo/published/recommendations.parquet")
    assert names["shown"]["user_id"].n_unique() == best["user_id"].n_unique()
