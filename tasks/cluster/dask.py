"""An executor over `distributed.Client`, the start or connection of its cluster, and how a worker runs a call.

Workers import this module in the thread of Dask's event loop, where Prefect and the stores' larger modules must not be
loaded while another thread works. Calls are plain functions, since a Prefect task on a worker would start a server if
it cannot reach the run's.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import importlib.metadata
import itertools
import logging
import os
import pickle
import platform
import threading
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import distributed
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from oneclass.models.numba_cache import digest_of
from oneclass.models.numerics.threads import limit_threads
from oneclass.tasks.cluster import Executor, PendingCall
from oneclass.tasks.errors import ClusterUnavailable, InputError, OneclassError
from oneclass.tasks.stores import resources
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

MEMORY = "memory"  # the name of the workers' resource, in bytes
MEMORY_SHARE = 0.8  # of the machine's memory, shared by a run's own workers
CONNECT_SECONDS = 30.0  # timeout for the scheduler, and again for its first worker
LOOPBACK = ("127.0.0.1", "::1", "localhost")
SOURCE_FOLDERS = ("models", "tasks", "sql", "data_contracts")
LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "polars", "optuna", "distributed")
LOST = (CommClosedError, FutureCancelledError, concurrent.futures.CancelledError, asyncio.CancelledError, TimeoutError)

_call_lock = threading.Lock()  # a call uses all threads of a worker


class DaskExecutor(Executor):
    """Runs calls on the workers of a Dask cluster; they start in the order of their submission.

    Args:
        client: client of a cluster whose workers have been checked.
        home: with an absolute path, and the threads of a call.
        worker_memory: as in `Executor`; this process runs calls that need more.
    """

    def __init__(self, client: distributed.Client, home: Home, worker_memory: int | None) -> None:
        self.worker_memory = worker_memory
        self._client, self._context, self._count = client, (find_versions(), home), itertools.count()

    def submit(
        self, function: Callable[..., Any], /, *arguments: Any, label: str = "call", memory: int = 0
    ) -> PendingCall:
        """As in `Executor`."""
        if self.worker_memory is not None and memory > self.worker_memory:
            needed, largest = resources.format_size(memory), resources.format_size(self.worker_memory)
            text = "%s needs about %s, no worker has more than %s: run by the coordinator"
            logger.warning(text, label, needed, largest)
            return super().submit(function, *arguments)
        reserved = {MEMORY: memory} if memory and self.worker_memory is not None else None
        return self._send(label, function, arguments, resources=reserved, priority=-next(self._count))

    def map(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """As in `BlockExecutor`; takes precedence over waiting submitted calls."""
        label = function.__name__.strip("_").replace("_", " ")
        pending = [self._send(f"{label} {number}", function, call) for number, call in enumerate(calls)]
        return [call.result() for call in pending]

    def _send(self, label: str, function: Callable[..., Any], call: tuple[Any, ...], **options: Any) -> PendingCall:
        pickled, key = pickle.dumps((function, call)), f"{label}-{uuid.uuid4().hex}"
        future = self._client.submit(run_call, *self._context, pickled, key=key, pure=False, **options)
        return PendingCall(partial(_wait, label, future))


def _wait(label: str, future: "distributed.Future[Any]") -> Any:
    """Return the result of a call.

    Raises:
        OneclassError: each worker that ran it died.
        ClusterUnavailable: the scheduler is gone.
    """
    try:
        return future.result()
    except KilledWorker as error:
        raise OneclassError(
            f"{label}: the worker died in each of {error.allowed_failures + 1} attempts. If it ran out of memory, give "
            "each worker more, or start fewer workers per machine."
        ) from error
    except LOST as error:
        raise ClusterUnavailable(
            f"{label}: the cluster's scheduler does not answer any more. Finished fits are stored; the same command "
            "continues from there."
        ) from error


@contextlib.contextmanager
def open_cluster(cluster: int | str, home: Home) -> Generator[DaskExecutor]:
    """Start a number of workers, or connect to the scheduler at an address, and open an executor over them.

    Raises:
        InputError: no scheduler or no worker answers, a worker is incompatible, or the connection is insecure.
    """
    logging.getLogger("distributed").setLevel(logging.ERROR)
    home.spill.mkdir(parents=True, exist_ok=True)
    home, scheduler, threads = home.absolute(), cluster, 0
    option = f"--dask {cluster}" if isinstance(cluster, str) else f"--workers {cluster}"
    with contextlib.ExitStack() as stack:
        if isinstance(cluster, str):
            _require_encryption(cluster)
        elif cluster > 0:
            threads = max(1, home.limits.threads // cluster)
            scheduler = stack.enter_context(_start_workers(home, cluster, threads))
        else:
            raise InputError(f"{option}: start at least one worker.")
        try:
            client = stack.enter_context(distributed.Client(scheduler, timeout=CONNECT_SECONDS))
        except (OSError, ValueError, TypeError, TimeoutError) as error:
            raise InputError(f"{option}: no scheduler answers there ({error}).") from error
        cores, memory = _check_workers(client, option, home)
        home = replace(home, limits=replace(home.limits, threads=threads or cores))
        client.forward_logging("oneclass", logging.INFO)
        declared = "" if memory is None else f", up to {resources.format_size(memory)} each"
        text = "%d workers with %d threads each%s; dashboard: %s"
        count = len(client.scheduler_info(n_workers=-1)["workers"])
        logger.info(text, count, home.limits.threads, declared, client.dashboard_link)
        yield DaskExecutor(client, home, memory)


def _start_workers(home: Home, workers: int, threads: int) -> distributed.LocalCluster:
    """Start a cluster on the loopback interface that only this process and its workers can talk to.

    Dask's ports take code from anyone who reaches them, so each connection needs the run's temporary certificate. Its
    key reaches the workers through pipes.
    """
    # Python's resource tracker would print a warning after a killed run.
    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")
    with warnings.catch_warnings(action="ignore"):  # of a taken port; the dashboard's address is logged
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            security=True,
            dashboard_address="127.0.0.1:8787",
            memory_limit=0,  # Dask would kill a worker that exceeds it; calls declare their memory instead
            resources={MEMORY: int(MEMORY_SHARE * resources.memory_limit() / workers)},
            env={"NUMBA_NUM_THREADS": str(threads)},
            # A signal to the run's process group would end the workers, which Dask would restart.
            preload=["import os; os.setpgid(0, 0)"],
            local_directory=str(home.spill),
            silence_logs=logging.CRITICAL,  # a call's exception comes with its result
        )


def _require_encryption(address: str) -> None:
    """Raise `InputError` for an unencrypted connection to another machine: a scheduler can run code on its clients."""
    url = urlsplit(address)
    if url.scheme != "tls" and url.hostname not in LOOPBACK:
        raise InputError(
            f"--dask {address}: anyone who can reach a port that is not encrypted can run code on every worker. Write "
            "tls://HOST:PORT, or tcp://127.0.0.1:PORT for a scheduler on this machine."
        )


def _check_workers(client: distributed.Client, option: str, home: Home) -> tuple[int, int | None]:
    """Check every connected worker.

    Returns:
        The cores that each worker may use, and the largest declared memory, or None if a worker declares none.

    Raises:
        InputError: there is no worker, or one is incompatible.
    """
    try:
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    except TimeoutError as error:
        raise InputError(f"{option}: the scheduler has no worker. Start some with `dask worker ADDRESS`.") from error
    workers, of_host = client.scheduler_info(n_workers=-1)["workers"], Counter[str]()
    reasons: Any = client.run(find_incompatibility, find_versions(), home, on_error="return")
    for address, info in workers.items():
        of_host[info["host"]] += 1
        reason = reasons.get(address)
        if info["nthreads"] != 1:
            reason = f"it has {info['nthreads']} Dask threads; start it with --nthreads 1: each call uses all cores"
        if reason:
            raise InputError(f"{option}: worker {address} cannot be used: {reason}.")
    cores: Any = client.run(resources.available_cores, workers=list(workers))
    threads = min(cores[address] // of_host[info["host"]] for address, info in workers.items())
    declared = [info["resources"].get(MEMORY) for info in workers.values()]
    return max(1, threads), None if None in declared else int(max(declared))


@functools.cache
def find_versions() -> Mapping[str, str]:
    """Return the versions of all that a result depends on: Python, libraries and, as a digest, this source."""
    root = Path(__file__).resolve().parents[2]
    files = [file for folder in SOURCE_FOLDERS for kind in ("py", "sql") for file in (root / folder).rglob(f"*.{kind}")]
    libraries = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"Python": platform.python_version(), **libraries, "oneclass's source": digest_of(files, root)}


def find_incompatibility(versions: Mapping[str, str], home: Home) -> str:
    """Return why this worker cannot run calls of a coordinator with these versions and this home; empty if it can."""
    for name, own in find_versions().items():
        if own != versions[name]:
            return f"it has {name} {own}, and the run {versions[name]}: install the same versions"
    return "" if home.folder.exists() else f"it does not see {home.folder}: mount the home there under the same path"


def run_call(versions: Mapping[str, str], home: Home, pickled: bytes) -> Any:
    """Run a pickled call (function, arguments) on a worker, one at a time.

    The worker is checked before each call, since it may have joined late. Dask would unpickle arguments, and import
    their modules, in the thread of its event loop.

    Args:
        home: replaces a home among the arguments; it has the threads of a call.

    Raises:
        ClusterUnavailable: this worker cannot run it.
    """
    with _call_lock:
        if reason := find_incompatibility(versions, home):
            raise ClusterUnavailable(f"worker {distributed.get_worker().address} cannot be used: {reason}.")
        leave_logs_to_dask()
        function, arguments = pickle.loads(pickled)
        with home.writing(), limit_threads(home.limits.threads):
            return function(*(home if isinstance(value, Home) else value for value in arguments))


def leave_logs_to_dask() -> None:
    """Have only Dask handle this worker's log records, which it forwards to the coordinator."""
    os.environ |= {"PREFECT_LOGGING_EXTRA_LOGGERS": "", "PREFECT_LOGGING_TO_API_ENABLED": "false"}
    logger = logging.getLogger("oneclass")
    logger.propagate = False
    logger.setLevel(logging.INFO)
