"""What holds for every kernel of the room."""

import importlib
import pkgutil

from numba.core.dispatcher import Dispatcher

import models


def test_a_loop_over_threads_leaves_pythons_lock_free():
    """Else a command that is told to end waits for the kernel at work: its watch could not run meanwhile."""
    held, seen = [], 0
    for module in pkgutil.walk_packages(models.__path__, "models."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Dispatcher) and value.targetoptions.get("parallel"):
                seen += 1
                if not value.targetoptions.get("nogil"):
                    held.append(f"{module.name}.{name}")
    assert seen > 30 and not held
