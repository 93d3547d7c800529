"""What runs on a worker: it refuses to work for another version of the program, or where it sees neither the home nor its URL."""

import asyncio
import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import logging
import os
import pickle
import platform
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import distributed

from tasks.errors import OneclassError
from tasks.stores import allowance
from tasks.stores.home import Home

ROOMS = ("models", "tasks", "sql", "data_contracts")
SPOKEN = ("tasks", "models")  # loggers whose lines go to the coordinator
LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "polars", "optuna", "distributed")
_turn = threading.Lock()  # a call has all of the process's threads


class Unfit(OneclassError):
    """A worker that must not do this run's work; `worker` is its address."""

    def __init__(self, why: str, worker: str) -> None:
        super().__init__(why, worker)
        self.worker = worker

    def __str__(self) -> str:
        return f"worker {self.worker} cannot take part: {self.args[0]}."


@dataclass(frozen=True)
class Terms:
    """What a worker must have in common with the coordinator.

    Attributes:
        version: the coordinator's `version()`.
        home: of the coordinator, as an absolute path.
        mark: the name of a file that the coordinator made for this run, in the home or, where this has one, at its URL.
        threads: cores that each of its calls may use.
        run_id: of the run in Prefect, on whose page the worker's lines appear; None outside of one.
    """

    version: tuple[tuple[str, str], ...]
    home: Home
    mark: str
    threads: int
    run_id: str | None


@functools.cache
def version() -> tuple[tuple[str, str], ...]:
    """What a result may depend on besides the call: (name, version or digest) of Python, libraries and own source."""
    source = hashlib.sha256()
    root = Path(__file__).resolve().parents[2]
    for file in sorted(file for room in ROOMS for file in (root / room).rglob("*") if file.suffix in (".py", ".sql")):
        source.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    libraries = [(name, importlib.metadata.version(name)) for name in LIBRARIES]
    return ("Python", platform.python_version()), *libraries, ("oneclass's source", source.hexdigest()[:16])


def unfit(terms: Terms, own: distributed.Worker | None = None) -> str | None:
    """Why this process must not work for such a coordinator; None where it may.

    Args:
        own: Dask's worker in this process, outside of a call.
    """
    for (name, own_version), (_, wanted) in zip(version(), terms.version, strict=True):
        if own_version != wanted:
            return f"it has {name} {own_version}, and the run {wanted}: install there what is installed here"
    if terms.home.store is not None:
        folder = Path((own or distributed.get_worker()).local_directory) / "oneclass"  # goes when the worker ends
        return _without_url(terms.home, terms.mark, folder)
    if not (terms.home.spill / terms.mark).exists():
        return f"it does not see {terms.home.folder}: mount the home there under the same path, or give a --store"
    return None


@functools.cache
def _without_url(home: Home, mark: str, cache: Path) -> str | None:
    """Why this process cannot use the home's URL; None where it can, and has made its cache ready for a new run.

    Looked at once a run: what goes wrong there later says so by itself.
    """
    # Not above: Dask loads this module in the thread of its event loop.
    from tasks.stores import remote, retention, run_at_url

    remote.work_in(cache)
    try:
        if not run_at_url.sees(home, mark):
            return f"it does not find at {home.store} what the run has put there; give a URL that is the same for all"
        retention.tidy_cache(remote.here(home))
    except OneclassError as error:
        return str(error).rstrip(".")
    return None


async def facts(terms: Terms, dask_worker: distributed.Worker) -> tuple[str | None, int]:
    """`unfit`, and the cores of the machine that this process may use; Dask gives `dask_worker`.

    A URL may keep one waiting, while Dask's event loop has to say that the worker is there.
    """
    return await asyncio.to_thread(unfit, terms, dask_worker), allowance.cores()


def packed(function: Callable[..., Any], *arguments: Any) -> bytes:
    """A call, for `call` and `call_block`.

    Dask would unpack it in the thread of its event loop, where Prefect must not be imported, while another thread works.
    """
    return pickle.dumps((function, arguments))


def call(terms: Terms, pack: bytes) -> Any:
    """`function(home, ...)` with this worker's limits, one call at a time."""
    with _turn, _taking_part(terms):
        from tasks.stores import remote

        function, (home, *arguments) = pickle.loads(pack)
        home = replace(remote.here(home), limits=replace(home.limits, threads=terms.threads))
        with home.writing():
            return function(home, *arguments)


def call_block(terms: Terms, pack: bytes) -> Any:
    """`function(...)`, one call at a time."""
    with _turn, _taking_part(terms):
        function, arguments = pickle.loads(pack)
        return function(*arguments)


async def call_beside(terms: Terms, pack: bytes, dask_worker: distributed.Worker) -> None:
    """`function(home, ...)` while another call may go on; nothing where this process cannot take part."""

    def made() -> None:
        if unfit(terms, dask_worker) is None:
            function, arguments = pickle.loads(pack)
            function(*arguments)

    await asyncio.to_thread(made)


@contextlib.contextmanager
def _taking_part(terms: Terms) -> Iterator[None]:
    """Look before each call, as workers may come late, and after one that failed, as a folder may have gone meanwhile.

    Raises:
        Unfit: this process must not do it, and others may.
    """
    _speak_through(terms.run_id)
    _check(terms)
    try:
        yield
    except Exception:
        _check(terms)
        raise


def _check(terms: Terms) -> None:
    if why := unfit(terms):
        raise Unfit(why, distributed.get_worker().address)


@functools.cache
def _speak_through(run_id: str | None) -> None:
    """Leave it to the coordinator, to which Dask hands every line, to show it: on its terminal and on the run's page.

    Prefect, which comes with the stages, would show it here, and start a server of its own to send it to.
    """
    os.environ |= {"PREFECT_LOGGING_TO_API_ENABLED": "false", "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false"}
    importlib.import_module("prefect.main")
    for name in (None, "flows", "tasks", "models"):
        handlers = logging.getLogger(name).handlers
        handlers[:] = [one for one in handlers if not type(one).__module__.startswith("prefect")]
    for name in SPOKEN:
        logging.getLogger(name).setLevel(logging.INFO)

    def of_run(*values: Any, **more: Any) -> logging.LogRecord:
        record = logging.LogRecord(*values, **more)
        if run_id:
            record.flow_run_id = run_id  # where Prefect's handler looks first
        return record

    logging.setLogRecordFactory(of_run)
