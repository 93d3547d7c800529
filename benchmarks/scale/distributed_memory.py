"""The memory of fits by blocks of users: what the coordinator and a block take, beside what `models.memory_estimates`
says.

    MALLOC_MMAP_THRESHOLD_=65536 python -m benchmarks.scale.distributed_memory [--edges 4000000] [--items 4000]
    [--blocks 4]

The graph is the demo's own, and lies in files. Blocks are computed by a process of their own, after a pass over a small
graph in both, so that code is loaded and compiled. Prints the peak of resident memory (VmHWM) above that resident
when the fit, or the call, began; pages of mapped files are in it. Without that variable glibc keeps what a fit before
has freed, which the next takes again.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from scipy.sparse import csr_matrix

from benchmarks.scale.pickled_calls import head, row, shelved
from benchmarks.speed.random_graph import demo_graph
from oneclass.models.distributed import partition_by_edges
from oneclass.models.fit_options import FitOptions
from oneclass.models.memory_estimates import estimate_block_bytes, estimate_coordinator_bytes
from oneclass.models.registry import MODELS
from oneclass.models.settings import ModelSettings
from oneclass.tasks.memory_errors import peak_rss, reset_peak_rss

FITS = ["random_graph", "mrf_dense"]
SHORT = {"random_graph": "iterations"}


def weighed(function: Callable, *call: object) -> tuple[object, int]:
    """What a call gives, and the most memory that it took."""
    before = _reset()
    answer = function(*call)
    return answer, peak_rss() - before


class Weighing:
    """Calls are made by one process, one after another.

    Attributes:
        most: bytes that a call took.
    """

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self.pool, self.most = pool, 0

    def map(self, function: Callable, calls: Sequence[tuple]) -> list:
        found = [self.pool.submit(weighed, function, *call).result() for call in calls]
        self.most = max(self.most, *(peak for _, peak in found))
        return [answer for answer, _ in found]


def _reset() -> int:
    reset_peak_rss()
    return peak_rss()


def fitted(kind: type, settings: ModelSettings, matrix: csr_matrix, workers: Weighing) -> int:
    """The memory that this process takes for a fit."""
    with tempfile.TemporaryDirectory() as folder:
        options = FitOptions(workers=workers, rows=shelved(matrix, Path(folder)))
        return weighed(partial(kind(settings).fit, matrix, options))[1]


def report(pool: ProcessPoolExecutor, matrix: csr_matrix, small: csr_matrix, fit: str, blocks: int) -> None:
    name, _, given = fit.partition(":")
    short = {SHORT[name]: 2} if name in SHORT else {}
    settings = MODELS[name].Settings(
        blocks=blocks, **short, **dict(pair.split("=") for pair in given.split(",") if pair)
    )
    fitted(MODELS[name], settings, small, Weighing(pool))
    workers = Weighing(pool)
    here = fitted(MODELS[name], settings, matrix, workers)
    starts = matrix.indptr
    sizes = MODELS[name].block_sizes(settings, matrix.shape[1])
    said = max(
        estimate_block_bytes(sizes, end - first, int(starts[end] - starts[first]))
        for first, end in partition_by_edges(starts, blocks)
    )
    said_here = estimate_coordinator_bytes(sizes, blocks, matrix.shape, MODELS[name].item_matrices)
    row(fit, *(f"{number / 1e6:.0f}" for number in (here, said_here, workers.most, said)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=4_000_000, help="likes; there is a user for each 40")
    parser.add_argument("--items", type=int, default=4_000)
    parser.add_argument("--fit", nargs="+", default=FITS, help="model:setting=value")
    parser.add_argument("--blocks", type=int, default=4)
    given = parser.parse_args()
    matrix, small = (demo_graph(edges // 40, given.items, edges, 1) for edges in (given.edges, 100_000))
    print(f"{matrix.shape[0]:,} users, {matrix.shape[1]:,} items, {matrix.nnz:,} edges, {given.blocks} blocks; MB")
    head("fit", "coordinator", "said", "a block", "said")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for fit in given.fit:
            report(pool, matrix, small, fit, given.blocks)


if __name__ == "__main__":
    main()
