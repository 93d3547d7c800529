"""The reference leaves nothing out; the notebook, the guide and the README's first command print what they show."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from docs import reference
from oneclass.data_contracts import contracts
from oneclass.flows import commands
from oneclass.models.evaluation import definitions, metrics
from oneclass.models.evaluation.beyond_accuracy import Exposure
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.evaluation.ranks_apart import rank_new_and_repeated
from oneclass.models.registry import MODELS
from oneclass.tasks.settings import STAGE_SETTINGS
from tests.typed import ROOT, read_page


def test_the_notebook_prints_what_it_shows():
    names = {}
    cells = [
        cell for cell in json.loads(read_page("examples/estimators.ipynb"))["cells"] if cell["cell_type"] == "code"
    ]
    for cell in cells:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec("".join(cell["source"]), names)  # noqa: S102
        assert printed.getvalue() == "".join(line for output in cell["outputs"] for line in output["text"])
    assert len(cells) > 4


@pytest.mark.slow
def test_the_guide_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", read_page("docs/how-to/library.md"), flags=re.MULTILINE | re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(block, names)  # noqa: S102
    said = re.findall(r"^print\(.*\) +# (.*)$", "".join(blocks), flags=re.MULTILINE)
    assert len(said) == 2 and capsys.readouterr().out.splitlines() == said


README = read_page("README.md")
SHOWN = ("ndcg@100", "mean_rank", "minus the best")


@pytest.fixture
def printed(tmp_path):
    """What the command prints: in the file that `.ci/run`, which has run it, names; else by a run."""
    if file := os.environ.get("ONECLASS_DEMO_OUTPUT"):
        return Path(file).read_text(encoding="utf-8")
    command = [sys.executable, "-m", "flows.backfill", "--dataset", "demo", "--home", str(tmp_path / "home")]
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path / "prefect")}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_table_is_what_the_first_command_prints(printed):
    section = r"^## strong_generalization\n\n(\d+) users\n\n((?:\|.*\n)+)"
    users, table = re.search(section, printed, flags=re.MULTILINE).groups()
    head, _, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines())
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    shown = re.findall(r"^\| (?!model|-).* ± .*\|$", README, flags=re.MULTILINE)
    assert len(shown) == 5
    expected = [f"| {' | '.join(row[name] for name in ('model', *SHOWN))} |".replace("|  |", "| |") for row in rows]
    assert [row for row in expected if row in shown] == shown
    assert f"computed on {users} users" in README and f"(five of {len(rows)} rows)" in README


PAGE = reference.write_page()


def test_every_flag_and_setting_is_there():
    for name in commands.COMMANDS:
        section = PAGE.partition(f"\n### {name}\n")[2].partition("\n#")[0]
        for flag in commands.build_app(name).assemble_argument_collection()[1:-1]:
            assert re.search(rf"^\| `{flag.name}\b", section, flags=re.MULTILINE)
    for name, settings in {**STAGE_SETTINGS, **{name: model.Settings for name, model in MODELS.items()}}.items():
        section = PAGE.partition(f"\n#### [{name}]\n")[2].partition("\n#")[0]
        assert section and all(f"\n| `{field}` | " in section for field in settings.model_fields)


def test_no_cell_of_a_meaning_is_empty():
    empty = re.findall(r"^\|.*\| +\|$", re.sub(r"## Metrics.*?## Tables", "", PAGE, flags=re.DOTALL), re.MULTILINE)
    assert not empty


def test_every_column_of_the_warehouse_is_there():
    described = {}
    for section in PAGE.partition("## Tables")[2].split("\n### ")[1:]:
        described[section.split("\n")[0]] = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", section, flags=re.MULTILINE)
    with duckdb.connect() as connection:
        for statements in contracts.schema():
            connection.execute(statements)
        columns = connection.execute(
            "select schema_name || '.' || table_name, column_name, data_type || if(is_nullable, '', ' not null') "
            "from duckdb_columns() semi join duckdb_tables() using (schema_name, table_name)"
        ).fetchall()
    tables = {table: [(name, kind) for of, name, kind in columns if of == table] for table, _, _ in columns}
    assert len(tables) > 20
    for table, found in tables.items():
        assert described[table] == found


def test_every_metric_is_defined_and_none_that_there_is_not():
    likes = csr_matrix(np.eye(3, 4, dtype=np.float32))
    targets = csr_matrix(np.eye(3, 4, k=1, dtype=np.float32))
    scores = np.arange(12, dtype=np.float32).reshape(3, 4)
    ranks = rank_targets(scores, likes, targets)
    assert metrics.average_over_users(metrics.compute_user_metrics(ranks)).keys() == definitions.USER_METRICS.keys()
    assert rank_new_and_repeated(scores, likes, targets).keys() == definitions.SEEN_ITEM_METRICS.keys()
    exposure = Exposure(np.array([3, 2, 1, 1]), 3)
    exposure.add(np.array([[1], [2], [3]], dtype=np.int32), likes)
    assert exposure.metrics().keys() == definitions.LIST_METRICS.keys()
