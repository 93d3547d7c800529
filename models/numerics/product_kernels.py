"""The kernels of `models.numerics.products`: rows of a block times a table, every row summed in the order of its entries.

For a large block a tile of the table, some columns of the rows that the block uses, is copied to where it stays in a
cache; all rows of the block use one tile before the next.
"""

import numpy as np
from numba import njit, prange

from models.numerics.lane_products import ROWS, ZERO, copy, prefetch_row
from models.numerics.lane_tiles import add_outer
from models.numerics.lanes import LANES, element, load, spread, store, zeros

GROUP = 32  # rows that share a pass over the columns, so that rows of the table are used again while in the cache
COLUMNS = 1024  # columns of a pass: 4 KB of each row of the result
ALONE = 4096  # columns of a pass for one row alone: 16 KB of the result, in the first-level cache
TILE = 4 * LANES  # columns of a tile: a copy of 256 bytes of each table row that the block uses
TOGETHER = 4  # tiles that lie side by side in the table
AHEAD = 16  # entries of a history by which their rows of the tile are asked for early, as a tile is larger than a cache


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

    A tile is a copy, because in the table each of its rows lies on another memory page; for this reason too TOGETHER
    tiles are copied at a time. `positions` has AHEAD more elements than there are entries.
    """
    rows, columns = out.shape
    size, some = len(used) * TILE, TOGETHER * TILE
    for worker in prange(workers):
        tiles, totals = zeros(TOGETHER * size), zeros(TILE)
        for first in range(worker * some, columns, workers * some):
            starts = range(first, min(first + some, columns), TILE)
            for position in range(len(used)):
                for start in starts:
                    at = (start - first) // TILE * size + position * TILE
                    _fill(tiles, at, table, used[position], start, min(TILE, columns - start))
            for start in starts:
                tile = tiles[(start - first) // TILE * size :]
                for row in range(rows):
                    _sum_rows(indptr[row], indptr[row + 1], positions, values, tile, totals)
                    for column in range(min(TILE, columns - start)):
                        out[row, start + column] = totals[column]


@njit(parallel=True, nogil=True, cache=True)
def dense_products(left, table, workers, out):
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
