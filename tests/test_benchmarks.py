"""Each benchmark states its command and answers `--help`; three of them run on little, against plain loops."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks import interrupted_nights, paper_figures, random_shops
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import SplitPlan, split
from oneclass.tasks.stores import matrices, runs
from tests.conftest import home_in, two_tastes
from tests.tasks.conftest import train_model

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
RATE, DENSITY = 0.5, 0.15


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

    new_users = matrices.load_split(home, digests["strong_generalization"])
    sparse = MODELS["mrf_sparse"](MODELS["mrf_sparse"].Settings(density=DENSITY, r=0.0), seed=3).fit(new_users.train)
    gains, part = [], new_users.parts["test"]
    for row in range(part.histories.shape[0]):
        [values], targets = sparse.scores(part.histories[row]), set(part.targets[row].indices)
        values[part.histories[row].indices] = -np.inf
        places = [place for place, item in enumerate(np.argsort(-values, kind="stable")[:100]) if item in targets]
        best = sum(1 / np.log2(place + 2) for place in range(len(targets)))
        gains += [sum(1 / np.log2(place + 2) for place in places) / best] if targets else []
    _, cells = read_table(printed, "Markov random fields, Table 2")
    assert cells["mrf_sparse, 15 %, r = 0"][0].split(" ± ")[0] == f"{np.mean(gains):.4f}"
