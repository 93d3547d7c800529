"""Compare SLIM with irspack's: seconds of a fit at equal penalties, the loss reached, and nDCG@100 of unseen users.

    env -u OPENBLAS_CORETYPE python -m benchmarks.speed.slim --ratings ../shared/data/ml-1m/ratings.csv [--threads N]
                                                       [--peer PYTHON]

PYTHON is the interpreter of an environment of its own with irspack (`pip install irspack`); without it only this
project's rows are printed. A tenth of the users are held out, and a fifth of their edges are the targets. `loss` is the
objective of both models. Seconds are those of a whole fit, the Gram matrix included, compiled beforehand. The fit calls
no BLAS; its kernels are named because the loss is computed with them.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.speed.logs import build_pattern, load_ratings
from benchmarks.speed.peers import fit_with_peer
from benchmarks.speed.timing import name_blas_kernels, time_call
from oneclass.models.evaluation.metrics import compute_user_metrics, mean_and_error
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.numerics.matmul import pattern_times
from oneclass.models.slim.model import SLIM, SLIMSettings

PENALTIES = [(10.0, 200.0), (5.0, 200.0), (2.0, 500.0)]  # l1, l2
IRSPACK = """
from irspack.recommenders.slim import SLIMRecommender

l1, l2, tolerance, threads = map(float, numbers)
matrix = matrix.astype("float64")
alpha = (l1 + l2) / matrix.shape[0]
model = SLIMRecommender(matrix, alpha=alpha, l1_ratio=l1 / (l1 + l2), tol=tolerance, n_iter=1000,
                        n_threads=int(threads))
wall, cpu = time.perf_counter(), time.process_time()
model.learn()
seconds = time.perf_counter() - wall, time.process_time() - cpu
np.savez(folder + "/fit.npz", seconds=seconds, weights=model.W.toarray().astype("float32"))
"""
Fit = tuple[float, float, np.ndarray]  # wall and CPU seconds, and the weights


def hold_out_users(file: Path, threshold: float) -> tuple[csr_matrix, csr_matrix, csr_matrix]:
    """Split a log by users; returns training edges, and histories and targets of the held-out users."""
    users, items = load_ratings(file, threshold)
    generator = np.random.default_rng(0)
    is_held_out = (generator.random(users.max() + 1) < 0.1)[users]
    is_target = is_held_out & (generator.random(len(users)) < 0.2)
    train, histories, targets = (
        build_pattern(users[part], items[part], (users.max() + 1, items.max() + 1))
        for part in (~is_held_out, is_held_out & ~is_target, is_target)
    )
    train = train[np.diff(train.indptr) > 0]
    is_known = np.diff(train.tocsc().indptr) > 0
    train, histories, targets = train[:, is_known], histories[:, is_known], targets[:, is_known]
    is_tested = (np.diff(histories.indptr) > 0) & (np.diff(targets.indptr) > 0)
    return train, histories[is_tested], targets[is_tested]


def compute_loss(train: csr_matrix, weights: np.ndarray, l1: float, l2: float) -> float:
    """Compute the objective of both models in float64."""
    residual = train.toarray().astype(np.float64) - train @ weights.astype(np.float64)
    return float((residual**2).sum() / 2 + l2 / 2 * (weights.astype(np.float64) ** 2).sum() + l1 * weights.sum())


def fit_slim(train: csr_matrix, l1: float, l2: float, tolerance: float, threads: int) -> Fit:
    """Fit this project's model."""
    settings = SLIMSettings(l1=l1, l2=l2, tolerance=tolerance, alpha=0.0, user_weight_exponent=0.0)
    model, wall, cpu = time_call(partial(SLIM(settings, threads=threads).fit, train))
    return wall, cpu, model.weights.toarray()


def fit_irspack(python: str, train: csr_matrix, l1: float, l2: float, tolerance: float, threads: int) -> Fit:
    """Fit irspack's model."""
    arrays = fit_with_peer(python, IRSPACK, train, l1, l2, tolerance, threads)
    return *arrays["seconds"], arrays["weights"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ratings", type=Path, required=True, help="user_id,item_id,rating")
    parser.add_argument("--threshold", type=float, default=4, help="lowest rating that is an edge")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter that has irspack")
    options = parser.parse_args()
    train, histories, targets = hold_out_users(options.ratings, options.threshold)
    fit_slim(train[:50], 1.0, 1.0, 1e-2, options.threads)  # compiles
    print(
        f"{train.shape[0]} x {train.shape[1]}, {train.nnz} edges, tolerance {options.tolerance:g}, "
        f"{options.threads} thread(s), BLAS kernels {name_blas_kernels()}"
    )
    print(
        f"{'l1':>4} {'l2':>5} {'':9} {'wall s':>7} {'CPU s':>7} {'ratio':>6} {'loss':>14} {'weights':>8} "
        f"{'nDCG@100':>8} {'s.e.':>6}"
    )
    for l1, l2 in PENALTIES:
        fits = {"slim": fit_slim(train, l1, l2, options.tolerance, options.threads)}
        if options.peer:
            fits["irspack"] = fit_irspack(options.peer, train, l1, l2, options.tolerance, options.threads)
        slowest = max(cpu for _, cpu, _ in fits.values())
        for name, (wall, cpu, weights) in fits.items():
            ranks = rank_targets(pattern_times(histories, weights), histories, targets)
            ndcg = mean_and_error(compute_user_metrics(ranks)["ndcg@100"])
            print(
                f"{l1:4g} {l2:5g} {name:9} {wall:7.2f} {cpu:7.2f} {cpu / slowest:6.2f} "
                f"{compute_loss(train, weights, l1, l2):14.2f} {np.count_nonzero(weights):8} {ndcg.value:8.4f} "
                f"{ndcg.standard_error:6.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
