"""A Dask cluster as a run's engine; `tasks.cluster.dask_cluster` starts or finds it.

Prefect's tasks stay in the coordinator, which hands plain functions to Dask: a Prefect task that runs on a worker needs a
server that it can reach, and without one each worker starts a server of its own.
"""

import asyncio
import concurrent.futures
import contextlib
import itertools
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import distributed
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from models.fitting import Workers
from tasks.cluster import worker
from tasks.cluster.engine import HERE
from tasks.errors import ClusterLost, OneclassError
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

MEMORY = "memory"  # the resource that a worker may declare, in bytes
PAUSE = 0.2  # seconds, before a call is asked for once more
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
