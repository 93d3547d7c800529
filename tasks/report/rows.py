"""Rows of the warehouse's tables as dictionaries, and what texts and figures take from them."""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import numpy as np

Row = dict[str, Any]  # of a table of the warehouse, by column


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


def bin_centres(rows: list[Row], prefix: str = "degree") -> np.ndarray:
    """Return the positions of degree bins on a logarithmic axis; a bin with degree zero begins at one half."""
    low, high = column_values(rows, f"{prefix}_low"), column_values(rows, f"{prefix}_high")
    return np.sqrt(np.maximum(low, 0.5) * np.maximum(high, 0.5))


def weighted_mean(
    rows: list[Row], value: str, weight: str = "edges", where: Callable[[Row], bool] | None = None
) -> float:
    """Return the mean of a column weighted by another, over the selected rows; NaN without rows."""
    chosen = [row for row in rows if where is None or where(row)]
    total = sum(row[weight] for row in chosen)
    return sum(row[value] * row[weight] for row in chosen) / total if total else float("nan")


def join_words(words: list[str]) -> str:
    """Join words: a; a and b; a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
