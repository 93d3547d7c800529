"""Measure fits of the sparse Markov random field on a generated log: seconds, weights, scores and peak memory.

    python -m benchmarks.speed.mrf_sparse --items 200000 --users 200000 --edges 10000000 [--density 0.001] [--r 0.1]

Users and items are long-tailed. One model is fitted for each pair of density and r. Peak memory is the whole process's,
the log included.
"""

import argparse
import resource
from functools import partial
from itertools import product

import numpy as np

from benchmarks.speed.logs import draw_long_tailed
from benchmarks.speed.timing import time_call
from oneclass.models.mrf.sparse import MRFSparse, MRFSparseSettings

PAPER = {"alpha": 0.5, "l2": 50.0, "user_weight_exponent": 0.0, "centred": True}
SCORED_USERS = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--density", type=float, nargs="+", default=[0.005, 0.02])
    parser.add_argument("--r", type=float, nargs="+", default=[0.0, 0.1, 0.5])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    small = draw_long_tailed(40, 30, 360)
    MRFSparse(MRFSparseSettings(density=0.5)).fit(small).scores(small)  # compiles
    train = draw_long_tailed(options.users, options.items, options.edges)
    products = int((np.diff(train.indptr).astype(np.int64) ** 2).sum())
    print(
        f"{train.shape[0]} x {train.shape[1]}, {train.nnz} edges, {products:.2g} products for X'X, "
        f"{options.threads} thread(s)"
    )
    print(f"{'density':>8} {'r':>5} {'wall s':>9} {'CPU s':>9} {'weights':>10} {'ms a user':>9} {'peak GB':>8}")
    for density, r in product(options.density, options.r):
        settings = MRFSparseSettings(density=density, r=r, **PAPER)
        model, wall, cpu = time_call(partial(MRFSparse(settings, threads=options.threads).fit, train))
        scoring = 1000 * time_call(partial(model.scores, train[:SCORED_USERS])).cpu / SCORED_USERS
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        print(
            f"{density:8.2%} {r:5.2f} {wall:9.2f} {cpu:9.2f} {model.weights.nnz:10d} {scoring:9.2f} {peak:8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
