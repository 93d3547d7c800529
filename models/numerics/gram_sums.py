"""The sums behind a Gram matrix, X' diag(w) X, kept from night to night: brought up to date by the rows that changed.

Sums of `exact_degree_weights` have no rounding error, so subtracting the rows that users had and adding those that they
have gives the bits of a sum from nothing. That holds whichever two rows are taken to be one user's: equal rows cancel,
and any others are subtracted and added. A wrong match costs time, never a bit.

They are stored as the lower triangle, row after row: float64 (items (items + 1) / 2,), 4 items^2 bytes.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix, vstack

from models.numerics.degree_weights import exact_degree_weights, grain
from models.numerics.gram import add_lower_row, gram_rows, heaviest_first
from models.numerics.products import read_only
from models.numerics.threads import kernel_threads


@dataclass(frozen=True)
class Before:
    """The sums of an earlier matrix, under the same exponent.

    Attributes:
        interactions: (users, items) CSR, sorted columns.
        sums: its triangle.
        users: two int arrays, rows of `interactions` and the rows that the same users have now, each row at most once.
        items: int (items now,), the column of `interactions` that each has been, each at most once; -1 for a new one.
    """

    interactions: csr_matrix
    sums: np.ndarray
    users: tuple[np.ndarray, np.ndarray]
    items: np.ndarray


def size(items: int) -> int:
    """How many sums there are."""
    return items * (items + 1) // 2


def pairs(interactions: csr_matrix) -> int:
    """The work of summing from nothing: the square of every user's degree, added up."""
    return int((np.diff(interactions.indptr).astype(np.int64) ** 2).sum())


def fill(
    interactions: csr_matrix, exponent: float, threads: int, out: np.ndarray, before: Before | None = None
) -> float | None:
    """Fill `out` with the sums of a matrix; the bits depend on the matrix and the exponent alone.

    Args:
        interactions: (users, items) CSR, sorted columns, read as zeros and ones.
        exponent: users have the weight d_m^-exponent, as `exact_degree_weights` rounds it.
        out: float64 (items (items + 1) / 2,).
        before: earlier sums, which are taken where that saves work: the weights' grain is the same, and the rows that
            changed have fewer pairs than all.

    Returns:
        The share of the pairs that were subtracted or added where the sums before were taken, else None.
    """
    all_pairs = pairs(interactions)
    change = _change(interactions, exponent, before) if before is not None else None
    by_increments = change is not None and pairs(change[0]) < all_pairs
    if not by_increments:
        change = interactions, exact_degree_weights(np.diff(interactions.indptr), exponent)
    zeros = np.zeros(interactions.shape[1])
    rows = gram_rows(*change, zeros, zeros)
    places = before.items if by_increments else np.full(len(zeros), -1)
    sums = before.sums if by_increments else np.zeros(0)
    with kernel_threads(threads):
        order, workers = heaviest_first(rows), max(1, threads)
        _fill(rows, order, workers, read_only(places, np.int64), read_only(sums, np.float64), out)
    return pairs(change[0]) / max(1, all_pairs) if by_increments else None


def _change(now: csr_matrix, exponent: float, before: Before) -> tuple[csr_matrix, np.ndarray] | None:
    """Rows to add, in the columns of now, and their weights, negative for what is subtracted; None if grains differ."""
    degrees, degrees_before = np.diff(now.indptr), np.diff(before.interactions.indptr)
    if grain(degrees, exponent) != grain(degrees_before, exponent):
        return None
    moved = _in_columns_of_now(before, now.shape[1])
    rows_before, rows = before.users
    same = np.zeros(len(rows), dtype=bool)
    kinds = np.int64, np.int32, np.int64
    _compare(
        *map(read_only, (moved.indptr, moved.indices, rows_before), kinds),
        *map(read_only, (now.indptr, now.indices, rows), kinds),
        read_only(degrees_before, np.int64),
        same,
    )
    gone = np.setdiff1d(np.arange(moved.shape[0]), rows_before[same], assume_unique=True)
    come = np.setdiff1d(np.arange(now.shape[0]), rows[same], assume_unique=True)
    weights_gone = exact_degree_weights(degrees_before, exponent)[gone]
    weights_come = exact_degree_weights(degrees, exponent)[come]
    return vstack([moved[gone], now[come]], format="csr"), np.concatenate([-weights_gone, weights_come])


def _in_columns_of_now(before: Before, items: int) -> csr_matrix:
    """The earlier matrix with today's columns; those that are gone are left out."""
    old = before.interactions
    column = np.full(old.shape[1], -1, dtype=np.int32)
    known = before.items >= 0
    column[before.items[known]] = np.flatnonzero(known)
    indices = column[old.indices]
    stays = indices >= 0
    indptr = np.concatenate([[0], np.cumsum(stays)])[old.indptr]
    moved = csr_matrix((np.ones(indptr[-1], dtype=bool), indices[stays], indptr), shape=(old.shape[0], items))
    moved.sort_indices()
    return moved


@njit(nogil=True, cache=True)
def _compare(indptr, indices, rows, indptr_now, indices_now, rows_now, degrees, same):
    """Set `same` where a row is the other, and had no more entries, its `degrees`, in columns that are gone."""
    for at in range(len(rows)):
        first, first_now = indptr[rows[at]], indptr_now[rows_now[at]]
        degree = indptr[rows[at] + 1] - first
        same[at] = degree == degrees[rows[at]] and degree == indptr_now[rows_now[at] + 1] - first_now
        for entry in range(degree if same[at] else 0):
            if indices[first + entry] != indices_now[first_now + entry]:
                same[at] = False
                break


@njit(parallel=True, nogil=True, cache=True)
def _fill(rows, order, workers, places, before, out):
    """Fill `out` with the sums of a `GramRows`, added to those in `before`, where `places` has a place there for an item."""
    for worker in prange(workers):
        for turn in range(worker, len(order), workers):
            item = order[turn]
            start, place = item * (item + 1) // 2, places[item]
            row = out[start : start + item + 1]
            row[:] = 0.0
            for other in range(item + 1 if place >= 0 else 0):
                if places[other] >= 0:
                    high, low = max(place, places[other]), min(place, places[other])
                    row[other] = before[high * (high + 1) // 2 + low]
            add_lower_row(rows, item, row)
