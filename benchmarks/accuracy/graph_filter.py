"""Reproduce published graph filters on Gowalla, beside the settings of tasks/datasets/gowalla.toml.

    python -m benchmarks.accuracy.graph_filter --root ../shared/data [--threads N]

Fits the published settings of three filters on ROOT/gowalla/train.txt and ranks for all users of test.txt, the file by
which their authors chose these settings. Seconds are wall time: of the fit, and of ranking for a thousand users.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.accuracy.bayesian_models import build_splits
from benchmarks.speed.timing import time_call
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import resolve_settings
from oneclass.models.evaluation.metrics import mean_and_error
from oneclass.models.graph_filter.model import GraphFilter
from oneclass.models.graph_filter.settings import GraphFilterSettings
from oneclass.tasks.evaluate import rank_part_targets
from oneclass.tasks.stores.matrices import SplitMatrices

PAPERS = {
    "polynomial": "linear",
    "user_exponent": 1.0,
    "in_exponent": 0.5,
    "out_exponent": 0.5,
    "low_pass_exponent": 0.5,
    "sharpening": 0.0,
}
PUBLISHED: dict[str, tuple[dict[str, Any], tuple[float, float]]] = {  # settings, recall@20 and nDCG@20
    "GF-CF": (PAPERS | {"low_pass": 0.3, "vectors": 256}, (0.1849, 0.1518)),
    "BSPM-EM": (
        PAPERS | {"low_pass": 0.2, "vectors": 448, "sharpening": 2.5, "sharpening_terms": 4},
        (0.1920, 0.1597),
    ),
    "ChebyCF": (
        PAPERS
        | {"polynomial": "plateau", "order": 8, "flatness": 1.5, "low_pass": 0.2, "vectors": 512}
        | {"in_exponent": 0.9, "out_exponent": 0.1, "low_pass_exponent": 0.4},
        (0.1941, 0.1616),
    ),
}
EXACT = {"passes": 16}  # with twice the vectors; the authors used Lanczos iterations
METRICS = ("recall_of_all@20", "ndcg@20", "mean_rank")


def build_split(root: Path, folder: Path, threads: int) -> tuple[SplitMatrices, dict[str, Any]]:
    """Build the given split by the pipeline's stages; returns it with the settings of gowalla.toml."""
    parameters = BackfillParameters(
        dataset="gowalla",
        home=str(folder / "home"),
        split_files=[str(root / "gowalla" / name) for name in ("train.txt", "test.txt")],
        protocols=["given"],
        threads=threads,
    )
    run = resolve_settings(parameters)
    return build_splits(run)["given"], run.dataset.models.get("graph_filter", {})


def print_row(name: str, settings: dict[str, Any], split: SplitMatrices, seed: int, threads: int) -> None:
    """Fit the settings and print their metrics on the test part."""
    model = GraphFilter(GraphFilterSettings(**settings), seed=seed, threads=threads)
    fit = time_call(partial(model.fit, split.train[:]))
    ranking = time_call(partial(rank_part_targets, model, "score", split.parts["test"]))
    of_users = ranking.result.of_users
    means = [mean_and_error(of_users[metric]) for metric in METRICS]
    cells = [f"{one.value:.4f} ± {one.standard_error:.4f}" for one in means]
    seconds = ranking.wall / len(of_users["ndcg@20"]) * 1000
    print(f"| {name} | {' | '.join(cells)} | {fit.wall:.1f} | {seconds:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="the folder of the logs' folders")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        split, tuned = build_split(options.root, Path(folder), options.threads)
        users = len(split.parts["test"].users)
        print(f"{split.train.shape}, {split.train.nnz} training edges, {users} users\n")
        print("| settings | recall of all@20 | nDCG@20 | S | fit, s | ranking, s |\n|---|---|---|---|---|---|")
        for name, (settings, (recall, ndcg)) in PUBLISHED.items():
            exact = settings | EXACT | {"oversampling": settings["vectors"]}
            print_row(f"{name}, published {recall:.4f} / {ndcg:.4f}", exact, split, options.seed, options.threads)
        print_row("gowalla.toml", tuned, split, options.seed, options.threads)


if __name__ == "__main__":
    main()
