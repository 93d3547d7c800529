"""Compare Bayesian Personalized Ranking with implicit's: nanoseconds a sample, and the mean rank that each reaches.

    python -m benchmarks.speed.bpr --ratings ../shared/data/ml-1m/ratings.csv [--threads N] [--peer PYTHON]
    python -m benchmarks.speed.bpr --made 166666 195795 1850000 --factors 128 --epochs 10 [--peer PYTHON]

PYTHON is the interpreter of an environment of its own with implicit (`pip install implicit`). S is the mean share of a
user's unknown items that a held-out one beats, over 20,000 users at most, and s.e. its standard error. Both draw one
negative an edge and epoch; implicit draws it by popularity, so compare it with `bpr_popularity`. Times are those of a
whole fit, compiled beforehand, over its edges and epochs.
"""

import argparse
from functools import partial

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.speed.logs import add_log_arguments, load_log
from benchmarks.speed.peers import fit_with_peer
from benchmarks.speed.timing import time_call
from oneclass.models.bpr.model import BPR, BPRPopularity, BPRSettings, BPRUniform
from oneclass.models.evaluation.metrics import compute_edge_ranks, mean_and_error
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.numerics.threads import kernel_threads

MAX_RANKED_USERS, USERS_PER_BLOCK = 20_000, 1000
IMPLICIT = """
from implicit.cpu.bpr import BayesianPersonalizedRanking

factors, epochs, threads = map(int, numbers)
model = BayesianPersonalizedRanking(factors=factors, iterations=epochs, learning_rate=0.05, regularization=0.01,
                                    num_threads=threads, random_state=0)
wall, cpu = time.perf_counter(), time.process_time()
model.fit(matrix, show_progress=False)
seconds = time.perf_counter() - wall, time.process_time() - cpu
np.savez(folder + "/fit.npz", seconds=seconds, users=model.user_factors, items=model.item_factors)
"""
Fit = tuple[tuple[float, float], np.ndarray, np.ndarray]  # wall and CPU seconds; scores are users @ items.T


def rank_edges(users: np.ndarray, items: np.ndarray, train: csr_matrix, held_out: csr_matrix) -> np.ndarray:
    """Compute S of every held-out edge by the scores users @ items.T."""
    table, ranks = np.ascontiguousarray(items.T), []
    for first in range(0, min(len(users), MAX_RANKED_USERS), USERS_PER_BLOCK):
        block = slice(first, first + USERS_PER_BLOCK)
        ranks.append(compute_edge_ranks(rank_targets(dense_times(users[block], table), train[block], held_out[block])))
    return np.concatenate(ranks)


def fit_bpr(kind: type[BPR], settings: BPRSettings, train: csr_matrix, threads: int) -> Fit:
    """Fit this project's model after one that compiles."""
    kind(settings.model_copy(update={"epochs": 1}), threads=threads).fit(train)
    model, *seconds = time_call(partial(kind(settings, threads=threads).fit, train))
    users = np.column_stack([model.user_factors, np.ones(train.shape[0], dtype=np.float32)])
    return tuple(seconds), users, np.column_stack([model.item_factors, model.item_bias])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_log_arguments(parser)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter that has implicit")
    options = parser.parse_args()
    train, held_out = load_log(options)
    settings = BPRSettings(factors=options.factors, epochs=options.epochs)
    fits = {kind.name: fit_bpr(kind, settings, train, options.threads) for kind in (BPRUniform, BPRPopularity)}
    if options.peer:
        arrays = fit_with_peer(options.peer, IMPLICIT, train, options.factors, options.epochs, options.threads)
        fits["implicit"] = tuple(arrays["seconds"]), arrays["users"], arrays["items"]
    print(
        f"{train.shape[0]} x {train.shape[1]}, {train.nnz} edges, K = {options.factors}, {options.epochs} epochs, "
        f"{options.threads} thread(s)"
    )
    print(f"{'ns a sample':16} {'wall':>7} {'CPU':>7} {'S':>7} {'s.e.':>7}")
    with kernel_threads(options.threads):
        for name, (seconds, users, items) in fits.items():
            wall, cpu = (1e9 * spent / train.nnz / options.epochs for spent in seconds)
            S = mean_and_error(rank_edges(users.astype(np.float32), items.astype(np.float32), train, held_out))
            print(f"{name:16} {wall:7.0f} {cpu:7.0f} {S.value:7.4f} {S.standard_error:7.4f}")


if __name__ == "__main__":
    main()
