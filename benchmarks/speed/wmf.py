"""Weighted matrix factorization beside implicit's and irspack's: seconds a pass, and the nDCG@100 that each reaches.

    python -m benchmarks.speed.wmf --ratings ../shared/data/ml-1m/ratings.csv [--threads N] [--peer PYTHON] [--large K]
    python -m benchmarks.speed.wmf --lines ../shared/data/gowalla/train.txt --factors 128 [--peer PYTHON]

PYTHON is the interpreter of an environment of its own where `pip install implicit irspack` has run. One edge of every
user with at least two is held out, of `--lines` the last fifth; users and items are the learned factors' rows. Every
library runs its fastest solver, three steps of conjugate gradients, for as many passes. irspack minimizes the loss
`rendle2021` at the same settings; implicit minimizes that of Hu et al., at settings that weigh pairs and penalties
alike, and so does the line `hu2008`. Differences in nDCG are paired over users, to the model's own line of the same
loss, with their standard error. Times of a pass are the mean of all but the first, those of a fit include its set-up;
CPU time is the process's: on a busy machine trust it more than the wall clock. `--large 512` prints the solvers side by
side at that K.
"""

import argparse
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from scipy.sparse import csr_matrix, save_npz

from benchmarks.speed.bpr import leave_one_out
from benchmarks.speed.item_knn import read_lines
from oneclass.models.evaluation.metrics import compare_paired, compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.wmf.model import WMF, WMFSettings

RENDLE = {"unobserved_weight": 0.15, "regularization": 0.01}
HU = {"loss": "hu2008", "alpha": 6.7, "regularization": 47.0}  # the same, divided by 0.15; nu is 0

CLOCK = """
import sys, time
import numpy as np
from scipy.sparse import load_npz

folder, factors, passes, threads = sys.argv[1], *map(int, sys.argv[2:])
matrix = load_npz(folder + "/train.npz")
clock = []
def tick(*_):
    clock.append((time.perf_counter(), time.process_time()))
"""

SAVE = """
whole = clock[-1][1] - clock[0][1]
np.savez(folder + "/fit.npz", seconds=(*np.diff(clock, axis=0)[1:].mean(axis=0), whole), users=users, items=items)
"""

IMPLICIT = (
    CLOCK
    + """
from implicit.cpu.als import AlternatingLeastSquares

model = AlternatingLeastSquares(factors=factors, iterations=passes, alpha=7.7, regularization=47.0, num_threads=threads,
                                random_state=0)
tick()
model.fit(matrix, show_progress=False, callback=tick)
users, items = model.user_factors, model.item_factors
"""
    + SAVE
)

IRSPACK = (
    CLOCK
    + """
from irspack import IALSRecommender

tick()
model = IALSRecommender(matrix, n_components=factors, alpha0=0.15, reg=0.01, nu=1.0, n_threads=threads)
model.trainer = model._create_trainer()
for _ in range(passes):
    model.trainer.run_epoch()
    tick()
users, items = model.trainer.core_trainer.user, model.trainer.core_trainer.item
"""
    + SAVE
)


@dataclass
class Fit:
    """Wall and CPU seconds a pass, CPU seconds of the fit, and factors whose products are the scores."""

    wall: float
    cpu: float
    whole: float
    users: np.ndarray
    items: np.ndarray


def ours(settings: WMFSettings, train: csr_matrix, threads: int) -> Fit:
    """A fit beside an earlier one, which compiles."""
    WMF(settings.model_copy(update={"iterations": 1}), threads=threads).fit(train[:100])
    clock = []

    def tick(epoch: Epoch) -> None:
        clock.append((perf_counter(), process_time()))

    started = process_time()
    model = WMF(settings, threads=threads).fit(train, FitOptions(on_epoch=tick))
    whole = process_time() - started
    return Fit(*np.diff(clock, axis=0).mean(axis=0), whole, model.user_factors, model.item_factors)


def peer(python: str, script: str, settings: WMFSettings, train: csr_matrix, threads: int) -> Fit:
    """The same of a library, fitted by another interpreter; its BLAS on one thread, as both libraries advise."""
    with tempfile.TemporaryDirectory() as folder:
        save_npz(Path(folder) / "train.npz", train)
        arguments = [folder, *map(str, (settings.factors, settings.iterations, threads))]
        subprocess.run([python, "-c", script, *arguments], check=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
        with np.load(Path(folder) / "fit.npz") as fit:
            return Fit(*fit["seconds"], fit["users"], fit["items"])


def accuracies(fit: Fit, train: csr_matrix, held_out: csr_matrix) -> np.ndarray:
    """nDCG@100 of every user with a held-out edge."""
    users = np.flatnonzero(np.diff(held_out.indptr))
    table = np.ascontiguousarray(fit.items.T, dtype=np.float32)
    found = []
    for at in range(0, len(users), 1000):
        block = users[at : at + 1000]
        scores = dense_times(fit.users[block].astype(np.float32), table)
        found.append(compute_user_metrics(rank_targets(scores, train[block], held_out[block]))["ndcg@100"])
    return np.concatenate(found)


def print_table(fits: dict[str, tuple[Fit, str]], train: csr_matrix, held_out: csr_matrix) -> None:
    """One line a fit; `fits` names the line that each is compared with."""
    found = {name: accuracies(fit, train, held_out) for name, (fit, _) in fits.items()}
    print(
        f"{'':16} {'s a pass':>10} {'of CPU':>8} {'ratio':>6} {'of CPU':>7} {'a fit, CPU':>10} {'ratio':>6} "
        f"{'nDCG@100':>9} {'difference':>11} {'s.e.':>6}"
    )
    for name, (fit, other) in fits.items():
        beside, pairs = fits[other][0], compare_paired(found[name], found[other])
        print(
            f"{name:16} {fit.wall:10.4f} {fit.cpu:8.4f} {beside.wall / fit.wall:6.2f} {beside.cpu / fit.cpu:7.2f} "
            f"{fit.whole:10.2f} {beside.whole / fit.whole:6.2f} "
            f"{found[name].mean():9.4f} {pairs.difference:+11.4f} {pairs.standard_error:6.4f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    log = parser.add_mutually_exclusive_group(required=True)
    log.add_argument("--ratings", type=Path, help="user_id,item_id,rating")
    log.add_argument("--lines", type=Path, help="a user and the user's items a line")
    parser.add_argument("--threshold", type=float, default=4, help="lowest rating that is an edge")
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--passes", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter that has implicit and irspack")
    parser.add_argument("--large", type=int, metavar="K", help="the solvers at K factors, three passes each, instead")
    options = parser.parse_args()
    train, held_out = read_lines(options.lines) if options.lines else leave_one_out(options.ratings, options.threshold)
    factors, passes = (options.large, 3) if options.large else (options.factors, options.passes)
    print(
        f"{train.shape[0]} x {train.shape[1]}, {train.nnz} edges, K = {factors}, {passes} passes, "
        f"{options.threads} thread(s); ratio: the compared line's time to this one's"
    )
    settings = WMFSettings(factors=factors, iterations=passes, tolerance=0.0, **RENDLE)
    if options.large:
        fits = {
            solver: (ours(settings.model_copy(update={"solver": solver}), train, options.threads), "cholesky")
            for solver in ("cholesky", "blocks", "cg")
        }
    else:
        hu = settings.model_copy(update=HU)
        fits = {
            "wmf": (ours(settings, train, options.threads), "wmf"),
            "wmf hu2008": (ours(hu, train, options.threads), "wmf hu2008"),
        }
        if options.peer:
            fits["irspack"] = peer(options.peer, IRSPACK, settings, train, options.threads), "wmf"
            fits["implicit"] = peer(options.peer, IMPLICIT, settings, train, options.threads), "wmf hu2008"
    with kernel_threads(options.threads):
        print_table(fits, train, held_out)


if __name__ == "__main__":
    main()
