"""Compare the memory of fits by blocks of users with the estimates of `models.memory_estimates`.

    MALLOC_MMAP_THRESHOLD_=65536 python -m benchmarks.scale.distributed_memory [--edges 4000000] [--items 4000]
    [--blocks 4]

The graph is the demo's, in files. Another process computes the blocks, after a pass over a small graph in both, so that
code is loaded and compiled. Prints the peak of resident memory (VmHWM) above that at the start of the fit, or of the
call; pages of mapped files are included. Without that variable glibc keeps the memory of the fit before, which the next
reuses.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from scipy.sparse import csr_matrix

from benchmarks.scale.pickled_calls import print_head, print_row, store_rows
from benchmarks.speed.logs import simulate_demo_graph
from oneclass.models.distributed import partition_by_edges
from oneclass.models.fit_options import FitOptions
from oneclass.models.memory_estimates import estimate_block_bytes, estimate_coordinator_bytes
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.memory_errors import peak_rss, reset_peak_rss

FITS = {"random_graph": {"iterations": 2}, "mrf_dense": {}}
SMALL_EDGES, LIKES_PER_USER = 100_000, 40


def measure_memory(function: Callable, *arguments: object) -> tuple[object, int]:
    """Call a function; returns its result, and the memory that it added at its peak."""
    reset_peak_rss()
    before = peak_rss()
    result = function(*arguments)
    return result, peak_rss() - before


class MeasuredWorker:
    """Run the calls of a distributed fit in one process, one after another.

    Attributes:
        peak_bytes: the most memory that a call added.
    """

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self.pool, self.peak_bytes = pool, 0

    def map(self, function: Callable, calls: Sequence[tuple]) -> list:
        results = [self.pool.submit(measure_memory, function, *call).result() for call in calls]
        self.peak_bytes = max(self.peak_bytes, *(peak for _, peak in results))
        return [result for result, _ in results]


def measure_fit(kind: type, settings: ModelSettings, matrix: csr_matrix, worker: MeasuredWorker) -> int:
    """Measure the memory that a fit adds in this process."""
    with tempfile.TemporaryDirectory() as folder:
        options = FitOptions(workers=worker, rows=store_rows(matrix, Path(folder)))
        return measure_memory(partial(kind(settings).fit, matrix, options))[1]


def report_model(pool: ProcessPoolExecutor, matrix: csr_matrix, small: csr_matrix, name: str, blocks: int) -> None:
    """Print a model's row: measured and estimated memory of the coordinator and of a block."""
    kind = MODELS[name]
    settings = kind.Settings(blocks=blocks, **FITS[name])
    measure_fit(kind, settings, small, MeasuredWorker(pool))
    worker = MeasuredWorker(pool)
    coordinator = measure_fit(kind, settings, matrix, worker)
    starts, sizes = matrix.indptr, kind.block_sizes(settings, matrix.shape[1])
    block_estimate = max(
        estimate_block_bytes(sizes, end - first, int(starts[end] - starts[first]))
        for first, end in partition_by_edges(starts, blocks)
    )
    coordinator_estimate = estimate_coordinator_bytes(sizes, blocks, matrix.shape, kind.item_matrices)
    figures = coordinator, coordinator_estimate, worker.peak_bytes, block_estimate
    print_row(name, *(f"{number / 1e6:.0f}" for number in figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=4_000_000, help=f"likes; a user has {LIKES_PER_USER}")
    parser.add_argument("--items", type=int, default=4_000)
    parser.add_argument("--blocks", type=int, default=4)
    options = parser.parse_args()
    matrix, small = (
        simulate_demo_graph(edges // LIKES_PER_USER, options.items, edges, 1) for edges in (options.edges, SMALL_EDGES)
    )
    print(f"{matrix.shape[0]:,} users, {matrix.shape[1]:,} items, {matrix.nnz:,} edges, {options.blocks} blocks; MB")
    print_head("fit", "coordinator", "estimated", "a block", "estimated")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for name in FITS:
            report_model(pool, matrix, small, name, options.blocks)


if __name__ == "__main__":
    main()
