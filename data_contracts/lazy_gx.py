"""Load Great Expectations on the first check, without the libraries that no contract uses.

Loading it takes about as long as all checks of a small run. Deferring two libraries that serve one or two of its
expectation types, and pausing garbage collection while modules are imported, saves two fifths of that.
"""

import gc
import importlib
import os
import sys
import types
from collections.abc import Generator, Sequence
from contextlib import contextmanager

# Plots in Data Docs; the Kullback-Leibler and Kolmogorov-Smirnov expectations.
DEFERRED_MODULES = ("altair", "scipy.stats")


def load_great_expectations() -> types.ModuleType:
    """Import the package, with DuckDB as a data source, without using the network."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    with _defer_imports(DEFERRED_MODULES), _pause_garbage_collection():
        import great_expectations

        from oneclass.data_contracts import execution_engine as _  # noqa: F401 - defining its classes makes add_duckdb
    return great_expectations


class _LazyModule(types.ModuleType):
    """A placeholder that imports its module when an attribute is first read."""

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _defer_imports(names: Sequence[str]) -> Generator[None]:
    """Give importers in the block placeholders for these modules, unless they are already loaded."""
    placeholders = {name: _LazyModule(name) for name in names if name not in sys.modules}
    sys.modules.update(placeholders)
    try:
        yield
    finally:
        for name, placeholder in placeholders.items():
            if sys.modules.get(name) is placeholder:
                del sys.modules[name]


@contextmanager
def _pause_garbage_collection() -> Generator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
