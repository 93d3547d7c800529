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
    """Count and first rows of each query of a table, by the rule's name, in their order.

    It ends after the rule `columns` where that is broken, as the others would ask for columns that there are not,
    and with the first query that fails, as DuckDB then gives the transaction up.
    """

    metric_name = "unexpected_rows.breaches"
    value_keys = ("queries",)

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
        found: dict[str, Any] = {}
        with execution_engine.get_connection() as connection:
            for rule, query in metric_value_kwargs["queries"].items():
                try:
                    found[rule] = _breaches(connection, query.format(batch=f"({batch})"))
                except sqlalchemy.exc.DBAPIError as error:
                    found[rule] = {"count": None, "rows": [], "failure": str(error.orig)}
                if found[rule]["count"] is None or (rule == COLUMNS and found[rule]["count"]):
                    break
        return found


def _breaches(connection: sqlalchemy.Connection, query: str) -> dict[str, Any]:
    """How many rows a query finds, and the first of them where there are any."""
    count = connection.exec_driver_sql(sql.statement("data_contracts/breaches_counted", query=query)).scalar()
    rows: list[dict[str, Any]] = []
    if count:
        text = sql.statement("data_contracts/breaches", samples=str(SAMPLES_KEPT), query=query)
        rows = [dict(row) for row in connection.exec_driver_sql(text).mappings()]
    return {"count": count, "rows": rows}


class UnexpectedRows(BatchExpectation):
    """The expectation type `unexpected_rows`: none of the queries, by the rules' names, finds a row.

    One expectation asks all queries of a table: Great Expectations' own work on an expectation takes longer than
    DuckDB's on most queries.
    """

    queries: dict[str, str]

    metric_dependencies = ("unexpected_rows.breaches",)
    success_keys = ("queries",)

    def _validate(
        self, metrics: dict, runtime_configuration: dict | None = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        found = metrics["unexpected_rows.breaches"]
        held = len(found) == len(self.queries) and not any(one["count"] for one in found.values())
        result = {"observed_value": sum(one["count"] or 0 for one in found.values()), "details": found}
        return {"success": held, "result": result}
