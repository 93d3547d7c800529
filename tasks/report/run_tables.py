"""What the warehouse holds of one run, each table the rows of a query in `sql/report.sql`."""

from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl

from oneclass import sql
from oneclass.data_contracts.contracts import STAGES
from oneclass.tasks import protocols
from oneclass.tasks.report.plotting import Row
from oneclass.tasks.stores import warehouse


@dataclass(frozen=True)
class RunTables:
    """Reads what the page shows of one run."""

    connection: duckdb.DuckDBPyConnection
    run_id: str

    def __call__(self, name: str, **more: Any) -> pl.DataFrame:
        """The rows of the query `report/<name>`; `more` are parameters of this query alone."""
        query = f"report/{name}"
        known: dict[str, Any] = {
            "run_id": self.run_id,
            "stages": list(STAGES),
            **protocols.main_metric_parameters(),
            **more,
        }
        values = {key: value for key, value in known.items() if f"${key}" in sql.statement(query)}
        return warehouse.select(self.connection, query, **values)

    def as_rows(self, name: str, **more: Any) -> list[Row]:
        """The same, as a figure takes them."""
        return self(name, **more).to_dicts()
