"""DuckDB instances that outlive the openings of a file: creating one takes 15 ms, attaching a file to it 2 ms.

A run opens its warehouse dozens of times and closes it in between, so that other programs can read it.
"""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

CATALOG = "warehouse"
SCRATCH = "scratch"
TEMPORARY_FILES = "duckdb_temp_*"
IDLE_MEMORY = "1MB"  # a limit that makes an instance give back what it keeps for its next statements
MAX_IDLE = 2  # logs are looked at in one database while their beginnings are loaded into another
SCRATCH_MEMORY = "80%"  # DuckDB's default


@dataclass
class _OpenFile:
    """A file that connections of this process have open, and the instance that they share."""

    instance: duckdb.DuckDBPyConnection
    config: dict[str, Any]
    read_only: bool
    connections: int = 0
    reusable: bool = True


_lock = threading.Lock()
_open_files: dict[Path, _OpenFile] = {}
_idle: list[tuple[int, dict[str, Any], duckdb.DuckDBPyConnection]] = []  # process id, settings, instance
_inherited: list[duckdb.DuckDBPyConnection] = []  # of a process that forked: to close one waits for threads left behind


def open_file(file: Path, config: dict[str, Any], *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB file as the catalog `CATALOG`, which unqualified names refer to; `close_file` closes it.

    Connections of this process to one file share an instance.

    Args:
        config: the instance's settings.

    Raises:
        duckdb.Error: the file cannot be opened, or this process has it open in another mode or with other settings.
    """
    with _lock:
        opened = _open_files.get(file)
        if opened is None:
            opened = _OpenFile(*_take_instance(config), read_only)
            path, mode = str(file).replace("'", "''"), ", read_only" if read_only else ""
            opened.instance.execute(f"attach '{path}' as {CATALOG} (type duckdb{mode})")
            _open_files[file] = opened
        elif (opened.config, opened.read_only) != (config, read_only):
            raise duckdb.ConnectionException(f"{file}: this process has it open with a different configuration")
        opened.connections += 1
        connection = opened.instance.cursor()
    connection.execute(f"use {CATALOG}")
    return connection


def close_file(file: Path, connection: duckdb.DuckDBPyConnection, *, reusable: bool) -> None:
    """Close a connection of `open_file`, and the file with the last one.

    Args:
        reusable: whether the instance may be kept for the next opening; not after an error, which may have
            invalidated it. One that has written temporary files is not kept either, since it holds on to their folder.
    """
    connection.close()
    with _lock:
        opened = _open_files[file]
        opened.connections -= 1
        opened.reusable &= reusable
        if opened.connections:
            return
        del _open_files[file]
        spilled = any(Path(opened.config["temp_directory"]).glob(TEMPORARY_FILES))
        if opened.reusable and not spilled:
            _keep_instance(opened.instance, opened.config, CATALOG)
        else:
            opened.instance.close()


@contextmanager
def open_scratch() -> Generator[duckdb.DuckDBPyConnection]:
    """Open an empty database in memory for the block, in an idle instance if there is one.

    An instance that met an error is not kept for the next opening.
    """
    with _lock:
        instance, config = _take_instance({"memory_limit": SCRATCH_MEMORY})
    completed = False
    try:
        with instance.cursor() as connection:
            connection.execute(f"attach ':memory:' as {SCRATCH}")
            connection.execute(f"use {SCRATCH}")
            yield connection
        completed = True
    finally:
        if completed:
            with _lock:
                _keep_instance(instance, config, SCRATCH)
        else:
            instance.close()


def _keep_instance(instance: duckdb.DuckDBPyConnection, config: dict[str, Any], catalog: str) -> None:
    """Detach the catalog and keep the instance for the next opening."""
    instance.execute(f"detach {catalog}")
    instance.execute(f"set memory_limit = '{IDLE_MEMORY}'")
    _idle.append((os.getpid(), config | {"memory_limit": IDLE_MEMORY}, instance))
    del _idle[:-MAX_IDLE]


def _take_instance(config: dict[str, Any]) -> tuple[duckdb.DuckDBPyConnection, dict[str, Any]]:
    """Return an idle instance with these settings, unless a fork has left its threads behind, or a new one.

    The second value has all settings of the instance.
    """
    while _idle:
        process, settings, instance = _idle.pop()
        if process != os.getpid():
            _inherited.append(instance)
        else:
            for name, value in config.items():
                if settings.get(name) != value:
                    instance.execute(f"set {name} = $value", {"value": value})
            return instance, settings | config
    return duckdb.connect(":memory:", config=config), config
