"""What runs on a worker: it refuses to work for another version of the program, or without the shared folder."""

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

from tasks.errors import OneclassError
from tasks.stores import allowance

ROOMS = ("models", "tasks", "sql", "data_contracts")
SPOKEN = ("tasks", "models")  # loggers whose lines go to the coordinator
LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "polars", "distributed")
_turn = threading.Lock()  # a call has all of the process's threads


class Unfit(OneclassError):
    """A worker that must not do this run's work."""


@dataclass(frozen=True)
class Terms:
    """What a worker must have in common with the coordinator.

    Attributes:
        version: the coordinator's `version()`.
        mark: a file in the shared folder that the coordinator made for this run.
        threads: cores that each of its calls may use.
        run_id: of the run in Prefect, on whose page the worker's lines appear; None outside of one.
    """

    version: tuple[tuple[str, str], ...]
    mark: Path
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


def unfit(terms: Terms) -> str | None:
    """Why this process must not work for such a coordinator; None where it may."""
    for (name, own), (_, wanted) in zip(version(), terms.version, strict=True):
        if own != wanted:
            return f"it has {name} {own}, and the run {wanted}: install there what is installed here"
    if not terms.mark.exists():
        return f"it does not see {terms.mark.parent.parent}: mount the home there under the same path"
    return None


def facts(terms: Terms) -> tuple[str | None, int]:
    """`unfit`, and the cores of the machine that this process may use."""
    return unfit(terms), allowance.cores()


def packed(function: Callable[..., Any], *arguments: Any) -> bytes:
    """A call, for `call` and `call_block`.

    Dask would unpack it in the thread of its event loop, where Prefect must not be imported, while another thread works.
    """
    return pickle.dumps((function, arguments))


def call(terms: Terms, pack: bytes) -> Any:
    """`function(home, ...)` with this worker's limits, one call at a time."""
    with _turn:
        _check(terms)
        function, (home, *arguments) = pickle.loads(pack)
        home = replace(home, limits=replace(home.limits, threads=terms.threads))
        with home.writing():
            return function(home, *arguments)


def call_block(terms: Terms, pack: bytes) -> Any:
    """`function(...)`, one call at a time."""
    with _turn:
        _check(terms)
        function, arguments = pickle.loads(pack)
        return function(*arguments)


def _check(terms: Terms) -> None:
    """Each time, for workers may come late, and a folder may go."""
    _speak_through(terms.run_id)
    if why := unfit(terms):
        raise Unfit(f"a worker on {platform.node()} cannot take part: {why}.")


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
