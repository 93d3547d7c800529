"""The calls of a Dask worker, which refuses those of another version of the program or of a home that it cannot read.

Dask imports this module in the thread of its event loop, where Prefect and the stores' larger modules must not be loaded
while another thread works: they are imported in the functions.
"""

import asyncio
import functools
import hashlib
import importlib
import importlib.metadata
import logging
import os
import pickle
import platform
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import distributed

from oneclass.tasks.errors import OneclassError
from oneclass.tasks.stores import resources
from oneclass.tasks.stores.home import Home

SOURCE_FOLDERS = ("models", "tasks", "sql", "data_contracts")
FORWARDED_LOGGERS = ("oneclass.tasks", "oneclass.models")
LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "polars", "optuna", "distributed")
_one_call = threading.Lock()  # a call takes all of the process's threads


class IncompatibleWorker(OneclassError):
    """A worker that must not run calls of this run; `worker` is its address."""

    def __init__(self, reason: str, worker: str) -> None:
        super().__init__(reason, worker)
        self.worker = worker

    def __str__(self) -> str:
        return f"worker {self.worker} cannot take part: {self.args[0]}."


@dataclass(frozen=True)
class WorkerContext:
    """Sent with every call: what worker and coordinator must have in common.

    Attributes:
        versions: the coordinator's `versions()`.
        home: the coordinator's, with an absolute path.
        sentinel: name of a file of this run, in the home's `spill` or at its URL.
        threads: cores that each call may use.
        run_id: of the run in Prefect, on whose page the worker's log lines appear; None outside of one.
    """

    versions: tuple[tuple[str, str], ...]
    home: Home
    sentinel: str
    threads: int
    run_id: str | None


@functools.cache
def versions() -> tuple[tuple[str, str], ...]:
    """(name, version or digest) of everything that a result depends on: Python, libraries and own source."""
    source = hashlib.sha256()
    root = Path(__file__).resolve().parents[2]
    files = (file for folder in SOURCE_FOLDERS for file in (root / folder).rglob("*") if file.suffix in (".py", ".sql"))
    for file in sorted(files):
        source.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    libraries = [(name, importlib.metadata.version(name)) for name in LIBRARIES]
    return ("Python", platform.python_version()), *libraries, ("oneclass's source", source.hexdigest()[:16])


def incompatibility(context: WorkerContext, dask_worker: distributed.Worker | None = None) -> str | None:
    """Why this process must not work for such a coordinator; None if it may.

    Args:
        dask_worker: Dask's worker in this process; needed outside of a call only.
    """
    for (name, own), (_, wanted) in zip(versions(), context.versions, strict=True):
        if own != wanted:
            return f"it has {name} {own}, and the run {wanted}: install there what is installed here"
    if context.home.store is not None:
        # Dask deletes its own folder when the worker ends.
        cache = Path((dask_worker or distributed.get_worker()).local_directory) / "oneclass"
        return _prepare_cache(context.home, context.sentinel, cache)
    if not (context.home.spill / context.sentinel).exists():
        return f"it does not see {context.home.folder}: mount the home there under the same path, or give a --store"
    return None


@functools.cache
def _prepare_cache(home: Home, sentinel: str, cache: Path) -> str | None:
    """Check once a run that the home's URL is the coordinator's, and tidy the cache; returns what prevents it."""
    from oneclass.tasks.stores import remote, retention

    remote.use_cache(cache)
    try:
        if not remote.has_sentinel(home, sentinel):
            return f"it does not find at {home.store} what the run has put there; give a URL that is the same for all"
        retention.evict_worker_cache(remote.local_home(home))
    except OneclassError as error:
        return str(error).rstrip(".")
    return None


async def describe(context: WorkerContext, dask_worker: distributed.Worker) -> tuple[str | None, int]:
    """`incompatibility`, and the cores of the machine that this process may use; Dask gives `dask_worker`.

    In a thread, since reading a URL would block the event loop, and with it the worker's heartbeat.
    """
    return await asyncio.to_thread(incompatibility, context, dask_worker), resources.available_cores()


def pickled_call(function: Callable[..., Any], *arguments: Any) -> bytes:
    """A call for `run_call`, pickled, or Dask would import its modules in the thread of the event loop."""
    return pickle.dumps((function, [one.absolute() if isinstance(one, Home) else one for one in arguments]))


def run_call(context: WorkerContext, pickled: bytes) -> Any:
    """Run a pickled call with this worker's limits and cache, one at a time.

    The worker is checked before each call, since it may have joined late, and after a call that failed, since a shared folder
    may be gone.

    Raises:
        IncompatibleWorker: this process must not run it; others may.
    """
    with _one_call:
        forward_logs(context.run_id)
        _require_compatible(context)
        try:
            function, arguments = pickle.loads(pickled)
            with context.home.writing():
                return function(*(_local(one, context) if isinstance(one, Home) else one for one in arguments))
        except Exception:
            _require_compatible(context)
            raise


def _local(home: Home, context: WorkerContext) -> Home:
    from oneclass.tasks.stores import remote

    return replace(remote.local_home(home), limits=replace(home.limits, threads=context.threads))


def _require_compatible(context: WorkerContext) -> None:
    if reason := incompatibility(context):
        raise IncompatibleWorker(reason, distributed.get_worker().address)


@functools.cache
def forward_logs(run_id: str | None) -> None:
    """Leave log lines to the coordinator, to which Dask forwards them, for its terminal and the run's page.

    Prefect, which comes with the stages, would print them here, and start a server of its own to send them to.
    """
    os.environ |= {"PREFECT_LOGGING_TO_API_ENABLED": "false", "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false"}
    importlib.import_module("prefect.main")
    for name in (None, "oneclass.flows", *FORWARDED_LOGGERS):
        handlers = logging.getLogger(name).handlers
        handlers[:] = [handler for handler in handlers if not type(handler).__module__.startswith("prefect")]
    for name in FORWARDED_LOGGERS:
        logging.getLogger(name).setLevel(logging.INFO)

    def make_record(*values: Any, **more: Any) -> logging.LogRecord:
        record = logging.LogRecord(*values, **more)
        if run_id:
            record.flow_run_id = run_id  # where Prefect's handler looks first
        return record

    logging.setLogRecordFactory(make_record)
