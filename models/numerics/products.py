"""Products of a block of rows with a dense table, each row summed in one fixed order.

BLAS may sum in another order if the number of threads or the shape of the block changes. Here a row of the result
depends on that row and on the table alone.
"""

import numpy as np
from numba import get_num_threads, njit, prange
from scipy.sparse import csr_matrix

GROUP = 32  # rows that share a pass over the columns, so that rows of the table are used again while in the cache
COLUMNS = 1024  # columns of a pass: 4 KB of each row of the result
TILE = 128  # columns of a tile: a copy of 512 bytes of each table row that the block uses
REUSE = 5  # copying tiles pays if a block uses a row of the table so many times on average


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


def values_times(rows: csr_matrix, table: np.ndarray) -> np.ndarray:
    """R T, float32 (block, columns): R (block, width) CSR with its values, T float32 (width, columns)."""
    return _product(rows.indptr, rows.indices, rows.data, table)


def tall_times(rows: csr_matrix, table: np.ndarray) -> np.ndarray:
    """`values_times` of an R with more rows than T has columns: sorting R's indices would take longer than it saves."""
    out = np.zeros((rows.shape[0], table.shape[1]), dtype=np.float32)
    indptr, indices = read_only(rows.indptr, np.int64), read_only(rows.indices, np.int32)
    _add_products(indptr, indices, read_only(rows.data, np.float32), read_only(table, np.float32), out)
    return out


def sparse_times(histories: csr_matrix, table: csr_matrix) -> np.ndarray:
    """H T, float32 (block, columns), dense: H (block, items) read as zeros and ones, T (items, columns) sparse."""
    out = np.zeros((histories.shape[0], table.shape[1]), dtype=np.float32)
    _add_sparse(
        read_only(histories.indptr, np.int64),
        read_only(histories.indices, np.int32),
        read_only(table.indptr, np.int64),
        read_only(table.indices, np.int32),
        read_only(table.data, np.float32),
        out,
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


def unit_columns(vectors: np.ndarray) -> np.ndarray:
    """The vectors divided by their lengths, float32 (K, items); zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1)
    return np.ascontiguousarray(vectors.T) / np.where(lengths > 0, lengths, 1).astype(np.float32)


def read_only(array: np.ndarray, dtype: type) -> np.ndarray:
    """A C-ordered read-only view, or a converted copy, so that a kernel is compiled for one kind of argument only."""
    view = np.ascontiguousarray(np.asarray(array), dtype=dtype).view()
    view.flags.writeable = False
    return view


def _product(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The product, by the kernel that moves less memory; both give the same bits."""
    out = np.zeros((len(indptr) - 1, table.shape[1]), dtype=np.float32)
    used, positions = np.unique(indices, return_inverse=True)
    indptr, values, table = read_only(indptr, np.int64), read_only(values, np.float32), read_only(table, np.float32)
    if len(indices) < REUSE * len(used):
        _add_products(indptr, read_only(indices, np.int32), values, table, out)
    else:
        tiles = np.zeros((get_num_threads(), len(used), TILE), dtype=np.float32)
        _add_tiled(indptr, read_only(positions, np.uint32), values, read_only(used, np.uint32), table, tiles, out)
    return out


@njit(parallel=True, nogil=True, cache=True, fastmath={"contract"})
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


@njit(parallel=True, nogil=True, cache=True)
def _add_tiled(indptr, positions, values, used, table, tiles, out):
    """All rows of the block use one tile of the table before the next tile, so that the table is read once.

    A tile is a copy, because in the table each of its rows lies on another memory page.
    """
    rows, columns = out.shape
    for worker in prange(len(tiles)):
        tile = tiles[worker]
        total = np.empty(TILE, dtype=np.float32)
        for start in range(worker * TILE, columns, len(tiles) * TILE):
            width = min(TILE, columns - start)
            for position in range(len(used)):
                source = table[used[position], start : start + width]
                for column in range(width):
                    tile[position, column] = source[column]
            for row in range(rows):
                total[:] = 0
                _add_row(indptr[row], indptr[row + 1], positions, values, tile, total)
                for column in range(width):
                    out[row, start + column] = total[column]


@njit(cache=True, fastmath={"contract"})
def _add_row(first, last, positions, values, tile, total):
    """Add one row's terms in their order, four to each load and store of the totals."""
    fours = last - (last - first) % 4
    for at in range(first, fours, 4):
        u, v, w, x = values[at], values[at + 1], values[at + 2], values[at + 3]
        a, b, c, d = tile[positions[at]], tile[positions[at + 1]], tile[positions[at + 2]], tile[positions[at + 3]]
        for column in range(TILE):
            total[column] = (((total[column] + u * a[column]) + v * b[column]) + w * c[column]) + x * d[column]
    for at in range(fours, last):
        value, term = values[at], tile[positions[at]]
        for column in range(TILE):
            total[column] += value * term[column]


@njit(parallel=True, nogil=True, cache=True)
def _add_sparse(indptr, indices, table_indptr, table_indices, values, out):
    for row in prange(len(out)):
        total = out[row]
        for entry in range(indptr[row], indptr[row + 1]):
            item = indices[entry]
            for at in range(table_indptr[item], table_indptr[item + 1]):
                total[table_indices[at]] += values[at]


@njit(nogil=True, cache=True)
def _find_entries(indptr, indices, values, rows, columns, out):
    for place in range(len(rows)):
        start, stop = indptr[rows[place]], indptr[rows[place] + 1]
        for other in range(len(columns)):
            at = start + np.searchsorted(indices[start:stop], columns[other])
            if at < stop and indices[at] == columns[other]:
                out[place, other] = values[at]
