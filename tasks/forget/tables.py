"""Copy a warehouse into a new file without users.

DuckDB keeps the bytes of deleted rows in free blocks of its file, so rows are left out of a copy instead.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb

from oneclass import sql
from oneclass.tasks.errors import InputError
from oneclass.tasks.forget.rewrite import Digests
from oneclass.tasks.stores import publications, warehouse
from oneclass.tasks.stores.home import Home

EMPTIED = ("indexed.", "published.", "operations.stage_results")
"""Tables, and schemas, whose rows the next run makes anew."""
OWN_ROWS = ("operations.schema_version",)
"""Tables that the new file has its own rows of."""


COPIES = {
    "raw.places": "forget/places",
    "raw.rejects": "forget/rejects",
    "raw.attributes": "forget/attributes",
    "operations.attribute_tables": "forget/attribute_tables",
    "operations.contract_results": "forget/contract_results",
    "operations.arrivals": "forget/arrival_reasons",
}
"""Tables of whose rows a statement of `sql/forget.sql` selects those to copy."""


class RewrittenLog(NamedTuple):
    """A log in the warehouse whose file was rewritten."""

    file_id: int
    sha256_before: str
    digests: Digests


def check_tables(connection: duckdb.DuckDBPyConnection, home: Home) -> None:
    """Refuse a warehouse with tables that are not this program's, which would not be copied.

    Raises:
        InputError: naming them.
    """
    with duckdb.connect() as empty:
        warehouse.migrate_schema(empty, home)
        own = {name for name, _ in _list_tables(empty)}
    if others := sorted({name for name, _ in _list_tables(connection)} - own):
        raise InputError(
            f"{home.warehouse}: has tables that are not this program's: {', '.join(others)}. They may hold users too: "
            "move them to another database, drop them here, and run again."
        )


def copy_remaining_rows(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    target: Path,
    *,
    users: Sequence[str],
    pattern: str,
    rewritten: Sequence[RewrittenLog],
) -> dict[str, int]:
    """Copy the warehouse to `target` without users, their lines in `forgotten_lines`, and what was made from them.

    Args:
        pattern: matches an id in a text.
        rewritten: logs in the warehouse whose files have other bytes.

    Returns:
        The number of rows that were left out of each table with users.
    """
    with duckdb.connect(str(target.absolute()), config=warehouse.database_config(home)) as new:
        new.execute("set TimeZone = 'UTC'")
        warehouse.migrate_schema(new, home)
    connection.execute(f"attach '{publications.quote_path(target)}' as clean")
    removed = {}
    for name, has_user_ids in _list_tables(connection):
        if name in OWN_ROWS:
            continue
        rows, values = f"from {name}", {}
        if name.startswith(EMPTIED):
            rows = f"from {name} where false"
        elif name in COPIES:
            rows = sql.statement(COPIES[name])
            given = {"pattern": pattern, "users": list(users)}
            values = {name: value for name, value in given.items() if f"${name}" in rows}
        elif has_user_ids:
            rows, values = f"from {name} where user_id not in $users", {"users": list(users)}
        before = warehouse.fetch_row(connection, f"select count(*) from {name}")[0]
        (after,) = warehouse.fetch_row(connection, f"insert into clean.{name} by name {rows}", values)
        if before != after and not name.startswith(EMPTIED):
            removed[name] = before - after
    _update_registry(connection, rewritten)
    connection.execute("checkpoint clean")
    connection.execute("detach clean")
    return removed


def _update_registry(connection: duckdb.DuckDBPyConnection, rewritten: Sequence[RewrittenLog]) -> None:
    """Set digests and counts of logs that lost lines, so that the next run knows their files."""
    connection.execute(
        sql.statement("forget/log_files"),
        {
            "file_ids": [log.file_id for log in rewritten],
            "digests_before": [log.sha256_before for log in rewritten],
            "digests": [log.digests.sha256 for log in rewritten],
            "sizes": [log.digests.size for log in rewritten],
            "contents": [log.digests.content_sha256 for log in rewritten],
        },
    )
    connection.execute(sql.statement("forget/counts"))
    connection.execute(sql.statement("forget/arrivals"))


def _list_tables(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, bool]]:
    """List the tables of a connection's database, and whether they have a column of users' ids."""
    (database,) = warehouse.fetch_row(connection, "select current_database()")
    return connection.execute(sql.statement("forget/tables"), {"database": database}).fetchall()
