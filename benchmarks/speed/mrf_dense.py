"""Measure a fit of the dense Markov random field: seconds and peak memory, beside the rate of one BLAS product.

    env -u OPENBLAS_CORETYPE python -m benchmarks.speed.mrf_dense --items 40981 --users 29858 --likes 27 [--threads N]

Edges are drawn from a long-tailed popularity; the command has Gowalla's shape.
"""

import argparse
import resource

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.speed.logs import draw_equal_users
from benchmarks.speed.timing import name_blas_kernels, time_call
from oneclass.models.mrf.dense import MRFDense

PRODUCT_SIZE = 6000  # rows and columns of the matrices that BLAS multiplies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--likes", type=int, default=60, help="drawn for each user; repeated items count once")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    likes = draw_equal_users(options.users, options.items, options.likes)
    print(
        f"{options.users} x {options.items}, {likes.nnz} edges, {options.threads} thread(s), BLAS kernels "
        f"{name_blas_kernels()}"
    )
    MRFDense(threads=options.threads).fit(likes[:10])  # compiles
    _, wall, cpu = time_call(lambda: MRFDense(threads=options.threads).fit(likes).weights)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"mrf_dense, fit: {wall:.2f} s wall, {cpu:.2f} s CPU, peak memory {peak:.1f} GB", flush=True)
    square = np.ones((PRODUCT_SIZE, PRODUCT_SIZE), dtype=np.float32)
    with threadpool_limits(options.threads, user_api="blas"):
        _, wall, cpu = time_call(lambda: square @ square)
    rate = 2 * float(PRODUCT_SIZE) ** 3 / wall / 1e9
    print(f"BLAS, one product of {PRODUCT_SIZE}^2: {wall:.2f} s wall, {cpu:.2f} s CPU, {rate:.0f} GFLOP/s")


if __name__ == "__main__":
    main()
