"""Poisson factorization beside hpfrec: seconds an iteration, and the bound that each reaches.

    python -m benchmarks.speed.hpf --ratings ../shared/data/ml-1m/ratings.csv --hpfrec PYTHON

PYTHON is the interpreter of an environment of its own where `pip install hpfrec` has run. Both get the same
edges, priors, K and number of iterations; each starts at random, once a seed. hpfrec's time an iteration is
the difference between a long fit and a short one, so that its set-up is not counted; ours is the mean over
the same iterations. Both posteriors are then put into the one bound of `models.hpf.model`. The last line is our fit
with its default settings, run until its bound settles.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.hpf.ascent import Ascent, GammaFactors, GammaParameters, Prior
from oneclass.models.hpf.model import HPF, HPFSettings
from oneclass.models.numerics.threads import kernel_threads

SHORT = 10  # iterations that are not timed

HPFREC = """
import sys, time
import numpy as np
from hpfrec import HPF
from scipy.sparse import coo_array

folder, K, threads, seed, iterations, short = sys.argv[1], *map(int, sys.argv[2:])
edges = np.load(folder + "/edges.npz")
seconds = []
for limit in (short, iterations):
    model = HPF(k=K, ncores=threads, maxiter=limit, stop_crit="maxiter", check_every=limit, reindex=False,
                verbose=False, random_seed=seed, keep_data=False, allow_inconsistent_math=True)
    counts = coo_array((edges["counts"], (edges["users"], edges["items"])))
    started = time.perf_counter()
    model.fit(counts)
    seconds.append(time.perf_counter() - started)
np.savez(folder + "/fit.npz", seconds=(seconds[1] - seconds[0]) / (iterations - short),
         user_shape=model.Gamma_shp, user_rate=model.Gamma_rte, activity_rate=model.k_rte,
         item_shape=model.Lambda_shp, item_rate=model.Lambda_rte, popularity_rate=model.t_rte)
"""


def edges_of(ratings: Path, threshold: float) -> csr_matrix:
    """The edges of a user_id,item_id,rating file whose rating is at least the threshold."""
    log = pl.read_csv(ratings).filter(pl.col("rating") >= threshold)
    users, items = (np.unique(log[name], return_inverse=True)[1] for name in ("user_id", "item_id"))
    matrix = csr_matrix((np.ones(len(users), dtype=np.float32), (users, items)))
    matrix.sort_indices()
    return matrix


def ours(matrix: csr_matrix, settings: HPFSettings, iterations: int, threads: int, seed: int) -> tuple[float, float]:
    """(seconds an iteration, bound after the last)."""
    with kernel_threads(threads):
        ascent = _ascent(matrix, settings, seed)
        for iteration in range(iterations):
            if iteration == min(SHORT, iterations - 1):
                started = perf_counter()
            ascent.iterate()
        seconds = perf_counter() - started
        return seconds / max(1, iterations - SHORT), ascent.allocate()


def _ascent(matrix: csr_matrix, settings: HPFSettings, seed: int) -> Ascent:
    return Ascent(matrix, True, *HPF(settings, seed=seed)._initial_posterior(matrix.shape, None))


def theirs(
    python: str, matrix: csr_matrix, settings: HPFSettings, iterations: int, threads: int, seed: int
) -> tuple[float, float]:
    """(hpfrec's seconds an iteration, the bound of its posterior)."""
    edges = matrix.tocoo()
    numbers = settings.factors, threads, seed, iterations, SHORT
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/edges.npz", users=edges.row, items=edges.col, counts=edges.data)
        subprocess.run([python, "-c", HPFREC, folder, *map(str, numbers)], check=True)
        fit = dict(np.load(f"{folder}/fit.npz"))
    with kernel_threads(threads):
        ascent = _ascent(matrix, settings, seed)
        ascent.users = _side(settings.user_prior, fit["user_shape"], fit["user_rate"], fit["activity_rate"])
        ascent.items = _side(settings.item_prior, fit["item_shape"], fit["item_rate"], fit["popularity_rate"])
        return float(fit["seconds"]), ascent.allocate()


def _side(prior: Prior, shape: np.ndarray, rate: np.ndarray, activity_rate: np.ndarray) -> GammaFactors:
    rate = np.broadcast_to(rate, shape.shape)
    posterior = shape.astype(np.float32), rate.astype(np.float32), np.ravel(activity_rate).astype(float)
    return GammaFactors(prior, GammaParameters(*posterior))


def compare(matrix: csr_matrix, arguments: argparse.Namespace) -> None:
    """Both fits, seed by seed."""
    settings, iterations = HPFSettings(), arguments.iterations
    bounds = []
    for seed in range(1, arguments.seeds + 1):
        seconds, bound = ours(matrix, settings, iterations, arguments.threads, seed)
        print(f"seed {seed}  ours    {1e3 * seconds:7.1f} ms an iteration  bound {bound:14,.0f}", flush=True)
        slow, other = theirs(arguments.hpfrec, matrix, settings, iterations, arguments.threads, seed)
        print(
            f"seed {seed}  hpfrec  {1e3 * slow:7.1f} ms an iteration  bound {other:14,.0f}"
            f"   {slow / seconds:.1f} times ours",
            flush=True,
        )
        bounds.append((bound, other))
    ours_mean, other_mean = np.mean(bounds, axis=0)
    print(
        f"mean bound: ours {ours_mean:,.0f}, hpfrec {other_mean:,.0f}; "
        f"standard deviation over seeds {np.std(bounds, axis=0).mean():,.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ratings", type=Path, required=True, help="CSV file: user_id,item_id,rating")
    parser.add_argument("--threshold", type=float, default=4.0, help="lowest rating that makes an edge")
    parser.add_argument("--hpfrec", metavar="PYTHON", required=True, help="one that can import hpfrec")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    matrix = edges_of(arguments.ratings, arguments.threshold)
    print(
        f"{matrix.shape[0]} x {matrix.shape[1]}, {matrix.nnz} edges, K = {HPFSettings().factors}, "
        f"{arguments.iterations} iterations, {arguments.threads} threads"
    )
    ours(matrix, HPFSettings(), 2, 1, 0)  # compile
    compare(matrix, arguments)
    started = perf_counter()
    fit = HPF(threads=arguments.threads).fit(matrix)
    print(
        f"ours with default settings: {len(fit.bounds)} iterations, {perf_counter() - started:.1f} s, "
        f"bound {fit.bounds[-1]:,.0f}"
    )


if __name__ == "__main__":
    main()
