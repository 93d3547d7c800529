"""Products of a block of rows with a dense table, each row summed in one fixed order.

BLAS may sum in another order if the number of threads or the shape of the block changes. Here a row of the result
depends on that row and on the table alone.
"""

import functools

import numpy as np
from numba import get_num_threads, njit, prange
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix

from oneclass.models.numerics.simd import (
    F32_WIDTH,
    ROWS,
    ZERO,
    aligned_zeros,
    broadcast,
    copy,
    element,
    load,
    prefetch_row,
    store,
)
from oneclass.models.numerics.simd_tiles import add_outer

GROUP = 32  # rows that share a pass over the columns, so that rows of the table are used again while in the cache
COLUMNS = 1024  # columns of a pass: 4 KB of each row of the result
ALONE = 4096  # columns of a pass for one row alone: 16 KB of the result, in the first-level cache
TILE = 4 * F32_WIDTH  # columns of a tile: a copy of 256 bytes of each table row that the block uses
PREFETCH_DISTANCE = 16  # entries ahead whose rows of the tile are prefetched, as a tile is larger than a cache
FILL_DISTANCE = 8  # rows of the table that are prefetched ahead while a tile is filled
STORE_DISTANCE = 4  # rows of the result that are prefetched ahead


@njit(parallel=True, nogil=True, cache=True, fastmath={"contract"})
def add_products(indptr, indices, values, table, out):
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
def add_one_product(indptr, indices, values, table, out):
    """One row: eight rows of the table for each load and store of the totals, in the order of `add_products`."""
    eights = indptr[1] - (indptr[1] - indptr[0]) % 8
    for start in range(0, len(out), ALONE):
        stop = min(start + ALONE, len(out))
        total = out[start:stop]
        for at in range(indptr[0], eights, 8):
            p, q, r, s = values[at], values[at + 1], values[at + 2], values[at + 3]
            t, u, v, w = values[at + 4], values[at + 5], values[at + 6], values[at + 7]
            a, b = table[indices[at], start:stop], table[indices[at + 1], start:stop]
            c, d = table[indices[at + 2], start:stop], table[indices[at + 3], start:stop]
            e, f = table[indices[at + 4], start:stop], table[indices[at + 5], start:stop]
            g, h = table[indices[at + 6], start:stop], table[indices[at + 7], start:stop]
            for column in range(stop - start):
                four = (((total[column] + p * a[column]) + q * b[column]) + r * c[column]) + s * d[column]
                total[column] = (((four + t * e[column]) + u * f[column]) + v * g[column]) + w * h[column]
        for at in range(eights, indptr[1]):
            value, term = values[at], table[indices[at], start:stop]
            for column in range(stop - start):
                total[column] += value * term[column]


@njit(parallel=True, nogil=True, cache=True)
def tiled_products(indptr, positions, values, used, table, workers, out):
    """All rows of the block use one tile of the table before the next tile, so that the table is read once.

    A tile is a copy, because in the table each of its rows lies on another memory page.
    """
    (rows, columns), sums = out.shape, out.reshape(-1)
    for worker in prange(workers):
        tile, totals = aligned_zeros(len(used) * TILE), aligned_zeros(TILE)
        for start in range(worker * TILE, columns, workers * TILE):
            width = min(TILE, columns - start)
            for position in range(len(used)):
                ahead = used[min(position + FILL_DISTANCE, len(used) - 1)]
                prefetch_row(table, np.intp(ahead) * columns + start, TILE)
                _fill(tile, position * TILE, table, used[position], start, width)
            for row in range(rows):
                prefetch_row(sums, min(row + STORE_DISTANCE, rows - 1) * columns + start, TILE)
                if width == TILE:
                    sum_rows(indptr[row], indptr[row + 1], positions, values, tile, sums, row * columns + start)
                    continue
                sum_rows(indptr[row], indptr[row + 1], positions, values, tile, totals, 0)
                out[row, start:] = totals[:width]


@njit(parallel=True, nogil=True, cache=True)
def dense_products(left, table, workers, out):
    """Groups of ROWS rows times one tile of the table after another; `left` has the groups' columns one by one."""
    (rows, columns), inner, products = out.shape, len(table), out.reshape(-1)
    for worker in prange(workers):
        tile, totals = aligned_zeros(inner * TILE), aligned_zeros(ROWS * TILE)
        for start in range(worker * TILE, columns, workers * TILE):
            width = min(TILE, columns - start)
            for position in range(inner):
                prefetch_row(table, min(position + FILL_DISTANCE, inner - 1) * columns + start, TILE)
                _fill(tile, position * TILE, table, position, start, width)
            for first in range(0, rows, ROWS):
                group = range(min(ROWS, rows - first))
                for row in group:
                    prefetch_row(products, (first + row) * columns + start, TILE)
                totals[:] = 0
                for lane in range(0, TILE, F32_WIDTH):
                    add_outer(totals, lane, TILE, left, first * inner, ROWS, tile, lane, TILE, inner)
                for row in group:
                    if width == TILE:
                        copy(products, (first + row) * columns + start, totals, row * TILE, TILE)
                    else:
                        out[first + row, start:] = totals[row * TILE : row * TILE + width]


@njit(nogil=True, cache=True, fastmath={"contract"})
def narrow_products(left, table, out):
    """`dense_products` of a table with so few columns that most of a tile would be empty."""
    for row in range(len(left)):
        total = out[row]
        for position in range(len(table)):
            value, term = left[row, position], table[position]
            for column in range(len(total)):
                total[column] += value * term[column]


@njit(cache=True)
def _fill(tile, at, table, row, start, width):
    """Copy a part of a row of the table into the tile; behind the table's last column the tile keeps what it has."""
    if width == TILE:
        copy(tile, at, table, np.intp(row) * table.shape[1] + start, TILE)
    else:
        for column in range(width):
            tile[at + column] = table[row, start + column]


@njit(parallel=True, nogil=True, cache=True)
def row_products(indptr, indices, values, table, out):
    """`add_products` to zeros of a table with TILE columns; it and `out` are flat."""
    rows = len(indptr) - 1
    for group in prange((rows + GROUP - 1) // GROUP):
        for row in range(group * GROUP, min(group * GROUP + GROUP, rows)):
            sum_rows(indptr[row], indptr[row + 1], indices, values, table, out, row * TILE)


@njit(cache=True, fastmath={"contract"})
def sum_rows(first, last, positions, values, tile, out, at):
    """out[at : at + TILE] = the sum of one row's terms in their order, held in registers."""
    s0 = s1 = s2 = s3 = broadcast(ZERO)
    end = len(positions) - 1
    for entry in range(first, last):
        value, row = element(values, entry), np.intp(element(positions, entry)) * TILE
        prefetch_row(tile, np.intp(element(positions, min(entry + PREFETCH_DISTANCE, end))) * TILE, TILE)
        s0, s1 = s0 + value * load(tile, row), s1 + value * load(tile, row + F32_WIDTH)
        s2, s3 = s2 + value * load(tile, row + 2 * F32_WIDTH), s3 + value * load(tile, row + 3 * F32_WIDTH)
    store(out, at, s0)
    store(out, at + F32_WIDTH, s1)
    store(out, at + 2 * F32_WIDTH, s2)
    store(out, at + 3 * F32_WIDTH, s3)


MIN_TILED_COLUMNS = 32  # a table with fewer columns is not copied: most of a tile would be empty
MIN_REUSE = 5  # copying tiles pays if a block uses a row of the table so many times on average


def pattern_times(histories: csr_matrix, table: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
    """H T, float32 (block, columns): H (block, items) read as zeros and ones, T float32 (items, columns).

    Args:
        values: (entries of H,), what to read in place of the ones.
    """
    values = np.ones(len(histories.indices), dtype=np.float32) if values is None else values
    return _multiply(histories.indptr, histories.indices, values, table)


def dense_times(rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    """R T, float32 (block, columns): R float32 (block, width), T float32 (width, columns), C order both."""
    block, width = rows.shape
    if block == 1:  # of which a tile would be used once
        out = np.zeros((1, table.shape[1]), dtype=np.float32)
        add_one_product(*_whole_row(width), as_read_only(rows[0], np.float32), as_read_only(table, np.float32), out[0])
        return out
    if table.shape[1] < MIN_TILED_COLUMNS:
        out = np.zeros((block, table.shape[1]), dtype=np.float32)
        narrow_products(as_read_only(rows, np.float32), as_read_only(table, np.float32), out)
        return out
    out = np.empty((block, table.shape[1]), dtype=np.float32)
    groups = -(-block // ROWS)
    grouped = np.zeros((groups * ROWS, width), dtype=np.float32)
    grouped[:block] = rows
    left = np.ascontiguousarray(grouped.reshape(groups, ROWS, width).swapaxes(1, 2)).reshape(-1)
    dense_products(left, as_read_only(table, np.float32), get_num_threads(), out)
    return out


def values_times(rows: csr_matrix, table: np.ndarray) -> np.ndarray:
    """R T, float32 (block, columns): R (block, width) CSR with its values, T float32 (width, columns)."""
    return _multiply(rows.indptr, rows.indices, rows.data, table)


def tall_times(rows: csr_matrix, table: np.ndarray) -> np.ndarray:
    """`values_times` of an R with more rows than T has columns: sorting R's indices would take longer than it saves."""
    entries = as_read_only(rows.indptr, np.int64), as_read_only(rows.indices, np.int32)
    values, table = as_read_only(rows.data, np.float32), as_read_only(table, np.float32)
    if table.shape[1] == TILE:
        sums = aligned_zeros(rows.shape[0] * TILE)
        row_products(*entries, values, table.reshape(-1), sums)
        return sums.reshape(-1, TILE)
    out = np.zeros((rows.shape[0], table.shape[1]), dtype=np.float32)
    add_products(*entries, values, table, out)
    return out


def normalize_columns(vectors: np.ndarray) -> np.ndarray:
    """The vectors divided by their lengths, float32 (K, items); zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1)
    return np.ascontiguousarray(vectors.T) / np.where(lengths > 0, lengths, 1).astype(np.float32)


def as_read_only(array: ArrayLike, dtype: type) -> np.ndarray:
    """A C-ordered read-only view, or a converted copy, so that a kernel is compiled for one kind of argument only."""
    view = np.ascontiguousarray(np.asarray(array), dtype=dtype).view()
    view.flags.writeable = False
    return view


@functools.cache
def _whole_row(width: int) -> tuple[np.ndarray, np.ndarray]:
    """CSR index arrays of one row that has an entry in every column."""
    return as_read_only([0, width], np.int64), as_read_only(np.arange(width), np.int32)


def _multiply(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The product, by the kernel that moves least memory; all give the same bits."""
    out = np.zeros((len(indptr) - 1, table.shape[1]), dtype=np.float32)
    indptr, values, table = (
        as_read_only(indptr, np.int64),
        as_read_only(values, np.float32),
        as_read_only(table, np.float32),
    )
    if len(out) == 1:
        add_one_product(indptr, as_read_only(indices, np.int32), values, table, out[0])
        return out
    used, positions = np.unique(indices, return_inverse=True)
    if len(indices) < MIN_REUSE * len(used) or table.shape[1] < MIN_TILED_COLUMNS:
        add_products(indptr, as_read_only(indices, np.int32), values, table, out)
    else:
        used, positions = as_read_only(used, np.uint32), as_read_only(positions, np.uint32)
        tiled_products(indptr, positions, values, used, table, get_num_threads(), out)
    return out
