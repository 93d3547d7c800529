"""Products with a sparse table, each sum in one fixed order, as in `models.numerics.products`."""

from collections.abc import Callable

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from models.numerics.lanes import element
from models.numerics.products import read_only


def sparse_times(histories: csr_matrix, table: csr_matrix, weights: np.ndarray | None = None) -> np.ndarray:
    """H T, float32 (block, columns), dense: H (block, items) read as zeros and ones, T (items, columns) sparse.

    Args:
        weights: (entries of H,), what to read in place of the ones.
    """
    weights = np.ones(len(histories.indices), dtype=np.float32) if weights is None else weights
    out = np.zeros((histories.shape[0], table.shape[1]), dtype=np.float32)
    _add_sparse(
        read_only(histories.indptr, np.int64),
        read_only(histories.indices, np.int32),
        read_only(weights, np.float32),
        read_only(table.indptr, np.int64),
        read_only(table.indices, np.int32),
        read_only(table.data, np.float32),
        out,
    )
    return out


def vector_times(vector: np.ndarray, table: csr_matrix) -> np.ndarray:
    """x T, float32 (columns,): x float32 (rows,), T (rows, columns) sparse; rows where x is zero cost nothing.

    The terms of a sum come in the order of `tall_times` of T' and x, and so do those of `times_vector`: the same bits.
    """
    return _of_vector(_add_rows, vector, table, table.shape[1])


def times_vector(table: csr_matrix, vector: np.ndarray) -> np.ndarray:
    """T x, float32 (rows,): T (rows, columns) sparse, x float32 (columns,)."""
    return _of_vector(_add_columns, vector, table, table.shape[0])


def rows_times(table: csr_matrix, rows: np.ndarray, block: np.ndarray) -> np.ndarray:
    """T[rows] Z, float32 (rows, width), with the bits of the rows of T Z: T sparse, Z float32 (columns of T, width)."""
    out = np.zeros((len(rows), block.shape[1]), dtype=np.float32)
    indptr, indices = read_only(table.indptr, np.int64), read_only(table.indices, np.int32)
    _add_some_rows(
        indptr, indices, read_only(table.data, np.float32), read_only(rows, np.int32), read_only(block, np.float32), out
    )
    return out


def entries_of(table: csr_matrix, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """T[rows, columns] as float32 (rows, columns); T sparse, with sorted columns in every row."""
    out = np.zeros((len(rows), len(columns)), dtype=np.float32)
    _find_entries(
        read_only(table.indptr, np.int64),
        read_only(table.indices, np.int32),
        read_only(table.data, np.float32),
        read_only(rows, np.int32),
        read_only(columns, np.int32),
        out,
    )
    return out


@njit(parallel=True, nogil=True, cache=True)
def _add_sparse(indptr, indices, weights, table_indptr, table_indices, values, out):
    for row in prange(len(out)):
        total = out[row]
        for entry in range(indptr[row], indptr[row + 1]):
            item, weight = indices[entry], weights[entry]
            for at in range(table_indptr[item], table_indptr[item + 1]):
                total[table_indices[at]] += weight * values[at]


def _of_vector(kernel: Callable[..., None], vector: np.ndarray, table: csr_matrix, size: int) -> np.ndarray:
    out = np.zeros(size, dtype=np.float32)
    indptr, indices = read_only(table.indptr, np.int64), read_only(table.indices, np.int32)
    kernel(indptr, indices, read_only(table.data, np.float32), read_only(vector, np.float32), out)
    return out


# `element`, and places without a sign, spare these loops a test for negative places, which takes as long again.


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_rows(indptr, indices, values, vector, out):
    for row in range(len(vector)):
        factor = vector[row]
        if factor != 0:
            for at in range(indptr[row], indptr[row + 1]):
                out[np.uint64(element(indices, at))] += factor * element(values, at)


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_columns(indptr, indices, values, vector, out):
    for row in range(len(out)):
        total = out[row]
        for at in range(indptr[row], indptr[row + 1]):
            total += element(values, at) * element(vector, np.int64(element(indices, at)))
        out[row] = total


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_some_rows(indptr, indices, values, rows, block, out):
    for place in range(len(rows)):
        total = out[place]
        for at in range(indptr[rows[place]], indptr[rows[place] + 1]):
            value, term = values[at], block[indices[at]]
            for column in range(len(total)):
                total[column] += value * term[column]


@njit(nogil=True, cache=True)
def _find_entries(indptr, indices, values, rows, columns, out):
    for place in range(len(rows)):
        start, stop = indptr[rows[place]], indptr[rows[place] + 1]
        for other in range(len(columns)):
            at = start + np.searchsorted(indices[start:stop], columns[other])
            if at < stop and indices[at] == columns[other]:
                out[place, other] = values[at]
