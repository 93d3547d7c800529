"""Read the tables of one run from the warehouse, by the queries of `sql/report.sql`."""

from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl

from oneclass import sql
from oneclass.data_contracts.contracts import STAGES
from oneclass.tasks import protocols
from oneclass.tasks.report.rows import Row
from oneclass.tasks.stores import warehouse


@dataclass(frozen=True)
class RunTables:
    """Reads the report's tables of one run."""

    connection: duckdb.DuckDBPyConnection
    run_id: str

    def __call__(self, name: str, **more: Any) -> pl.DataFrame:
        """Run the query `report/<name>`; `more` are additional parameters of the query."""
        query = f"report/{name}"
        parameters: dict[str, Any] = {
            "run_id": self.run_id,
            "stages": list(STAGES),
            **protocols.main_metric_parameters(),
            **more,
        }
        values = {key: value for key, value in parameters.items() if f"${key}" in sql.statement(query)}
        return warehouse.select(self.connection, query, **values)

    def as_rows(self, name: str, **more: Any) -> list[Row]:
        """Run a query as `__call__` does, and return rows as dictionaries."""
        return self(name, **more).to_dicts()
