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

ENDING = 30  # seconds that a process may take to end, its work done


@dataclass
class Took:
    """What some work took.

    Attributes:
        what: the row of the table; empty for the work that was asked for by name.
        seconds, cpu: wall and processor seconds, all threads together.
        peak: bytes of resident memory at most, the interpreter's own among them.
        limit, limit_cpu: the machine's own limit for that work, and the CPU seconds that it comes to.
        ndcg: nDCG@100 on the test users.
        found: what later work needs.
        why: why it failed; None where it did not.
    """

    what: str = ""
    seconds: float | None = None
    cpu: float | None = None
    peak: int | None = None
    limit: str = ""
    limit_cpu: float | None = None
    ndcg: float | None = None
    found: dict[str, Any] = field(default_factory=dict)
    why: str | None = None


@contextmanager
def clock(took: Took):
    """Note what the block takes."""
    memory_errors.reset_peak_rss()
    wall, cpu = perf_counter(), process_time()
    yield
    took.seconds, took.cpu, took.peak = perf_counter() - wall, process_time() - cpu, memory_errors.peak_rss()


def run(work: Callable[..., list[Took]], *arguments: Any, seconds: float, inside: bool = False) -> list[Took]:
    """What the work tells, in a fresh process (`inside`: in this one); one that failed or took too long says so."""
    if inside:
        return _caught(work, arguments)
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    os.environ.pop("OPENBLAS_CORETYPE", None)  # BLAS is to have its best kernels in the process, chosen at its start
    process = context.Process(target=_send, args=(sending, work, arguments))
    process.start()
    sending.close()
    try:
        if not receiving.poll(seconds):
            return [Took(why=f"stopped after {seconds:g} s")]
        found = receiving.recv()
        process.join(ENDING)
        return found
    except EOFError:
        process.join()
        of_memory = ", as the kernel does where memory ran out" if process.exitcode == -9 else ""
        return [Took(why=f"its process ended with {process.exitcode}{of_memory}")]
    finally:
        process.kill()
        process.join()


def _send(sending: Connection, work: Callable[..., list[Took]], arguments: tuple) -> None:
    os.dup2(2, 1)  # the table alone goes to the standard output; DuckDB draws a bar there
    sending.send(_caught(work, arguments))


def _caught(work: Callable[..., list[Took]], arguments: tuple) -> list[Took]:
    try:
        return work(*arguments)
    except Exception as error:  # noqa: BLE001  (whatever it is, its row has to say it)
        return [Took(why=f"{type(error).__name__}: {' '.join(str(error).split())}"[:200])]
