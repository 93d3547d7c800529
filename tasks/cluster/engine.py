"""What a stage hands its work to, and the choice of where that is."""

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from models.fitting import Here, Workers
from models.numerics.threads import side_by_side, take_at_most
from tasks.errors import InputError
from tasks.stores import urls
from tasks.stores.home import Home

EXTRA = "python -m pip install -c constraints.txt -e '.[dask]'"


class Engine(Workers, Protocol):
    """Where calls are made, those of a fit's blocks (`map`) among them. A call may be made twice, if the process that made it died; it must not depend on that."""

    def begin(
        self, what: str, function: Callable[..., Any], home: Home, *arguments: Any, memory: int = 0
    ) -> Callable[[], Any]:
        """Have `function(home, *arguments)` made; what is returned waits for the result, or raises what it raised.

        Args:
            what: what people are told it is.
            function: a module's own; on a worker its `home` has that worker's limits.
            memory: bytes that it takes about, so that no worker gets more than it has.
        """
        ...

    def everywhere(self, function: Callable[..., Any], home: Home, *arguments: Any) -> None:
        """Have `function(home, *arguments)` made by every worker that is there, beside its calls; who does not answer is passed over."""
        ...

    @property
    def room(self) -> int | None:
        """The largest memory that a worker has declared, in bytes; None where that is not known."""
        ...

    def declaring(self, memory: int) -> Workers:
        """Workers for calls (`map`) each of which takes about so many bytes."""
        ...


class _Here(Here):
    """This process: a call is made when its result is asked for, so that one follows the other."""

    def begin(
        self, what: str, function: Callable[..., Any], home: Home, *arguments: Any, memory: int = 0
    ) -> Callable[[], Any]:
        return partial(function, home, *arguments)

    def everywhere(self, function: Callable[..., Any], home: Home, *arguments: Any) -> None:
        function(home, *arguments)

    @property
    def room(self) -> int | None:
        return None

    def declaring(self, memory: int) -> Workers:
        return self


HERE = _Here()


def each(
    engine: Engine,
    what: str,
    function: Callable[..., Any],
    home: Home,
    calls: Sequence[tuple[Any, ...]],
    *,
    memory: Sequence[int] = (),
    alone: bool = False,
) -> Iterator[Any]:
    """What `function(home, *call)` gives for each of some calls, in their order, in whatever order they are made.

    Workers are asked for all of them at once. This process makes as many at a time as it has threads, each with its share,
    or as many as the run's memory has room for.

    Args:
        what, function, home: as in `Engine.begin`.
        memory: bytes that each call takes about.
        alone: in this process a call is quicker by itself, on all threads, than on one thread beside others.
    """
    memory = memory or [0] * len(calls)
    begun = [engine.begin(what, function, home, *call, memory=of) for call, of in zip(calls, memory, strict=True)]
    room = home.limits.memory // max(1, *memory) if calls else 0
    count = 1 if alone or engine is not HERE else side_by_side(home.limits.threads, min(len(begun), room))
    return (answer() for answer in begun) if count == 1 else _together(begun, count, home.limits.threads // count)


def _together(begun: list[Callable[[], Any]], count: int, threads: int) -> Iterator[Any]:
    """The answers of calls that are made so many at a time, with so many threads each."""
    waiting: deque[Future] = deque()
    pool = ThreadPoolExecutor(count, initializer=take_at_most, initargs=(threads,))
    try:
        for call in begun:
            waiting.append(pool.submit(copy_context().run, call))  # Prefect's context, for what is logged
            if len(waiting) > 2 * count:  # no more, or answers that nobody has asked for yet would pile up
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def kept_last(make: Callable[..., Any]) -> Callable[..., Any]:
    """What a function gave last, kept for the next call that is of the same; of calls side by side one makes it.

    `cache_clear`, of what is returned, forgets it.
    """
    turn, kept = threading.Lock(), functools.lru_cache(maxsize=1)(make)

    @functools.wraps(make)
    def last(*arguments: Any) -> Any:
        with turn:
            return kept(*arguments)

    last.cache_clear = kept.cache_clear
    return last


@dataclass(frozen=True)
class ClusterSettings:
    """The cluster of a run; with neither workers nor an address, the run is made in this process alone.

    Attributes:
        workers: processes of a cluster of the run's own, on this machine.
        address: of the scheduler of a cluster that is there, such as tcp://10.0.0.1:8786.
        unencrypted: whether that scheduler may be on another machine without TLS.
        store: the URL of the matrices and fits, for workers that do not see the home.

    Raises:
        InputError: `workers` and `address` are both given; `workers` is below 1; `store` is not a URL, or is given without
            workers to use it.
    """

    workers: int | None = None
    address: str | None = None
    unencrypted: bool = False
    store: str | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"--workers {self.workers}: must be at least 1.")
        if self.workers is not None and self.address is not None:
            raise InputError("--workers and --dask: give one of them; the cluster at an address has its own workers.")
        if self.store is not None:
            urls.check(self.store)
            if self.workers is None and self.address is None:
                raise InputError(f"--store {self.store}: is for the workers of --dask or --workers; give one of them.")


@contextlib.contextmanager
def opened(settings: ClusterSettings, home: Home, run_id: str | None = None) -> Iterator[Engine]:
    """The engine of a run; its own workers end with it.

    Args:
        run_id: of the run in Prefect, if it is one.

    Raises:
        InputError: Dask is not installed, or the cluster cannot be used; the message says why and what to do.
    """
    if settings.workers is None and settings.address is None:
        yield HERE
        return
    try:
        from tasks.cluster import dask_cluster
    except ModuleNotFoundError as error:
        raise InputError(f"--workers and --dask need Dask, which is not installed: {EXTRA}") from error
    with dask_cluster.opened(settings, home, run_id) as engine:
        yield engine
