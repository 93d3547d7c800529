"""One DuckDB file a data set: how it is opened, and the one transaction that a stage gets.

Writers are short and one at a time; nothing of a stage is seen before its contract has been checked.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import polars as pl

import data_contracts
import sql
from tasks.errors import InputError
from tasks.stores import database, schema
from tasks.stores.home import Home


@contextlib.contextmanager
def connect(home: Home, *, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the warehouse, made with its tables where it is absent, and close it at the end.

    Where another program has it open, it is waited for. What was written is in the file itself at the end (a
    checkpoint), so that no more than the work of one opening is ever in DuckDB's log alone.

    Raises:
        InputError: another program holds it for too long, the folder cannot be written to, the file is not a
            whole warehouse or is of a newer version, or it is opened for reading and lacks a table that is asked for.
    """
    connection = database.connect(home, read_only=read_only)
    try:
        if read_only:
            schema.refuse_newer(connection, home)
        else:
            schema.bring_up_to_date(connection, home)
        yield connection
        if not read_only:
            connection.execute("checkpoint")
    except duckdb.CatalogException as error:
        if not read_only:
            raise
        raise InputError(_why_lacking(home, error)) from error
    except duckdb.Error as error:
        if (told := database.why(home, error)) is None:
            raise
        raise told from error
    finally:
        connection.close()


@contextlib.contextmanager
def stage(
    home: Home, run_id: str, name: str, parameters: dict[str, Any] | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """One transaction for the stage `name`: committed when the block ends and the stage's contracts hold.

    Every result of a contract is kept in `operations.contract_results`, also when a breach takes the
    stage's own work back.

    Args:
        parameters: values that the contracts' rules refer to by name; the block may add to them.

    Raises:
        ContractBroken: a rule of severity `error` was broken; the warehouse is as it was.
    """
    with connect(home) as connection:
        connection.begin()
        try:
            yield connection
            results = data_contracts.check(connection, name, {"run_id": run_id, **(parameters or {})})
            data_contracts.raise_if_broken(name, results)
            _record(connection, run_id, name, results)
            connection.commit()
        except data_contracts.ContractBroken:
            connection.rollback()
            _record(connection, run_id, name, results)
            raise
        except BaseException:
            with contextlib.suppress(duckdb.Error):
                connection.rollback()
            raise


def select(
    connection: duckdb.DuckDBPyConnection, name: str, names: Mapping[str, str] | None = None, **values: Any
) -> pl.DataFrame:
    """The rows of the query `sql/<name>.sql`.

    Args:
        names: identifiers and relations by `key`, to stand for `{key}` in the query.
        values: of the query's parameters `$key`, all of them and no others.
    """
    connection.complete()  # a result that `fetchone` has not read to its end would be in the way
    return connection.sql(sql.statement(name, **(names or {})), params=values).pl()


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> None:
    """Append rows to a table, each column to the one of the same name."""
    if rows.is_empty():
        return
    connection.complete()
    connection.register("incoming", rows)
    connection.execute(f"insert into {table} by name select * from incoming")
    connection.unregister("incoming")


def drop_temporary(connection: duckdb.DuckDBPyConnection) -> None:
    """Drop what a stage made on its way: temporary tables would take memory from its contracts."""
    found = connection.execute("select table_name from duckdb_tables() where temporary").fetchall()
    for (table,) in found:
        connection.execute(f"drop table temp.{table}")


def _record(connection: duckdb.DuckDBPyConnection, run_id: str, stage_name: str, results: list) -> None:
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


def _why_lacking(home: Home, error: duckdb.Error) -> str:
    what = str(error).splitlines()[0]
    return f"{home.warehouse}: is of an earlier version of this program ({what}). Any run on {home.dataset} updates it."
