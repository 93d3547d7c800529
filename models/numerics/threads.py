"""Threads for numba kernels and for BLAS: set for one block of code, put back after it.

OpenMP is numba's threading layer where its library (libgomp) is present: several Python threads may then run
parallel kernels at once. numba's own `workqueue` layer aborts the process when two of them do, so where it
has to serve, a lock lets one in at a time. A layer named by `NUMBA_THREADING_LAYER` is left alone.
"""

import contextlib
import importlib
import os
import threading
import warnings
from collections.abc import Iterator

import numba
from threadpoolctl import threadpool_limits


def _choose_layer() -> str:
    if numba.config.THREADING_LAYER != "default":
        return numba.config.THREADING_LAYER
    try:
        importlib.import_module("numba.np.ufunc.omppool")
        return "omp"
    except ImportError:
        warnings.warn(
            "OpenMP's library (libgomp) is missing: parallel kernels run one at a time. Installing it "
            "lets models train side by side.",
            stacklevel=2,
        )
        return "workqueue"


# A thread that spins at the end of a loop keeps a busy machine from running the one it waits for. libgomp reads
# this when it is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
numba.config.THREADING_LAYER = _choose_layer()
_turn = threading.RLock() if numba.config.THREADING_LAYER == "workqueue" else contextlib.nullcontext()
_blas_turn = threading.RLock()


@contextlib.contextmanager
def kernel_threads(count: int) -> Iterator[None]:
    """Run the block's numba kernels on `count` threads, or on as many as numba was started with."""
    with _turn:
        before = numba.get_num_threads()
        numba.set_num_threads(max(1, min(count, numba.config.NUMBA_NUM_THREADS)))
        try:
            yield
        finally:
            numba.set_num_threads(before)


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Run the block with BLAS on one thread, so that its sums do not depend on the machine's cores.

    The count belongs to the whole process, and threadpoolctl lets one Python thread at a time change it and
    passes over the others without a word: so a second thread waits here until the first is done.
    """
    with _blas_turn, threadpool_limits(1, user_api="blas"):
        yield
