"""The tiled in-place inverse beside LAPACK's potrf + potri, and the Gram kernel beside scipy's sparse product.

    env -u OPENBLAS_CORETYPE python -m benchmarks.speed.mrf_dense [--items 5000] [--users 20000] [--threads N]
    env -u OPENBLAS_CORETYPE python -m benchmarks.speed.mrf_dense --items 40981 --users 29858 --likes 27 --fit-only

Edges are drawn from a long-tailed popularity. The second command has Gowalla's shape: the fit, its peak of memory,
and the rate of one BLAS product on as many threads, which bounds it. CPU seconds are those of the whole process: on
a busy machine trust them more than the wall clock.
"""

import argparse
import resource
from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_info, threadpool_limits

from oneclass.models.mrf.dense import MRFDense
from oneclass.models.numerics.column_scaling import column_moments
from oneclass.models.numerics.gram import lower_gram
from oneclass.models.numerics.spd_inverse import invert_lower


def long_tailed(users: int, items: int, likes: int) -> csr_matrix:
    """Edges of users who draw `likes` items, repeats folded, with probability proportional to (rank + 20)^-0.8."""
    popularity = (np.arange(items) + 20.0) ** -0.8
    chosen = np.random.default_rng(0).choice(items, users * likes, p=popularity / popularity.sum())
    matrix = csr_matrix(
        (np.ones(len(chosen), dtype=np.float32), (np.repeat(np.arange(users), likes), chosen)), shape=(users, items)
    )
    matrix.data[:] = 1
    matrix.sort_indices()
    return matrix


def timed(name: str, work: Callable[[], np.ndarray], operations: float = 0.0) -> np.ndarray:
    """Print how long the work took, and how fast when its floating-point operations are known."""
    wall, cpu = perf_counter(), process_time()
    result = work()
    wall, cpu = perf_counter() - wall, process_time() - cpu
    rate = f"{operations / wall / 1e9:8.0f} GFLOP/s" if operations else ""
    print(f"{name:32} {wall:8.2f} s wall {cpu:8.2f} s CPU {rate}", flush=True)
    return result


def tiled(matrix: np.ndarray, threads: int) -> np.ndarray:
    invert_lower(matrix, threads)
    return matrix


def by_lapack(matrix: np.ndarray, threads: int) -> np.ndarray:
    """The lower triangle of the inverse, in place; the transpose of a symmetric C-ordered matrix is Fortran's."""
    with threadpool_limits(threads, user_api="blas"):
        factor, _ = lapack.spotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
        return lapack.spotri(factor, lower=1, overwrite_c=1)[0]


def beside_the_libraries(likes: csr_matrix, threads: int) -> None:
    moments = column_moments(likes, 0.0)
    items = likes.shape[1]
    plain = np.zeros(items), np.ones(items)
    gram = timed("X'X, this kernel", lambda: lower_gram(likes, moments.weights, *plain, threads))
    timed("X'X, scipy sparse", lambda: (likes.T @ likes).toarray())
    gram = gram + np.tril(gram, -1).T
    gram.flat[:: items + 1] += 500
    operations = float(items) ** 3
    ours = timed("inverse, tiled", lambda: tiled(gram.copy(), threads), operations)
    theirs = timed("inverse, potrf + potri", lambda: by_lapack(gram.copy(), threads), operations)
    theirs = np.tril(theirs)
    difference = np.abs(np.tril(ours) - theirs).max() / np.abs(theirs).max()
    print(f"largest difference, of the largest element: {difference:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--likes", type=int, default=60, help="a user, repeats folded")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fit-only", action="store_true", help="at sizes where copies and LAPACK would not fit")
    options = parser.parse_args()
    likes = long_tailed(options.users, options.items, options.likes)
    kernels = sorted({pool["architecture"] for pool in threadpool_info() if pool["user_api"] == "blas"})
    print(
        f"{options.users} x {options.items}, {likes.nnz} edges, {options.threads} thread(s), BLAS kernels "
        f"{', '.join(kernels)}"
    )
    MRFDense(threads=options.threads).fit(likes[:10])  # compiles
    if not options.fit_only:
        beside_the_libraries(likes, options.threads)
    timed("mrf_dense, the whole fit", lambda: MRFDense(threads=options.threads).fit(likes).weights)
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")
    square = np.ones((6000, 6000), dtype=np.float32)
    with threadpool_limits(options.threads, user_api="blas"):
        timed("BLAS, one product of 6000^2", lambda: square @ square, 2 * 6000.0**3)


if __name__ == "__main__":
    main()
