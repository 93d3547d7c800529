"""Limits on the memory of the tests' own process, and estimates of fits that need too much."""

import contextlib
import re
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oneclass.models.base import Model
from oneclass.models.memory_estimates import FitCost, LogSize


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
