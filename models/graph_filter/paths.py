"""Entries of the filter S - h S^2 for pairs of a history and a few items, without the whole columns of these.

Entry (j, i) is S_ji - h W_i' W (S e_j). For a history of items j, S e_j is computed only where a user who likes one of
the items i likes something, and W (S e_j) only at these users; so the cost depends on the likes of the history and of
these items, not on the catalogue. S is symmetric, so history and items change places where these have more likes: most
time is spent at the users of the second.

Of the hubs, the items with the most edges, which have most of the paths, a fitted model keeps columns W (e - h S e):
an entry of one of them is the sum over the users of the other item of W times the column.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numba import njit

from oneclass.models.graph_filter.graph import COLUMNS, NormalizedGraph
from oneclass.models.graph_filter.polynomials import apply_decay
from oneclass.models.numerics.matmul import as_read_only
from oneclass.models.numerics.simd import F32_WIDTH, add_scaled, aligned_zeros, element, pad_width
from oneclass.models.numerics.sparse_products import SparseTable

MAX_WIDTH = 2 * F32_WIDTH  # items of the history whose sums lie side by side
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


def sum_paths(
    of_users: SparseTable, of_items: SparseTable, history: np.ndarray, items: np.ndarray, sharpening: float
) -> np.ndarray:
    """(S - h S^2)_ji for items j of a history and items i, float32 (history, items).

    Args:
        of_users, of_items: W (users, items) and W' (items, users).
        history: int (n,), items.
        sharpening: h.
    """
    if _count_entries(of_items, history) < _count_entries(of_items, items):
        return _sum_paths_from(of_users, of_items, items, history, sharpening).T
    return _sum_paths_from(of_users, of_items, history, items, sharpening)


def _count_entries(table: SparseTable, rows: np.ndarray) -> int:
    return int((table.indptr[rows + 1] - table.indptr[rows]).sum())


def _sum_paths_from(
    of_users: SparseTable, of_items: SparseTable, history: np.ndarray, items: np.ndarray, sharpening: float
) -> np.ndarray:
    sums = np.empty((len(history), len(items)), dtype=np.float32)
    history, items = as_read_only(history, np.int32), as_read_only(items, np.int32)
    _sum_paths(of_users, of_items, history, items, np.float32(-sharpening), sums)
    return sums


@njit(nogil=True, cache=True, fastmath={"contract"})
def _sum_paths(of_users, of_items, history, items, factor, sums):
    """Fill the sums for MAX_WIDTH items of the history at a time."""
    users, user_rows = _neighbours(of_items, items, len(of_users.indptr) - 1)
    reached, item_rows = _neighbours(of_users, users, len(of_items.indptr) - 1)
    width = min(MAX_WIDTH, pad_width(max(1, len(history))))
    once, at_users = aligned_zeros(len(reached) * width), aligned_zeros(len(users) * width)
    twice = aligned_zeros(width)
    for start in range(0, len(history), width):
        count = min(width, len(history) - start)
        if start > 0:
            once[:], at_users[:] = 0, 0
        for lane in range(count):
            _add_walks(of_users, of_items, history[start + lane], item_rows, once, width, lane)
        if factor != 0:
            for row in range(len(users)):
                _add_rows(of_users, users[row], item_rows, once, at_users, row, width)
        for column in range(len(items)):
            twice[:] = 0
            if factor != 0:
                _add_rows(of_items, items[column], user_rows, at_users, twice, 0, width)
            row = item_rows[items[column]]
            for lane in range(count):
                direct = once[row * width + lane] if row >= 0 else np.float32(0)
                sums[start + lane, column] = direct + factor * twice[lane]


@njit(nogil=True, cache=True)
def _neighbours(table, rows, columns):
    """The columns with an entry in one of the rows of a table, and each column's position among them, or -1."""
    positions, found, count = np.full(columns, -1, dtype=np.int32), np.empty(columns, dtype=np.int32), 0
    for row in rows:
        for at in range(table.indptr[row], table.indptr[row + 1]):
            column = np.int64(element(table.indices, at))
            if element(positions, column) < 0:
                positions[np.uint64(column)] = count
                found[count] = column
                count += 1
    return found[:count], positions


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_walks(of_users, of_items, item, item_rows, once, width, lane):
    """Add S e of an item to one lane, at the reached items."""
    for entry in range(of_items.indptr[item], of_items.indptr[item + 1]):
        user, weight = of_items.indices[entry], of_items.values[entry]
        for at in range(of_users.indptr[user], of_users.indptr[user + 1]):
            row = np.int64(element(item_rows, np.int64(element(of_users.indices, at))))
            if row >= 0:
                once[row * width + lane] += weight * element(of_users.values, at)


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_rows(table, row, positions, source, target, target_row, width):
    """Add the source's rows of the entries of a row of the table, times their values, to a row of the target."""
    for at in range(table.indptr[row], table.indptr[row + 1]):
        position = np.int64(element(positions, np.int64(element(table.indices, at))))
        add_scaled(target, target_row * width, element(table.values, at), source, position * width, width)
