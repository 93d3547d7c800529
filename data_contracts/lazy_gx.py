"""How Great Expectations is loaded: once a process, by the first check, and without what no contract uses.

Loading it takes about as long as all checks of a small run. Two fifths of that went into two libraries that serve one
or two of its expectation types, and into garbage collections that find nothing, since modules leave no garbage.
"""

import gc
import importlib
import os
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

PUT_OFF = ("altair", "scipy.stats")  # plots in Data Docs; the tests of Kullback-Leibler and Kolmogorov-Smirnov


def great_expectations() -> types.ModuleType:
    """Load the package, with DuckDB as a data source; it asks nothing of the network."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    with _put_off(PUT_OFF), _no_collections():
        import great_expectations

        from oneclass.data_contracts import execution_engine  # noqa: F401 - defining its classes makes add_duckdb
    return great_expectations


class _OnFirstUse(types.ModuleType):
    """Stands for a module, which is imported when something in it is first asked for."""

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _put_off(names: Sequence[str]) -> Iterator[None]:
    """What is imported in the block gets stand-ins for these modules, unless they are loaded already."""
    stand_ins = {name: _OnFirstUse(name) for name in names if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


@contextmanager
def _no_collections() -> Iterator[None]:
    """No garbage is collected in the block."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
