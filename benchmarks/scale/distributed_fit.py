"""Measure fits of the random-graph model by blocks of users: messages and their cost, and memory.

    python -m benchmarks.scale.distributed_fit [--edges 2000000] [--part travel memory]

The graph is the demo's. `travel` fits by 1 to 16 blocks in this process; every call and result is pickled and unpickled
as if sent to another, and that time, with the sums and the items' update, counts as messages beside the work within the
calls. `memory` fits once as one and once by blocks, each in processes of their own with a limit on their private memory
(RLIMIT_DATA). Seconds are CPU seconds on one thread.
"""

import argparse
import multiprocessing
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.scale.pickled_calls import FolderRows, PickledCalls, print_head, print_row, store_rows
from benchmarks.speed.logs import simulate_demo_graph
from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.random_graph.blocks import start_distributed_fit
from oneclass.models.random_graph.inference import step_sizes
from oneclass.models.random_graph.messages import message_size
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from oneclass.models.random_graph.worker import BlockConfig

LIKES_PER_USER = 40
BLOCK_COUNTS, MEMORY_BLOCKS = (1, 2, 4, 8, 16), 4
MEMORY_ITERATIONS = 3
PARTS = ("travel", "memory")


def report_travel(matrix: csr_matrix, iterations: int) -> None:
    """Print a table of messages for each of the two algorithms."""
    for joint in (False, True):
        settings, ends = RandomGraphSettings(bound_every=0, t_tau=0, iterations=iterations, joint_bias=joint), []
        model = RandomGraph(settings)
        model.fit(matrix, FitOptions(on_epoch=lambda _, ends=ends: ends.append(time.process_time())))
        print(f"\n`joint_bias = {str(joint).lower()}`; one machine: an iteration {np.diff(ends).min():.2f} s")
        print_head(
            "blocks", "an iteration, s", "calls, s", "the longest block, s", "messages, s", "sent, MB", "by formula, MB"
        )
        for count in BLOCK_COUNTS:
            report_blocks(matrix, model, settings.model_copy(update={"blocks": count}))


def report_blocks(matrix: csr_matrix, model: RandomGraph, settings: RandomGraphSettings) -> None:
    """Print a row: the quickest iteration after the first, which other work on the machine slowed least."""
    seconds, calls, longest, sent = [], [], [], 0
    exchanges = 1 if settings.joint_bias else 2
    with tempfile.TemporaryDirectory() as folder, kernel_threads(1):
        q = model._initial_posterior(matrix.shape, None)
        options = FitOptions(workers=(workers := PickledCalls()), rows=store_rows(matrix, Path(folder)))
        with start_distributed_fit(BlockConfig(settings, 0, 1), q, model.weights, matrix, options) as posterior:
            for t, step in enumerate(step_sizes(settings.iterations, settings.t_epsilon), start=1):
                workers.__init__()
                began = time.process_time()
                posterior.iterate(t, step)
                seconds.append(time.process_time() - began)
                calls.append(sum(workers.cpu_seconds))
                longest.append(np.reshape(workers.cpu_seconds, (exchanges, -1)).sum(axis=0).max())
                sent = workers.sent + workers.received
    K = settings.factors
    item_bytes = exchanges * 4 * (2 * K + 2) + 4 * message_size(K) + (0 if settings.joint_bias else 16)
    formula = len(posterior.blocks) * matrix.shape[1] * item_bytes
    best = 1 + int(np.argmin(seconds[1:]))
    iteration, in_calls, in_longest = (values[best] for values in (seconds, calls, longest))
    cells = (f"{iteration:.2f}", f"{in_calls:.2f}", f"{in_longest:.2f}", f"{iteration - in_calls:.3f}")
    print_row(len(posterior.blocks), *cells, f"{sent / 1e6:.3f}", f"{formula / 1e6:.3f}")


def limit_memory(megabytes: int) -> None:
    """Limit the private memory of this process; 0 for no limit."""
    if megabytes:
        resource.setrlimit(resource.RLIMIT_DATA, (megabytes * 1_000_000,) * 2)


def read_peak_memory(wait: float = 0.0) -> tuple[int, float]:
    """Read the largest resident memory of this process in MB, mapped files included; returns its id too.

    Args:
        wait: seconds before, so that a pool gives its next call to another process.
    """
    time.sleep(wait)
    status = Path("/proc/self/status").read_text()
    return os.getpid(), int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1e3


@contextmanager
def start_processes(count: int, megabytes: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes with a limit on their memory."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=limit_memory, initargs=(megabytes,)) as pool:
        yield pool


class PoolWorkers:
    """Run the calls of a distributed fit in the processes of a pool."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self.pool = pool

    def map(self, function: Callable, calls: Sequence[tuple]) -> list:
        return [future.result() for future in [self.pool.submit(function, *call) for call in calls]]


def fit_from_folder(folder: Path, count: int, megabytes: int) -> tuple[float, list[float], str]:
    """Fit in this process, with `count` blocks in as many others.

    Returns:
        The largest resident memory in MB here and in each of the others; the mean of |E v|.
    """
    starts, items = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("starts", "items"))
    ones = np.ones(len(items), dtype=np.int8)
    matrix = csr_matrix((ones, items, starts), shape=(len(starts) - 1, np.load(folder / "width.npy")))
    model, peaks = RandomGraph(RandomGraphSettings(iterations=MEMORY_ITERATIONS, bound_every=0, blocks=count)), {}
    if count == 1:
        model.fit(matrix)
    else:
        with start_processes(count, megabytes) as pool:
            model.fit(matrix, FitOptions(workers=PoolWorkers(pool), rows=FolderRows(folder)))
            peaks = dict(one.result() for one in [pool.submit(read_peak_memory, 0.2) for _ in range(4 * count)])
    return read_peak_memory()[1], [*peaks.values()], f"{np.abs(model.posterior.items.mean).mean():.6f}"


def report_memory(matrix: csr_matrix, limit: int) -> None:
    """Print the memory of a fit as one and by blocks, without a limit and with one in MB."""
    print_head("fit", "allowed, MB", "most resident, MB", "of each worker, MB", "mean of abs(E v)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store_rows(matrix, folder)
        store_rows(csr_matrix(np.eye(10)), few := folder / "few")
        for label, edges, blocks, megabytes in (
            ("ten edges: the program itself", few, 1, 0),
            ("all users as one", folder, 1, 0),
            ("all users as one", folder, 1, limit),
            (f"{MEMORY_BLOCKS} blocks", folder, MEMORY_BLOCKS, limit),
        ):
            allowed = megabytes or "no limit"
            with start_processes(1, megabytes) as pool:
                try:
                    here, peaks, mean = pool.submit(fit_from_folder, edges, blocks, megabytes).result()
                    print_row(label, allowed, f"{here:.0f}", ", ".join(f"{peak:.0f}" for peak in peaks), mean)
                except (MemoryError, BrokenProcessPool) as error:
                    print_row(label, allowed, f"ended by {type(error).__name__}", "", "")


def simulate_graph(edges: int, items: int) -> csr_matrix:
    """Simulate the demo's graph and print its size."""
    matrix = simulate_demo_graph(edges // LIKES_PER_USER, items, edges, 1)
    print(f"\n{matrix.shape[0]:,} users, {matrix.shape[1]:,} items, {matrix.nnz:,} edges")
    return matrix


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=2_000_000, help=f"likes; a user has {LIKES_PER_USER}")
    parser.add_argument("--items", type=int, default=4_000)
    parser.add_argument("--iterations", type=int, default=9, help="of the table of messages")
    parser.add_argument("--memory-edges", type=int, default=12_000_000)
    parser.add_argument("--memory", type=int, default=600, help="MB of private memory that a process may have")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if "travel" in options.part:
        report_travel(simulate_graph(options.edges, options.items), options.iterations)
    if "memory" in options.part:
        report_memory(simulate_graph(options.memory_edges, options.items), options.memory)


if __name__ == "__main__":
    main()
