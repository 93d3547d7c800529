"""The reference leaves nothing out; notebook, guide and README print what they show; benchmarks run."""

import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from benchmarks import interrupted_nights, paper_figures, random_shops
from docs import reference
from oneclass.data_contracts import contracts
from oneclass.flows import commands
from oneclass.models.evaluation import definitions, metrics
from oneclass.models.evaluation.beyond_accuracy import Exposure
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.evaluation.ranks_apart import rank_new_and_repeated
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.settings import STAGE_SETTINGS
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import matrices, runs
from tests.conftest import home_in, two_tastes
from tests.tasks.conftest import train_model
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


def test_every_table_of_the_warehouse_is_there():
    tables = re.findall(r"^create table if not exists (\w+\.\w+)", "\n".join(contracts.schema()), flags=re.MULTILINE)
    assert len(tables) > 20
    assert [table for table in tables if f"\n### {table}\n" not in PAGE] == []


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


FOLDER = Path(__file__).parents[1] / "benchmarks"
MODULES = {f"benchmarks.{file.stem}": file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.py"))}


@pytest.mark.parametrize("name", [name for name, text in MODULES.items() if "def main" in text])
def test_a_benchmark_states_its_command_and_answers_help(name, monkeypatch, capsys):
    module = importlib.import_module(name)
    assert f"python -m {name}" in module.__doc__
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0 and "usage: " in capsys.readouterr().out


@pytest.mark.slow
def test_random_shops_are_as_by_brute_force(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["random_shops", "--shops", "2"])
    assert random_shops.main() == 0
    assert capsys.readouterr().out.count("as by brute force") == 2


@pytest.mark.slow
def test_a_night_that_is_killed_at_a_write_ends_like_an_undisturbed_one(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["interrupted_nights", "--moments", "3", "--seed", "7"])
    assert interrupted_nights.main() == 0
    assert " writes; 3 ended like an undisturbed night" in capsys.readouterr().out


SMALL = {
    "random_graph": {"factors": 2, "iterations": 2},
    "paired_symbols": {"iterations": 2, "factors": 2},
    "binary_matrix": {"factors": 2, "passes": 3},
    "popularity": {},
}
RATE = 0.5


def list_ranks(model, score, part):
    """For each held-out like its user's degree and the share of the other unseen items that it beats, by loops."""
    for row in range(part.histories.shape[0]):
        history = part.histories[row]
        users = None if part.rows is None else part.rows[[row]]
        [values] = model.scores(history, users=users, score=score)
        unseen = [item for item in range(len(values)) if item not in history.indices]
        for target in part.targets[row].indices:
            beaten = sum(values[item] < values[target] for item in unseen if item != target)
            yield history.nnz, beaten / len(unseen)


def read_table(printed, title):
    """Return the rows of a printed table, by their first cell."""
    lines = printed.split(f"{title}\n")[1].split("\n\n")[0].splitlines()
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    return rows[0], {row[0]: row[1:] for row in rows[1:]}


@pytest.mark.slow
def test_the_papers_figures_are_drawn_from_a_run_and_its_refits(tmp_path, monkeypatch, capsys):
    home, protocols = home_in(tmp_path), ["leave_one_out", "strong_generalization"]
    two_tastes(home)
    with runs.record_run(home, "run", "backfill", {"seed": 3, "models": SMALL}):
        binarize(home, BinarizeSettings(), "run")
        digests = split(home, "run", SplitPlan(SplitSettings(held_out_share=0.2), protocols, seed=1)).digests
        for protocol in protocols:
            fits = {
                name: train_model(home, digests[protocol], name, MODELS[name].Settings(**SMALL[name]),
                                  protocol=protocol, run_id="run").digest
                for name in ("popularity", "paired_symbols")
            }  # fmt: skip
            evaluate(home, "run", protocol, [(digests[protocol], fits)])
    for name, value in {"TABLE_1": ("mrf_dense",), "FACTORS": (2, 3), "HELD_SIZES": (50, 100)}.items():
        monkeypatch.setattr(paper_figures, name, value)
    out = tmp_path / "figures"
    paper_figures.main(["--home", str(home.root), "--dataset", home.dataset, "--out", str(out)])
    drawn = {file.stem: file.read_bytes() for file in out.glob("*.png")}
    assert len(drawn) == 2 * (1 + 2) + 1 + 3 + 3 + 1 + 2 + 1
    assert all(image.startswith(b"\x89PNG") and len(image) > 9_000 for image in drawn.values())
    printed = capsys.readouterr().out

    whole = matrices.load_split(home, digests["leave_one_out"])
    settings = MODELS["random_graph"].Settings(**SMALL["random_graph"], r=RATE, gamma=None)
    model = MODELS["random_graph"](settings, seed=3).fit(whole.train)
    header, cells = read_table(printed, "Random graph, Figure 6: mean rank by user degree")
    at = header.index("like, r = 0.5") - 1
    ranks = list(list_ranks(model, "like", whole.parts["test"]))
    assert cells["all"][at] == f"{np.mean([rank for _, rank in ranks]):.4f}"
    bins = [name for name in cells if name != "all"]
    assert bins
    for name in bins:
        low, high = map(int, name.split("-"))
        assert cells[name][at] == f"{np.mean([rank for degree, rank in ranks if low <= degree <= high]):.4f}"
