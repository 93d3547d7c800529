"""Run calls on a Dask worker, after checks that it has the coordinator's versions and can read the home.

Dask imports this module in the thread of its event loop, where Prefect and the stores' larger modules must not be
loaded while another thread works; functions import these.
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
_call_lock = threading.Lock()  # a call uses all threads of the process


class IncompatibleWorker(OneclassError):
    """A worker cannot run calls of this run; `worker` is its address."""

    def __init__(self, reason: str, worker: str) -> None:
        super().__init__(reason, worker)
        self.worker = worker

    def __str__(self) -> str:
        return f"worker {self.worker} cannot be used: {self.args[0]}."


@dataclass(frozen=True)
class WorkerContext:
    """The coordinator's versions and home, sent with every call.

    Attributes:
        versions: the coordinator's `versions()`.
        home: the coordinator's home, with an absolute path.
        sentinel: name of a file of this run, in the home's `spill`.
        threads: cores that each call may use.
        run_id: Prefect's id of the run, to which log lines belong; None outside of a run.
    """

    versions: tuple[tuple[str, str], ...]
    home: Home
    sentinel: str
    threads: int
    run_id: str | None


@functools.cache
def versions() -> tuple[tuple[str, str], ...]:
    """Return (name, version or digest) of all that a result depends on: Python, libraries and this source."""
    source = hashlib.sha256()
    root = Path(__file__).resolve().parents[2]
    files = (file for folder in SOURCE_FOLDERS for file in (root / folder).rglob("*") if file.suffix in (".py", ".sql"))
    for file in sorted(files):
        source.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    libraries = [(name, importlib.metadata.version(name)) for name in LIBRARIES]
    return ("Python", platform.python_version()), *libraries, ("oneclass's source", source.hexdigest()[:16])


def incompatibility(context: WorkerContext) -> str | None:
    """Return why this process cannot run the coordinator's calls; None if it can."""
    for (name, own), (_, wanted) in zip(versions(), context.versions, strict=True):
        if own != wanted:
            return f"it has {name} {own}, and the run {wanted}: install the same versions"
    if not (context.home.spill / context.sentinel).exists():
        return f"it does not see {context.home.folder}: mount the home there under the same path"
    return None


async def describe(context: WorkerContext) -> tuple[str | None, int]:
    """Return `incompatibility` and the number of available cores.

    The check runs in a thread, since a slow disk would block the event loop and the worker's heartbeat.
    """
    return await asyncio.to_thread(incompatibility, context), resources.available_cores()


def pickled_call(function: Callable[..., Any], *arguments: Any) -> bytes:
    """Pickle a call for `run_call`, so that Dask does not import its modules in the thread of the event loop."""
    absolute = [value.absolute() if isinstance(value, Home) else value for value in arguments]
    return pickle.dumps((function, absolute))


def run_call(context: WorkerContext, pickled: bytes) -> Any:
    """Run a pickled call with this worker's limits, one at a time.

    The worker is checked before each call, since it may have joined late, and after a failed call, since a shared
    folder may be gone.

    Raises:
        IncompatibleWorker: this process cannot run it; others may.
    """
    with _call_lock:
        forward_logs(context.run_id)
        _require_compatible(context)
        try:
            function, arguments = pickle.loads(pickled)
            with context.home.writing():
                return function(*(_localize(value, context) for value in arguments))
        except Exception:
            _require_compatible(context)
            raise


def _localize(value: Any, context: WorkerContext) -> Any:
    """Give a home this worker's threads; return other values unchanged."""
    if not isinstance(value, Home):
        return value
    return replace(value, limits=replace(value.limits, threads=context.threads))


def _require_compatible(context: WorkerContext) -> None:
    if reason := incompatibility(context):
        raise IncompatibleWorker(reason, distributed.get_worker().address)


@functools.cache
def forward_logs(run_id: str | None) -> None:
    """Leave log records to the coordinator, to which Dask forwards them.

    Prefect, which the stages import, would print them here, and start a server to send them to.
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
            record.flow_run_id = run_id  # read by Prefect's log handler
        return record

    logging.setLogRecordFactory(make_record)
