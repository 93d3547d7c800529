"""The warehouse's tables and their version: made where they are absent, and brought up to date where they are older."""

from datetime import UTC, datetime

import duckdb

import sql
from tasks.errors import InputError
from tasks.stores.home import Home


def refuse_newer(connection: duckdb.DuckDBPyConnection, home: Home) -> int:
    """The version of the tables, 0 where they were made before versions were noted, or not at all.

    Raises:
        InputError: a newer version of this program made them.
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


def bring_up_to_date(connection: duckdb.DuckDBPyConnection, home: Home) -> None:
    """Apply the migrations that the warehouse has not had, then make what is absent, all of it or none.

    Nothing is done where this has been done before, by the same statements: a run opens the warehouse dozens of times.

    Raises:
        InputError: a newer version of this program made the tables.
    """
    version = refuse_newer(connection, home)
    if version == max(sql.migrations()) and _made_by(connection) == sql.schema_digest():
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
        connection.execute("update operations.schema_version set statements = ?", [sql.schema_digest()])
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _made_by(connection: duckdb.DuckDBPyConnection) -> str:
    """The digest of the statements that last made what was absent."""
    [(digest,)] = connection.execute("select any_value(statements) from operations.schema_version").fetchall()
    return digest
