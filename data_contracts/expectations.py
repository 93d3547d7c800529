"""What Great Expectations has to be taught: DuckDB as a data source, and the type `unexpected_rows`.

Imported only when a check runs, as Great Expectations takes seconds to load.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import sqlalchemy
from great_expectations.datasource.fluent import SQLDatasource
from great_expectations.execution_engine import SqlAlchemyExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.query_metric_provider import QueryMetricProvider

import sql
from data_contracts.contracts import COLUMNS

SAMPLES_KEPT = 20


class LentExecutionEngine(SqlAlchemyExecutionEngine):
    """Keeps its connection: Great Expectations reads rows after it has given the connection back."""

    @contextmanager
    def get_connection(self) -> Iterator[sqlalchemy.Connection]:
        """The one connection."""
        if self._connection is None:
            self._connection = self.engine.connect()
        yield self._connection


class DuckDBDatasource(SQLDatasource):
    """Defining it makes `context.data_sources.add_duckdb`."""

    type: Literal["duckdb"] = "duckdb"

    @property
    def execution_engine_type(self) -> "type[SqlAlchemyExecutionEngine]":
        """The engine that keeps its connection."""
        return LentExecutionEngine


class Breaches(QueryMetricProvider):
    """Count and first rows of what breaks each rule: for each table, by the rule's name.

    Of each table first whether the columns are as declared, then all conditions at once, then the queries. A table ends
    after the rule `columns` where that is broken, as the others would ask for columns that there are not; all ends with
    the first statement that fails, as DuckDB then gives the transaction up.
    """

    metric_name = "unexpected_rows.breaches"
    value_keys = ("tables",)

    @metric_value(engine=SqlAlchemyExecutionEngine)
    def _sqlalchemy(
        cls,
        execution_engine: SqlAlchemyExecutionEngine,
        metric_domain_kwargs: dict,
        metric_value_kwargs: dict,
        metrics: dict[str, Any],
        runtime_configuration: dict,
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        with execution_engine.get_connection() as connection:
            for asked in metric_value_kwargs["tables"]:
                found.append(_found(connection, **asked))
                if any(one["count"] is None for one in found[-1].values()):
                    break
        return found


def _found(
    connection: sqlalchemy.Connection,
    *,
    table: str,
    rows: str,
    declared: dict[str, str],
    conditions: dict[str, str],
    queries: dict[str, str],
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    batch, asking = f"({rows})", COLUMNS
    try:
        if declared:
            found[COLUMNS] = _columns(connection, table, declared)
            if found[COLUMNS]["count"]:
                return found
        asking = next(iter(conditions), asking)
        for rule, count in _counts(connection, batch, conditions).items():
            samples = _rows(connection, f"select * from {batch} where {conditions[rule]}") if count else []
            found[rule] = {"count": count, "rows": samples}
        for asking, query in queries.items():
            text = query.format(batch=batch)
            counted = sql.statement("data_contracts/breaches_counted", query=text)
            count = connection.exec_driver_sql(counted).scalar()
            found[asking] = {"count": count, "rows": _rows(connection, text) if count else []}
    except sqlalchemy.exc.DBAPIError as error:
        found[asking] = {"count": None, "rows": [], "failure": str(error.orig)}
    return found


def _columns(connection: sqlalchemy.Connection, table: str, declared: dict[str, str]) -> dict[str, Any]:
    """The columns that are not as declared, each a type and whether it is NOT NULL; None on the side that lacks it."""
    described = connection.exec_driver_sql(f"describe {table}").all()
    found = {name: kind + ("" if null == "YES" else " not null") for name, kind, null, *_ in described}
    rows = [
        {"column_name": name, "declared": declared.get(name), "found": found.get(name)}
        for name in declared | found
        if declared.get(name) != found.get(name)
    ]
    return {"count": len(rows), "rows": rows}


def _counts(connection: sqlalchemy.Connection, batch: str, conditions: dict[str, str]) -> dict[str, int]:
    """How many rows meet each condition, from one look at the table."""
    if not conditions:
        return {}
    counts = ", ".join(f"count(*) filter (where {condition})" for condition in conditions.values())
    text = sql.statement("data_contracts/conditions_counted", counts=counts, batch=batch)
    return dict(zip(conditions, connection.exec_driver_sql(text).one(), strict=True))


def _rows(connection: sqlalchemy.Connection, query: str) -> list[dict[str, Any]]:
    """The first rows that a query finds."""
    text = sql.statement("data_contracts/breaches", samples=str(SAMPLES_KEPT), query=query)
    return [dict(row) for row in connection.exec_driver_sql(text).mappings()]


class UnexpectedRows(BatchExpectation):
    """The expectation type `unexpected_rows`: no condition and no query, by the rules' names, finds a row.

    One expectation can ask all of a stage's tables: Great Expectations' own work on an expectation takes longer than
    DuckDB's on most tables.

    Attributes:
        tables: what is asked of each: `table`, its name; `rows`, the query of those that are checked; `declared`, the
            columns that it is to have, by name, which are not asked for where there are none here; `conditions`; `queries`.
    """

    tables: list[dict[str, Any]]

    metric_dependencies = ("unexpected_rows.breaches",)
    success_keys = ("tables",)

    def _validate(
        self, metrics: dict, runtime_configuration: dict | None = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        found = metrics["unexpected_rows.breaches"]
        asked = [
            (place, rule)
            for place, one in enumerate(self.tables)
            for rule in [*[COLUMNS] * bool(one["declared"]), *one["conditions"], *one["queries"]]
        ]
        counts = [found[place].get(rule, {}).get("count") if place < len(found) else None for place, rule in asked]
        result = {"observed_value": sum(count or 0 for count in counts), "details": found}
        return {"success": all(count == 0 for count in counts), "result": result}
