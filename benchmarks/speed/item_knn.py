"""Compare item_knn with irspack's and implicit's, and sansa with mrf_sparse: CPU seconds of a fit, and recall@20.

    python -m benchmarks.speed.item_knn --lines ../shared/data/gowalla/train.txt [--neighbours 100] [--threads 2]
    python -m benchmarks.speed.item_knn --made 166666 195795 1850000

The last fifth of each line of the file is held out; of a drawn log (`--made`) nothing is, and there is no recall. All
fits are in one process, ours compiled beforehand; if irspack 0.5.2 or implicit 0.7.3 cannot be imported, its rows are
left out. Recall is over `--users` users.
"""

import argparse
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.speed.logs import draw_long_tailed, load_lines
from benchmarks.speed.timing import time_call
from oneclass.models.base import Model
from oneclass.models.item_knn import ItemKNN
from oneclass.models.mrf.sparse import MRFSparse
from oneclass.models.numerics.sparse_products import sparse_times
from oneclass.models.numerics.top_k import top_items
from oneclass.models.sansa import SANSA

CUTOFF, USERS_PER_BLOCK = 20, 500
Scorer = Callable[[csr_matrix], np.ndarray]


def build_fits(train: csr_matrix, neighbours: int, threads: int) -> Iterator[tuple[str, Callable[[], Scorer]]]:
    """Yield each row's name, and a function that fits its model and returns one that scores histories."""

    def fit_model(model: Model) -> Callable[[], Scorer]:
        return lambda: model.fit(train).scores

    def score_by(weights: Any) -> Scorer:
        table = csr_matrix(weights, dtype=np.float32)
        return lambda histories: sparse_times(histories, table)

    for similarity, more in (("cosine", {}), ("rp3beta", {"alpha": 1.0, "beta": 0.2}), ("rp3beta", {})):
        settings = ItemKNN.Settings(similarity=similarity, neighbours=neighbours, **more)
        yield f"item_knn {similarity} {more or ''}".strip(), fit_model(ItemKNN(settings, threads=threads))
    yield "sansa", fit_model(SANSA(threads=threads))
    yield "mrf_sparse", fit_model(MRFSparse(threads=threads))
    doubles = csr_matrix(train, dtype=np.float64)
    if importlib.util.find_spec("irspack"):
        from irspack.recommenders import CosineKNNRecommender, RP3betaRecommender

        cosine = CosineKNNRecommender(doubles, normalize=True, top_k=neighbours, n_threads=threads)
        walks = RP3betaRecommender(doubles, alpha=1.0, beta=0.2, top_k=neighbours, n_threads=threads)
        yield "irspack cosine", lambda: score_by(cosine.learn().W)
        yield "irspack rp3beta {'alpha': 1.0, 'beta': 0.2}", lambda: score_by(walks.learn().W)
    if importlib.util.find_spec("implicit"):
        from implicit.nearest_neighbours import CosineRecommender

        def fit_implicit() -> Scorer:
            model = CosineRecommender(K=neighbours, num_threads=threads)
            model.fit(doubles, show_progress=False)
            return score_by(model.similarity)

        yield "implicit cosine", fit_implicit


def compute_recall(score: Scorer, train: csr_matrix, held_out: csr_matrix, users: int) -> float:
    """Compute the mean share of the held-out items among the first 20."""
    tested, shares = np.flatnonzero(np.diff(held_out.indptr))[:users], []
    for first in range(0, len(tested), USERS_PER_BLOCK):
        block = tested[first : first + USERS_PER_BLOCK]
        histories = train[block]
        ids, _ = top_items(score(histories), histories.indptr, histories.indices, CUTOFF)
        targets = held_out[block].toarray() > 0
        shares.append(np.take_along_axis(targets, ids, axis=1).sum(axis=1) / targets.sum(axis=1))
    return float(np.concatenate(shares).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    log = parser.add_mutually_exclusive_group(required=True)
    log.add_argument("--lines", type=Path, help="a file with a user and the user's items on each line")
    log.add_argument("--made", nargs=3, type=int, metavar=("USERS", "ITEMS", "EDGES"), help="a long-tailed log")
    parser.add_argument("--neighbours", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--users", type=int, default=5000)
    options = parser.parse_args()
    train, held_out = load_lines(options.lines) if options.lines else (draw_long_tailed(*options.made), None)
    for _, fit in build_fits(draw_long_tailed(300, 200, 4000), options.neighbours, options.threads):
        fit()  # compiles
    print(f"{train.shape[0]:,} users, {train.shape[1]:,} items, {train.nnz:,} edges, {options.threads} threads\n")
    print("| model | CPU s of the fit | recall@20 |\n|---|---|---|")
    for name, fit in build_fits(train, options.neighbours, options.threads):
        score, _, cpu = time_call(fit)
        recall = "" if held_out is None else f"{compute_recall(score, train, held_out, options.users):.4f}"
        print(f"| {name} | {cpu:.2f} | {recall} |", flush=True)


if __name__ == "__main__":
    main()
