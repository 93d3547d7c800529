"""Rows of the warehouse for the page, each query by its file in `sql/report/`."""

from dataclasses import dataclass
from typing import Any

import duckdb

import sql
from tasks.main_table import MAIN_METRICS

Row = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """Reads rows of one run.

    Attributes:
        previous_run_id: None where there is no completed run before this one.
    """

    connection: duckdb.DuckDBPyConnection
    run_id: str
    previous_run_id: str | None = None

    def __call__(self, name: str) -> list[Row]:
        """The rows of `sql/report/<name>.sql`."""
        text = sql.statement(f"report/{name}")
        values = {key: value for key, value in self._values().items() if f"${key}" in text}
        cursor = self.connection.execute(text, values)
        columns = [column[0] for column in cursor.description]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]

    def one(self, name: str) -> Row:
        """The only row of a query."""
        (row,) = self(name)
        return row

    def _values(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "previous_run_id": self.previous_run_id,
            "protocols": list(MAIN_METRICS),
            "metrics": [metrics[0] for metrics in MAIN_METRICS.values()],
        }
