"""Edges of paired symbols, a batch at a time: the moments of their logits, and their sums of outer products.

Users and items are treated alike. Every kernel takes `own`, the numbers of the side that is updated, and `table`, those
of the other side.

A table has one float32 row for each vertex, 2 W long: means y = [v_1 .. v_K, b, 1, 0 ..], then variances
[.., var b, share, 0 ..], where W is n = K + 2 rounded up to a multiple of UNIT. `share` is t_j (or s_i); it is stored
in the place of the variance of the constant 1. Kernels read half a row in steps of F32_WIDTH; if W is not a multiple of
F32_WIDTH, the first step is UNIT. `lanes` is a tuple of n integers: numba knows its length, so that it unrolls the
loops over half a row for each n. Bounds are not checked: places must lie inside the arrays.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from oneclass.models.numerics.simd import (
    F32_WIDTH,
    ROWS,
    ZERO,
    add_halves,
    broadcast,
    element,
    horizontal_sums,
    join_halves,
    load,
    load_like,
    pad_width,
    store,
)
from oneclass.models.numerics.simd_tiles import load_tile, plus_products, plus_rows, plus_squared_rows, store_tile

EDGES_PER_BATCH = 32  # edges that are worked on together
COLUMN_UNIT = F32_WIDTH // 2  # half rows are filled up to a multiple of it
JIT_OPTIONS: dict[str, Any] = {"cache": True, "fastmath": {"contract"}, "error_model": "numpy", "nogil": True}
ROWS_8, ROWS_16, ROWS_24 = (0,) * 8, (0,) * 16, (0,) * 24  # heights of tiles whose sums stay in registers
INLINED: dict[str, Any] = JIT_OPTIONS | {"forceinline": True}


class WeightedEdges(NamedTuple):
    """A batch of edges with their weights.

    Attributes:
        table: the table of the other side.
        indices, start, edge_count: the edges are those at the places start .. start + edge_count - 1 of `indices`.
        weights, halves: float32 (BATCH,), for each edge the weight of its outer product, and that of its means.
    """

    table: np.ndarray
    indices: np.ndarray
    start: int
    edge_count: int
    weights: np.ndarray
    halves: np.ndarray


@njit(**INLINED)
def row_start(indices, edge, width):
    """Where the row of an edge's other end begins."""
    return np.int64(element(indices, edge)) * (2 * width)


@njit(**JIT_OPTIONS)
def fill_row_factors(row, n, factors):
    """Fill `factors` (3 W) from an own row (2 W): the numbers by which `moments` multiplies rows of the other side."""
    width, like = len(row) // 2, add_halves(broadcast(ZERO))
    for k in range(0, width, COLUMN_UNIT):
        mean, variance = load_like(like, row, k), load_like(like, row, width + k)
        store(factors, k, mean)
        store(factors, width + k, mean * mean + variance)
        store(factors, 2 * width + k, variance)
    factors[n - 2], factors[n - 1] = 1, row[n - 2]
    factors[width + n - 2], factors[width + n - 1] = 1, 0
    factors[2 * width + n - 2], factors[2 * width + n - 1] = 0, row[width + n - 2]


@njit(**INLINED)
def _row_starts(indices, edge, last, width):
    """Where the rows of ROWS edges begin; behind the edge `last`, that of it."""
    return (
        row_start(indices, edge, width),
        row_start(indices, min(edge + 1, last), width),
        row_start(indices, min(edge + 2, last), width),
        row_start(indices, min(edge + 3, last), width),
        row_start(indices, min(edge + 4, last), width),
        row_start(indices, min(edge + 5, last), width),
        row_start(indices, min(edge + 6, last), width),
        row_start(indices, min(edge + 7, last), width),
    )


@njit(**INLINED)
def fill_moments(lanes, own, table, indices, start, count, means, variances):
    """E[a] and var[a], a = u.v + b_i + b_j, of the `count` edges from the place `start` of `indices`.

    A row is read by cache lines. Where W is not a multiple of F32_WIDTH, one line has means and variances.

    own: float32 (3 W), the factors of a row's means, variances and squared means: [u, 1, b_i], [E u^2, 1, 0] and
        [var u, 0, var b_i].
    means, variances: float32, filled from place 0 up to a multiple of ROWS.
    """
    width = pad_width(len(lanes), COLUMN_UNIT)
    middle, zero, nothing = width - width % F32_WIDTH, broadcast(ZERO), add_halves(broadcast(ZERO))
    for edge in range(0, count, ROWS):
        rows = _row_starts(indices, start + edge, start + count - 1, width)
        mean = spread = (zero, zero, zero, zero, zero, zero, zero, zero)
        for line in range(0, middle, F32_WIDTH):
            mean = plus_rows(mean, table, rows, line, load(own, line))
            spread = plus_squared_rows(spread, table, rows, line, load(own, 2 * width + line))
        if width % F32_WIDTH:
            last, first, squared = middle, width, 2 * width + middle
            mean = plus_rows(mean, table, rows, middle, join_halves(load_like(nothing, own, last), nothing))
            spread = plus_rows(spread, table, rows, middle, join_halves(nothing, load_like(nothing, own, first)))
            squares = join_halves(load_like(nothing, own, squared), nothing)
            spread = plus_squared_rows(spread, table, rows, middle, squares)
        for line in range(width + width % F32_WIDTH, 2 * width, F32_WIDTH):
            spread = plus_rows(spread, table, rows, line, load(own, line))
        store(means, edge, horizontal_sums(mean))
        store(variances, edge, horizontal_sums(spread))


@njit(**INLINED)
def add_outer(lanes, weighted, sums):
    """Add the outer products of the means of `WeightedEdges` edges' rows to `sums`, float32 ((W + 2) W).

    Row k < W of `sums` gains sum_e weights_e y_ek y_e, row W sum_e weights_e (variances), and row W + 1
    sum_e halves_e y_e. Of the first W rows only the upper triangle is correct.
    """
    width = pad_width(len(lanes), COLUMN_UNIT)
    if width % F32_WIDTH:
        _add_tile(ROWS_8, add_halves(broadcast(ZERO)), 0, 0, width, weighted, sums)
        for first in range(COLUMN_UNIT, width, F32_WIDTH):
            _add_tile(ROWS_24, broadcast(ZERO), 0, first, width, weighted, sums)
            for top in range(24, first + F32_WIDTH, 16):
                _add_tile(ROWS_16, broadcast(ZERO), top, first, width, weighted, sums)
    else:
        for first in range(0, width, F32_WIDTH):
            for top in range(0, first + F32_WIDTH, 16):
                _add_tile(ROWS_16, broadcast(ZERO), top, first, width, weighted, sums)


@njit(**INLINED)
def _add_tile(rows, like, top, first, width, weighted, sums):
    """Part of `add_outer`, held in registers: the rows from `top` on, and if `top` is 0 also the last two rows.

    There are as many rows as `rows` is long, and as many columns, from `first` on, as `like` has lanes.
    """
    table, indices, start, count, weights, halves = weighted
    at, last = top * width + first, width * width + first
    tile = load_tile(rows, like, sums, at, width)
    spreads, pulls = load_like(like, sums, last), load_like(like, sums, last + width)
    for edge in range(count):
        row, weight = row_start(indices, start + edge, width), element(weights, edge)
        mean = load_like(like, table, row + first)
        tile = plus_products(tile, table, row + top, 1, weight * mean)
        if top == 0:
            spreads = spreads + weight * load_like(like, table, row + width + first)
            pulls = pulls + element(halves, edge) * mean
    store_tile(sums, at, width, tile)
    if top == 0:
        store(sums, last, spreads)
        store(sums, last + width, pulls)
