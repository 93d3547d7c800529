"""A Dask cluster as a run's engine: one of the run's own on this machine, or one that is there.

Prefect's tasks stay in the coordinator, which hands plain functions to Dask: a Prefect task that runs on a worker needs a
server that it can reach, and without one each worker starts a server of its own.
"""

import asyncio
import concurrent.futures
import contextlib
import itertools
import logging
import os
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import distributed
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from models.fitting import Workers
from tasks.cluster import security, worker
from tasks.cluster.engine import HERE, ClusterSettings
from tasks.errors import ClusterLost, InputError, OneclassError
from tasks.orchestration import artifacts
from tasks.stores import allowance, run_at_url
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

SECONDS_TO_ANSWER = 30.0  # that a scheduler, and then its first worker, is waited for
MEMORY = "memory"  # the resource that a worker may declare, in bytes
SHARE = 0.8  # of the machine's memory that a run's own workers declare together
# A signal to the run's process group is for the run: Dask would start workers anew that it ends.
OF_ITS_OWN = "import os; os.setpgid(0, 0)"
CLEARED_UP = "ignore:resource_tracker"
PAUSE = 0.2  # seconds, before a call is asked for once more
DASHBOARD = "127.0.0.1:8787"
LOST = (CommClosedError, FutureCancelledError, concurrent.futures.CancelledError, asyncio.CancelledError, TimeoutError)


class DaskEngine:
    """Calls made by the workers of a cluster.

    Args:
        client: of the cluster; every worker has answered to the terms.
        most: the largest memory that a worker declares, in bytes; None where some declare none.
    """

    def __init__(self, client: distributed.Client, terms: worker.Terms, most: int | None) -> None:
        self._client, self._terms, self._most = client, terms, most
        self._places = itertools.count()
        self._unfit: set[str] = set()

    def begin(
        self, what: str, function: Callable[..., Any], home: Home, *arguments: Any, memory: int = 0
    ) -> Callable[[], Any]:
        if self._most is not None and memory > self._most:
            needed, most = f"{memory / 1e9:.1f} GB", f"{self._most / 1e9:.1f} GB"
            logger.warning(
                "%s needs about %s, and no worker has more than %s: made by the coordinator", what, needed, most
            )
            return HERE.begin(what, function, home, *arguments)
        pack = worker.packed(function, home.absolute(), *arguments)
        return self._asked(what, worker.call, pack, memory, priority=-next(self._places))

    def everywhere(self, function: Callable[..., Any], home: Home, *arguments: Any) -> None:
        if self._client.status != "running":  # the scheduler is gone, and would be waited for
            return
        call = self._terms, worker.packed(function, home.absolute(), *arguments)
        with contextlib.suppress(*LOST, OSError):
            self._client.run(worker.call_beside, *call, on_error="ignore")

    @property
    def room(self) -> int | None:
        return self._most

    def declaring(self, memory: int) -> Workers:
        return _Declaring(self, memory)

    def map(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], memory: int = 0) -> list[Any]:
        what = function.__name__.strip("_").replace("_", " ")
        asked = [
            self._asked(f"{what} {place}", worker.call_block, worker.packed(function, *call), memory)
            for place, call in enumerate(calls)
        ]
        return [one() for one in asked]

    def _asked(
        self, what: str, made_by: Callable[..., Any], pack: bytes, memory: int, priority: int = 0
    ) -> Callable[[], Any]:
        """A call that is on its way; what is returned waits for its result."""

        def ask() -> distributed.Future:
            among = {"workers": self._able(), "allow_other_workers": True} if self._unfit else {}
            resources = self._of(memory)
            more = {"key": _key(what), "pure": False, "resources": resources, "priority": priority, **among}
            return self._client.submit(made_by, self._terms, pack, **more)

        return partial(self._answer, what, ask, ask())

    def _answer(self, what: str, ask: Callable[[], distributed.Future], future: distributed.Future) -> Any:
        """The result; of a worker that is unfit, by now, another makes the call."""
        while True:
            try:
                return _result(what, future)
            except worker.Unfit as error:
                self._leave_out(error)
                future = ask()

    def _leave_out(self, error: worker.Unfit) -> None:
        """Ask that worker no more.

        Raises:
            Unfit: there is no other.
        """
        if error.worker in self._unfit:
            time.sleep(PAUSE)  # Dask lets a worker that is idle take what waits for the others
        else:
            self._unfit.add(error.worker)
            logger.warning("%s Others make its calls.", error)
        if not self._able():
            raise error

    def _able(self) -> list[str]:
        """Addresses of the workers that are there, without those that turned out unfit."""
        return [one for one in self._client.scheduler_info(n_workers=-1)["workers"] if one not in self._unfit]

    def _of(self, memory: int) -> dict[str, int] | None:
        """What a call declares; nothing where some workers declare nothing."""
        return {MEMORY: memory} if memory and self._most is not None else None


@dataclass(frozen=True)
class _Declaring:
    """An engine each of whose calls of a `map` takes so much memory."""

    engine: DaskEngine
    memory: int

    def map(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        return self.engine.map(function, calls, self.memory)


def _key(what: str) -> str:
    """The name that Dask's pages show, and what makes it the only one of its name."""
    return f"{what}-{uuid.uuid4().hex}"


def _result(what: str, future: distributed.Future) -> Any:
    try:
        return future.result()
    except KilledWorker as error:
        raise OneclassError(
            f"{what}: the worker died each time that it was tried ({error.allowed_failures + 1} times). If memory was "
            "short there, give each worker more of it, or let fewer share a machine."
        ) from error
    except LOST as error:
        raise ClusterLost(
            f"{what}: the cluster's scheduler does not answer any more. Fits that were made are kept; the same command "
            "goes on from there."
        ) from error


@contextlib.contextmanager
def opened(settings: ClusterSettings, home: Home, run_id: str | None) -> Iterator[DaskEngine]:
    """The engine of a run, once every worker that is there has answered.

    Raises:
        InputError: no scheduler or no worker answers, one of them is unfit, or the way to it is open to others.
    """
    logging.getLogger("distributed").setLevel(logging.ERROR)
    with _mark(home) as mark, _client(settings, home) as client:
        artifacts.workers(home, client.dashboard_link)
        terms, most = _agreed(client, settings, home, worker.Terms(worker.version(), home.absolute(), mark, 1, run_id))
        for name in worker.SPOKEN:
            client.forward_logging(name, logging.INFO)
        yield DaskEngine(client, terms, most)


@contextlib.contextmanager
def _mark(home: Home) -> Iterator[str]:
    """The name of a file by which workers know the home, or its URL."""
    home.spill.mkdir(parents=True, exist_ok=True)
    mark = f"cluster-{uuid.uuid4().hex}"
    if home.store is not None:
        run_at_url.begin(home, mark)
    (home.spill / mark).touch()
    try:
        yield mark
    finally:
        (home.spill / mark).unlink(missing_ok=True)
        if home.store is not None:
            run_at_url.end(home, mark)


@contextlib.contextmanager
def _client(settings: ClusterSettings, home: Home) -> Iterator[distributed.Client]:
    tls = distributed.Security()  # certificates as Dask's own configuration names them
    if settings.address is None:
        own = {MEMORY: int(SHARE * allowance.memory() / settings.workers)}
        # of the process in which Python clears up after a run that had to end at once: its warning would be the last word
        os.environ.setdefault("PYTHONWARNINGS", CLEARED_UP)
        with (
            warnings.catch_warnings(action="ignore"),  # of a port that is taken: the page's address is said anyway
            distributed.LocalCluster(
                n_workers=settings.workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address=DASHBOARD,
                memory_limit=0,  # Dask would kill a worker that takes more; a fit says before what it needs
                resources=own,
                env={"NUMBA_NUM_THREADS": str(_own_threads(settings, home))},
                preload=[OF_ITS_OWN],
                local_directory=str(home.spill.absolute()),
                silence_logs=logging.CRITICAL,  # what a call raises comes with its result
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    security.check(settings, tls)
    try:
        client = distributed.Client(settings.address, security=tls, timeout=SECONDS_TO_ANSWER)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"--dask {settings.address}: no scheduler answers there ({error}).") from error
    with client:
        yield client


def _own_threads(settings: ClusterSettings, home: Home) -> int:
    """Cores of each of a run's own workers."""
    return max(1, home.limits.threads // settings.workers)


def _agreed(
    client: distributed.Client, settings: ClusterSettings, home: Home, terms: worker.Terms
) -> tuple[worker.Terms, int | None]:
    """The terms, to which every worker that is there has answered, with their threads; and the most memory that one declares.

    Raises:
        InputError: naming a worker that cannot take part, and why.
    """
    where = f"--dask {settings.address}" if settings.address else f"--workers {settings.workers}"
    try:
        client.wait_for_workers(1, timeout=SECONDS_TO_ANSWER)
    except TimeoutError as error:
        raise InputError(f"{where}: the scheduler has no worker. Start some with `dask worker ADDRESS`.") from error
    workers = client.scheduler_info(n_workers=-1)["workers"]
    for address, one in workers.items():
        if one["nthreads"] != 1:
            raise InputError(
                f"{where}: worker {address} has {one['nthreads']} threads of Dask; start it with --nthreads 1. A call "
                "takes the cores by itself."
            )
    found = client.run(worker.facts, terms, on_error="return")
    for address, answer in found.items():
        if isinstance(answer, Exception):
            raise InputError(f"{where}: worker {address} cannot take part: {type(answer).__name__}: {answer}.")
        if answer[0]:
            raise InputError(f"{where}: worker {address} cannot take part: {answer[0]}.")
    on_host = Counter(one["host"] for one in workers.values())
    cores = min(answer[1] // on_host[workers[address]["host"]] for address, answer in found.items())
    threads = max(1, cores) if settings.address else _own_threads(settings, home)
    declared = [one["resources"].get(MEMORY) for one in workers.values()]
    most = None if None in declared else int(max(declared))
    memory = "" if most is None else f", up to {most / 1e9:.1f} GB each"
    logger.info(
        "%d workers with %d threads each%s; what they do: %s", len(workers), threads, memory, client.dashboard_link
    )
    return replace(terms, threads=threads), most
