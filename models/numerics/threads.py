"""The number of threads of numba kernels and of BLAS, set for one block of code and restored after it.

numba uses OpenMP for its threads if the library libgomp is present; then several Python threads may run parallel
kernels at once. Without it numba uses its own `workqueue` layer, which aborts the process if two Python threads do so;
then a lock lets only one in at a time. A layer that `NUMBA_THREADING_LAYER` names is left alone.
"""

import contextlib
import importlib
import os
import threading
import warnings
from collections.abc import Generator
from typing import Any

import numba
from threadpoolctl import get_cached_controller

NUMBA_CONFIG: Any = importlib.import_module("numba.core.config")  # its variables are made when it is imported


def _choose_layer() -> str:
    if NUMBA_CONFIG.THREADING_LAYER != "default":
        return NUMBA_CONFIG.THREADING_LAYER
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


# Without this, a thread that has finished its part of a loop spins, and on a busy machine takes the core of the thread
# that it waits for. libgomp reads the variable when it is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
NUMBA_CONFIG.THREADING_LAYER = _choose_layer()
_kernel_lock = threading.RLock() if NUMBA_CONFIG.THREADING_LAYER == "workqueue" else contextlib.nullcontext()
_blas_lock = threading.RLock()
_numba_parallel: Any = importlib.import_module("numba.np.ufunc.parallel")
_forked_from_threads = threading.Event()  # set in a process that was forked from one with OpenMP's threads


def _note_fork() -> None:
    if NUMBA_CONFIG.THREADING_LAYER == "omp" and _numba_parallel._is_initialized:
        _forked_from_threads.set()


os.register_at_fork(after_in_child=_note_fork)


def _refuse_forked_process() -> None:
    """Raise where GNU OpenMP would end the process by SIGTERM, after which a pool of processes waits forever."""
    if _forked_from_threads.is_set():
        raise RuntimeError(
            "this process was forked from one that had run a model's parallel kernels, which OpenMP does not support; "
            'start processes by multiprocessing.get_context("forkserver") or "spawn", or fork before the first fit'
        )


@contextlib.contextmanager
def limit_threads(count: int) -> Generator[None]:
    """Run the block on at most `count` threads, and on no more than an outer block has.

    numba keeps the number for each Python thread. `numba.get_num_threads` reads it, also for pools of Python threads.
    """
    _refuse_forked_process()
    before = numba.get_num_threads()
    numba.set_num_threads(max(1, min(count, before)))
    try:
        yield
    finally:
        numba.set_num_threads(before)


@contextlib.contextmanager
def kernel_threads(count: int) -> Generator[None]:
    """Run the block as in `limit_threads`; where only one Python thread may run parallel kernels, wait for its turn."""
    with _kernel_lock, limit_threads(count):
        yield


def parallel_calls(threads: int, calls: int) -> int:
    """How many of some calls to make at a time in one process; 1 where only one may run a parallel kernel at once."""
    return 1 if NUMBA_CONFIG.THREADING_LAYER == "workqueue" else max(1, min(threads, calls))


@contextlib.contextmanager
def single_threaded_blas() -> Generator[None]:
    """Run the block with BLAS on one thread, so that its sums do not depend on the machine's cores.

    The number of threads belongs to the whole process, and threadpoolctl silently ignores a second Python thread that
    sets it. So a second thread waits here until the first is done.
    """
    # The cached controller looks for libraries only after modules have been imported; to look takes 1 ms.
    with _blas_lock, get_cached_controller().limit(limits=1, user_api="blas"):
        yield
