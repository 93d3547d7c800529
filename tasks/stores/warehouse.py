"""The warehouse, one DuckDB file per data set: lock timeouts, WAL recovery, migrations, queries."""

import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from oneclass import sql
from oneclass.data_contracts import contracts
from oneclass.tasks.errors import InputError, OneclassError, ResourceExhausted
from oneclass.tasks.stores import durable, resources
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

WAIT_SECONDS = (0.0, 0.25)  # drawn between two tries: readers that come and go leave gaps of milliseconds
SILENT_SECONDS = 1.0  # of waiting, after which the log says so
HEADER_BYTES = 3 * 4096  # of a DuckDB file before its first block
# Another process has the file open, or this one has it open in another mode.
LOCKED = "could not set lock", "different configuration", "unique file handle conflict"
DISK_FULL = "the disk is full. Free some space or choose another --home, then run again."
DAMAGE = (
    "cannot be opened as a DuckDB warehouse: it is damaged or cut short. Put a copy of it back, or move it away and "
    "run again: the run makes it anew from the log files."
)
ADVICE = (  # by words of DuckDB's messages
    (("no space left", "could not write"), DISK_FULL),
    (LOCKED, "another process holds the warehouse, for {patience:.0f} s now. Wait for it to end, then run again."),
    (("permission", "read-only"), "cannot be written to. Choose another --home."),
    (("replaying wal",), "its .wal was left by a crash and cannot be replayed. Any run on {dataset} sets it aside."),
    (("corrupt database file",), DAMAGE),
)


def check_version(connection: duckdb.DuckDBPyConnection, home: Home) -> int:
    """Return the version of the tables, 0 if none is recorded.

    Raises:
        InputError: a newer version of this program wrote them, or one that is too old.
    """
    try:
        [(version,)] = connection.execute("select max(version) from operations.schema_version").fetchall()
    except duckdb.CatalogException:
        version = None
    newest = max(sql.migrations())
    if (version or 0) > newest:
        raise InputError(
            f"{home.warehouse}: was written by a newer version of this program (its tables are of version {version}, "
            f"this program knows {newest}). Update the program, or choose another --home."
        )
    tables = "select count(*) > 0 from duckdb_tables() where schema_name = 'raw'"
    if (version or 0) < sql.FIRST_VERSION and fetch_row(connection, tables) == (True,):
        raise InputError(
            f"{home.warehouse}: was written by a version of this program before 0.2. Write its events to a file "
            f"(duckdb {home.warehouse} \"copy raw.events to 'events.parquet'\"), move {home.folder} away, and run with "
            "--source events.parquet."
        )
    return version or 0


def migrate_schema(connection: duckdb.DuckDBPyConnection, home: Home) -> None:
    """Apply the missing migrations and create absent tables, in one transaction.

    Does nothing if the same statements were applied before, since a run opens the warehouse dozens of times.

    Raises:
        InputError: a newer version of this program wrote the tables.
    """
    version, newest = check_version(connection, home), max(sql.migrations())
    recorded = "select any_value(statements) from operations.schema_version"
    if version == newest and fetch_row(connection, recorded) == (contracts.schema_digest(),):
        return
    missing = {number: statements for number, statements in sql.migrations().items() if number > version}
    connection.begin()
    try:
        for statements in (*missing.values(), *contracts.schema()):
            connection.execute(statements)
        for number in missing:
            row = [number, datetime.now(UTC).replace(tzinfo=None)]
            connection.execute("insert into operations.schema_version (version, applied_at) values (?, ?)", row)
        connection.execute("update operations.schema_version set statements = ?", [contracts.schema_digest()])
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _open_database(home: Home, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open the warehouse's file, trying again while another process has it open."""
    # A relative path such as `md:x` would be a service's address.
    file = Path(os.path.abspath(home.warehouse))
    started, warned = time.monotonic(), False

    def once() -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(str(file), read_only=read_only, config=database_config(home))
        connection.execute("set TimeZone = 'UTC'")
        return connection

    while True:
        try:
            if is_new := not read_only and not file.exists():
                durable.make_folder(home.folder)
            connection = once() if read_only else _open_with_recovery(file, once)
            break
        except OSError as error:
            raise InputError(
                f"{home.folder}: cannot be written to ({error.strerror}). Choose another --home."
            ) from error
        except duckdb.Error as error:
            waited, patience = time.monotonic() - started, home.limits.patience
            if not _has_sign(error, LOCKED) or waited > patience:
                raise _explain_error(home, error) or InputError(f"{home.warehouse}: {DAMAGE}\n{error}") from error
            if waited > SILENT_SECONDS and not warned:
                warned, holder = True, str(error).partition(". ")[0]
                text = "%s: another program has it open; waiting for up to %.0f s. %s"
                logger.warning(text, home.warehouse, patience, holder)
        time.sleep(random.uniform(*WAIT_SECONDS))
    if warned:
        logger.info("%s: free again after %.1f s", home.warehouse, time.monotonic() - started)
    if is_new:
        durable.sync_path(home.folder)
    return connection


def _explain_error(home: Home, error: duckdb.Error, *, read_only: bool = False) -> OneclassError | None:
    """Return an error with advice for one of DuckDB's; None if it is unknown."""
    text, at = str(error), home.warehouse
    if isinstance(error, duckdb.OutOfMemoryException):
        return ResourceExhausted(
            f"{at}: DuckDB needs more memory than there is. It may take {resources.format_size(home.limits.memory)} "
            f"(--memory), and {resources.describe_free_memory()}. Give it more of what is short, then run again.\n"
            f"{text.splitlines()[0]}"
        )
    if read_only and isinstance(error, duckdb.CatalogException):
        advice = "is of an earlier version of this program. Any run on {dataset} updates it."
    elif "Could not read" in text and os.path.realpath(at) in text:
        advice = DAMAGE
    elif (advice := next((advice for signs, advice in ADVICE if _has_sign(error, signs)), None)) is None:
        return None
    advice = advice.format(dataset=home.dataset, patience=home.limits.patience)
    return (ResourceExhausted if advice == DISK_FULL else InputError)(f"{at}: {advice}\n{text}")


def _has_sign(error: duckdb.Error, signs: Sequence[str]) -> bool:
    return any(sign in str(error).lower() for sign in signs)


def database_config(home: Home) -> dict[str, Any]:
    """Return DuckDB's settings: the home's limits, and no extension is ever downloaded."""
    return {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "threads": home.limits.threads,
        "memory_limit": f"{home.limits.memory // 1_000_000}MB",
        "temp_directory": os.path.abspath(home.spill),
        "preserve_insertion_order": True,
    }


def _open_with_recovery(file: Path, connect_once: Callable[[], duckdb.DuckDBPyConnection]) -> duckdb.DuckDBPyConnection:
    """Open for writing. The log that a crash left is replayed, or set aside if it is damaged.

    DuckDB ignores a log with an unknown header, and would overwrite it. It deletes a log that a checkpoint had written
    to the file before the crash.
    """
    log = file.with_name(f"{file.name}.wal")
    left = log.is_file() and log.stat().st_size > 0
    try:
        connection = connect_once()
    except duckdb.Error as error:
        if not left or "replaying WAL" not in str(error):
            raise
        _quarantine_wal(log, str(error))
        return connect_once()
    block, blocks, replayed = fetch_row(
        connection,
        "select block_size, used_blocks, wal_size <> '0 bytes' from pragma_database_size() "
        "where database_name = current_database()",
    )
    if left and not replayed and log.exists():
        _quarantine_wal(log, "its beginning is damaged")
    elif not left and file.stat().st_size < HEADER_BYTES + block * blocks:
        connection.close()
        raise duckdb.IOException(f"The file holds {file.stat().st_size} bytes of {HEADER_BYTES + block * blocks}")
    return connection


def _quarantine_wal(log: Path, reason: str) -> None:
    aside = log.with_name(f"{log.name}.{datetime.now(UTC):%Y%m%dT%H%M%S%f}.unreadable")
    durable.replace_path(log, aside)
    status = aside.stat()
    logger.warning(
        "%s: cannot be replayed, and was set aside as %s. Lost: %s bytes, all that was written to the warehouse until "
        "%s UTC since its last checkpoint: the work of one stage at most, which the run does again. (%s)",
        *(log, aside.name, f"{status.st_size:,}"),
        f"{datetime.fromtimestamp(status.st_mtime, UTC):%Y-%m-%d %H:%M:%S}",
        reason,
    )


@contextlib.contextmanager
def open_warehouse(home: Home, *, read_only: bool = False) -> Generator[duckdb.DuckDBPyConnection]:
    """Open the warehouse, create its tables if absent, and close it at the end.

    Waits while another program has it open. Closing writes a checkpoint, so that DuckDB's log never holds more than the
    work of one opening.

    Raises:
        InputError: another program holds it for too long, the folder is not writable, the file is damaged or of a newer
            version, or it lacks a table when opened for reading.
    """
    connection = _open_database(home, read_only=read_only)
    try:
        if read_only:
            check_version(connection, home)
        else:
            migrate_schema(connection, home)
        yield connection
        if not read_only:
            connection.execute("checkpoint")
    except duckdb.Error as error:
        if (explained := _explain_error(home, error, read_only=read_only)) is None:
            raise
        raise explained from error
    finally:
        connection.close()


def fetch_row(connection: duckdb.DuckDBPyConnection, query: str, values: Any = None) -> tuple[Any, ...]:
    """Run a query that returns one row, and return the row."""
    return connection.execute(query, values).fetchall()[0]


def select(
    connection: duckdb.DuckDBPyConnection, name: str, names: Mapping[str, str] | None = None, /, **values: Any
) -> pl.DataFrame:
    """Run the query of this name in `sql/` and return its rows.

    Args:
        names: identifiers and relations that replace `{key}` in the query.
        values: the values of all parameters `$key` of the query.
    """
    return query(connection, sql.statement(name, **(names or {})), **values)


def query(connection: duckdb.DuckDBPyConnection, text: str, **values: Any) -> pl.DataFrame:
    """Run a query and return its rows; `values` are those of all its parameters `$key`."""
    connection.complete()  # discards a result that `fetchone` has not read to its end
    return connection.sql(text, params=values).pl()


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> None:
    """Append rows to a table, matching columns by name."""
    if rows.is_empty():
        return
    connection.complete()
    connection.register("incoming", rows)
    connection.execute(f"insert into {table} by name select * from incoming")
    connection.unregister("incoming")


def drop_temporary(connection: duckdb.DuckDBPyConnection) -> None:
    """Drop a stage's temporary tables, whose memory its next steps need."""
    for (table,) in connection.execute("select table_name from duckdb_tables() where temporary").fetchall():
        connection.execute(f"drop table temp.{table}")


def table_digest(connection: duckdb.DuckDBPyConnection, table: str) -> str:
    """Return a digest of the rows of a table, independent of their order."""
    digest = "concat_ws(' ', count(*), bit_xor(hash(rows)), sum(hash(rows) & 1099511627775))"
    return fetch_row(connection, f"select {digest} from {table} as rows")[0]
