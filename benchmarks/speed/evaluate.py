"""The time of ranking against that of the product that makes the scores, at Netflix's 17,770 items.

python -m benchmarks.speed.evaluate [--threads N] [--users 900]
"""

import argparse
import time

import numpy as np
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from oneclass.models.evaluation.metrics import compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.numerics.top_k import top_items

ITEMS, FACTORS, HISTORY, REPEATS = 17_770, 20, 100, 5


def sampled(random: np.random.Generator, users: int, targets: int) -> tuple[csr_matrix, csr_matrix]:
    """Histories and targets, apart, of users who chose their items uniformly."""
    chosen = np.array([random.choice(ITEMS, HISTORY + targets, replace=False) for _ in range(users)])
    return tuple(_matrix(part) for part in (chosen[:, :HISTORY], chosen[:, HISTORY:]))


def _matrix(columns: np.ndarray) -> csr_matrix:
    users, width = columns.shape
    indptr = np.arange(0, users * width + 1, width)
    data = np.ones(columns.size, dtype=np.float32)
    return csr_matrix((data, np.sort(columns, axis=1).ravel().astype(np.int32), indptr), shape=(users, ITEMS))


def fastest(work, users: int) -> float:
    """Milliseconds per 1,000 users: the best of some repeats after a first that compiles."""
    work()
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times) / users * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--users", type=int, default=900, help="of one block (default: 64 MB of scores)")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    users = random.standard_normal((options.users, FACTORS), dtype=np.float32)
    items = random.standard_normal((FACTORS, ITEMS), dtype=np.float32)
    scores = users @ items
    with threadpool_limits(options.threads), kernel_threads(options.threads):
        product = fastest(lambda: np.matmul(users, items, out=scores), options.users)
        print(f"{options.threads} thread(s), {options.users} x {ITEMS}, K = {FACTORS}; per 1,000 users")
        print(f"{'scores (float32 GEMM)':32} {product:8.1f} ms")
        for targets in (1, 25, 100):
            histories, wanted = sampled(random, options.users, targets)
            block = (scores, histories, wanted)
            spent = fastest(lambda block=block: compute_user_metrics(rank_targets(*block)), options.users)
            name = f"metrics, {targets} target(s) a user"
            print(f"{name:32} {spent:8.1f} ms, {spent / product:5.1f} x the GEMM")
        known = histories.indptr, histories.indices
        spent = fastest(lambda: top_items(scores, *known, 100), options.users)
        print(f"{'top 100':32} {spent:8.1f} ms, {spent / product:5.1f} x the GEMM")


if __name__ == "__main__":
    main()
