"""DuckDB instances that outlive the openings of a file: creating one takes 15 ms, attaching a file to it 2 ms.

A run opens its warehouse dozens of times and closes it in between, so that other programs can read it.
"""

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

CATALOG = "warehouse"
TEMPORARY_FILES = "duckdb_temp_*"
IDLE_MEMORY = "1MB"  # a limit that makes an instance give back what it keeps for its next statements


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
_idle: list[tuple[int, dict[str, Any], duckdb.DuckDBPyConnection]] = []  # one at most: process id, settings, instance
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
            opened = _OpenFile(_take_instance(config), config, read_only)
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
            opened.instance.execute(f"detach {CATALOG}")
            opened.instance.execute(f"set memory_limit = '{IDLE_MEMORY}'")
            _idle[:] = [(os.getpid(), opened.config | {"memory_limit": IDLE_MEMORY}, opened.instance)]
        else:
            opened.instance.close()


def _take_instance(config: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    """Return the idle instance with these settings, unless a fork has left its threads behind, or a new one."""
    while _idle:
        process, settings, instance = _idle.pop()
        if process != os.getpid():
            _inherited.append(instance)
        else:
            for name, value in config.items():
                if settings[name] != value:
                    instance.execute(f"set {name} = $value", {"value": value})
            return instance
    return duckdb.connect(":memory:", config=config)
