"""S - h S^2 between powers of the degrees: for blocks of users, in few passes over memory, and between all items.

A block of TILE users is held as a row for each user, or for each item, of the graph. Every sum has the terms and the
order of the products of `NormalizedGraph`, and each of the other operations is rounded as there, so that scores have
the bits of those made by one product after another.
"""

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.graph_filter.graph import WIDE, DenseSquare
from oneclass.models.numerics.matmul import TILE, as_read_only, dense_times, row_products, sum_rows
from oneclass.models.numerics.simd import F32_WIDTH, add_scaled, aligned_zeros, element, load, put, scale, store
from oneclass.models.numerics.sparse_products import SparseTable

MIN_USERS = 16  # a block of fewer is mostly empty
ONE = np.float32(1)


def add_walks(
    tables: tuple[SparseTable, SparseTable],
    powers: tuple[np.ndarray, np.ndarray],
    sharpening: float | None,
    histories: csr_matrix,
    of_entries: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Add D^delta (S - h S^2) D^-delta x to the scores of each history x, in place.

    Args:
        tables: W and W'.
        powers: float32 (items,), D^-delta and D^delta.
        sharpening: h; None as 0.
        of_entries: float32, x at the entries of the histories.
        scores: float32 (histories, items).
    """
    (of_users, of_items), (before, after) = tables, (as_read_only(power, np.float32) for power in powers)
    indptr, indices = as_read_only(histories.indptr, np.int64), as_read_only(histories.indices, np.int32)
    weights = as_read_only(before[indices] * of_entries, np.float32)
    at_users, at_items = (aligned_zeros((len(table.indptr) - 1) * TILE) for table in tables)
    for start in range(0, len(scores), TILE):
        _walk_to_users(indptr[start : start + TILE + 1], indices, weights, of_items, at_users)
        if sharpening:
            row_products(*of_items, at_users, at_items)
            _scale_twice(after, before, at_items)
            row_products(*of_users, at_items, at_users)
        _add_items(of_items, at_users, at_items, np.float32(-(sharpening or 0)), after, scores[start : start + TILE])


def form_filter(
    square: DenseSquare,
    powers: tuple[np.ndarray, np.ndarray],
    time: float | None,
    low: np.ndarray,
    after_low: np.ndarray,
) -> np.ndarray:
    """Return D^-delta (S - h S^2) D^delta + low after_low', float32 (items, items).

    Args:
        powers: float32 (items,), D^-delta and D^delta.
        time: h; None as 0.
        low, after_low: float32 (items, k).
    """
    (before, after), columns, formed = powers, np.ascontiguousarray(after_low.T), square.sharpen(time or 0.0)
    for start in range(0, len(formed), WIDE):
        rows = formed[start : start + WIDE]
        rows *= before[start : start + WIDE, None]
        rows *= after
        rows += dense_times(low[start : start + WIDE], columns)
    return formed


@njit(nogil=True, cache=True, fastmath={"contract"})
def _walk_to_users(indptr, indices, weights, of_items, at_users):
    """at_users = W x; for few of the users x has an item."""
    at_users[:] = 0
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            item, weight = indices[entry], weights[entry]
            for at in range(of_items.indptr[item], of_items.indptr[item + 1]):
                at_users[np.int64(of_items.indices[at]) * TILE + row] += weight * of_items.values[at]


@njit(parallel=True, nogil=True, cache=True)
def _scale_twice(first, second, at_items):
    for item in prange(len(first)):
        row = at_items[item * TILE : item * TILE + TILE]
        for column in range(TILE):
            row[column] = second[item] * (first[item] * row[column])


@njit(parallel=True, nogil=True, cache=True)
def _add_items(of_items, at_users, at_items, factor, after, scores):
    """scores += after (at_items + factor W' at_users), transposed; if the factor is 0, after W' at_users."""
    (rows, items), flat, (indptr, indices, values) = scores.shape, scores.reshape(-1), of_items
    for tile in prange((items + TILE - 1) // TILE):
        totals, turned = aligned_zeros(TILE * TILE), aligned_zeros(TILE * TILE)
        first, count = tile * TILE, min(TILE, items - tile * TILE)
        for item in range(first, first + count):
            at = (item - first) * TILE
            sum_rows(indptr[item], indptr[item + 1], indices, values, at_users, totals, at)
            if factor != 0:
                _add_scaled_to(totals, at, factor, at_items, item * TILE)
            scale(totals, at, after[item], totals, at, TILE)
        for row in range(rows):
            for lane in range(TILE):
                put(turned, row * TILE + lane, element(totals, lane * TILE + row))
        for row in range(rows):
            if count == TILE:
                add_scaled(flat, row * items + first, ONE, turned, row * TILE, TILE)
            else:
                for lane in range(count):
                    scores[row, first + lane] += turned[row * TILE + lane]


@njit(cache=True)
def _add_scaled_to(totals, at, factor, source, source_at):
    """totals[at + l] = source[source_at + l] + factor totals[at + l], l < TILE, the product rounded."""
    for lane in range(0, TILE, F32_WIDTH):
        store(totals, at + lane, load(source, source_at + lane) + factor * load(totals, at + lane))
