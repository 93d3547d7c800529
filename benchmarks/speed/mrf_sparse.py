"""The sparse Markov random field: what density and r cost and bring beside the dense one, and memory at 200,000 items.

    python -m benchmarks.speed.mrf_sparse --ratings ../shared/data/ml-1m/ratings.csv [--density 0.01 0.05] [--r 0 0.1
    0.5] python -m benchmarks.speed.mrf_sparse --items 200000 --users 200000 --edges 10000000 [--density 0.001] [--r
    0.1]

The first is table 2 of the paper on another data set: `--held-out` users are unseen in training, four fifths of
their edges are their histories, and nDCG@100 is over the others, with its standard error. The second generates
edges of long-tailed users and items and fits one field a pair; peak memory is the whole process's, the data
included. CPU seconds are the process's: on a busy machine trust them more than the wall clock.
"""

import argparse
import resource
from itertools import product
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.evaluation.metrics import average_over_users, compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.mrf.dense import MRFDense, MRFDenseSettings
from oneclass.models.mrf.sparse import MRFSparse, MRFSparseSettings


def pattern(users: np.ndarray, items: np.ndarray, shape: tuple[int, int]) -> csr_matrix:
    """Zeros and ones, repeats folded, sorted columns."""
    matrix = csr_matrix((np.ones(len(users), dtype=np.float32), (users, items)), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def unseen_users(ratings: Path, threshold: float, held_out: int) -> tuple[csr_matrix, csr_matrix, csr_matrix]:
    """Training edges, and histories and targets of held-out users, of a user_id,item_id,rating file."""
    log = pl.read_csv(ratings).filter(pl.col("rating") >= threshold)
    users, items = (np.unique(log[name], return_inverse=True)[1] for name in ("user_id", "item_id"))
    rng = np.random.default_rng(0)
    unseen = np.isin(users, rng.permutation(users.max() + 1)[:held_out])
    known = np.unique(items[~unseen])
    kept = np.isin(items, known)
    users, items, unseen = users[kept], np.searchsorted(known, items[kept]), unseen[kept]
    target = unseen & (rng.random(len(users)) < 0.2)
    shape = users.max() + 1, len(known)
    train, histories, targets = (
        pattern(users[part], items[part], shape) for part in (~unseen, unseen & ~target, target)
    )
    tested = np.diff(targets.indptr) > 0
    return train, histories[tested], targets[tested]


def long_tailed(users: int, items: int, edges: int) -> csr_matrix:
    """Users of Pareto degrees, none above 40 times the mean, who draw items in proportion to (rank + 20)^-0.8."""
    rng = np.random.default_rng(0)
    degrees = np.minimum(rng.pareto(1.5, users) + 0.3, 40)
    who = np.repeat(np.arange(users), rng.poisson(degrees * edges / degrees.sum()))
    popularity = np.cumsum((np.arange(items) + 20.0) ** -0.8)
    return pattern(who, np.searchsorted(popularity, rng.random(len(who)) * popularity[-1]), (users, items))


def fitted(model: Model, train: csr_matrix) -> tuple[Model, str]:
    """The model, and its wall and CPU seconds in words."""
    wall, cpu = perf_counter(), process_time()
    model.fit(train)
    return model, f"{perf_counter() - wall:9.2f} {process_time() - cpu:9.2f}"


def compiled() -> None:
    """Compile every kernel, on a matrix of no account."""
    small = pattern(*np.nonzero(np.random.default_rng(0).random((40, 30)) < 0.3), (40, 30))
    for model in (MRFSparse(MRFSparseSettings(density=0.5)), MRFDense()):
        model.fit(small).scores(small)


def trade_off(options: argparse.Namespace) -> None:
    """Table 2: every pair of density and r beside the dense field at the same settings."""
    train, histories, targets = unseen_users(options.ratings, options.threshold, options.held_out)
    print(
        f"{train.shape[0] - options.held_out} x {train.shape[1]}, {train.nnz} edges, {histories.shape[0]} unseen "
        f"users, alpha {options.alpha}, l2 {options.l2}, {options.threads} thread(s)"
    )
    print(f"{'density':>8} {'r':>5} {'wall s':>9} {'CPU s':>9} {'nDCG@100':>9} {'s.e.':>7} {'weights':>10}")
    shared = _shared(options)
    threads = options.threads
    lines = [
        (f"{density:8.2%} {r:5.2f}", MRFSparse(MRFSparseSettings(density=density, r=r, **shared), threads=threads))
        for density, r in product(options.density, options.r)
    ]
    lines.append((f"{'dense':>8} {'':5}", MRFDense(MRFDenseSettings(**shared), threads=threads)))
    for label, model in lines:
        model, seconds = fitted(model, train)
        found = average_over_users(compute_user_metrics(rank_targets(model.scores(histories), histories, targets)))[
            "ndcg@100"
        ]
        print(
            f"{label} {seconds} {found.value:9.4f} {found.standard_error:7.4f} {csr_matrix(model.weights).nnz:10d}",
            flush=True,
        )


def at_scale(options: argparse.Namespace) -> None:
    """Time and peak memory on a generated matrix."""
    train = long_tailed(options.users, options.items, options.edges)
    work = int((np.diff(train.indptr).astype(np.int64) ** 2).sum())
    print(
        f"{train.shape[0]} x {train.shape[1]}, {train.nnz} edges, {work:.2g} products a pass over X'X, "
        f"{options.threads} thread(s)"
    )
    print(f"{'density':>8} {'r':>5} {'wall s':>9} {'CPU s':>9} {'weights':>10} {'ms a user':>9} {'peak GB':>8}")
    for density, r in product(options.density, options.r):
        settings = MRFSparseSettings(density=density, r=r, **_shared(options))
        model, seconds = fitted(MRFSparse(settings, threads=options.threads), train)
        started = process_time()
        model.scores(train[:256])
        scoring = 1000 * (process_time() - started) / 256
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        print(f"{density:8.2%} {r:5.2f} {seconds} {model.weights.nnz:10d} {scoring:9.2f} {peak:8.2f}", flush=True)


def _shared(options: argparse.Namespace) -> dict[str, float | bool]:
    """Settings of both fields; centred, as in the paper."""
    weights = options.user_weight_exponent
    return {"alpha": options.alpha, "l2": options.l2, "user_weight_exponent": weights, "centred": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ratings", type=Path, help="user_id,item_id,rating")
    parser.add_argument("--threshold", type=float, default=4, help="lowest rating that is an edge")
    parser.add_argument("--held-out", type=int, default=500, help="unseen users")
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--density", type=float, nargs="+", default=[0.005, 0.02])
    parser.add_argument("--r", type=float, nargs="+", default=[0.0, 0.1, 0.5])
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--l2", type=float, default=50.0)
    parser.add_argument("--user-weight-exponent", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    compiled()
    (trade_off if options.ratings else at_scale)(options)


if __name__ == "__main__":
    main()
