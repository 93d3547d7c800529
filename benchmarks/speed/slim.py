"""SLIM beside irspack's: seconds of a fit at equal penalties, the loss that it reaches, and nDCG@100 of unseen users.

    env -u OPENBLAS_CORETYPE python -m benchmarks.speed.slim --ratings ../shared/data/ml-1m/ratings.csv [--threads N]
                                                       [--peer PYTHON]

PYTHON is the interpreter of an environment of its own where `pip install irspack` has run; without it there is
this project's line alone. A tenth of the users are held out, and a fifth of their edges are to be found. The loss
is the one that both minimize. Times are those of a whole fit, the
Gram matrix included, compiled beforehand. CPU time is the process's: on a busy machine trust it more than the
wall clock. The fit calls no BLAS; the line of its kernels is there because the loss is measured with them.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix, load_npz, save_npz
from threadpoolctl import threadpool_info

from oneclass.models.evaluation.metrics import compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.numerics.matmul import pattern_times
from oneclass.models.slim.model import SLIM, SLIMSettings

SETTINGS = [(10.0, 200.0), (5.0, 200.0), (2.0, 500.0)]  # l1, l2

IRSPACK = """
import sys, time
from scipy.sparse import load_npz, save_npz
from irspack.recommenders.slim import SLIMRecommender

folder, l1, l2, tolerance, threads = sys.argv[1], *map(float, sys.argv[2:])
matrix = load_npz(folder + "/train.npz").astype("float64")
alpha = (l1 + l2) / matrix.shape[0]
model = SLIMRecommender(matrix, alpha=alpha, l1_ratio=l1 / (l1 + l2), tol=tolerance, n_iter=1000,
                        n_threads=int(threads))
wall, cpu = time.perf_counter(), time.process_time()
model.learn()
print(time.perf_counter() - wall, time.process_time() - cpu)
save_npz(folder + "/weights.npz", model.W.tocsr())
"""


def strong_generalization(ratings: Path, threshold: float) -> tuple[csr_matrix, csr_matrix, csr_matrix]:
    """Training edges, and the held-out users' histories and targets, each (users, items)."""
    log = pl.read_csv(ratings).filter(pl.col("rating") >= threshold)
    users, items = (np.unique(log[name], return_inverse=True)[1] for name in ("user_id", "item_id"))
    rng = np.random.default_rng(0)
    held_out = (rng.random(users.max() + 1) < 0.1)[users]
    target = held_out & (rng.random(len(users)) < 0.2)
    whole = [
        csr_matrix(
            (np.ones(part.sum(), dtype=np.float32), (users[part], items[part])),
            shape=(users.max() + 1, items.max() + 1),
        )
        for part in (~held_out, held_out & ~target, target)
    ]
    train = whole[0][np.diff(whole[0].indptr) > 0]
    known = np.diff(train.tocsc().indptr) > 0
    both = (np.diff(whole[1][:, known].indptr) > 0) & (np.diff(whole[2][:, known].indptr) > 0)
    parts = train[:, known], whole[1][both][:, known], whole[2][both][:, known]
    for part in parts:
        part.sort_indices()
    return parts


def loss(train: csr_matrix, weights: np.ndarray, l1: float, l2: float) -> float:
    """What is minimized, in float64."""
    residual = train.toarray().astype(np.float64) - train @ weights.astype(np.float64)
    return float((residual**2).sum() / 2 + l2 / 2 * (weights.astype(np.float64) ** 2).sum() + l1 * weights.sum())


def ours(
    train: csr_matrix, l1: float, l2: float, tolerance: float, threads: int
) -> tuple[tuple[float, float], np.ndarray]:
    """Wall and CPU seconds of the fit, and the weights."""
    model = SLIM(SLIMSettings(l1=l1, l2=l2, tolerance=tolerance, alpha=0.0, user_weight_exponent=0.0), threads=threads)
    wall, cpu = perf_counter(), process_time()
    weights = model.fit(train).weights
    return (perf_counter() - wall, process_time() - cpu), weights.toarray()


def irspack(
    python: str, train: csr_matrix, l1: float, l2: float, tolerance: float, threads: int
) -> tuple[tuple[float, float], np.ndarray]:
    """The same of irspack's, fitted by another interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        save_npz(Path(folder) / "train.npz", train)
        arguments = [folder, *map(str, (l1, l2, tolerance, threads))]
        done = subprocess.run(
            [python, "-W", "ignore", "-c", IRSPACK, *arguments], check=True, stdout=subprocess.PIPE, text=True
        )
        wall, cpu = map(float, done.stdout.split()[-2:])
        return (wall, cpu), load_npz(Path(folder) / "weights.npz").toarray().astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ratings", type=Path, required=True, help="user_id,item_id,rating")
    parser.add_argument("--threshold", type=float, default=4, help="lowest rating that is an edge")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter that has irspack")
    options = parser.parse_args()
    train, histories, targets = strong_generalization(options.ratings, options.threshold)
    ours(train[:50], 1.0, 1.0, 1e-2, options.threads)  # compiles
    kernels = sorted({pool["architecture"] for pool in threadpool_info() if pool["user_api"] == "blas"})
    print(
        f"{train.shape[0]} x {train.shape[1]}, {train.nnz} edges, tolerance {options.tolerance:g}, "
        f"{options.threads} thread(s), BLAS kernels {', '.join(kernels)}"
    )
    print(
        f"{'l1':>4} {'l2':>5} {'':9} {'s wall':>7} {'s CPU':>7} {'of it':>6} {'loss':>14} {'weights':>8} "
        f"{'nDCG@100':>8} {'s.e.':>6}"
    )
    for l1, l2 in SETTINGS:
        fits = {"slim": ours(train, l1, l2, options.tolerance, options.threads)}
        if options.peer:
            fits["irspack"] = irspack(options.peer, train, l1, l2, options.tolerance, options.threads)
        slowest = max(cpu for (_, cpu), _ in fits.values())
        for name, ((wall, cpu), weights) in fits.items():
            found = compute_user_metrics(rank_targets(pattern_times(histories, weights), histories, targets))[
                "ndcg@100"
            ]
            print(
                f"{l1:4g} {l2:5g} {name:9} {wall:7.2f} {cpu:7.2f} {cpu / slowest:6.2f} "
                f"{loss(train, weights, l1, l2):14.2f} {np.count_nonzero(weights):8} {found.mean():8.4f} "
                f"{found.std() / np.sqrt(len(found)):6.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
