"""Sums over the paths between a user's history and a few items, for which no whole column of the filter is computed.

Entry (j, i) of S - h S^2 is S_ji - h W_i' W (S e_j). For a history of items j, S e_j is computed only where a user who
likes one of the items i likes something, and W (S e_j) only at these users; so the cost depends on the likes of the
history and of these items, not on the catalogue. S is symmetric, so history and items change places where these have
more likes: most time is spent at the users of the second.
"""

import numpy as np
from numba import njit

from oneclass.models.numerics.matmul import as_read_only
from oneclass.models.numerics.simd import F32_WIDTH, add_scaled, aligned_zeros, element, pad_width
from oneclass.models.numerics.sparse_products import SparseTable

MAX_WIDTH = 2 * F32_WIDTH  # items of the history whose sums lie side by side


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
