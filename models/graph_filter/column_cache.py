"""A least-recently-used cache of the filter's columns."""

import threading
from collections.abc import Callable, Iterator

import numpy as np

ColumnMaker = Callable[[list[int]], Iterator[tuple[np.ndarray, np.ndarray]]]


class ColumnCache:
    """Two tables with a row for each cached item.

    Attributes:
        columns: float32 (capacity, size), the column without its low-pass.
        factors: float32 (capacity, k), the column of the low-pass's second factor.
        rows: the row of each item in the tables, most recently used last.
        lock: to be held from `lookup` until the rows are read; later they may hold other items.
    """

    def __init__(self, capacity: int, size: int, factors: int) -> None:
        self.columns = np.empty((capacity, size), dtype=np.float32)  # pages are allocated when filled
        self.factors = np.empty((capacity, factors), dtype=np.float32)
        self.rows: dict[int, int] = {}
        self.lock = threading.Lock()

    @property
    def capacity(self) -> int:
        """Number of items that fit."""
        return len(self.columns)

    def lookup(self, items: np.ndarray, make: ColumnMaker) -> np.ndarray:
        """Return the rows of some items, int64 (n,), of at most `capacity` different ones.

        Args:
            make: computes the column and the factor of each missing item.
        """
        wanted = dict.fromkeys(items.tolist())
        missing = [item for item in wanted if item not in self.rows]
        computed = list(make(missing)) if missing else []
        recent = {item: self.rows.pop(item) for item in wanted if item in self.rows}
        for item, (column, factor) in zip(missing, computed, strict=True):
            row = len(self.rows) + len(recent)  # the next free row
            if row == self.capacity:
                row = self.rows.pop(next(iter(self.rows)))
            self.columns[row], self.factors[row], recent[item] = column, factor, row
        self.rows |= recent
        return np.array([recent[item] for item in items.tolist()])
