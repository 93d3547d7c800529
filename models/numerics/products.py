"""Products of a block of rows with a dense table, each row summed in one fixed order.

BLAS may sum in another order if the number of threads or the shape of the block changes. Here a row of the result
depends on that row and on the table alone.
"""

import numpy as np
from numba import get_num_threads, njit, prange
from scipy.sparse import csr_matrix

from models.numerics.lane_products import ROWS, ZERO, copy, prefetch_row
from models.numerics.lane_tiles import add_outer
from models.numerics.lanes import LANES, element, load, spread, store, zeros

GROUP = 32  # rows that share a pass over the columns, so that rows of the table are used again while in the cache
COLUMNS = 1024  # columns of a pass: 4 KB of each row of the result
TILE = 4 * LANES  # columns of a tile: a copy of 256 bytes of each table row that the block uses
AHEAD = 16  # entries of a history by which their rows of the tile are asked for early, as a tile is larger than a cache
REUSE = 5  # copying tiles pays if a block uses a row of the table so many times on average


def pattern_times(histories: csr_matrix, table: np.ndarray) -> np.ndarray:
    """H T, float32 (block, columns): H (block, items) read as zeros and ones, T float32 (items, columns)."""
    values = np.ones(histories.nnz, dtype=np.float32)
    return _product(histories.indptr, histories.indices, values, table)


def dense_times(rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    """R T, float32 (block, columns): R float32 (block, width), T float32 (width, columns), C order both."""
    block, width = rows.shape
    out = np.empty((block, table.shape[1]), dtype=np.float32)
    groups = -(-block // ROWS)
    grouped = np.zeros((groups * ROWS, width), dtype=np.float32)
    grouped[:block] = rows
    left = np.ascontiguousarray(grouped.reshape(groups, ROWS, width).swapaxes(1, 2)).reshape(-1)
    _dense_products(left, read_only(table, np.float32), get_num_threads(), out)
    return out


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
        positions = read_only(np.append(positions, np.zeros(AHEAD, positions.dtype)), np.uint32)
        _tiled_products(indptr, positions, values, read_only(used, np.uint32), table, get_num_threads(), out)
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
def _tiled_products(indptr, positions, values, used, table, workers, out):
    """All rows of the block use one tile of the table before the next tile, so that the table is read once.

    A tile is a copy, because in the table each of its rows lies on another memory page. `positions` has AHEAD more
    elements than there are entries.
    """
    rows, columns = out.shape
    for worker in prange(workers):
        tile, totals = zeros(len(used) * TILE), zeros(TILE)
        for start in range(worker * TILE, columns, workers * TILE):
            width = min(TILE, columns - start)
            for position in range(len(used)):
                _fill(tile, position * TILE, table, used[position], start, width)
            for row in range(rows):
                _sum_rows(indptr[row], indptr[row + 1], positions, values, tile, totals)
                for column in range(width):
                    out[row, start + column] = totals[column]


@njit(parallel=True, nogil=True, cache=True)
def _dense_products(left, table, workers, out):
    """Groups of ROWS rows times one tile of the table after another; `left` has the groups' columns one by one."""
    rows, columns = out.shape
    inner = len(table)
    for worker in prange(workers):
        tile, totals = zeros(inner * TILE), zeros(ROWS * TILE)
        for start in range(worker * TILE, columns, workers * TILE):
            width = min(TILE, columns - start)
            for position in range(inner):
                _fill(tile, position * TILE, table, position, start, width)
            for first in range(0, rows, ROWS):
                totals[:] = 0
                for lane in range(0, TILE, LANES):
                    add_outer(totals, lane, TILE, left, first * inner, ROWS, tile, lane, TILE, inner)
                for row in range(min(ROWS, rows - first)):
                    for column in range(width):
                        out[first + row, start + column] = totals[row * TILE + column]


@njit(cache=True)
def _fill(tile, at, table, row, start, width):
    """Copy a part of a row of the table into the tile; behind the table's last column the tile keeps what it has."""
    if width == TILE:
        copy(tile, at, table, np.intp(row) * table.shape[1] + start, TILE)
    else:
        for column in range(width):
            tile[at + column] = table[row, start + column]


@njit(cache=True, fastmath={"contract"})
def _sum_rows(first, last, positions, values, tile, totals):
    """The sum of one row's terms in their order, with the TILE totals held in registers."""
    s0 = s1 = s2 = s3 = spread(ZERO)
    for entry in range(first, last):
        value, at = element(values, entry), np.intp(element(positions, entry)) * TILE
        prefetch_row(tile, np.intp(element(positions, entry + AHEAD)) * TILE, TILE)
        s0, s1 = s0 + value * load(tile, at), s1 + value * load(tile, at + LANES)
        s2, s3 = s2 + value * load(tile, at + 2 * LANES), s3 + value * load(tile, at + 3 * LANES)
    store(totals, 0, s0)
    store(totals, LANES, s1)
    store(totals, 2 * LANES, s2)
    store(totals, 3 * LANES, s3)


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
