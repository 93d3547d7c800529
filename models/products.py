"""Products of a block of rows with a dense table, each row summed in one fixed order.

BLAS may change the order of its sums with the number of threads or the shape of the block; here a row's result
depends on that row and the table alone.
"""

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

GROUP = 32  # rows that share a pass over the columns, so that table rows are met again while in cache
COLUMNS = 1024  # columns of a pass: 4 KB of each row that is being summed


def pattern_times(histories: csr_matrix, table: np.ndarray) -> np.ndarray:
    """H T, float32 (block, columns): H (block, items) read as zeros and ones, T float32 (items, columns)."""
    values = np.ones(histories.nnz, dtype=np.float32)
    return _product(histories.indptr, histories.indices, values, table)


def dense_times(rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    """R T, float32 (block, columns): R float32 (block, width), T float32 (width, columns), C order both."""
    block, width = rows.shape
    indptr = np.arange(block + 1, dtype=np.int64) * width
    indices = np.tile(np.arange(width, dtype=np.int32), block)
    return _product(indptr, indices, np.ascontiguousarray(rows).reshape(-1), table)


def read_only(array: np.ndarray, dtype: type) -> np.ndarray:
    """A C-ordered read-only view (or converted copy), so that a kernel is compiled for one kind of argument."""
    view = np.ascontiguousarray(np.asarray(array), dtype=dtype).view()
    view.flags.writeable = False
    return view


def _product(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, table: np.ndarray) -> np.ndarray:
    out = np.zeros((len(indptr) - 1, table.shape[1]), dtype=np.float32)
    _add_products(read_only(indptr, np.int64), read_only(indices, np.int32), read_only(values, np.float32),
                  read_only(table, np.float32), out)
    return out


@njit(parallel=True, cache=True, fastmath={"contract"})
def _add_products(indptr, indices, values, table, out):
    rows, columns = out.shape
    for group in prange((rows + GROUP - 1) // GROUP):
        for start in range(0, columns, COLUMNS):
            stop = min(start + COLUMNS, columns)
            for row in range(group * GROUP, min(group * GROUP + GROUP, rows)):
                total = out[row, start:stop]
                for entry in range(indptr[row], indptr[row + 1]):
                    value = values[entry]
                    term = table[indices[entry], start:stop]
                    for column in range(stop - start):
                        total[column] += value * term[column]
