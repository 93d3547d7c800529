"""Executors for the heavy work of a run: this process, or the workers of a Dask cluster (`tasks.cluster.dask`).

The coordinator, which runs the flow, owns the warehouse and the order of the stages. It submits module-level functions
that read the stores of matrices and fits by path and never open the warehouse. Results do not depend on the
worker, and Dask repeats a call whose worker died.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from oneclass.models.distributed import BlockExecutor
from oneclass.models.numerics.threads import limit_threads, parallel_calls
from oneclass.tasks.errors import InputError
from oneclass.tasks.stores.home import Home


@dataclass(frozen=True)
class PendingCall:
    """A submitted call; `result` waits for it and returns its result, as that of `concurrent.futures.Future`."""

    result: Callable[[], Any]


class Executor(BlockExecutor):
    """Runs calls like `concurrent.futures.Executor`, and the blocks of a fit (`map`): here in this process, each when
    its result is requested.

    Attributes:
        worker_memory: the memory of the smallest worker, in bytes; None if a worker has no limit.
    """

    worker_memory: int | None = None

    def submit(self, function: Callable[..., Any], /, *arguments: Any, label: str = "call") -> PendingCall:
        """Submit `function(*arguments)`, which may run again if its worker dies.

        Args:
            function: a module-level function; on a worker a `Home` among its arguments has that worker's threads.
            label: the call's name on Dask's dashboard and in errors.
        """
        return PendingCall(partial(function, *arguments))


LOCAL = Executor()


def imap(
    executor: Executor,
    function: Callable[..., Any],
    home: Home,
    calls: Sequence[tuple[Any, ...]],
    *,
    label: str,
    memory: Sequence[int] = (),
    serial: bool = False,
) -> Iterator[Any]:
    """Yield `function(home, *call)` of each call, in the order of the calls.

    A cluster gets all calls at once. This process runs them concurrently, as many as it has threads and memory for, and
    divides its threads among them.

    Args:
        function, label: as in `Executor.submit`.
        memory: approximate bytes that each call needs in this process.
        serial: in this process, run one call at a time on all threads.
    """
    pending = [executor.submit(function, home, *call, label=label) for call in calls]
    fitting = home.limits.memory // max([1, *memory]) if calls else 0
    count = 1 if serial or executor is not LOCAL else parallel_calls(home.limits.threads, min(len(pending), fitting))
    if count == 1:
        return (call.result() for call in pending)
    return _run_in_threads(pending, count, home.limits.threads // count)


def _run_in_threads(pending: list[PendingCall], count: int, threads: int) -> Iterator[Any]:
    """Run `count` calls at a time with `threads` each; yield their results in order."""

    def run(call: PendingCall) -> Any:
        with limit_threads(threads):
            return call.result()

    running, pool = deque[Future[Any]](), ThreadPoolExecutor(count)
    try:
        for call in pending:
            # Prefect's log handler finds the run in the context.
            running.append(pool.submit(copy_context().run, run, call))
            # Bounded, or results that the caller has not consumed would pile up.
            if len(running) > 2 * count:
                yield running.popleft().result()
        yield from (call.result() for call in running)
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def open_executor(cluster: int | str | None, home: Home) -> Generator[Executor]:
    """Open the executor of a run: this process, a number of new workers, or those of the scheduler at an address.

    Raises:
        InputError: Dask is not installed, or the cluster cannot be used.
    """
    if cluster is None:
        yield LOCAL
        return
    try:
        from oneclass.tasks.cluster import dask
    except ModuleNotFoundError as error:
        install = "python -m pip install -c constraints.txt -e '.[dask]'"
        raise InputError(f"--workers, --dask: need Dask, which is not installed: {install}") from error
    with dask.open_cluster(cluster, home) as executor:
        yield executor
