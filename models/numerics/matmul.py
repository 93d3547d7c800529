"""Products of a block of rows with a dense or sparse table, each row summed in one fixed order.

BLAS may sum in another order if the number of threads or the shape of the block changes. Here a row of the result
depends on that row and on the table alone.
"""

from typing import NamedTuple

import numpy as np
from numba import get_num_threads, njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.adjacency import as_read_only
from oneclass.models.numerics.simd import F32_WIDTH, ROWS, ZERO, aligned_zeros, broadcast, element, load, store
from oneclass.models.numerics.simd_rows import add_product, copy

GROUP = 32  # rows that share a pass over the columns, so that rows of the table are used again while in the cache
COLUMNS = 1024  # columns of a pass: 4 KB of each row of the result
TILE = 4 * F32_WIDTH  # columns of a tile: a copy of 256 bytes of each table row that the block uses


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
                _fill(tile, position * TILE, table, used[position], start, width)
            for row in range(rows):
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
                _fill(tile, position * TILE, table, position, start, width)
            for first in range(0, rows, ROWS):
                group = range(min(ROWS, rows - first))
                totals[:] = 0
                for lane in range(0, TILE, F32_WIDTH):
                    add_product(totals, lane, TILE, left, first * inner, 1, ROWS, tile, lane, TILE, inner)
                for row in group:
                    if width == TILE:
                        copy(products, (first + row) * columns + start, totals, row * TILE, TILE)
                    else:
                        out[first + row, start:] = totals[row * TILE : row * TILE + width]


@njit(cache=True)
def _fill(tile, at, table, row, start, width):
    """Copy a part of a row of the table into the tile; behind the table's last column the tile keeps what it has."""
    if width == TILE:
        copy(tile, at, table, np.intp(row) * table.shape[1] + start, TILE)
    else:
        for column in range(width):
            tile[at + column] = table[row, start + column]


@njit(cache=True, fastmath={"contract"})
def sum_rows(first, last, positions, values, tile, out, at):
    """out[at : at + TILE] = the sum of one row's terms in their order, held in registers."""
    s0 = s1 = s2 = s3 = broadcast(ZERO)
    for entry in range(first, last):
        value, row = element(values, entry), np.intp(element(positions, entry)) * TILE
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
    if block == 1 or table.shape[1] < MIN_TILED_COLUMNS:  # a tile would be used once, or be mostly empty
        starts, columns = np.arange(block + 1) * width, np.tile(np.arange(width, dtype=np.int32), block)
        return _multiply(starts, columns, rows.reshape(-1), table)
    out = np.empty((block, table.shape[1]), dtype=np.float32)
    groups = -(-block // ROWS)
    grouped = np.zeros((groups * ROWS, width), dtype=np.float32)
    grouped[:block] = rows
    left = np.ascontiguousarray(grouped.reshape(groups, ROWS, width).swapaxes(1, 2)).reshape(-1)
    dense_products(left, as_read_only(table, np.float32), get_num_threads(), out)
    return out


def tall_times(rows: csr_matrix, table: np.ndarray) -> np.ndarray:
    """R T, float32 (block, columns): R (block, width) CSR with its values, T float32 (width, columns).

    For an R with more rows than T has columns: sorting R's indices would take longer than it saves.
    """
    entries = as_read_only(rows.indptr, np.int64), as_read_only(rows.indices, np.int32)
    values, table = as_read_only(rows.data, np.float32), as_read_only(table, np.float32)
    out = np.zeros((rows.shape[0], table.shape[1]), dtype=np.float32)
    add_products(*entries, values, table, out)
    return out


def normalize_columns(vectors: np.ndarray) -> np.ndarray:
    """The vectors divided by their lengths, float32 (K, items); zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1)
    return np.ascontiguousarray(vectors.T) / np.where(lengths > 0, lengths, 1).astype(np.float32)


def _multiply(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The product, by the kernel that moves least memory; all give the same bits."""
    out = np.zeros((len(indptr) - 1, table.shape[1]), dtype=np.float32)
    indptr, values, table = (
        as_read_only(indptr, np.int64),
        as_read_only(values, np.float32),
        as_read_only(table, np.float32),
    )
    if len(out) > 1 and table.shape[1] >= MIN_TILED_COLUMNS:
        used, positions = np.unique(indices, return_inverse=True)
        if len(indices) >= MIN_REUSE * len(used):
            used, positions = as_read_only(used, np.uint32), as_read_only(positions, np.uint32)
            tiled_products(indptr, positions, values, used, table, get_num_threads(), out)
            return out
    add_products(indptr, as_read_only(indices, np.int32), values, table, out)
    return out


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
        *sparse_table(table),
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
