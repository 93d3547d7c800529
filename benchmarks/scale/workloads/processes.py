"""Run work in a process of its own and report its seconds and peak memory, or why it failed."""

import multiprocessing
import os
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from time import perf_counter, process_time
from typing import Any

from oneclass.tasks import memory_errors

EXIT_SECONDS = 30  # for a process to end after its work
MAX_ERROR_CHARACTERS = 200


@dataclass
class Measurement:
    """The seconds and memory of some work.

    Attributes:
        label: the row of the table; empty if the work failed before it had one.
        wall, cpu: seconds, CPU over all threads.
        peak_bytes: largest resident memory, the interpreter's included.
        limit, limit_cpu: the machine's bound for this work, and the CPU seconds that it implies.
        ndcg: nDCG@100 on the test users.
        result: values that later work needs.
        error: why it failed, or None.
    """

    label: str = ""
    wall: float | None = None
    cpu: float | None = None
    peak_bytes: int | None = None
    limit: str = ""
    limit_cpu: float | None = None
    ndcg: float | None = None
    result: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


Work = Callable[..., list[Measurement]]


@contextmanager
def record_resources(measurement: Measurement):
    """Record the seconds and the peak memory of the block."""
    memory_errors.reset_peak_rss()
    wall, cpu = perf_counter(), process_time()
    yield
    measurement.wall, measurement.cpu = perf_counter() - wall, process_time() - cpu
    measurement.peak_bytes = memory_errors.peak_rss()


def run_in_process(work: Work, *arguments: Any, seconds: float, inside: bool = False) -> list[Measurement]:
    """Run work in a fresh process (`inside`: in this one); a failure or timeout becomes a measurement with an error."""
    if inside:
        return _run_work(work, arguments)
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    os.environ.pop("OPENBLAS_CORETYPE", None)  # BLAS chooses its kernels when the process starts
    process = context.Process(target=_send_measurements, args=(sender, work, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            return [Measurement(error=f"stopped after {seconds:g} s")]
        measurements = receiver.recv()
        process.join(EXIT_SECONDS)
        return measurements
    except EOFError:
        process.join()
        cause = ", as the kernel does when memory runs out" if process.exitcode == -9 else ""
        return [Measurement(error=f"its process ended with {process.exitcode}{cause}")]
    finally:
        process.kill()
        process.join()


def _send_measurements(sender: Connection, work: Work, arguments: tuple) -> None:
    os.dup2(2, 1)  # only the table goes to standard output; DuckDB prints a progress bar there
    sender.send(_run_work(work, arguments))


def _run_work(work: Work, arguments: tuple) -> list[Measurement]:
    try:
        return work(*arguments)
    except Exception as error:  # noqa: BLE001  (its row names any error)
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return [Measurement(error=message[:MAX_ERROR_CHARACTERS])]
