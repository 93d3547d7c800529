"""What the warehouse holds of one run, each table the rows of a query in `sql/report/`."""

from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl

import sql
from data_contracts.contracts import STAGES
from tasks import protocols
from tasks.report.figures import Row
from tasks.stores import warehouse


@dataclass(frozen=True)
class RunTables:
    """Reads what the page shows of one run."""

    connection: duckdb.DuckDBPyConnection
    run_id: str

    def __call__(self, name: str, **more: Any) -> pl.DataFrame:
        """The rows of `sql/report/<name>.sql`; `more` are parameters of this query alone."""
        query = f"report/{name}"
        known: dict[str, Any] = {"run_id": self.run_id, "stages": list(STAGES), **protocols.main_metrics(), **more}
        values = {key: value for key, value in known.items() if f"${key}" in sql.statement(query)}
        return warehouse.select(self.connection, query, **values)

    def to_draw(self, name: str, **more: Any) -> list[Row]:
        """The same, as a figure takes them."""
        return self(name, **more).to_dicts()
