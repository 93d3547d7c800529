"""What Great Expectations has to be taught: DuckDB as a data source, and the type `unexpected_rows` of its pages.

Imported only when it is needed, as Great Expectations takes seconds to load.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import sqlalchemy
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.datasource.fluent import SQLDatasource
from great_expectations.execution_engine import SqlAlchemyExecutionEngine
from great_expectations.expectations.core import UnexpectedRowsExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.query_metric_provider import QueryMetricProvider

import sql

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
    """Count and first rows of a query, in one pass; Great Expectations' own metrics run the query twice."""

    metric_name = "unexpected_rows.breaches"
    value_keys = ("unexpected_rows_query",)
    query_param_name = "unexpected_rows_query"

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
        query = cls._get_query_from_metric_value_kwargs(metric_value_kwargs).format(batch=f"({batch})")
        with execution_engine.get_connection() as connection:
            text = sql.statement("data_contracts/breaches", samples=str(SAMPLES_KEPT), query=query)
            rows = connection.exec_driver_sql(text).mappings()
            samples = [dict(row) for row in rows]
        count = samples[0]["breaches_found"] if samples else 0
        return {
            "count": count,
            "rows": [{k: v for k, v in row.items() if k != "breaches_found"} for row in samples],
        }


class UnexpectedRows(UnexpectedRowsExpectation):
    """The expectation type `unexpected_rows`: a query finds no row."""

    metric_dependencies = ("unexpected_rows.breaches",)

    def _validate(
        self, metrics: dict, runtime_configuration: dict | None = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        found = metrics["unexpected_rows.breaches"]
        result = {"observed_value": found["count"], "details": {"unexpected_rows": found["rows"]}}
        return {"success": found["count"] == 0, "result": result}
