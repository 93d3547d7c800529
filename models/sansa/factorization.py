"""Incomplete Cholesky decomposition of the items' Gram matrix, and the sparse inverse of its factor.

With the items in the order of their degrees, the rarest first, A = Y'Y + l2 I is nearly L D L', L being unit lower
triangular. Of each column of L only the largest entries are kept, in the columns of its inverse K too, so that
A^-1 is nearly K' D^-1 K. Without a limit both are exact.
"""

import heapq
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import get_num_threads, njit, prange

from oneclass.models.item_weights import collect_weights
from oneclass.models.numerics.adjacency import as_read_only, find_largest
from oneclass.models.numerics.gram import GramRows

FIRST_SHIFT = 1e-3  # of the diagonal, where a pivot is not positive; doubled until all are
SMALLEST_PIVOT = 1e-6  # of the diagonal of the matrix


class LowerFactor(NamedTuple):
    """L without its diagonal of ones, by columns, and D.

    Attributes:
        starts, counts: int64 (items,), the first entry of each column and the number of its entries.
        rows, values: int32 and float64; the entries of a column by ascending row.
        pivots: float64 (items,), D.
        shift: what was added to the diagonal, as a share of it.
    """

    starts: np.ndarray
    counts: np.ndarray
    rows: np.ndarray
    values: np.ndarray
    pivots: np.ndarray
    shift: float


def factorize(gram: GramRows, order: np.ndarray, l2: float, most: int) -> LowerFactor:
    """Decompose the Gram matrix of some items, after adding l2 to its diagonal.

    A pivot that is not positive, as dropped entries may leave it, starts the decomposition again with a larger
    diagonal.

    Args:
        gram: the rows of the Gram matrix; its shift must be zero.
        order: int (n,), the items in the order of the decomposition.
        most: the largest number of entries of a column, beside the diagonal.
    """
    count = len(order)
    position = np.full(len(gram.factor), -1, dtype=np.int32)
    position[order] = np.arange(count)
    columns = np.minimum(np.arange(count)[::-1], most).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(columns)])
    rows, values = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1])
    counts, pivots, shift = np.zeros(count, dtype=np.int64), np.zeros(count), 0.0
    arguments = gram, as_read_only(order, np.int64), as_read_only(position, np.int32), as_read_only(starts, np.int64)
    while not _decompose(*arguments, float(l2), shift, counts, rows, values, pivots):
        shift = 2 * shift or FIRST_SHIFT
    return LowerFactor(starts[:-1], counts, rows, values, pivots, shift)


def invert(factor: LowerFactor, most: int, tolerance: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Invert the unit lower triangular factor by forward substitution, column by column.

    Args:
        most: the largest number of entries of a column of the inverse, its diagonal included.
        tolerance: entries up to this size are dropped at once, so that what follows from them is not computed.

    Returns:
        Values, float32, and their ascending rows, int32, column after column; where each column begins.
    """
    items = len(factor.pivots)
    find = partial(_substitute, factor, tolerance, get_num_threads())
    return collect_weights(items, min(most, items), find)


@njit(nogil=True, cache=True)
def _decompose(gram, order, position, starts, l2, shift, counts, rows, values, pivots):
    """Fill the factor column by column (left-looking); return whether every pivot was positive.

    `next_column` links the columns whose next entry is in the same row, and `reached` is the place of that entry.
    """
    items = len(order)
    column = np.zeros(items)
    touched, sizes = np.empty(items, dtype=np.int32), np.empty(items)
    head, next_column = np.full(items, -1, dtype=np.int64), np.full(items, -1, dtype=np.int64)
    reached = np.zeros(items, dtype=np.int64)
    is_touched = np.zeros(items, dtype=np.bool_)
    for j in range(items):
        item, count, diagonal = order[j], 0, 0.0
        own = gram.factor[item]
        for at in range(gram.item_indptr[item], gram.item_indptr[item + 1]):
            user = gram.item_users[at]
            weight = gram.weights[user]
            for entry in range(gram.indptr[user], gram.indptr[user + 1]):
                other = gram.indices[entry]
                i = position[other]
                if i == j:
                    diagonal += weight * own * own
                elif i > j:
                    if not is_touched[i]:
                        is_touched[i] = True
                        touched[count] = i
                        count += 1
                    column[i] += weight * own * gram.factor[other]
        pivot = diagonal = (diagonal + l2) * (1 + shift)
        k = head[j]
        while k >= 0:
            following = next_column[k]
            at, end = reached[k], starts[k] + counts[k]
            factor = values[at] * pivots[k]
            pivot -= values[at] * factor
            for entry in range(at + 1, end):
                i = rows[entry]
                if not is_touched[i]:
                    is_touched[i] = True
                    touched[count] = i
                    count += 1
                column[i] -= factor * values[entry]
            if at + 1 < end:
                reached[k] = at + 1
                next_column[k] = head[rows[at + 1]]
                head[rows[at + 1]] = k
            k = following
        if not pivot > SMALLEST_PIVOT * diagonal:
            return False
        pivots[j] = pivot
        for at in range(count):
            sizes[at] = abs(column[touched[at]])
        kept = np.sort(touched[find_largest(sizes[:count], starts[j + 1] - starts[j])])
        for at in range(len(kept)):
            rows[starts[j] + at] = kept[at]
            values[starts[j] + at] = column[kept[at]] / pivot
        counts[j] = len(kept)
        for at in range(count):
            column[touched[at]] = 0.0
            is_touched[touched[at]] = False
        if len(kept) > 0:
            reached[j] = starts[j]
            next_column[j] = head[kept[0]]
            head[kept[0]] = j
    return True


@njit(parallel=True, nogil=True, cache=True)
def _substitute(factor, tolerance, workers, first, counts, rows, values):
    """Fill some columns of the inverse; worker w takes every `workers`-th. `heap` has the rows still to be followed."""
    items = len(factor.pivots)
    for worker in prange(workers):
        column = np.zeros(items)
        is_pending = np.zeros(items, dtype=np.bool_)
        found, sizes = np.empty(items, dtype=np.int32), np.empty(items)
        for place in range(worker, len(counts), workers):
            j = first + place
            column[j], is_pending[j], heap, count = 1.0, True, [j], 0
            while heap:
                k = heapq.heappop(heap)
                is_pending[k] = False
                value = column[k]
                if k != j and abs(value) <= tolerance:
                    column[k] = 0.0
                    continue
                found[count] = k
                count += 1
                for entry in range(factor.starts[k], factor.starts[k] + factor.counts[k]):
                    i = factor.rows[entry]
                    column[i] -= value * factor.values[entry]
                    if not is_pending[i]:
                        is_pending[i] = True
                        heapq.heappush(heap, np.int64(i))
            for at in range(count):
                sizes[at] = np.inf if found[at] == j else abs(column[found[at]])
            kept = np.sort(found[find_largest(sizes[:count], rows.shape[1])])
            counts[place] = len(kept)
            for at in range(len(kept)):
                rows[place, at], values[place, at] = kept[at], column[kept[at]]
            for at in range(count):
                column[found[at]] = 0.0
