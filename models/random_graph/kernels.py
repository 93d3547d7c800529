"""Kernels of the random-graph model: a vertex's sums over its edges, a batch of edges at a time, the block updates (17)
to (19) of one side, and the terms of the edges in the bound.

A packed row of a vertex has its 2 K + 4 numbers, filled up with zeros to whole cache lines: the means of x = [v_n, 1,
b_n], and behind them the variances. With the weights w = 2 lambda(xi), the sums of a vertex are flat:

    0                rows of w v v', filled up to more than K numbers; only the lower triangle is correct
    `ones_start`     sum of w x
    `pulls_start`    sum of (g - 1/2 - w b) x
    `spreads_start`  sum of w var v

Sums stay in registers while a batch is added: what bounds the loop over edges is to load the numbers of a row, one for
each product with a vector. The edges of a vertex are summed in the order of the graph, likes first, so that a result
does not depend on the shards.
"""

from typing import Any

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.logistic_bound import FAST, best_bound_of_square, best_square, lambda_of_square
from oneclass.models.numerics.simd import (
    F32_WIDTH,
    IN_ORDER,
    ROWS,
    ZERO,
    add_scaled,
    aligned_zeros,
    broadcast,
    eight,
    element,
    horizontal_sums,
    load,
    load_tile,
    pad_width,
    plus_products,
    plus_rows,
    plus_squared_rows,
    put,
    scale,
    store,
    store_tile,
)

# As in numpy, division by zero is no error: its test would keep loops from being vectorized.
OPTIONS: dict[str, Any] = {"cache": True, "fastmath": FAST, "error_model": "numpy", "nogil": True}
INLINED: dict[str, Any] = OPTIONS | {"forceinline": True}
BATCH = 64  # edges that are worked on together, whose packed rows stay in the first-level cache
HALF = np.float32(0.5)
MEAN, SQUARE, WEIGHT, PULL = range(4)  # E[a], E[a^2], w = 2 lambda(xi) and g - 1/2 of every edge of a batch
# heights of tiles whose sums stay in registers
ROWS_4, ROWS_8, ROWS_12, ROWS_16, ROWS_20, ROWS_24 = (0,) * 4, (0,) * 8, (0,) * 12, (0,) * 16, (0,) * 20, (0,) * 24


@njit(parallel=True, **OPTIONS)
def pack(mean, precision, bias_mean, bias_precision):
    """The packed rows of one side, flat float32, as the first lines of this file describe them."""
    count, factors = mean.shape
    width = pad_width(2 * factors + 4)
    table = aligned_zeros(count * width)
    for vertex in prange(count):
        at = vertex * width
        for factor in range(factors):
            table[at + factor] = mean[vertex, factor]
            table[at + factors + 2 + factor] = 1 / precision[vertex, factor]
        table[at + factors] = 1
        table[at + factors + 1] = bias_mean[vertex]
        table[at + 2 * factors + 3] = 1 / bias_precision[vertex]
    return table


@njit(**INLINED)
def ones_start(factors):
    """Where the sum of w x begins in the sums of a vertex, behind the rows of w v v'."""
    return pad_width(factors, 4) * pad_width(factors + 1)


@njit(**INLINED)
def pulls_start(factors):
    """Where the sum of (g - 1/2 - w b) x begins in the sums of a vertex."""
    return ones_start(factors) + pad_width(factors + 1)


@njit(**INLINED)
def spreads_start(factors):
    """Where the sum of w var v begins in the sums of a vertex."""
    first = factors + 2
    return pulls_start(factors) + pad_width(factors + 1) + first % F32_WIDTH


@njit(**INLINED)
def allocate_workspace(factors):
    """The scratch arrays of one shard.

    Returns:
        rows: int64 (BATCH,), where the packed rows of a batch's edges begin.
        own: what a packed row is multiplied by for E[a] and for var[a], and its squares for var[a].
        sums: the sums of a vertex, as the first lines of this file describe them.
        columns: (4, BATCH), MEAN, SQUARE, WEIGHT and PULL of every edge of the batch.
    """
    width = pad_width(2 * factors + 4)
    sums = aligned_zeros(pulls_start(factors) + pad_width(factors + 1) + width)
    return np.zeros(BATCH, dtype=np.int64), aligned_zeros(3 * width), sums, np.zeros((4, BATCH), dtype=np.float32)


@njit(**INLINED)
def load_own_vertex(own, vertex, posterior):
    """Fill `own` with the means, second moments and variances of [u_m, b_m, 1], each where its factor is in a row."""
    mean, precision, bias_mean, bias_precision = posterior
    factors = mean.shape[1]
    width = pad_width(2 * factors + 4)
    for factor in range(factors):
        value, variance = mean[vertex, factor], 1 / precision[vertex, factor]
        own[factor], own[2 * width + factor] = value, variance
        own[width + factors + 2 + factor] = value * value + variance
    own[factors], own[2 * width + factors] = bias_mean[vertex], 1 / bias_precision[vertex]
    own[factors + 1] = own[width + 2 * factors + 3] = 1


@njit(**INLINED)
def _locate(rows, columns, neighbours, start, first, count, sign, width):
    """Find the packed rows of the edges first .. count - 1 of a batch; edge e goes to neighbours[start + e]."""
    for edge in range(first, count):
        put(rows, edge, np.int64(element(neighbours, start + edge)) * width)
        put(columns, PULL * BATCH + edge, sign)


@njit(**INLINED)
def locate_batch(rows, columns, parts, vertex, first, factors):
    """Find the packed rows of a vertex's edges from its edge `first` on: likes, and behind them negatives.

    Returns:
        The number of edges, at most BATCH. Places up to a multiple of ROWS are filled.
    """
    (like_starts, likes), (negative_starts, negatives) = parts
    liked = like_starts[vertex + 1] - like_starts[vertex]
    degree = liked + negative_starts[vertex + 1] - negative_starts[vertex]
    width, count = pad_width(2 * factors + 4), min(BATCH, degree - first)
    turn = min(max(liked - first, 0), count)
    _locate(rows, columns, likes, like_starts[vertex] + first, 0, turn, HALF, width)
    _locate(rows, columns, negatives, negative_starts[vertex] + first - liked, turn, count, -HALF, width)
    for edge in range(count, pad_width(count, ROWS)):
        rows[edge] = rows[0]
    return count


@njit(**INLINED)
def count_edges(parts, vertex):
    """The degree of a vertex in the hidden graph."""
    return parts[0][0][vertex + 1] - parts[0][0][vertex] + parts[1][0][vertex + 1] - parts[1][0][vertex]


@njit(**IN_ORDER)
def fill_logit_moments(rows, own, columns, table, count, factors):
    """Mean and second moment of the logits of a batch; the second moment is xi^2 (eq. 16).

    E a = sum E x E y and var a = sum var x E y^2 + (E x)^2 var y, where x are the neighbour's numbers and y the own.
    """
    width = pad_width(2 * factors + 4)
    zero = broadcast(ZERO)
    for edge in range(0, count, ROWS):
        at = eight(rows, edge)
        means = variances = (zero, zero, zero, zero, zero, zero, zero, zero)
        for lane in range(0, factors + 2, F32_WIDTH):
            means = plus_rows(means, table, at, lane, load(own, lane))
            variances = plus_squared_rows(variances, table, at, lane, load(own, 2 * width + lane))
        for lane in range((factors + 2) // F32_WIDTH * F32_WIDTH, width, F32_WIDTH):
            variances = plus_rows(variances, table, at, lane, load(own, width + lane))
        store(columns, MEAN * BATCH + edge, horizontal_sums(means))
        store(columns, SQUARE * BATCH + edge, horizontal_sums(variances))
    for edge in range(BATCH):
        columns[SQUARE, edge] = best_square(columns[MEAN, edge], columns[SQUARE, edge])


@njit(**OPTIONS)
def fill_weights(columns):
    """w = 2 lambda(xi) of a batch."""
    for edge in range(BATCH):
        columns[WEIGHT, edge] = np.float32(2) * lambda_of_square(columns[SQUARE, edge])


@njit(**IN_ORDER)
def _add_tile(height, sums, top, lane, stride, rows, columns, table, count):
    """Add w v v' of a batch to rows top .. top + len(height) - 1 and lanes lane .. lane + F32_WIDTH - 1 of the sums."""
    tile = load_tile(height, broadcast(ZERO), sums, top * stride + lane, stride)
    for edge in range(count):
        row = element(rows, edge)
        weighted = element(columns, WEIGHT * BATCH + edge) * load(table, row + lane)
        tile = plus_products(tile, table, row + top, 1, weighted)
    store_tile(sums, top * stride + lane, stride, tile)


@njit(**IN_ORDER)
def _add_top_tile(height, sums, lane, factors, rows, columns, table, count):
    """As `_add_tile` with the rows from `lane` on; and add w x, the pulls times x and w var v of as many lanes."""
    stride, variances = pad_width(factors + 1), (factors + 2) // F32_WIDTH * F32_WIDTH + lane
    ones, pulls = ones_start(factors) + lane, pulls_start(factors) + lane
    tile = load_tile(height, broadcast(ZERO), sums, lane * stride + lane, stride)
    one, pull, spread = load(sums, ones), load(sums, pulls), load(sums, pulls + stride)
    for edge in range(count):
        row, weight = element(rows, edge), element(columns, WEIGHT * BATCH + edge)
        mean = load(table, row + lane)
        weighted = weight * mean
        one = one + weighted
        pull = pull + element(columns, PULL * BATCH + edge) * mean
        spread = spread + weight * load(table, row + variances)
        tile = plus_products(tile, table, row + lane, 1, weighted)
    store_tile(sums, lane * stride + lane, stride, tile)
    store(sums, ones, one)
    store(sums, pulls, pull)
    store(sums, pulls + stride, spread)


@njit(**IN_ORDER)
def _add_weighted(sums, at, column, lane, rows, columns, table, count):
    """Add some lanes of a batch's rows, weighted by a column, to the sums from `at` on."""
    total = load(sums, at)
    for edge in range(count):
        total = total + element(columns, column * BATCH + edge) * load(table, element(rows, edge) + lane)
    store(sums, at, total)


@njit(**OPTIONS)
def _add_batch(rows, sums, columns, table, count, factors):
    """Add a batch to the sums of its vertex; of w v v' the lower triangle."""
    stride, height = pad_width(factors + 1), pad_width(factors, 4)
    for lane in range(0, factors, F32_WIDTH):
        top = (height - lane) % 16
        if top < 12 and height - lane > 8:  # whole tiles of 16 rows are left
            top += 16
        if top == 4:
            _add_top_tile(ROWS_4, sums, lane, factors, rows, columns, table, count)
        elif top == 8:
            _add_top_tile(ROWS_8, sums, lane, factors, rows, columns, table, count)
        elif top == 12:
            _add_top_tile(ROWS_12, sums, lane, factors, rows, columns, table, count)
        elif top == 16:
            _add_top_tile(ROWS_16, sums, lane, factors, rows, columns, table, count)
        elif top == 20:
            _add_top_tile(ROWS_20, sums, lane, factors, rows, columns, table, count)
        else:
            _add_top_tile(ROWS_24, sums, lane, factors, rows, columns, table, count)
        for below in range(lane + top, height, 16):
            _add_tile(ROWS_16, sums, below, lane, stride, rows, columns, table, count)
    ones, pulls, covered = ones_start(factors), pulls_start(factors), pad_width(factors)
    if covered == factors:  # the 1 of x has lanes of its own
        _add_weighted(sums, ones + factors, WEIGHT, factors, rows, columns, table, count)
        _add_weighted(sums, pulls + factors, PULL, factors, rows, columns, table, count)
    variances = (factors + 2) // F32_WIDTH * F32_WIDTH
    for lane in range(covered, 2 * factors + 2 - variances, F32_WIDTH):
        _add_weighted(sums, pulls + stride + lane, WEIGHT, variances + lane, rows, columns, table, count)


@njit(**INLINED)
def add_edges(rows, own, sums, columns, table, parts, vertex, factors):
    """The sums of one vertex; `own` is taken already, and `parts` are the likes and the negatives."""
    sums[:] = 0
    for first in range(0, count_edges(parts, vertex), BATCH):
        count = locate_batch(rows, columns, parts, vertex, first, factors)
        fill_logit_moments(rows, own, columns, table, count, factors)
        fill_weights(columns)
        for edge in range(count):
            bias = element(table, element(rows, edge) + factors + 1)
            columns[PULL, edge] -= columns[WEIGHT, edge] * bias
        _add_batch(rows, sums, columns, table, count, factors)


@njit(**INLINED)
def add_bias_edges(rows, own, columns, table, parts, vertex, factors, weight_sum):
    """The sums of eq. 19 over the edges of one vertex: of w added to `weight_sum`, and z. Float64."""
    z = 0.0
    for first in range(0, count_edges(parts, vertex), BATCH):
        count = locate_batch(rows, columns, parts, vertex, first, factors)
        fill_logit_moments(rows, own, columns, table, count, factors)
        fill_weights(columns)
        for edge in range(count):
            weight_sum += columns[WEIGHT, edge]
            z += columns[PULL, edge] - columns[WEIGHT, edge] * (columns[MEAN, edge] - own[factors])
    return weight_sum, z


@njit(**INLINED)
def natural_parameters(sums, own_bias, solution, factors, tau):
    """P (eq. 15; its lower triangle, in place) and z of one vertex, whose bias is fixed."""
    stride, ones, pulls, spreads = (
        pad_width(factors + 1),
        ones_start(factors),
        pulls_start(factors),
        spreads_start(factors),
    )
    for row in range(factors):
        sums[row * stride + row] += sums[spreads + row] + tau
        solution[row] = sums[pulls + row]
    for row in range(factors):
        solution[row] -= own_bias * sums[ones + row]


@njit(cache=True, fastmath=FAST, inline="always")
def solve_in_rows(matrix, stride, size, vector, least):
    """vector = P^-1 vector; the lower triangle of P, with rows `stride` long, is eliminated from the last row up.

    No eigenvalue of P may lie below `least`: a pivot that rounding made smaller is raised to it.
    """
    for last in range(size - 1, -1, -1):
        matrix[last * stride + last] = max(matrix[last * stride + last], least)
        pivot = 1 / matrix[last * stride + last]
        for row in range(last):
            factor = -matrix[last * stride + row] * pivot
            add_scaled(matrix, row * stride, np.float32(factor), matrix, last * stride, row + 1)
            vector[row] += factor * vector[last]
    for row in range(size):
        total = vector[row]
        for column in range(row):
            total -= matrix[row * stride + column] * vector[column]
        vector[row] = total / matrix[row * stride + row]


@njit(**OPTIONS)
def update_vertex(sums, stride, solution, step, tau, mean, precision, vertex):
    """Eq. 17 and 18: the factors of one vertex from P (in `sums`) and z (in `solution`), weighted by `step`.

    The precisions are the diagonal of the new P. The arrays of the posterior come one by one: numba counts references
    to what it takes from a tuple.
    """
    factors = mean.shape[1]
    for row in range(factors):
        if step < 1:
            scale(sums, row * stride, step, sums, row * stride, row + 1)
            kept = (1 - step) * precision[vertex, row]
            sums[row * stride + row] += kept
            solution[row] = step * solution[row] + kept * mean[vertex, row]
        precision[vertex, row] = sums[row * stride + row]
    solve_in_rows(sums, stride, factors, solution, step * tau)
    for row in range(factors):
        mean[vertex, row] = solution[row]


@njit(parallel=True, **OPTIONS)
def update_factors(posterior, table, likes, negatives, bounds, tau, step):
    """Update q(u_m) of every vertex of one side in place, eq. 17 and 18.

    Args:
        posterior: float32 mean (M, K), precision (M, K), bias mean (M,), bias precision (M,).
        table: packed rows of the other side.
        likes, negatives: (starts int64 (M + 1,), neighbours int32), the two parts of the hidden graph.
        bounds: int64, where the shards of vertices begin and end.
        tau: E[tau_u], float32.
        step: epsilon_t, float32.
    """
    mean, precision, _, _ = posterior
    factors = mean.shape[1]
    stride = pad_width(factors + 1)
    for shard in prange(len(bounds) - 1):
        rows, own, sums, columns = allocate_workspace(factors)
        solution = np.zeros(factors, dtype=np.float32)
        for vertex in range(bounds[shard], bounds[shard + 1]):
            load_own_vertex(own, vertex, posterior)
            add_edges(rows, own, sums, columns, table, (likes, negatives), vertex, factors)
            natural_parameters(sums, own[factors], solution, factors, tau)
            update_vertex(sums, stride, solution, step, tau, mean, precision, vertex)


@njit(parallel=True, **OPTIONS)
def sum_bias_parameters(posterior, table, likes, negatives, bounds, tau_bias):
    """P and z of the bias of every vertex of one side, eq. 19: float64 (M, 2); arguments as in `update_factors`."""
    factors = posterior[0].shape[1]
    found = np.empty((len(posterior[0]), 2))
    for shard in prange(len(bounds) - 1):
        rows, own, _, columns = allocate_workspace(factors)
        for vertex in range(bounds[shard], bounds[shard + 1]):
            load_own_vertex(own, vertex, posterior)
            found[vertex, 0], found[vertex, 1] = add_bias_edges(
                rows, own, columns, table, (likes, negatives), vertex, factors, tau_bias
            )
    return found


@njit(parallel=True, **OPTIONS)
def edge_bound(posterior, table, likes, negatives, bounds):
    """The terms of H's edges in the bound, with xi at its optimum (eq. 16): float64 (shards,), partial sums.

    The term of an edge is (g - 1/2) E a - log(2 cosh(xi / 2)).
    """
    factors = posterior[0].shape[1]
    totals = np.zeros(len(bounds) - 1)
    for shard in prange(len(bounds) - 1):
        rows, own, _, columns = allocate_workspace(factors)
        total = 0.0
        for vertex in range(bounds[shard], bounds[shard + 1]):
            load_own_vertex(own, vertex, posterior)
            for first in range(0, count_edges((likes, negatives), vertex), BATCH):
                count = locate_batch(rows, columns, (likes, negatives), vertex, first, factors)
                fill_logit_moments(rows, own, columns, table, count, factors)
                for edge in range(BATCH):
                    columns[WEIGHT, edge] = best_bound_of_square(columns[SQUARE, edge])
                for edge in range(count):
                    total += columns[PULL, edge] * columns[MEAN, edge] + columns[WEIGHT, edge]
        totals[shard] = total
    return totals
