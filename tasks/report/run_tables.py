"""Read the tables of one run from the warehouse, and group rows for tables and figures."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl

from oneclass import sql
from oneclass.data_contracts.contracts import STAGES
from oneclass.tasks import protocols
from oneclass.tasks.stores import warehouse

Row = dict[str, Any]  # of a table of the warehouse, by column


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


def group_rows(rows: Iterable[Row], *keys: str) -> dict[Any, list[Row]]:
    """Group rows by one column, or by a tuple of several, in order of first appearance."""

    def key(row: Row) -> Any:
        return row[keys[0]] if len(keys) == 1 else tuple(row[name] for name in keys)

    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def join_words(words: list[str]) -> str:
    """Join words: a; a and b; a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
