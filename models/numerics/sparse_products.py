"""Products with a sparse table, each sum in one fixed order, as in `models.numerics.matmul`."""

from typing import NamedTuple

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.matmul import as_read_only
from oneclass.models.numerics.simd import element


class SparseTable(NamedTuple):
    """A sparse table, CSR, as kernels take it; made once for a table that is read again and again.

    Attributes:
        indptr, indices, values: int64, int32 and float32, read-only.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray


def sparse_times(histories: csr_matrix, table: csr_matrix, weights: np.ndarray | None = None) -> np.ndarray:
    """H T, float32 (block, columns), dense: H (block, items) read as zeros and ones, T (items, columns) sparse.

    Args:
        weights: (entries of H,), what to read in place of the ones.
    """
    weights = np.ones(len(histories.indices), dtype=np.float32) if weights is None else weights
    out = np.zeros((histories.shape[0], table.shape[1]), dtype=np.float32)
    _add_sparse(
        as_read_only(histories.indptr, np.int64),
        as_read_only(histories.indices, np.int32),
        as_read_only(weights, np.float32),
        as_read_only(table.indptr, np.int64),
        as_read_only(table.indices, np.int32),
        as_read_only(table.data, np.float32),
        out,
    )
    return out


def sparse_table(table: csr_matrix) -> SparseTable:
    """The table as kernels take it: views, where its arrays have these types."""
    indptr, indices = as_read_only(table.indptr, np.int64), as_read_only(table.indices, np.int32)
    return SparseTable(indptr, indices, as_read_only(table.data, np.float32))


def gram_times_vector(table: SparseTable, transposed: SparseTable, vector: np.ndarray) -> np.ndarray:
    """T' T x, float32 (columns of T,), with the bits of two `tall_times`."""
    between = np.zeros(len(table.indptr) - 1, dtype=np.float32)
    out = np.zeros(len(vector), dtype=np.float32)
    _add_rows(*transposed, as_read_only(vector, np.float32), between)
    _add_rows(*table, between, out)
    return out


def gather_entries(table: csr_matrix, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """T[rows, columns] as float32 (rows, columns); T sparse, with sorted columns in every row."""
    out = np.zeros((len(rows), len(columns)), dtype=np.float32)
    _find_entries(
        as_read_only(table.indptr, np.int64),
        as_read_only(table.indices, np.int32),
        as_read_only(table.data, np.float32),
        as_read_only(rows, np.int32),
        as_read_only(columns, np.int32),
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
                total[np.uint64(element(table_indices, at))] += weight * element(values, at)


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_rows(indptr, indices, values, vector, out):
    """out += T' x; rows where x is zero cost nothing.

    `element`, and places without a sign, spare the loop a test for negative places, which takes as long again.
    """
    for row in range(len(vector)):
        factor = vector[row]
        if factor != 0:
            for at in range(indptr[row], indptr[row + 1]):
                out[np.uint64(element(indices, at))] += factor * element(values, at)


@njit(nogil=True, cache=True)
def _find_entries(indptr, indices, values, rows, columns, out):
    for place in range(len(rows)):
        start, stop = indptr[rows[place]], indptr[rows[place] + 1]
        for other in range(len(columns)):
            at = start + np.searchsorted(indices[start:stop], columns[other])
            if at < stop and indices[at] == columns[other]:
                out[place, other] = values[at]
