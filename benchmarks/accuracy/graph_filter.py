"""Graph filters on Gowalla: the published rows beside the settings of tasks/datasets/gowalla.toml.

    python -m benchmarks.accuracy.graph_filter --root ../shared/data [--threads N] [--rows GF-CF]

Fits the published settings of three filters on ROOT/gowalla/train.txt and ranks for all users of test.txt. Their
authors chose these settings on that test file. Seconds are wall time: of the fit, and of ranking for a thousand users.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.bayesian_models import prepared
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.settings import resolve_settings
from oneclass.models.evaluation.metrics import mean_and_error
from oneclass.models.graph_filter.model import GraphFilter
from oneclass.models.graph_filter.settings import GraphFilterSettings
from oneclass.tasks.evaluate import rank_part_targets
from oneclass.tasks.stores.matrices import Part, SplitMatrices

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
OURS = "gowalla.toml"
EXACT = {"passes": 16}  # with twice the vectors; the authors had theirs from Lanczos iterations


def split(files: tuple[Path, Path], folder: Path, threads: int) -> tuple[SplitMatrices, dict[str, Any]]:
    """The given split by the pipeline's own stages, and the tuned settings of gowalla.toml."""
    parameters = BackfillParameters(
        dataset="gowalla",
        home=str(folder / "home"),
        split_files=list(map(str, files)),
        protocols=["given"],
        threads=threads,
    )
    run = resolve_settings(parameters)
    return prepared(run)["given"], run.dataset.models.get("graph_filter", {})


def sample(part: Part, users: int, seed: int) -> Part:
    """At most so many users that have something to be found."""
    found = np.flatnonzero(np.diff(part.targets.indptr))
    chosen = np.sort(np.random.default_rng(seed).choice(found, min(users, len(found)), replace=False))
    rows = None if part.rows is None else part.rows[chosen]
    return Part(
        stored_histories=part.histories[chosen], targets=part.targets[chosen], users=part.users[chosen], rows=rows
    )


def evaluate_settings(
    settings: dict[str, Any], parts: SplitMatrices, part: Part, seed: int, threads: int
) -> tuple[dict[str, np.ndarray], float, float]:
    """Metrics of every user, seconds of the fit, and seconds of ranking for a thousand users."""
    began = time.perf_counter()
    model = GraphFilter(GraphFilterSettings(**settings), seed=seed, threads=threads).fit(parts.train[:])
    fitted = time.perf_counter()
    of_users = rank_part_targets(model, "score", part).of_users
    spent = (time.perf_counter() - fitted) / len(of_users["ndcg@20"]) * 1000
    return of_users, fitted - began, spent


def print_head(parts: SplitMatrices, part: Part) -> None:
    print(f"{parts.train.shape}, {parts.train.nnz} training edges, {len(part.users)} users\n")
    names = ["settings", "recall of all@20", "nDCG@20", "S", "fit, s", "ranking, s"]
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|", flush=True)


def print_row(name: str, found: tuple[dict[str, np.ndarray], float, float]) -> None:
    of_users, fit, ranking = found
    means = [mean_and_error(of_users[metric]) for metric in ("recall_of_all@20", "ndcg@20", "mean_rank")]
    cells = [f"{one.value:.4f} ± {one.standard_error:.4f}" for one in means]
    print(f"| {name} | {' | '.join(cells)} | {fit:.1f} | {ranking:.1f} |", flush=True)


def on_test(options: argparse.Namespace, folder: Path) -> None:
    """The published rows, and ours, each once."""
    files = options.root / "gowalla" / "train.txt", options.root / "gowalla" / "test.txt"
    parts, ours = split(files, folder, options.threads)
    part = sample(parts.parts["test"], options.judges or len(parts.users), options.seed)
    print_head(parts, part)
    for name in options.rows:
        settings, figures = PUBLISHED.get(name, (ours, ""))
        if figures:
            settings = settings | EXACT | {"oversampling": settings["vectors"]}
        said = f"{name}, published {figures[0]:.4f} / {figures[1]:.4f}" if figures else name
        print_row(said, evaluate_settings(settings, parts, part, options.seed, options.threads))


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--root", type=Path, required=True, help="the folder of the logs' folders")
    parser.add_argument("--rows", nargs="+", choices=[*PUBLISHED, OURS], default=[*PUBLISHED, OURS])
    parser.add_argument("--judges", type=int, help="users of the test file that are ranked for; all by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        on_test(options, Path(folder))


if __name__ == "__main__":
    main()
