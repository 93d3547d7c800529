"""The filter's entries for pairs of a history and a few items, without its low-pass.

With C = S - h S^2 = W' (W - h W S), entry (j, i) is the sum over the users of one of the two items of W times column
W (e - h S e) of the other. These columns are kept for the hubs, the items with the most edges, which have most of the
paths; `models.graph_filter.paths` sums those of the other pairs.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numba import njit

from oneclass.models.graph_filter.graph import COLUMNS, NormalizedGraph
from oneclass.models.graph_filter.paths import sum_paths
from oneclass.models.graph_filter.polynomials import apply_decay
from oneclass.models.numerics.matmul import as_read_only
from oneclass.models.numerics.simd import element

NO_HUB = -1


@dataclass(frozen=True)
class HubColumns:
    """Columns of W (I - h S) of the items with the most edges.

    Attributes:
        graph: W.
        sharpening: h.
        positions: int32 (items,), the row of a hub in `columns`, NO_HUB of other items.
        columns: float32 (hubs, users).
    """

    graph: NormalizedGraph
    sharpening: float
    positions: np.ndarray
    columns: np.ndarray

    @classmethod
    def of(cls, graph: NormalizedGraph, sharpening: float, count: int) -> Self:
        """Compute the columns of `count` items."""
        users, items = graph.shape
        hubs = np.argsort(-np.diff(graph.of_items.indptr), kind="stable")[:count]
        positions, columns = np.full(items, NO_HUB, dtype=np.int32), np.empty((len(hubs), users), dtype=np.float32)
        positions[hubs] = np.arange(len(hubs))
        for start in range(0, len(hubs), COLUMNS):
            some = hubs[start : start + COLUMNS]
            block = np.zeros((items, len(some)), dtype=np.float32)
            block[some, np.arange(len(some))] = 1
            block = apply_decay(sharpening, 1, graph.multiply, block) if sharpening else block
            columns[start : start + COLUMNS] = graph.at_users(block).T
        return cls(graph, sharpening, positions, columns)

    def pair_sums(self, history: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Return C_ji for items j of a history and items i, float32 (history, items)."""
        sums = np.empty((len(history), len(items)), dtype=np.float32)
        of_history, of_items = (as_read_only(columns, np.int32) for columns in (history, items))
        _sum_hub_pairs(self.graph.tables[1], of_history, of_items, self.positions, self.columns, sums)
        rows, columns = (np.flatnonzero(self.positions[some] == NO_HUB) for some in (history, items))
        if len(rows) and len(columns):
            sums[np.ix_(rows, columns)] = sum_paths(
                *self.graph.tables, of_history[rows], of_items[columns], self.sharpening
            )
        return sums


@njit(nogil=True, cache=True, fastmath={"contract"})
def _sum_hub_pairs(of_items, history, items, positions, columns, sums):
    """Fill the sums of pairs with a hub, over the users of the item that has fewer or is no hub."""
    for row in range(len(history)):
        for place in range(len(items)):
            hub, other = history[row], items[place]
            if positions[hub] < 0 or (
                positions[other] >= 0
                and of_items.indptr[hub + 1] - of_items.indptr[hub]
                < of_items.indptr[other + 1] - of_items.indptr[other]
            ):
                hub, other = other, hub
            if positions[hub] >= 0:
                column, total = columns[positions[hub]], np.float32(0)
                for at in range(of_items.indptr[other], of_items.indptr[other + 1]):
                    total += of_items.values[at] * element(column, np.int64(of_items.indices[at]))
                sums[row, place] = total
