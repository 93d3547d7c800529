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

MEMORY_SHARE = 0.8  # of the machine's memory, shared by a run's own workers
CONNECT_SECONDS = 30.0  # timeout for the scheduler, and again for its first worker
LOOPBACK = ("127.0.0.1", "::1", "localhost")
SOURCE_FOLDERS = ("models", "tasks", "sql", "data_contracts")
LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "polars", "optuna", "distributed")
LOST = (CommClosedError, FutureCancelledError, concurrent.futures.CancelledError, asyncio.CancelledError, TimeoutError)

_call_lock = threading.Lock()  # a call uses all threads of a worker


class DaskExecutor(Executor):
    """Runs calls on the workers of a Dask cluster, each with the threads of `home`, in the order of submission."""

    def __init__(self, client: distributed.Client, home: Home, worker_memory: int | None) -> None:
        self._client, self._home, self.worker_memory = client, home, worker_memory

    def submit(
        self, function: Callable[..., Any], /, *arguments: Any, label: str = "call", priority: int = 0
    ) -> PendingCall:
        """As in `Executor`; calls of higher priority take precedence over waiting ones."""
        # Dask would unpickle arguments, and import their modules, in the thread of its event loop.
        call = find_versions(), self._home, pickle.dumps((function, arguments))
        key = f"{label}-{uuid.uuid4().hex}"
        future = self._client.submit(run_call, *call, key=key, pure=False, priority=priority)
        return PendingCall(partial(_wait, label, future))

    def map(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """As in `BlockExecutor`."""
        pending = [self.submit(function, *call, label=function.__name__.strip("_"), priority=1) for call in calls]
        return [call.result() for call in pending]


def _wait(label: str, future: "distributed.Future[Any]") -> Any:
    """Return the result of a call; raise an error with advice if its workers died or the scheduler is gone."""
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
    home, option = home.absolute(), f"--{'dask' if isinstance(cluster, str) else 'workers'} {cluster}"
    with contextlib.ExitStack() as stack:
        if isinstance(cluster, str) and (url := urlsplit(cluster)).scheme != "tls" and url.hostname not in LOOPBACK:
            raise InputError(
                f"{option}: anyone who can reach a port that is not encrypted can run code on every worker and this "
                "machine. Write tls://HOST:PORT, or tcp://127.0.0.1:PORT for a scheduler on this machine."
            )
        scheduler = cluster if isinstance(cluster, str) else stack.enter_context(_start_workers(home, cluster))
        try:
            client = stack.enter_context(distributed.Client(scheduler, timeout=CONNECT_SECONDS))
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
            available: Any = client.run(check_worker, find_versions(), home)
        except Exception as error:
            advice = "Start a scheduler and workers with this source there: docs/how-to/cluster.md."
            raise InputError(f"{option}: the cluster cannot be used: {str(error).rstrip('.')}. {advice}") from error
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        cores, memory = home.limits.threads // len(workers), int(MEMORY_SHARE * resources.memory_limit() / len(workers))
        if isinstance(cluster, str):
            cores = min(available.values()) // max(Counter(info["host"] for info in workers).values())
            memory = min(info["memory_limit"] for info in workers) or None
        home = replace(home, limits=replace(home.limits, threads=max(1, cores)))
        client.forward_logging("oneclass", logging.INFO)
        text = "%d workers with %d threads each; dashboard: %s"
        logger.info(text, len(workers), home.limits.threads, client.dashboard_link)
        yield DaskExecutor(client, home, memory)


def _start_workers(home: Home, workers: int) -> distributed.LocalCluster:
    """Start a cluster on the loopback interface that only this process and its workers can talk to.

    Dask's ports take code from anyone who reaches them, so each connection needs the run's temporary certificate.
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
            memory_limit=0,  # Dask would kill a worker that exceeds it
            env={"NUMBA_NUM_THREADS": str(max(1, home.limits.threads // workers))},
            # A signal to the run's process group would end the workers, which Dask would restart.
            preload=["import os; os.setpgid(0, 0)"],
            local_directory=str(home.spill),
            silence_logs=logging.CRITICAL,  # a call's exception comes with its result
        )


@functools.cache
def find_versions() -> Mapping[str, str]:
    """Return the versions of all that a result depends on: Python, libraries and, as a digest, this source."""
    root = Path(__file__).resolve().parents[2]
    files = [file for folder in SOURCE_FOLDERS for kind in ("py", "sql") for file in (root / folder).rglob(f"*.{kind}")]
    libraries = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"Python": platform.python_version(), **libraries, "oneclass's source": digest_of(files, root)}


def check_worker(versions: Mapping[str, str], home: Home, dask_worker: Any) -> int:
    """Return the cores that this worker may use, or raise `ClusterUnavailable`; Dask's `run` passes the worker."""
    reasons = [
        f"it has {name} {own}, and the run {versions[name]}: install the same versions"
        for name, own in find_versions().items()
        if own != versions[name]
    ]
    if not home.folder.exists():
        reasons.append(f"it does not see {home.folder}: mount the home there under the same path")
    if reasons:
        raise ClusterUnavailable(f"worker {dask_worker.address} cannot be used: {'; '.join(reasons)}.")
    return resources.available_cores()


def run_call(versions: Mapping[str, str], home: Home, pickled: bytes) -> Any:
    """Run a pickled call (function, arguments) on a worker, with `home` in the place of a home among the arguments."""
    with _call_lock:
        check_worker(versions, home, distributed.get_worker())  # it may have joined late
        # Dask forwards this worker's log records to the coordinator, and nothing else handles them.
        os.environ |= {"PREFECT_LOGGING_EXTRA_LOGGERS": "", "PREFECT_LOGGING_TO_API_ENABLED": "false"}
        oneclass = logging.getLogger("oneclass")
        oneclass.propagate = False
        oneclass.setLevel(logging.INFO)
        function, arguments = pickle.loads(pickled)
        with home.writing(), limit_threads(home.limits.threads):
            return function(*(home if isinstance(value, Home) else value for value in arguments))
