"""Partitions of rows into parts of about equal load; sums over parts, added in order, do not depend on the threads.

The load of a row is the number of its entries, plus a cost of the row itself. Partitions depend only on the rows.
"""

from collections.abc import Iterator

import numpy as np


def partition_rows(starts: np.ndarray, count: int, row_cost: int = 0, *, whole: bool = False) -> np.ndarray:
    """Partition rows into `count` parts; with few rows, some parts are empty.

    Args:
        starts: (rows + 1,), where the entries of each row begin, or the load of the rows before it.
        row_cost: the cost of a row beside its entries, in entries.
        whole: round the ideal bounds down to whole numbers of entries, as `models.bpr` needs for its published bits.

    Returns:
        Bounds int64 (count + 1,), from 0 to the number of rows.
    """
    load = starts + np.arange(len(starts)) * row_cost
    shares = load[-1] * np.arange(count + 1) // count if whole else np.linspace(0, load[-1], count + 1)
    bounds = np.searchsorted(load, shares)
    bounds[0], bounds[-1] = 0, len(load) - 1
    return bounds


def partition_shards(starts: np.ndarray, count: int = 64) -> np.ndarray:
    """Return bounds int64 (shards + 1,) of at most `count` nonempty parts; a row costs as much as eight entries."""
    if len(starts) <= 2:  # folding in one user, update by update
        return np.arange(len(starts))
    return np.unique(partition_rows(starts, count, 8))


def partition_evenly(rows: int, count: int) -> np.ndarray:
    """Return bounds int64 (count + 1,) of `count` parts with about equal numbers of rows."""
    return np.linspace(0, rows, count + 1).astype(np.int64)


def partition_by_budget(sizes: np.ndarray, budget: int) -> Iterator[slice]:
    """Partition rows into parts whose sizes sum to at most `budget`; a larger row is a part of its own."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))
        yield slice(start, stop)
        start = stop
