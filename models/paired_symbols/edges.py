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
    ZERO,
    add_halves,
    broadcast,
    element,
    horizontal_sum,
    load_like,
    load_tile,
    pad_width,
    plus_outer,
    prefetch_row,
    store,
    store_tile,
)

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
    width = len(row) // 2
    factors[:] = 0
    for k in range(n - 2):
        mean, variance = row[k], row[width + k]
        factors[k], factors[width + k], factors[2 * width + k] = mean, mean * mean + variance, variance
    factors[n - 2], factors[n - 1] = 1, row[n - 2]
    factors[width + n - 2] = 1
    factors[2 * width + n - 1] = row[width + n - 2]


@njit(**INLINED)
def prefetch_rows(lanes, table, indices, start, count):
    """Prefetch the rows of `count` edges."""
    width = pad_width(len(lanes), COLUMN_UNIT)
    for edge in range(start, start + count):
        prefetch_row(table, row_start(indices, edge, width), 2 * width)


@njit(**INLINED)
def _products(like, own, table, row, first, width):
    """The terms of E[a] and of var[a] from some lanes of a row."""
    mean, variance = load_like(like, table, row + first), load_like(like, table, row + width + first)
    spreads = mean * mean * load_like(like, own, 2 * width + first) + variance * load_like(like, own, width + first)
    return mean * load_like(like, own, first), spreads


@njit(**INLINED)
def fill_moments(lanes, own, table, indices, start, count, means, variances):
    """E[a] and var[a], a = u.v + b_i + b_j, of the `count` edges from the place `start` of `indices`.

    own: float32 (3 W), the factors of a row's means, variances and squared means: [u, 1, b_i], [E u^2, 1, 0] and
        [var u, 0, var b_i].
    means, variances: float32, filled from place 0.
    """
    width = pad_width(len(lanes), COLUMN_UNIT)
    unit = add_halves(broadcast(np.float32(-0.0)))  # adding -0 changes no sum, not even one that is -0
    for edge in range(count):
        row = row_start(indices, start + edge, width)
        mean_sum = spread_sum = unit
        if width % F32_WIDTH:
            mean_sum, spread_sum = _products(unit, own, table, row, 0, width)
        for first in range(width % F32_WIDTH, width, F32_WIDTH):
            mean, spreads = _products(broadcast(ZERO), own, table, row, first, width)
            mean_sum, spread_sum = mean_sum + add_halves(mean), spread_sum + add_halves(spreads)
        means[edge], variances[edge] = horizontal_sum(mean_sum), horizontal_sum(spread_sum)


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
        tile = plus_outer(tile, table, row + top, weight * mean)
        if top == 0:
            spreads = spreads + weight * load_like(like, table, row + width + first)
            pulls = pulls + element(halves, edge) * mean
    store_tile(sums, at, width, tile)
    if top == 0:
        store(sums, last, spreads)
        store(sums, last + width, pulls)
