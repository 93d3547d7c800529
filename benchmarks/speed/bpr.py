"""Bayesian Personalized Ranking beside implicit's: nanoseconds a sample, and the mean rank that each reaches.

    python -m benchmarks.speed.bpr --ratings ../shared/data/ml-1m/ratings.csv [--threads N] [--peer PYTHON]
    python -m benchmarks.speed.bpr --made 166666 195795 1850000 --factors 128 --epochs 10 [--peer PYTHON]

PYTHON is the interpreter of an environment of its own where `pip install implicit` has run. One edge of every user with
at least two is held out, of `--lines` the last fifth; S is the mean share of a user's unknown items that the held-out
one beats, and s.e. its standard error, of 20,000 users at most. Both draw one negative an edge and epoch. implicit
draws it by popularity, so that its line belongs beside `bpr_popularity`. Times are those of a whole fit, compiled
beforehand, over its edges and epochs. CPU time is the process's: on a busy machine trust it more than the wall clock.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix, save_npz

from benchmarks.speed.item_knn import long_tailed, read_lines
from oneclass.models.bpr.model import BPR, BPRPopularity, BPRSettings, BPRUniform
from oneclass.models.evaluation.metrics import compute_edge_ranks
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.numerics.threads import kernel_threads

MOST_RANKED = 20_000  # users whose held-out edges are ranked
IMPLICIT = """
import sys, time
import numpy as np
from scipy.sparse import load_npz
from implicit.cpu.bpr import BayesianPersonalizedRanking

folder, factors, epochs, threads = sys.argv[1], *map(int, sys.argv[2:])
matrix = load_npz(folder + "/train.npz")
model = BayesianPersonalizedRanking(factors=factors, iterations=epochs, learning_rate=0.05, regularization=0.01,
                                    num_threads=threads, random_state=0)
wall, cpu = time.perf_counter(), time.process_time()
model.fit(matrix, show_progress=False)
seconds = time.perf_counter() - wall, time.process_time() - cpu
np.savez(folder + "/fit.npz", seconds=seconds, users=model.user_factors, items=model.item_factors)
"""


def leave_one_out(ratings: Path, threshold: float) -> tuple[csr_matrix, csr_matrix]:
    """Training and held-out edges of a user_id,item_id,rating file, each (users, items)."""
    log = pl.read_csv(ratings).filter(pl.col("rating") >= threshold)
    users, items = (np.unique(log[name], return_inverse=True)[1] for name in ("user_id", "item_id"))
    matrix = csr_matrix((np.ones(len(users), dtype=np.float32), (users, items)))
    matrix.sort_indices()
    return hold_out_one(matrix)


def hold_out_one(matrix: csr_matrix) -> tuple[csr_matrix, csr_matrix]:
    """All edges but one of each user with at least two, and these, each (users, items)."""
    degrees = np.diff(matrix.indptr)
    chosen = matrix.indptr[:-1] + (np.random.default_rng(0).random(len(degrees)) * degrees).astype(np.int64)
    held_out = np.zeros(matrix.nnz, dtype=bool)
    held_out[chosen[degrees >= 2]] = True
    rows = np.repeat(np.arange(len(degrees)), degrees)
    return tuple(
        csr_matrix((matrix.data[part], (rows[part], matrix.indices[part])), shape=matrix.shape)
        for part in (~held_out, held_out)
    )


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Let the user name a log, as `read_log` reads it."""
    log = parser.add_mutually_exclusive_group(required=True)
    log.add_argument("--ratings", type=Path, help="user_id,item_id,rating; one edge of a user is held out")
    log.add_argument("--lines", type=Path, help="a user and the user's items a line; the last fifth is held out")
    log.add_argument("--made", nargs=3, type=int, metavar=("USERS", "ITEMS", "EDGES"), help="a log of long tails")
    parser.add_argument("--threshold", type=float, default=4, help="lowest rating that is an edge")


def read_log(options: argparse.Namespace) -> tuple[csr_matrix, csr_matrix]:
    """Training and held-out edges, each (users, items)."""
    if options.made:
        return hold_out_one(long_tailed(*options.made))
    return read_lines(options.lines) if options.lines else leave_one_out(options.ratings, options.threshold)


def ranks(users: np.ndarray, items: np.ndarray, train: csr_matrix, held_out: csr_matrix) -> np.ndarray:
    """S of every held-out edge under the scores users items'."""
    table = np.ascontiguousarray(items.T)
    blocks = range(0, min(len(users), MOST_RANKED), 1000)
    return np.concatenate(
        [
            compute_edge_ranks(
                rank_targets(dense_times(users[at : at + 1000], table), train[at : at + 1000], held_out[at : at + 1000])
            )
            for at in blocks
        ]
    )


def ours(
    model: type[BPR], settings: BPRSettings, train: csr_matrix, threads: int
) -> tuple[tuple[float, float], np.ndarray, np.ndarray]:
    """Wall and CPU seconds of the fit, and rows of users and items whose products are the scores."""
    model(settings.model_copy(update={"epochs": 1}), threads=threads).fit(train)
    wall, cpu = perf_counter(), process_time()
    fitted = model(settings, threads=threads).fit(train)
    seconds = perf_counter() - wall, process_time() - cpu
    users = np.column_stack([fitted.user_factors, np.ones(train.shape[0], dtype=np.float32)])
    return seconds, users, np.column_stack([fitted.item_factors, fitted.item_bias])


def implicit(
    python: str, settings: BPRSettings, train: csr_matrix, threads: int
) -> tuple[tuple[float, float], np.ndarray, np.ndarray]:
    """The same of implicit's, fitted by another interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        save_npz(Path(folder) / "train.npz", train)
        arguments = [folder, *map(str, (settings.factors, settings.epochs, threads))]
        subprocess.run([python, "-c", IMPLICIT, *arguments], check=True)
        with np.load(Path(folder) / "fit.npz") as fit:
            return tuple(fit["seconds"]), fit["users"], fit["items"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_log_arguments(parser)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter that has implicit")
    options = parser.parse_args()
    train, held_out = read_log(options)
    settings = BPRSettings(factors=options.factors, epochs=options.epochs)
    fits = {model.name: ours(model, settings, train, options.threads) for model in (BPRUniform, BPRPopularity)}
    if options.peer:
        fits["implicit"] = implicit(options.peer, settings, train, options.threads)
    print(
        f"{train.shape[0]} x {train.shape[1]}, {train.nnz} edges, K = {options.factors}, {options.epochs} epochs, "
        f"{options.threads} thread(s)"
    )
    print(f"{'':16} {'ns a sample':>11} {'of CPU':>7} {'S':>7} {'s.e.':>7}")
    with kernel_threads(options.threads):
        for name, (seconds, users, items) in fits.items():
            wall, cpu = (1e9 * spent / train.nnz / options.epochs for spent in seconds)
            found = ranks(users.astype(np.float32), items.astype(np.float32), train, held_out)
            error = found.std() / np.sqrt(len(found))
            print(f"{name:16} {wall:11.0f} {cpu:7.0f} {found.mean():7.4f} {error:7.4f}")


if __name__ == "__main__":
    main()
