"""What holds for every kernel of the room."""

import importlib
import pkgutil

from numba.core.dispatcher import Dispatcher

from oneclass import models


def modules():
    """Every module of `models/`, but for those that need PyTorch where it is not installed: they hold no kernels."""
    for found in pkgutil.walk_packages(models.__path__, "models."):
        try:
            yield importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise


def test_a_loop_over_threads_leaves_pythons_lock_free():
    """Else a command that is told to end waits for the kernel at work: its watch could not run meanwhile."""
    held, seen = [], 0
    for module in modules():
        for name, value in vars(module).items():
            if isinstance(value, Dispatcher) and value.targetoptions.get("parallel"):
                seen += 1
                if not value.targetoptions.get("nogil"):
                    held.append(f"{module.__name__}.{name}")
    assert seen > 30 and not held
