"""Columns of the filter, of which a loaded model keeps those that were asked for last."""

import threading
from collections.abc import Callable, Iterator

import numpy as np

ColumnMaker = Callable[[list[int]], Iterator[tuple[np.ndarray, np.ndarray]]]


class ColumnCache:
    """Two tables with a row for each item whose column was asked for.

    Attributes:
        columns: float32 (room, size), the column without its low-pass.
        factors: float32 (room, k), that of the low-pass's second factor.
        rows: the row of each item in the tables; those asked for last come last.
        turn: to be held from `rows_of` until the rows are read, after which they may be another item's.
    """

    def __init__(self, room: int, size: int, factors: int) -> None:
        self.columns = np.empty((room, size), dtype=np.float32)  # takes memory as it is filled
        self.factors = np.empty((room, factors), dtype=np.float32)
        self.rows: dict[int, int] = {}
        self.turn = threading.Lock()

    @property
    def room(self) -> int:
        """How many items there is a row for."""
        return len(self.columns)

    def lookup(self, items: np.ndarray, make: ColumnMaker) -> np.ndarray:
        """int64 (n,), the rows of some items, at most `room` of them.

        Args:
            make: gives the column and the factor of each of the items that have no row.
        """
        asked = dict.fromkeys(items.tolist())
        missing = [item for item in asked if item not in self.rows]
        made = list(make(missing)) if missing else []
        found = {item: self.rows.pop(item) for item in asked if item in self.rows}
        for item, (column, factor) in zip(missing, made, strict=True):
            row = len(self.rows) + len(found)  # the next one, until all are taken
            if row == self.room:
                row = self.rows.pop(next(iter(self.rows)))
            self.columns[row], self.factors[row], found[item] = column, factor, row
        self.rows |= found
        return np.array([found[item] for item in items.tolist()])
