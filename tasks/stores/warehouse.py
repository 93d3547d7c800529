"""The warehouse, one DuckDB file per data set: lock timeouts, WAL recovery, migrations, and one transaction per stage.

Writers are short and one at a time; a stage's work becomes visible only after its contract has passed.
"""

import contextlib
import hashlib
import json
import logging
import os
import random
import time
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from oneclass import data_contracts, sql
from oneclass.tasks.errors import InputError, OneclassError, ResourceExhausted
from oneclass.tasks.stores import contract_cache, durable, resources
from oneclass.tasks.stores.home import Home


def check_version(connection: duckdb.DuckDBPyConnection, home: Home) -> int:
    """Return the version of the tables, 0 if none is recorded.

    Raises:
        InputError: a newer version of this program wrote them.
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
    return version or 0


def migrate_schema(connection: duckdb.DuckDBPyConnection, home: Home) -> None:
    """Apply the missing migrations and create absent tables, in one transaction.

    Does nothing if the same statements were applied before and the views are those that they made, since a run opens
    the warehouse dozens of times. A program from before versions replaces views without a record.

    Raises:
        InputError: a newer version of this program wrote the tables.
    """
    version = check_version(connection, home)
    if version == max(sql.migrations()) and _recorded_digest(connection) == _schema_digest(connection):
        return
    connection.begin()
    try:
        for number, statements in sql.migrations().items():
            if number > version:
                connection.execute(statements)
        for statements in sql.schema():
            connection.execute(statements)
        for number in sql.migrations():
            if number > version:
                row = [number, datetime.now(UTC).replace(tzinfo=None)]
                connection.execute("insert into operations.schema_version (version, applied_at) values (?, ?)", row)
        connection.execute("update operations.schema_version set statements = ?", [_schema_digest(connection)])
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _recorded_digest(connection: duckdb.DuckDBPyConnection) -> str:
    """Return the `_schema_digest` after the schema statements were last applied."""
    [(digest,)] = connection.execute("select any_value(statements) from operations.schema_version").fetchall()
    return digest


def _schema_digest(connection: duckdb.DuckDBPyConnection) -> str:
    """Return the digest of this program's schema statements and of the views in the warehouse."""
    views = connection.execute("select sql from duckdb_views() where not internal").fetchall()
    return f"{sql.schema_digest()} {hashlib.sha256(repr(sorted(views)).encode()).hexdigest()}"


logger = logging.getLogger(__name__)

# Readers that come and go leave gaps of milliseconds.
MIN_WAIT_SECONDS, MAX_WAIT_SECONDS, SILENT_SECONDS = 0.02, 0.25, 1.0
HEADER_BYTES = 3 * 4096  # of a DuckDB file before its first block


def open_database(home: Home, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open the warehouse's file, waiting while another program has it open.

    Raises:
        InputError: it is locked for longer than `home.limits.patience`, not writable, or damaged.
    """
    # A relative path such as `md:x` would be a service's address.
    file = Path(os.path.abspath(home.warehouse))

    def once() -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(str(file), read_only=read_only, config=database_config(home))
        connection.execute("set TimeZone = 'UTC'")
        return connection

    try:
        if not read_only:
            durable.make_folder(home.folder)
        is_new = not read_only and not file.exists()
        connection = _retry_while_locked(once if read_only else lambda: _open_with_recovery(file, once), home)
        if is_new:
            durable.sync_path(home.folder)
    except OSError as error:
        raise InputError(f"{home.folder}: cannot be written to ({error.strerror}). Choose another --home.") from error
    except duckdb.Error as error:
        raise _explain_open_error(home, error) from error
    return connection


def explain_database_error(home: Home, error: duckdb.Error) -> OneclassError | None:
    """Return an error with advice for a DuckDB error in an open warehouse; None if it is unknown."""
    text = str(error)
    if isinstance(error, duckdb.OutOfMemoryException):
        return ResourceExhausted(
            f"{home.warehouse}: DuckDB needs more memory than there is. It may take "
            f"{resources.format_size(home.limits.memory)} (--memory), and {resources.describe_free_memory()}. Give it "
            f"more of what is short, then run again.\n{text.splitlines()[0]}"
        )
    if "no space left" in text.lower() or "could not write" in text.lower():
        return ResourceExhausted(
            f"{home.folder}: the disk is full. Free some space or choose another --home, then run again.\n{text}"
        )
    if "Corrupt database file" in text or ("Could not read" in text and os.path.realpath(home.warehouse) in text):
        return _damaged_database_error(home, text)
    return None


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


def _retry_while_locked(connect_once: Callable[[], duckdb.DuckDBPyConnection], home: Home) -> duckdb.DuckDBPyConnection:
    """Retry with jittered backoff until no other process holds the file."""
    started, wait, warned = time.monotonic(), MIN_WAIT_SECONDS, False
    while True:
        try:
            connection = connect_once()
        except duckdb.Error as error:
            waited = time.monotonic() - started
            if not _is_locked(error) or waited > home.limits.patience:
                raise
            if waited > SILENT_SECONDS and not warned:
                warned = True
                logger.warning(
                    "%s: another program has it open; waiting for up to %.0f s. %s",
                    home.warehouse,
                    home.limits.patience,
                    str(error).partition(". ")[0],
                )
        else:
            if warned:
                logger.info("%s: free again after %.1f s", home.warehouse, time.monotonic() - started)
            return connection
        time.sleep(random.uniform(0, wait))
        wait = min(2 * wait, MAX_WAIT_SECONDS)


def _is_locked(error: duckdb.Error) -> bool:
    """Whether another process has the file open, or this one has it open in another mode."""
    signs = "could not set lock", "different configuration", "unique file handle conflict"
    return any(sign in str(error).lower() for sign in signs)


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
    status = log.stat()
    aside = log.with_name(f"{log.name}.{datetime.now(UTC):%Y%m%dT%H%M%S%f}.unreadable")
    durable.replace_path(log, aside)
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


def _explain_open_error(home: Home, error: duckdb.Error) -> InputError:
    text = str(error)
    if _is_locked(error):
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
    return _damaged_database_error(home, text)


def _damaged_database_error(home: Home, text: str) -> InputError:
    return InputError(
        f"{home.warehouse}: cannot be opened as a DuckDB warehouse: it is damaged or cut short. Put a copy of it back, "
        f"or move it away and run again: the run makes it anew from the log files.\n{text}"
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
    connection = open_database(home, read_only=read_only)
    try:
        if read_only:
            check_version(connection, home)
        else:
            migrate_schema(connection, home)
        yield connection
        if not read_only:
            connection.execute("checkpoint")
    except duckdb.CatalogException as error:
        if not read_only:
            raise
        raise InputError(_explain_missing_warehouse(home, error)) from error
    except duckdb.Error as error:
        if (explained := explain_database_error(home, error)) is None:
            raise
        raise explained from error
    finally:
        connection.close()


@contextlib.contextmanager
def run_stage(
    home: Home, run_id: str, name: str, parameters: dict[str, Any] | None = None
) -> Generator[duckdb.DuckDBPyConnection]:
    """Run the stage `name` in one transaction, committed if the stage's contracts hold at the end of the block.

    Every contract result is recorded in `operations.contract_results`, also when a breach rolls the stage back.

    Args:
        parameters: values that the contracts' rules refer to by name; the block may add to them.

    Raises:
        ContractBroken: a rule of severity `error` was broken; the warehouse is unchanged.
    """
    with open_warehouse(home) as connection:
        connection.begin()
        results = []
        try:
            yield connection
            results, new = contract_cache.check(connection, name, {"run_id": run_id, **(parameters or {})})
            data_contracts.raise_if_broken(name, results)
            contract_cache.store(connection, results, new)
            _record_contract(connection, run_id, name, results)
            connection.commit()
        except data_contracts.ContractBroken:
            connection.rollback()
            _record_contract(connection, run_id, name, results)
            raise
        except BaseException:
            with contextlib.suppress(duckdb.Error):
                connection.rollback()
            raise


def fetch_row(connection: duckdb.DuckDBPyConnection, query: str, values: Any = None) -> tuple[Any, ...]:
    """Run a query that returns a row, and return its first one."""
    row = connection.execute(query, values).fetchone()
    assert row is not None, query
    return row


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
    """Drop a stage's temporary tables, whose memory its contracts need."""
    found = connection.execute("select table_name from duckdb_tables() where temporary").fetchall()
    for (table,) in found:
        connection.execute(f"drop table temp.{table}")


def _record_contract(
    connection: duckdb.DuckDBPyConnection, run_id: str, stage_name: str, results: list[data_contracts.RuleResult]
) -> None:
    rows = [
        {
            "run_id": run_id,
            "stage": stage_name,
            "contract": one.contract,
            "rule": one.rule,
            "severity": one.severity,
            "success": one.success,
            "observed": one.observed,
            "samples": json.dumps(one.samples, default=str),
        }
        for one in results
    ]
    insert(connection, "operations.contract_results", pl.DataFrame(rows, infer_schema_length=None))


def _explain_missing_warehouse(home: Home, error: duckdb.Error) -> str:
    what = str(error).splitlines()[0]
    return f"{home.warehouse}: is of an earlier version of this program ({what}). Any run on {home.dataset} updates it."
