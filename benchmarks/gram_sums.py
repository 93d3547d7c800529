"""X'X from nothing and by the rows that changed, through the store, and the fits that read it beside fits that sum it themselves.

    python -m benchmarks.gram_sums [--users 50000] [--items 6000] [--likes 100] [--changed 0.01] [--exponent 0.5]

Edges are drawn from a long-tailed popularity. In the first night the share `--changed` of the users lacks a like that they
have in the second. Processor seconds of one thread, files that were checked before in this process checked again; what
is stored is compared with sums from nothing, and each fit with the one without a store, bit for bit.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.mrf_dense import long_tailed
from models.base import Model
from models.fitting import NO_OPTIONS, FitOptions
from models.mrf import MRFDense, MRFSparse
from models.numerics import gram_sums
from models.slim import SLIM
from tasks.stores import grams, manifest, matrices
from tasks.stores.home import Home, Limits
from tasks.stores.matrices import SplitMatrices


def timed(name: str, work: Callable[[], Any]) -> Any:
    """Print how long the work took."""
    manifest._known.clear()  # as in a process of its own
    began = process_time()
    result = work()
    print(f"{name:44}{process_time() - began:9.2f} CPU s", flush=True)
    return result


def less(likes: csr_matrix, share: float) -> csr_matrix:
    """The matrix without one like each of some users."""
    users = np.random.default_rng(1).choice(likes.shape[0], round(share * likes.shape[0]), replace=False)
    stays = np.ones(likes.nnz, dtype=bool)
    stays[likes.indptr[users]] = False
    indptr = np.concatenate([[0], np.cumsum(stays)])[likes.indptr]
    return csr_matrix((likes.data[stays], likes.indices[stays], indptr), shape=likes.shape)


def stored(home: Home, likes: csr_matrix) -> str:
    users, items = (np.arange(size, dtype=np.int32) for size in likes.shape)
    return matrices.write(home, SplitMatrices("all_edges", likes, users, items))


def fitted(model: Model, likes: csr_matrix, options: FitOptions = NO_OPTIONS) -> Model:
    return model.fit(likes, options)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gram_sums", description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument("--items", type=int, default=6000)
    parser.add_argument("--likes", type=int, default=100, help="a user, repeats folded")
    parser.add_argument("--changed", type=float, default=0.01, help="share of the users")
    parser.add_argument("--exponent", type=float, default=0.5)
    given = parser.parse_args()
    now = long_tailed(given.users, given.items, given.likes)
    before, exponent = less(now, given.changed), given.exponent
    each = gram_sums.pairs(now) / given.items**2
    kept = "kept" if grams.is_worth_keeping(now) else "by the store's rule not kept"
    print(
        f"{now.shape[0]} x {now.shape[1]}, {now.nnz} edges, {each:.1f} pairs of a user's items a pair of items: {kept}"
    )
    grams.WORTH = 0
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder), "made", Limits(threads=1))
        first, second = stored(home, before), stored(home, now)
        grams.sums(home, first, before[:50], exponent, 1)  # compiles
        shutil.rmtree(home.sums)
        timed("X'X of the first night, into the store", lambda: grams.sums(home, first, before, exponent, 1))
        found = timed("X'X of the second, by increments", lambda: grams.sums(home, second, now, exponent, 1))
        own = np.empty(len(found))
        timed("the same from nothing, in memory", lambda: gram_sums.fill(now, exponent, 1, own))
        print(f"equal bits: {np.array_equal(found, own)}, {found.nbytes / 1e6:.0f} MB stored")
        options = FitOptions(gram_sums=partial(grams.sums, home, second))
        for kind in (MRFDense, MRFSparse, SLIM):
            settings = kind.Settings(user_weight_exponent=exponent)
            fitted(kind(settings, threads=1), now[:100])  # compiles
            alone = timed(f"{kind.name}, summing itself", partial(fitted, kind(settings, threads=1), now))
            reads = timed(f"{kind.name}, sums at hand", partial(fitted, kind(settings, threads=1), now, options))
            equal = np.array_equal(reads.scores(now[:500]), alone.scores(now[:500]))
            print(f"equal scores: {equal}", flush=True)


if __name__ == "__main__":
    main()
