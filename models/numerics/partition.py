"""Rows cut into runs of about equal load; sums over the runs, added in order, are the same on any number of threads.

The load of a row is the number of its entries, plus a cost of the row itself. The cuts depend on the rows alone.
"""

from collections.abc import Iterator

import numpy as np


def partition_rows(starts: np.ndarray, count: int, row_cost: int = 0, *, whole: bool = False) -> np.ndarray:
    """Cut rows into `count` runs; if there are few rows, some runs are empty.

    Args:
        starts: (rows + 1,), where the entries of each row begin, or the load of the rows before it.
        row_cost: the cost of a row beside its entries, in entries.
        whole: round the wanted cuts down to whole numbers of entries, as `models.bpr` needs for its published bits.

    Returns:
        Bounds int64 (count + 1,), from 0 to the number of rows.
    """
    load = starts + np.arange(len(starts)) * row_cost
    shares = load[-1] * np.arange(count + 1) // count if whole else np.linspace(0, load[-1], count + 1)
    bounds = np.searchsorted(load, shares)
    bounds[0], bounds[-1] = 0, len(load) - 1
    return bounds


def partition_shards(starts: np.ndarray, count: int = 64) -> np.ndarray:
    """Bounds int64 (shards + 1,) of at most `count` runs, none of them empty; a row costs as much as eight entries."""
    if len(starts) <= 2:  # one user who is folded in, update by update
        return np.arange(len(starts))
    return np.unique(partition_rows(starts, count, 8))


def partition_evenly(rows: int, count: int) -> np.ndarray:
    """Bounds int64 (count + 1,) of `count` runs with about equal numbers of rows."""
    return np.linspace(0, rows, count + 1).astype(np.int64)


def partition_by_budget(numbers: np.ndarray, room: int) -> Iterator[slice]:
    """Cut rows into runs whose `numbers` sum to at most `room`; a larger row is a run of its own."""
    ends = np.cumsum(numbers)
    start = 0
    while start < len(numbers):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + room, side="right")))
        yield slice(start, stop)
        start = stop
