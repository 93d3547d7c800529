"""What Great Expectations has to be taught: DuckDB as a data source, and the type `unexpected_rows`.

Imported only when a check runs, as Great Expectations takes seconds to load.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import sqlalchemy
from great_expectations.core.metric_domain_types import MetricDomainTypes
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
    """Count and first rows of what breaks each rule of a table, by the rule's name.

    First whether the columns are as declared, then all conditions at once, then the queries. It ends after the rule
    `columns` where that is broken, as the others would ask for columns that there are not, and with the first
    statement that fails, as DuckDB then gives the transaction up.
    """

    metric_name = "unexpected_rows.breaches"
    value_keys = ("table", "declared", "conditions", "queries")

    @metric_value(engine=SqlAlchemyExecutionEngine)
    def _sqlalchemy(
        cls,
        execution_engine: SqlAlchemyExecutionEngine,
        metric_domain_kwargs: dict,
        metric_value_kwargs: dict,
        metrics: dict[str, Any],
        runtime_configuration: dict,
    ) -> dict[str, Any]:
        selectable, _, _ = execution_engine.get_compute_domain(
            metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE
        )
        batch = selectable.compile(dialect=execution_engine.engine.dialect, compile_kwargs={"literal_binds": True})
        asked = {name: metric_value_kwargs[name] for name in cls.value_keys}
        with execution_engine.get_connection() as connection:
            return _found(connection, f"({batch})", **asked)


def _found(
    connection: sqlalchemy.Connection,
    batch: str,
    *,
    table: str,
    declared: dict[str, str],
    conditions: dict[str, str],
    queries: dict[str, str],
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    asking = COLUMNS
    try:
        if declared:
            found[COLUMNS] = _columns(connection, table, declared)
            if found[COLUMNS]["count"]:
                return found
        asking = next(iter(conditions), asking)
        for rule, count in _counts(connection, batch, conditions).items():
            rows = _rows(connection, f"select * from {batch} where {conditions[rule]}") if count else []
            found[rule] = {"count": count, "rows": rows}
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

    One expectation asks all of a table: Great Expectations' own work on an expectation takes longer than DuckDB's on
    most of them.

    Attributes:
        declared: the columns that `table` is to have, by name; they are not asked for where there are none here.
    """

    table: str
    declared: dict[str, str]
    conditions: dict[str, str]
    queries: dict[str, str]

    metric_dependencies = ("unexpected_rows.breaches",)
    success_keys = ("table", "declared", "conditions", "queries")

    def _validate(
        self, metrics: dict, runtime_configuration: dict | None = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        found = metrics["unexpected_rows.breaches"]
        asked = bool(self.declared) + len(self.conditions) + len(self.queries)
        held = len(found) == asked and not any(one["count"] for one in found.values())
        result = {"observed_value": sum(one["count"] or 0 for one in found.values()), "details": found}
        return {"success": held, "result": result}
