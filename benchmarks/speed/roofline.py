"""Rates of one core that bound a pass of the graph models: arithmetic, vector loads and fetches from memory."""

import resource
import time
from functools import partial

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from benchmarks.speed.timing import name_blas_kernels, time_least
from oneclass.models.base import Model
from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.simd import F32_WIDTH, ROWS
from oneclass.models.numerics.simd_tiles import add_outer

LINE_FLOATS = 16  # float32 numbers in a cache line
TILE_VECTORS, TILE_ROUNDS = 64, 100_000
PRODUCT_SIZE = 1500  # rows and columns of the matrices of the SGEMM
DEPENDENT_STEPS = 20_000_000  # of two operations, each one cycle


@njit
def _multiply_adds(target, left, right, count, rounds):
    for _ in range(rounds):
        add_outer(target, 0, F32_WIDTH, left, 0, ROWS, right, 0, F32_WIDTH, count)


@njit
def _fetch_rows(rows, neighbours):
    total = np.float32(0)
    for edge in range(len(neighbours)):
        for line in range(0, rows.shape[1], LINE_FLOATS):
            total += rows[neighbours[edge], line]
    return total


@njit
def _add_in_turn(count):
    total = 0
    for number in range(count):
        total = (total ^ number) + number
    return total


def measure_clock_ghz(repeats: int) -> float:
    """Measure the processor's clock while one core works."""
    return 2 * DEPENDENT_STEPS / time_least(partial(_add_in_turn, DEPENDENT_STEPS), 1 + repeats).cpu / 1e9


def measure_arithmetic_rate(repeats: int) -> tuple[float, str]:
    """Measure the operations of one core a nanosecond; returns the better of two rates, and its source."""
    tile, left, right = (
        np.zeros(size, np.float32) for size in (ROWS * F32_WIDTH, ROWS * TILE_VECTORS, F32_WIDTH * TILE_VECTORS)
    )
    work = partial(_multiply_adds, tile, left, right, TILE_VECTORS, TILE_ROUNDS)
    operations = 2 * ROWS * F32_WIDTH * TILE_VECTORS * TILE_ROUNDS
    rates = {"register tile": operations / time_least(work, 1 + repeats).cpu / 1e9}
    square = np.ones((PRODUCT_SIZE, PRODUCT_SIZE), np.float32)
    with threadpool_limits(1, user_api="blas"):
        cpu = time_least(lambda: square @ square, 1 + repeats).cpu
        rates[f"SGEMM, BLAS kernel {name_blas_kernels()}"] = 2 * PRODUCT_SIZE**3 / cpu / 1e9
    source = max(rates, key=rates.get)
    return rates[source], source


def measure_gather(rows: np.ndarray, neighbours: np.ndarray, repeats: int) -> float:
    """Measure the nanoseconds to fetch the row of each neighbour in turn."""
    return 1e9 * time_least(partial(_fetch_rows, rows, neighbours), 1 + repeats).cpu / len(neighbours)


def print_core_bounds(operations: int, loads: int, repeats: int) -> None:
    """Print the bounds of one edge visit by arithmetic and by loads, ns.

    Args:
        operations: floating-point operations of a visit; loads: of vectors and multipliers.
    """
    (rate, source), clock = measure_arithmetic_rate(repeats), measure_clock_ghz(repeats)
    print(f"arithmetic {operations / rate:.1f} ns ({operations} at {rate:.0f} a ns, {source})")
    print(f"vectors {loads / 2 / clock:.1f} ns ({loads} loads, two a cycle of {clock:.2f} GHz)")


def report_iterations(label: str, model: Model, matrix: csr_matrix, threads: int) -> None:
    """Fit a model and print the median seconds of an iteration and the peak memory of the process."""
    wall, cpu = [], [time.process_time()]

    def note_time(epoch):
        wall.append(epoch.seconds)
        cpu.append(time.process_time())

    model.fit(matrix, FitOptions(on_epoch=note_time))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{label}: an iteration {np.median(wall):.2f} wall s on {threads} threads, "
        f"{np.median(np.diff(cpu)[1:]):.2f} CPU s; peak memory {peak:.2f} GB",
        flush=True,
    )
