"""An executor over `distributed.Client`, and the start or connection of its cluster. Only this module imports Dask
eagerly.

The coordinator submits plain functions, since a Prefect task on a worker would start a server if it cannot reach the
run's.
"""

import asyncio
import concurrent.futures
import contextlib
import copy
import ipaddress
import itertools
import logging
import os
import socket
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import distributed
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from oneclass.models.fit_options import BlockExecutor
from oneclass.tasks.cluster import worker
from oneclass.tasks.errors import ClusterUnavailable, InputError, OneclassError
from oneclass.tasks.stores import resources as resource_limits
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

MEMORY = "memory"  # the name of the workers' resource, in bytes
MEMORY_SHARE = 0.8  # of the machine's memory, shared by a run's own workers
CONNECT_SECONDS = 30.0  # timeout for the scheduler, and again for its first worker
RESUBMIT_SECONDS = 0.2
# A signal to the run's process group would end the workers, which Dask would restart.
OWN_PROCESS_GROUP = "import os; os.setpgid(0, 0)"
DASHBOARD = "127.0.0.1:8787"
LOST = (CommClosedError, FutureCancelledError, concurrent.futures.CancelledError, asyncio.CancelledError, TimeoutError)


class DaskExecutor:
    """An executor (`tasks.cluster.Executor`) whose calls run on the workers of a Dask cluster.

    Args:
        client: client of a cluster whose workers have been checked.
        context: sent with every call.
        worker_memory: as in `Executor`.
        submit_locally: submits calls that need more memory than any worker has.
    """

    def __init__(
        self,
        client: distributed.Client,
        context: worker.WorkerContext,
        worker_memory: int | None,
        submit_locally: Callable[..., Any],
    ) -> None:
        self.worker_memory = worker_memory
        self._client, self._context, self._submit_locally = client, context, submit_locally
        self._count = itertools.count()
        self._incompatible: set[str] = set()
        self._block_memory = 0

    def submit(self, function: Callable[..., Any], /, *arguments: Any, label: str = "call", memory: int = 0) -> Any:
        """As in `Executor`; calls start in the order of their submission."""
        if self.worker_memory is not None and memory > self.worker_memory:
            needed, largest = f"{memory / 1e9:.1f} GB", f"{self.worker_memory / 1e9:.1f} GB"
            text = "%s needs about %s, no worker has more than %s: run by the coordinator"
            logger.warning(text, label, needed, largest)
            return self._submit_locally(function, *arguments)
        return _Call(self, label, worker.pickled_call(function, *arguments), memory, priority=-next(self._count))

    def map(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """As in `BlockExecutor`; takes precedence over waiting submitted calls."""
        label = function.__name__.strip("_").replace("_", " ")
        pickled = [worker.pickled_call(function, *call) for call in calls]
        pending = [_Call(self, f"{label} {number}", call, self._block_memory, 0) for number, call in enumerate(pickled)]
        return [call.result() for call in pending]

    def with_memory(self, memory: int) -> BlockExecutor:
        """As in `Executor`."""
        executor = copy.copy(self)
        executor._block_memory = memory
        return executor

    def compatible_workers(self) -> list[str]:
        """Return the addresses of the connected workers, without excluded ones."""
        addresses = self._client.scheduler_info(n_workers=-1)["workers"]
        return [address for address in addresses if address not in self._incompatible]

    def send(self, label: str, pickled: bytes, memory: int, priority: int) -> "distributed.Future[Any]":
        """Submit a pickled call to the compatible workers."""
        return self._client.submit(
            worker.run_call,
            self._context,
            pickled,
            key=f"{label}-{uuid.uuid4().hex}",
            workers=self.compatible_workers() if self._incompatible else None,
            resources={MEMORY: memory} if memory and self.worker_memory is not None else None,
            priority=priority,
            allow_other_workers=bool(self._incompatible),
            pure=False,
        )

    def exclude(self, error: worker.IncompatibleWorker) -> None:
        """Send no further calls to an incompatible worker.

        Raises:
            IncompatibleWorker: no compatible worker is left.
        """
        if error.worker in self._incompatible:
            # An idle worker may steal calls that wait for others.
            time.sleep(RESUBMIT_SECONDS)
        else:
            self._incompatible.add(error.worker)
            logger.warning("%s Other workers run its calls.", error)
        if not self.compatible_workers():
            raise error


class _Call:
    """A call on the cluster, run again if its worker dies or is incompatible."""

    def __init__(self, executor: DaskExecutor, label: str, pickled: bytes, memory: int, priority: int) -> None:
        self._label, self._exclude = label, executor.exclude
        self._send = partial(executor.send, label, pickled, memory, priority)
        self._future = self._send()

    def result(self) -> Any:
        """As in `PendingCall`.

        Raises:
            OneclassError: each worker that ran it died.
            ClusterUnavailable: the scheduler is gone.
        """
        while True:
            try:
                return self._future.result()
            except worker.IncompatibleWorker as error:
                self._exclude(error)
                self._future = self._send()
            except KilledWorker as error:
                raise OneclassError(
                    f"{self._label}: the worker died in each of {error.allowed_failures + 1} attempts. If it ran out "
                    "of memory, give each worker more, or start fewer workers per machine."
                ) from error
            except LOST as error:
                raise ClusterUnavailable(
                    f"{self._label}: the cluster's scheduler does not answer any more. Finished fits are stored; the "
                    "same command continues from there."
                ) from error


@contextlib.contextmanager
def open_cluster(
    cluster: int | str, home: Home, run_id: str | None, submit_locally: Callable[..., Any]
) -> Generator[DaskExecutor]:
    """Start a number of workers, or connect to the scheduler at an address, and open an executor over them.

    Args:
        cluster, run_id: as in `tasks.cluster.open_executor`.
        submit_locally: as in `DaskExecutor`.

    Raises:
        InputError: no scheduler or no worker answers, a worker is incompatible, or the connection is insecure.
    """
    logging.getLogger("distributed").setLevel(logging.ERROR)
    option, threads = f"--dask {cluster}", None
    if isinstance(cluster, str):
        connection = _connect(cluster)
    elif cluster > 0:
        threads = max(1, home.limits.threads // cluster)
        connection = _start_workers(home, cluster, threads)
    else:
        raise InputError(f"{option}: start at least one worker, or give the address of a scheduler.")
    with _sentinel(home) as sentinel, connection as client:
        context = worker.WorkerContext(worker.versions(), home.absolute(), sentinel, 1, run_id)
        cores, memory = _check_workers(client, option, context)
        for name in worker.FORWARDED_LOGGERS:
            client.forward_logging(name, logging.INFO)
        count, threads = len(client.scheduler_info(n_workers=-1)["workers"]), threads or cores
        declared = "" if memory is None else f", up to {memory / 1e9:.1f} GB each"
        logger.info("%d workers with %d threads each%s; dashboard: %s", count, threads, declared, client.dashboard_link)
        yield DaskExecutor(client, replace(context, threads=threads), memory, submit_locally)


@contextlib.contextmanager
def _sentinel(home: Home) -> Generator[str]:
    """Create a file in the home and yield its name; workers check by it that they see the same home."""
    home.spill.mkdir(parents=True, exist_ok=True)
    name = f"cluster-{uuid.uuid4().hex}"
    (home.spill / name).touch()
    try:
        yield name
    finally:
        (home.spill / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _start_workers(home: Home, workers: int, threads: int) -> Generator[distributed.Client]:
    """Start a cluster on the loopback interface that only this process and its workers can talk to.

    Dask's ports take code from anyone who reaches them, so each connection needs the run's temporary certificate. Its
    key reaches the workers through pipes.
    """
    # Python's resource tracker would print a warning after a killed run.
    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")
    with (
        warnings.catch_warnings(action="ignore"),  # of a taken port; the dashboard's address is logged below
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            security=True,
            dashboard_address=DASHBOARD,
            memory_limit=0,  # Dask would kill a worker that exceeds it; calls declare their memory instead
            resources={MEMORY: int(MEMORY_SHARE * resource_limits.memory_limit() / workers)},
            env={"NUMBA_NUM_THREADS": str(threads)},
            preload=[OWN_PROCESS_GROUP],
            local_directory=str(home.spill.absolute()),
            silence_logs=logging.CRITICAL,  # a call's exception comes with its result
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextlib.contextmanager
def _connect(address: str) -> Generator[distributed.Client]:
    """Connect to a scheduler, with the certificates of Dask's configuration.

    Raises:
        InputError: no scheduler answers there, or the connection is insecure.
    """
    tls = distributed.Security()
    _check_address(address, tls)
    try:
        client = distributed.Client(address, security=tls, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"--dask {address}: no scheduler answers there ({error}).") from error
    with client:
        yield client


def _check_address(address: str, tls: distributed.Security) -> None:
    """Refuse an insecure connection, since a scheduler can run code on its workers and clients.

    Raises:
        InputError: the scheduler is on another machine, and the connection is not encrypted.
    """
    scheme, separator, rest = address.partition("://")
    host = rest.rpartition(":")[0].strip("[]")
    if not separator or not host:
        raise InputError(f"--dask {address}: write it as tcp://HOST:PORT or tls://HOST:PORT.")
    if scheme == "tls" and not tls.tls_client_cert:
        raise InputError(
            f"--dask {address}: needs certificates; name them in Dask's configuration, such as "
            "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ..__TLS__CLIENT__CERT and ..__TLS__CLIENT__KEY."
        )
    if scheme != "tls" and not _is_loopback(host):
        raise InputError(
            f"--dask {address}: is on another machine, and tcp is not encrypted: anyone who can reach that port can "
            "run code on every worker. Use tls://."
        )


def _is_loopback(host: str) -> bool:
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise InputError(f"--dask: the host {host} cannot be resolved ({error}).") from error
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


def _check_workers(client: distributed.Client, option: str, context: worker.WorkerContext) -> tuple[int, int | None]:
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
    workers = client.scheduler_info(n_workers=-1)["workers"]
    for address, info in workers.items():
        if info["nthreads"] != 1:
            raise InputError(
                f"{option}: worker {address} has {info['nthreads']} Dask threads; start it with --nthreads 1. Each "
                "call uses all cores."
            )
    descriptions: Any = client.run(worker.describe, context, on_error="return")
    for address, description in descriptions.items():
        error = isinstance(description, Exception)
        if reason := f"{type(description).__name__}: {description}" if error else description[0]:
            raise InputError(f"{option}: worker {address} cannot be used: {reason}.")
    on_host = Counter(info["host"] for info in workers.values())
    cores = min(cores // on_host[workers[address]["host"]] for address, (_, cores) in descriptions.items())
    declared = [info["resources"].get(MEMORY) for info in workers.values()]
    return max(1, cores), None if None in declared else int(max(declared))
