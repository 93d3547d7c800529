"""Remove users from a home: files, warehouse, and everything that was computed from them but the publications.

Order, so that a command that was cut off can be repeated at any moment:

1. the rewritten files lie in `landing/.forget-*`, and the warehouse's copy in `.forget-warehouse.duckdb`;
2. `forgotten/pending.json` has the ids, and what is removed;
3. the copy replaces the warehouse, and knows the digests of the rewritten files;
4. these replace the files, and equal the ones that a second try would write;
5. matrices, fits, reports and the rest are deleted;
6. once the rebuilt lists are published, earlier publications are deleted, and a certificate replaces the ids.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.forget.files import UNKNOWN, FileEditor, StagedFile, match_words
from oneclass.tasks.ingest import file_registry
from oneclass.tasks.ingest.files import FileStillChanging
from oneclass.tasks.ingest.landing import note_of
from oneclass.tasks.ingest.sources import LogFile
from oneclass.tasks.stores import checksums, durable, erasures, publications, runs, warehouse
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

STAGED = ".forget-"
COPY, SCRATCH = f"{STAGED}warehouse.duckdb", f"{STAGED}scratch.duckdb"
DERIVED = (
    "matrices", "models", "report", "spill", "sums", "data_docs", "tuning/study.db*",
    "warehouse.duckdb.wal.*", "published.*.set-aside",
)  # fmt: skip
"""What is made from the warehouse, except publications; and what was set aside as damaged or of earlier versions."""
EMPTIED = ("indexed.", "published.", "operations.stage_results", "operations.schema_version")
"""Tables, and schemas, whose rows are not copied: the next run makes them anew, or the new file has its own."""
OF_LOGS = ("raw.events", "raw.rejects", "raw.places")
"""Tables that have the rows of a rewritten log as it was read back."""
FREE_TEXT = {name: "'[removed]'" for name in ("line", "reason", "observed", "alarm")} | {"samples": "'[]'::json"}
"""Columns in which an id may stand, and what takes the place of such a text."""


def remove_users(home: Home, dataset: Dataset, users: Sequence[str]) -> int:
    """Remove every trace of users from the home, except from its publications, and return how many events are left.

    Prefect's records of runs whose contracts named a user go, too.

    Raises:
        InputError: a user is in no log, another run holds the data set, the warehouse is absent or has other tables,
            or a file of the landing folder is being written to; nothing was changed.
    """
    if not home.warehouse.exists():
        raise InputError(f"{home.warehouse}: does not exist, so {home.folder} has nobody to forget.")
    with runs.lock_data_set(home):
        pending = erasures.load_pending(home)
        wanted = sorted({*pending["users"], *users})
        logs = file_registry.load_known_files(home)
        with warehouse.open_warehouse(home) as connection:
            runs.remove_partial_files(home)
            tables = _create_copy(connection, home)
            known = {log.content_sha256: log.file_id for log in logs} | {log.sha256: log.file_id for log in logs}
            with _create_database(home, SCRATCH) as scratch:
                editor = FileEditor(scratch, dataset, wanted, known)
                staged, left = _stage_files(home, editor)
            counts = _fetch(connection, "forget/users", users=wanted)
            events = {user: count for user, count, _ in counts}
            if unknown := {*wanted} - pending["users"].keys() - editor.found - events.keys():
                connection.execute("detach clean")
                runs.remove_partial_files(home)
                raise InputError(
                    f"--user {' '.join(sorted(unknown))}: no log of {home.dataset} has such a user, neither in the "
                    f"warehouse nor in {home.landing}; nothing was changed. Write ids as they stand in the logs."
                )
            in_logs = {file_id for _, _, file_ids in counts for file_id in file_ids}
            left += [log.path for log in logs if log.file_id in in_logs and Path(log.name).is_absolute()]
            left += [path for (path,) in _fetch(connection, "forget/tables_elsewhere", users=wanted)]
            named_in = [run_id for (run_id,) in _fetch(connection, "forget/naming_runs", users=wanted)]
            events_left = _copy_rows(connection, home, tables, wanted, staged)
        # A second try finds only what the first left, which noted the rest.
        pending["users"] = dict.fromkeys(wanted, 0) | events | pending["users"]
        pending["files"] = {str(one.location.relative_to(home.folder)): one.lines for one in staged} | pending["files"]
        pending["left"] = sorted({*left, *pending["left"]})
        erasures.save_pending(home, pending)
        if named_in:
            from oneclass.tasks.orchestration import artifacts  # which loads Prefect

            artifacts.delete_runs(named_in)
        durable.install_file(home.folder / COPY, home.warehouse)
        for file in staged:
            # A note shows cells of its file, maybe cut off, so that no search would find an id in it.
            note_of(file.location).unlink(missing_ok=True)
            _install(file)
        for path in [path for pattern in DERIVED for path in home.folder.glob(pattern)]:
            checksums.remove_path(path)
        durable.sync_path(home.folder)
        runs.remove_partial_files(home)
    for path in pending["left"]:
        logger.warning("%s: has a forgotten user, or cannot be searched: take the user out, or delete the file", path)
    return events_left


def certify_removal(home: Home, run_id: str | None) -> Path:
    """Delete all publications but that of the run that rebuilt, and write the certificate.

    Args:
        run_id: the run; None if it published nothing, so that nothing is published any more.

    Raises:
        InputError: another run holds the data set.
    """
    with runs.lock_data_set(home):
        if run_id is None and home.published.is_symlink():
            home.published.unlink()
        with warehouse.open_warehouse(home) as connection:
            publications.remove_others(connection, home, [run_id] if run_id else [])
        for folder in (home.folder, *home.folder.glob("publications")):
            durable.sync_path(folder)
        return erasures.write_certificate(home, run_id)


def _fetch(connection: duckdb.DuckDBPyConnection, name: str, **values: Any) -> list[tuple[Any, ...]]:
    return connection.execute(sql.statement(name), values).fetchall()


def _create_database(home: Home, file: str) -> duckdb.DuckDBPyConnection:
    """Create a database with the warehouse's tables."""
    connection = duckdb.connect(str((home.folder / file).absolute()), config=warehouse.database_config(home))
    connection.execute("set TimeZone = 'UTC'")
    warehouse.migrate_schema(connection, home)
    return connection


def _create_copy(connection: duckdb.DuckDBPyConnection, home: Home) -> dict[str, list[str]]:
    """Create the copy of the warehouse without rows, attach it as `clean`, and return the tables' columns.

    Raises:
        InputError: the warehouse has tables that are not this program's, which would not be copied.
    """
    _create_database(home, COPY).close()
    connection.execute(f"attach '{publications.quote_path(home.folder / COPY)}' as clean")
    tables: dict[str, list[str]] = defaultdict(list)
    for table, column in _fetch(connection, "forget/columns", database="warehouse"):
        tables[table].append(column)
    own = {table for table, _ in _fetch(connection, "forget/columns", database="clean")}
    if others := sorted(tables.keys() - own):
        raise InputError(
            f"{home.warehouse}: has tables that are not this program's: {', '.join(others)}. They may hold users too: "
            "move them to another database, drop them here, and run again."
        )
    return tables


def _stage_files(home: Home, editor: FileEditor) -> tuple[list[StagedFile], list[str]]:
    """Write the files of the landing folder without users; returns those that a person has to edit, too."""
    staged, left = [], []
    for number, location in enumerate(sorted(path for path in home.landing.rglob("*") if path.is_file())):
        if location in [note_of(file.location) for file in staged]:  # it is deleted
            continue
        folder = home.landing / f"{STAGED}{number}"
        folder.mkdir()
        try:
            file = editor.stage_file(location, folder)
        except FileStillChanging:
            raise
        except InputError as error:
            logger.info("%s", error)
            left.append(str(location.resolve()))
        else:
            staged += [file] if file else []
    return staged, left


def _install(file: StagedFile) -> None:
    if file.path is not None:
        durable.install_file(file.path, file.location)
        return
    file.location.unlink()
    durable.sync_path(file.location.parent)


def _copy_rows(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    tables: dict[str, list[str]],
    users: list[str],
    staged: list[StagedFile],
) -> int:
    """Copy the warehouse without users and what was made from them, and return the number of events.

    DuckDB keeps the bytes of deleted rows in free blocks of its file, so rows are left out of a copy instead. Rewritten
    logs have the rows that they were read back with; one that is now empty, or equal to another, is no longer there.
    """
    rewritten = {file.file_id: file.log for file in staged if file.file_id != UNKNOWN}
    texts = "select coalesce(content_sha256, sha256) from operations.log_files where file_id not in ?"
    contents = {text for (text,) in connection.execute(texts, [[*rewritten]]).fetchall()}
    kept: dict[int, LogFile] = {}
    for file_id, log in sorted(rewritten.items(), key=lambda one: one[0]):
        if log is not None and log.content_sha256 not in contents:
            kept[file_id] = log
            contents.add(log.content_sha256)
    given = {"users": users, "pattern": match_words(users), "rewritten": [*rewritten]}
    connection.execute(f"attach '{publications.quote_path(home.folder / SCRATCH)}' as scratch (read_only)")
    for name, columns in tables.items():
        if name.startswith(EMPTIED):
            continue
        rows = _select_rows(name, columns)
        values = {key: value for key, value in given.items() if f"${key}" in rows}
        connection.execute(f"insert into clean.{name} by name {rows}", values)
        if name in OF_LOGS:
            connection.execute(f"insert into clean.{name} by name from scratch.{name} where file_id in ?", [[*kept]])
    for file_id in rewritten:
        if log := kept.get(file_id):
            values = {"sha256": log.sha256, "bytes": log.size, "content": log.content_sha256, "file_id": file_id}
            _fetch(connection, "forget/log_files", **values)
        else:
            connection.execute("delete from clean.operations.log_files where file_id = ?", [file_id])
    for statement in ("forget/counts", "forget/arrivals", "forget/attribute_tables"):
        _fetch(connection, statement)
    (events,) = warehouse.fetch_row(connection, "select count(*) from clean.raw.events")
    connection.execute("detach scratch")
    connection.execute("checkpoint clean")
    connection.execute("detach clean")
    return events


def _select_rows(name: str, columns: list[str]) -> str:
    """Return the statement that selects the rows of a table without users."""
    texts = [
        f"if(regexp_matches({column}::varchar, $pattern), {FREE_TEXT[column]}, {column}) as {column}"
        for column in columns
        if column in FREE_TEXT
    ]
    conditions = ["user_id not in $users"] * ("user_id" in columns) + ["file_id not in $rewritten"] * (name in OF_LOGS)
    if name == "raw.places":
        lines = "select (file_id, line_number) from raw.events where user_id in $users"
        conditions.append(f"(file_id, line_number) not in ({lines})")
    if name == "raw.attributes":
        conditions.append("not (side = 'user' and id in $users)")
    replaced = f"select * replace ({', '.join(texts)})" if texts else "select *"
    return f"{replaced} from {name} where {' and '.join(conditions) or 'true'}"
