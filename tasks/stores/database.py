"""Opening a DuckDB file: how long one that is held is waited for, what a crash left, and why it cannot be opened."""

import logging
import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from tasks.errors import InputError, MachineShort, OneclassError
from tasks.stores import allowance
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT, SILENT = 0.02, 0.25, 1.0  # seconds; readers that come and go leave gaps of milliseconds
HEADERS = 3 * 4096  # bytes of a DuckDB file before its first block


def connect(home: Home, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open the warehouse's file, waiting while another program has it open.

    Raises:
        InputError: it is held for longer than `home.limits.patience`, cannot be written to, or is not a whole warehouse.
    """
    file = Path(os.path.abspath(home.warehouse))  # a relative path such as `md:x` would be a service's address

    def once() -> duckdb.DuckDBPyConnection:
        return duckdb.connect(str(file), read_only=read_only, config=limits(home))

    try:
        if not read_only:
            home.folder.mkdir(parents=True, exist_ok=True)
        connection = _patiently(once if read_only else lambda: _recovered(file, once), home)
    except OSError as error:
        raise InputError(f"{home.folder}: cannot be written to ({error.strerror}). Choose another --home.") from error
    except duckdb.Error as error:
        raise _why_closed(home, error) from error
    return connection


def why(home: Home, error: duckdb.Error) -> OneclassError | None:
    """What a person can do about an error of DuckDB's in an open warehouse; None where nothing is known of it."""
    text = str(error)
    if isinstance(error, duckdb.OutOfMemoryException):
        return MachineShort(
            f"{home.warehouse}: DuckDB needs more memory than there is. It may take "
            f"{allowance.size_in_words(home.limits.memory)} (--memory), and {allowance.free_in_words()}. Give it more of "
            f"what is short, then run again.\n{text.splitlines()[0]}"
        )
    if "no space left" in text.lower() or "could not write" in text.lower():
        return MachineShort(
            f"{home.folder}: the disk is full. Free some space or choose another --home, then run again.\n{text}"
        )
    if "Corrupt database file" in text or ("Could not read" in text and os.path.realpath(home.warehouse) in text):
        return _damaged(home, text)
    return None


def limits(home: Home) -> dict[str, Any]:
    """Settings of DuckDB's: what it may take of the machine; and nothing is ever fetched from anywhere."""
    return {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "threads": home.limits.threads,
        "memory_limit": f"{home.limits.memory // 1_000_000}MB",
        "temp_directory": os.path.abspath(home.spill),
        "preserve_insertion_order": True,
    }


def _patiently(once: Callable[[], duckdb.DuckDBPyConnection], home: Home) -> duckdb.DuckDBPyConnection:
    """Try until nobody else holds the file, at random moments that lie ever further apart."""
    began, wait, told = time.monotonic(), FIRST_WAIT, False
    while True:
        try:
            connection = once()
        except duckdb.Error as error:
            waited = time.monotonic() - began
            if not _is_held(error) or waited > home.limits.patience:
                raise
            if waited > SILENT and not told:
                told = True
                logger.warning(
                    "%s: another program has it open; waiting for up to %.0f s. %s",
                    home.warehouse,
                    home.limits.patience,
                    str(error).partition(". ")[0],
                )
        else:
            if told:
                logger.info("%s: free again after %.1f s", home.warehouse, time.monotonic() - began)
            return connection
        time.sleep(random.uniform(0, wait))
        wait = min(2 * wait, LONGEST_WAIT)


def _is_held(error: duckdb.Error) -> bool:
    """Another process has the file open; or this one has, for reading where it is to be written, or the reverse."""
    return "could not set lock" in str(error).lower() or "different configuration" in str(error)


def _recovered(file: Path, once: Callable[[], duckdb.DuckDBPyConnection]) -> duckdb.DuckDBPyConnection:
    """Open for writing; what a crash left in DuckDB's log is replayed, or set aside where it cannot be.

    DuckDB passes over a log whose beginning it does not know, and would write over it. One that a checkpoint had taken
    into the file before the crash it deletes.
    """
    log = file.with_name(f"{file.name}.wal")
    left = log.is_file() and log.stat().st_size > 0
    try:
        connection = once()
    except duckdb.Error as error:
        if not left or "replaying WAL" not in str(error):
            raise
        _set_aside(log, str(error))
        return once()
    block, blocks, replayed = connection.execute(
        "select block_size, used_blocks, wal_size <> '0 bytes' from pragma_database_size()"
    ).fetchone()
    if left and not replayed and log.exists():
        _set_aside(log, "its beginning is damaged")
    elif not left and file.stat().st_size < HEADERS + block * blocks:
        connection.close()
        raise duckdb.IOException(f"The file holds {file.stat().st_size} bytes of {HEADERS + block * blocks}")
    return connection


def _set_aside(log: Path, reason: str) -> None:
    status = log.stat()
    aside = log.with_name(f"{log.name}.{datetime.now(UTC):%Y%m%dT%H%M%S%f}.unreadable")
    log.rename(aside)
    logger.warning(
        "%s: cannot be replayed, and was set aside as %s. Lost: %s bytes, all that was written to the warehouse after "
        "its last checkpoint until %s UTC. There is a checkpoint at the end of every stage, so that is the work of one "
        "stage at most, and the run does it again. (%s)",
        log,
        aside.name,
        f"{status.st_size:,}",
        f"{datetime.fromtimestamp(status.st_mtime, UTC):%Y-%m-%d %H:%M:%S}",
        reason,
    )


def _why_closed(home: Home, error: duckdb.Error) -> InputError:
    text = str(error)
    if _is_held(error):
        return InputError(
            f"{home.warehouse}: another process holds the warehouse, for {home.limits.patience:.0f} s now. Wait for it "
            f"to end, then run again.\n{text}"
        )
    if "permission" in text.lower() or "read-only" in text.lower():
        return InputError(f"{home.warehouse}: cannot be written to. Choose another --home.\n{text}")
    if "replaying WAL" in text:
        return InputError(
            f"{home.warehouse}.wal: was left by a crash and cannot be replayed. Any run on {home.dataset} sets it "
            f"aside.\n{text}"
        )
    return _damaged(home, text)


def _damaged(home: Home, text: str) -> InputError:
    return InputError(
        f"{home.warehouse}: cannot be opened as a DuckDB warehouse: it is damaged or cut short. Put a copy of it back, "
        f"or move it away and run again: the run makes it anew from the log files.\n{text}"
    )
