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
    indptr, used = np.arange(block + 1, dtype=np.int64) * width, np.arange(width, dtype=np.int32)
    indices = np.tile(used, block)
    return _product(indptr, indices, np.ascontiguousarray(rows).reshape(-1), table, (used, indices))


def values_times(rows: csr_matrix, table: np.ndarray) -> np.ndarray:
    """R T, float32 (block, columns): R (block, width) CSR with its values, T float32 (width, columns)."""
    return _product(rows.indptr, rows.indices, rows.data, table)


def tall_times(rows: csr_matrix, table: np.ndarray) -> np.ndarray:
    """`values_times` of an R with more rows than T has columns: sorting R's indices would take longer than it saves."""
    out = np.zeros((rows.shape[0], table.shape[1]), dtype=np.float32)
    indptr, indices = read_only(rows.indptr, np.int64), read_only(rows.indices, np.int32)
    _add_products(indptr, indices, read_only(rows.data, np.float32), read_only(table, np.float32), out)
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


def _product(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    table: np.ndarray,
    places: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """The product, by the kernel that moves least memory; all give the same bits.

    Args:
        places: the rows of the table that are used, and where each of `indices` is among them; found here if not given.
    """
    out = np.zeros((len(indptr) - 1, table.shape[1]), dtype=np.float32)
    indptr, values, table = read_only(indptr, np.int64), read_only(values, np.float32), read_only(table, np.float32)
    if len(out) == 1:
        _add_one_product(indptr, read_only(indices, np.int32), values, table, out[0])
        return out
    used, positions = np.unique(indices, return_inverse=True) if places is None else places
    if len(indices) < REUSE * len(used) or table.shape[1] < NARROW:
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


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add_one_product(indptr, indices, values, table, out):
    """One row: four rows of the table for each load and store of the totals, in the order of `_add_products`."""
    fours = indptr[1] - (indptr[1] - indptr[0]) % 4
    for start in range(0, len(out), COLUMNS):
        stop = min(start + COLUMNS, len(out))
        total = out[start:stop]
        for at in range(indptr[0], fours, 4):
            u, v, w, x = values[at], values[at + 1], values[at + 2], values[at + 3]
            a, b = table[indices[at], start:stop], table[indices[at + 1], start:stop]
            c, d = table[indices[at + 2], start:stop], table[indices[at + 3], start:stop]
            for column in range(stop - start):
                total[column] = (((total[column] + u * a[column]) + v * b[column]) + w * c[column]) + x * d[column]
        for at in range(fours, indptr[1]):
            value, term = values[at], table[indices[at], start:stop]
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
