"""Read the tables of one run from the warehouse, and take rows apart for texts and figures."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import duckdb
import numpy as np
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
    for value, of_value in groupby(rows, key):
        groups.setdefault(value, []).extend(of_value)
    return groups


def column_values(rows: list[Row], name: str) -> np.ndarray:
    """Return a column as float64; NULL is NaN."""
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)


def bin_centres(rows: list[Row]) -> np.ndarray:
    """Return the positions of degree bins on a logarithmic axis; a bin with degree zero begins at one half."""
    low, high = column_values(rows, "degree_low"), column_values(rows, "degree_high")
    return np.sqrt(np.maximum(low, 0.5) * np.maximum(high, 0.5))


def weighted_mean(rows: list[Row], value: str, where: Callable[[Row], bool] | None = None) -> float:
    """Return the mean of a column over the edges of the selected rows; NaN without rows."""
    chosen = [row for row in rows if where is None or where(row)]
    total = sum(row["edges"] for row in chosen)
    return sum(row[value] * row["edges"] for row in chosen) / total if total else float("nan")


def join_words(words: list[str]) -> str:
    """Join words: a; a and b; a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
