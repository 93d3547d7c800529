"""Work in a process that is killed before a change of files, or that has little memory."""

import contextlib
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from oneclass.models.base import Model
from oneclass.models.memory_estimates import FitCost, LogSize

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.symlink")


def ends_before_change(number: int, work: Callable[[], object], *, from_commit: bool = False) -> bool:
    """Do the work in a fork that is killed before its change of files of this number; whether it ended before.

    A change is a file opened for writing, renamed or removed, a folder or link made, or a commit of DuckDB,
    which counts before and after. With `from_commit`, changes before the first commit do not count.
    """
    if (process := os.fork()) == 0:
        changes, waits = 0, from_commit
        commit = duckdb.DuckDBPyConnection.commit

        def count() -> None:
            nonlocal changes
            changes += not waits
            if changes == number:
                os.kill(os.getpid(), signal.SIGKILL)

        def hear(event: str, arguments: tuple) -> None:
            opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if opened or event in CHANGES:
                count()

        def count_and_commit(connection: duckdb.DuckDBPyConnection) -> None:
            nonlocal waits
            waits = False
            count()
            commit(connection)
            count()

        try:
            sys.addaudithook(hear)
            duckdb.DuckDBPyConnection.commit = count_and_commit
            work()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status == 0


@contextlib.contextmanager
def limit_memory(more: int) -> Iterator[int]:
    """Let this process have no more than so many bytes beside those that it has; the limit, in bytes."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    has = 1024 * int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[1])
    resource.setrlimit(resource.RLIMIT_DATA, (has + more, before[1]))
    try:
        yield has + more
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def inflate_cost(patch: pytest.MonkeyPatch, model: type[Model], matrices: int = 10**9) -> None:
    """Let the model's estimate have so many more float32 matrices of all pairs of items."""
    estimate = model.estimate_cost

    def inflated(settings: Any, log: LogSize) -> FitCost:
        cost = estimate(settings, log)
        return replace(cost, bytes=cost.bytes + 4 * matrices * log.items**2)

    patch.setattr(model, "estimate_cost", staticmethod(inflated))
