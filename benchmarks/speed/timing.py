"""Clocks of the benchmarks: wall and CPU seconds of a call, the least of several, and percentiles of many requests.

CPU time is the process's, over all its threads. On a busy machine trust it more than the wall clock.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_info

WARM_REQUESTS = 20  # requests that are not counted


class Timing(NamedTuple):
    """The result of a call, and the seconds that it took."""

    result: Any
    wall: float
    cpu: float


def time_call(work: Callable[[], Any]) -> Timing:
    """Time one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return Timing(result, time.perf_counter() - wall, time.process_time() - cpu)


def time_least(work: Callable[[], Any], repeats: int) -> Timing:
    """Time several calls and return the last result with the least wall and the least CPU seconds."""
    timings = [time_call(work) for _ in range(repeats)]
    return Timing(timings[-1].result, min(one.wall for one in timings), min(one.cpu for one in timings))


def print_percentiles(name: str, ask: Callable[[int], object], requests: int) -> None:
    """Print p50 and p99 of a request and of its CPU time in milliseconds.

    On a machine with other work the two differ by the time that a request waits for a core.

    Args:
        ask: gets the number of the request; the first are negative and not counted.
    """
    seconds = np.empty((WARM_REQUESTS + requests, 2))
    for number in range(-WARM_REQUESTS, requests):
        wall, cpu = time.perf_counter(), time.thread_time()
        ask(number)
        seconds[WARM_REQUESTS + number] = time.perf_counter() - wall, time.thread_time() - cpu
    (p50, cpu50), (p99, cpu99) = np.percentile(seconds[WARM_REQUESTS:], [50, 99], axis=0) * 1e3
    print(f"  {name:46} p50 {p50:8.3f}   p99 {p99:8.3f}   CPU {cpu50:8.3f} {cpu99:8.3f} ms", flush=True)


def name_blas_kernels() -> str:
    """Name the kernels that BLAS uses on this machine."""
    pools = (pool for pool in threadpool_info() if pool["user_api"] == "blas")
    return ", ".join(sorted({str(pool.get("architecture")) for pool in pools}))
