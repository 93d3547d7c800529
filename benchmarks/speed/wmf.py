"""Compare weighted matrix factorization with implicit's and irspack's: seconds of a pass, and the nDCG@100 reached.

    python -m benchmarks.speed.wmf --ratings ../shared/data/ml-1m/ratings.csv [--threads N] [--peer PYTHON]
    python -m benchmarks.speed.wmf --lines ../shared/data/gowalla/train.txt --factors 128 [--peer PYTHON]

PYTHON is the interpreter of an environment of its own with both (`pip install implicit irspack`). Every model runs its
fastest solver, three steps of conjugate gradients, for as many passes. irspack minimizes the loss `rendle2021` at the
same settings; implicit minimizes that of Hu et al. with the same ratio of weights to penalties, as the row `hu2008`
does. Differences in nDCG are paired over users, to this project's row of the same loss. Seconds of a pass are the mean
of all but the first; those of a fit include its set-up.
"""

import argparse
from dataclasses import dataclass
from functools import partial
from time import perf_counter, process_time

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.speed.logs import add_log_arguments, load_log
from benchmarks.speed.peers import fit_with_peer
from benchmarks.speed.timing import time_call
from oneclass.models.evaluation.metrics import compare_paired, compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.wmf.model import WMF, WMFSettings

RENDLE = {"unobserved_weight": 0.15, "regularization": 0.01}
HU = {"loss": "hu2008", "alpha": 6.7, "regularization": 47.0}  # RENDLE divided by 0.15; nu is 0
USERS_PER_BLOCK = 1000

CLOCK = """
factors, passes, threads = map(int, numbers)
clock = []
def tick(*_):
    clock.append((time.perf_counter(), time.process_time()))
"""
SAVE = """
fit = clock[-1][1] - clock[0][1]
np.savez(folder + "/fit.npz", seconds=(*np.diff(clock, axis=0)[1:].mean(axis=0), fit), users=users, items=items)
"""
IMPLICIT = f"""{CLOCK}
from implicit.cpu.als import AlternatingLeastSquares

model = AlternatingLeastSquares(factors=factors, iterations=passes, alpha=7.7, regularization=47.0, num_threads=threads,
                                random_state=0)
tick()
model.fit(matrix, show_progress=False, callback=tick)
users, items = model.user_factors, model.item_factors
{SAVE}"""
IRSPACK = f"""{CLOCK}
from irspack import IALSRecommender

tick()
model = IALSRecommender(matrix, n_components=factors, alpha0=0.15, reg=0.01, nu=1.0, n_threads=threads)
model.trainer = model._create_trainer()
for _ in range(passes):
    model.trainer.run_epoch()
    tick()
users, items = model.trainer.core_trainer.user, model.trainer.core_trainer.item
{SAVE}"""


@dataclass
class Fit:
    """Wall and CPU seconds of a pass, CPU seconds of the fit, and factors whose products are the scores."""

    pass_wall: float
    pass_cpu: float
    fit_cpu: float
    users: np.ndarray
    items: np.ndarray


def fit_wmf(settings: WMFSettings, train: csr_matrix, threads: int) -> Fit:
    """Fit this project's model after one that compiles."""
    WMF(settings.model_copy(update={"iterations": 1}), threads=threads).fit(train[:100])
    clock: list[tuple[float, float]] = []

    def note_time(epoch: Epoch) -> None:
        clock.append((perf_counter(), process_time()))

    fit = partial(WMF(settings, threads=threads).fit, train, FitOptions(on_epoch=note_time))
    model, _, cpu = time_call(fit)
    return Fit(*np.diff(clock, axis=0).mean(axis=0), cpu, model.user_factors, model.item_factors)


def fit_peer(python: str, script: str, settings: WMFSettings, train: csr_matrix, threads: int) -> Fit:
    """Fit a library's model."""
    arrays = fit_with_peer(python, script, train, settings.factors, settings.iterations, threads)
    return Fit(*arrays["seconds"], arrays["users"], arrays["items"])


def compute_ndcg(fit: Fit, train: csr_matrix, held_out: csr_matrix) -> np.ndarray:
    """Compute nDCG@100 of every user with a held-out edge."""
    users, table = np.flatnonzero(np.diff(held_out.indptr)), np.ascontiguousarray(fit.items.T, dtype=np.float32)
    blocks = []
    for first in range(0, len(users), USERS_PER_BLOCK):
        block = users[first : first + USERS_PER_BLOCK]
        scores = dense_times(fit.users[block].astype(np.float32), table)
        blocks.append(compute_user_metrics(rank_targets(scores, train[block], held_out[block]))["ndcg@100"])
    return np.concatenate(blocks)


def print_table(fits: dict[str, tuple[Fit, str]], train: csr_matrix, held_out: csr_matrix) -> None:
    """Print a row for each fit, which names the row that it is compared with."""
    ndcg = {name: compute_ndcg(fit, train, held_out) for name, (fit, _) in fits.items()}
    print(
        f"{'':12} {'wall s a pass':>13} {'ratio':>6} {'CPU s a pass':>12} {'ratio':>6} "
        f"{'CPU s a fit':>11} {'ratio':>6} {'nDCG@100':>9} {'difference':>11} {'s.e.':>6}"
    )
    for name, (fit, other) in fits.items():
        baseline, gain = fits[other][0], compare_paired(ndcg[name], ndcg[other])
        print(
            f"{name:12} {fit.pass_wall:13.4f} {baseline.pass_wall / fit.pass_wall:6.2f} "
            f"{fit.pass_cpu:12.4f} {baseline.pass_cpu / fit.pass_cpu:6.2f} "
            f"{fit.fit_cpu:11.2f} {baseline.fit_cpu / fit.fit_cpu:6.2f} "
            f"{ndcg[name].mean():9.4f} {gain.difference:+11.4f} {gain.standard_error:6.4f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_log_arguments(parser)
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--passes", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter that has implicit and irspack")
    options = parser.parse_args()
    train, held_out = load_log(options)
    print(
        f"{train.shape[0]} x {train.shape[1]}, {train.nnz} edges, K = {options.factors}, {options.passes} passes, "
        f"{options.threads} thread(s); ratio: seconds of the row of the same loss to this row's"
    )
    rendle = WMFSettings(factors=options.factors, iterations=options.passes, tolerance=0.0, **RENDLE)
    hu = rendle.model_copy(update=HU)
    fits = {
        "wmf": (fit_wmf(rendle, train, options.threads), "wmf"),
        "wmf hu2008": (fit_wmf(hu, train, options.threads), "wmf hu2008"),
    }
    if options.peer:
        fits["irspack"] = fit_peer(options.peer, IRSPACK, rendle, train, options.threads), "wmf"
        fits["implicit"] = fit_peer(options.peer, IMPLICIT, rendle, train, options.threads), "wmf hu2008"
    with kernel_threads(options.threads):
        print_table(fits, train, held_out)


if __name__ == "__main__":
    main()
