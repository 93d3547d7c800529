"""Products of a block of rows with a dense table, each row summed in one fixed order.

BLAS may sum in another order if the number of threads or the shape of the block changes. Here a row of the result
depends on that row and on the table alone.
"""

import functools

import numpy as np
from numba import get_num_threads
from scipy.sparse import csr_matrix

from models.numerics.lane_products import ROWS
from models.numerics.product_kernels import (
    AHEAD,
    add_one_product,
    add_products,
    dense_products,
    narrow_products,
    tiled_products,
)

NARROW = 32  # a table with fewer columns is not copied: most of a tile would be empty
REUSE = 5  # copying tiles pays if a block uses a row of the table so many times on average


def pattern_times(histories: csr_matrix, table: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
    """H T, float32 (block, columns): H (block, items) read as zeros and ones, T float32 (items, columns).

    Args:
        values: (entries of H,), what to read in place of the ones.
    """
    values = np.ones(len(histories.indices), dtype=np.float32) if values is None else values
    return _product(histories.indptr, histories.indices, values, table)


def dense_times(rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    """R T, float32 (block, columns): R float32 (block, width), T float32 (width, columns), C order both."""
    block, width = rows.shape
    if block == 1:  # of which a tile would be used once
        out = np.zeros((1, table.shape[1]), dtype=np.float32)
        add_one_product(*_whole_row(width), read_only(rows[0], np.float32), read_only(table, np.float32), out[0])
        return out
    if table.shape[1] < NARROW:
        out = np.zeros((block, table.shape[1]), dtype=np.float32)
        narrow_products(read_only(rows, np.float32), read_only(table, np.float32), out)
        return out
    out = np.empty((block, table.shape[1]), dtype=np.float32)
    groups = -(-block // ROWS)
    grouped = np.zeros((groups * ROWS, width), dtype=np.float32)
    grouped[:block] = rows
    left = np.ascontiguousarray(grouped.reshape(groups, ROWS, width).swapaxes(1, 2)).reshape(-1)
    dense_products(left, read_only(table, np.float32), get_num_threads(), out)
    return out


def values_times(rows: csr_matrix, table: np.ndarray) -> np.ndarray:
    """R T, float32 (block, columns): R (block, width) CSR with its values, T float32 (width, columns)."""
    return _product(rows.indptr, rows.indices, rows.data, table)


def tall_times(rows: csr_matrix, table: np.ndarray) -> np.ndarray:
    """`values_times` of an R with more rows than T has columns: sorting R's indices would take longer than it saves."""
    out = np.zeros((rows.shape[0], table.shape[1]), dtype=np.float32)
    indptr, indices = read_only(rows.indptr, np.int64), read_only(rows.indices, np.int32)
    add_products(indptr, indices, read_only(rows.data, np.float32), read_only(table, np.float32), out)
    return out


def unit_columns(vectors: np.ndarray) -> np.ndarray:
    """The vectors divided by their lengths, float32 (K, items); zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1)
    return np.ascontiguousarray(vectors.T) / np.where(lengths > 0, lengths, 1).astype(np.float32)


def read_only(array: np.ndarray, dtype: type) -> np.ndarray:
    """A C-ordered read-only view, or a converted copy, so that a kernel is compiled for one kind of argument only."""
    view = np.ascontiguousarray(np.asarray(array), dtype=dtype).view()
    view.flags.writeable = False
    return view


@functools.cache
def _whole_row(width: int) -> tuple[np.ndarray, np.ndarray]:
    """CSR index arrays of one row that has an entry in every column."""
    return read_only([0, width], np.int64), read_only(np.arange(width), np.int32)


def _product(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The product, by the kernel that moves least memory; all give the same bits."""
    out = np.zeros((len(indptr) - 1, table.shape[1]), dtype=np.float32)
    indptr, values, table = read_only(indptr, np.int64), read_only(values, np.float32), read_only(table, np.float32)
    if len(out) == 1:
        add_one_product(indptr, read_only(indices, np.int32), values, table, out[0])
        return out
    used, positions = np.unique(indices, return_inverse=True)
    if len(indices) < REUSE * len(used) or table.shape[1] < NARROW:
        add_products(indptr, read_only(indices, np.int32), values, table, out)
    else:
        used = read_only(used, np.uint32)
        tiled_products(indptr, _with_more(positions), values, used, table, get_num_threads(), out)
    return out


def _with_more(positions: np.ndarray) -> np.ndarray:
    """The positions, and AHEAD more, which are asked for early and never used."""
    return read_only(np.append(positions, np.zeros(AHEAD, positions.dtype)), np.uint32)
