"""Kernels of the random-graph model: the block updates (17) to (19) and the two moments of every logit.

One side is updated while the other is held, so that the two sides share one kernel; the comments speak of a
user and its items. What an edge needs of the held side lies in one packed row of a flat table:
means [v_n, 1, b_n], then variances [var v_n, 0, var b_n]. With own means [u_m, b_m, 1] the logit
a = u'v + b_m + b_n is one sum of products. A vertex's edges are gathered a batch at a time; every batch adds its
outer products to a tile of sums, whose rows are, for weights w = 2 lambda(xi) and x = [v_n, 1, b_n]:
rows 0 .. K + 1 the sums of w x x', row K + 2 the sum of (g - 1/2) x.

Sums over a vertex's edges are taken in the order of the graph, so a result does not depend on the shards.
"""

import numpy as np
from numba import njit, prange

from models.vector_lanes import (
    LANES,
    ROWS,
    UNROLLED,
    add_outer,
    add_scaled_lanes,
    add_weighted_lanes,
    copy_lanes,
    padded,
    prefetch,
    product_moments,
    scale_lanes,
    zeros,
)

FAST = {"reassoc", "contract", "arcp", "afn", "nsz"}  # NaN stays NaN
BATCH = 64  # edges gathered at a time; with their packed rows they fill half of a first-level cache
AHEAD = 64  # edges between asking for a packed row and reading it
HALF = np.float32(0.5)


def shards(starts: np.ndarray, count: int = 64) -> np.ndarray:
    """Bounds int64 (shards + 1,) of at most `count` runs of rows with about as many entries each."""
    rows = len(starts) - 1
    load = starts + np.arange(rows + 1) * 8  # a vertex costs something without edges too
    bounds = np.searchsorted(load, np.linspace(0, load[-1], count + 1))
    bounds[0], bounds[-1] = 0, rows
    return np.unique(bounds)


@njit(cache=True, fastmath=FAST, parallel=True)
def pack(mean, precision, bias_mean, bias_precision):
    """The packed rows, flat float32, of one side: see the module's first lines."""
    count, factors = mean.shape
    width = padded(2 * factors + 4)
    table = zeros(count * width + LANES)
    for vertex in prange(count):
        at = vertex * width
        for factor in range(factors):
            table[at + factor] = mean[vertex, factor]
            table[at + factors + 2 + factor] = 1 / precision[vertex, factor]
        table[at + factors] = 1
        table[at + factors + 1] = bias_mean[vertex]
        table[at + 2 * factors + 3] = 1 / bias_precision[vertex]
    return table


@njit(cache=True, inline="always")
def _workspace(factors):
    """What one shard writes in: batch of edges, own moments, tile of sums, sum of w var x, three batch columns."""
    edges = zeros(BATCH * (padded(2 * factors + 4) + padded(factors + 3)) + LANES)
    own = zeros(3 * padded(factors + 2))
    rows = (factors + 2 + ROWS) // ROWS * ROWS
    sums = zeros((rows + 1) * padded(factors + 3))
    return edges, own, sums, zeros(3 * BATCH).reshape(3, BATCH)


@njit(cache=True, inline="always")
def _take_own(own, vertex, mean, precision, bias_mean, bias_precision):
    """Own means, second moments and variances of [u_m, b_m, 1]."""
    factors = mean.shape[1]
    width = padded(factors + 2)
    for factor in range(factors):
        value, variance = mean[vertex, factor], 1 / precision[vertex, factor]
        own[factor], own[2 * width + factor] = value, variance
        own[width + factor] = value * value + variance
    own[factors], own[2 * width + factors] = bias_mean[vertex], 1 / bias_precision[vertex]
    own[factors + 1] = own[width + factors + 1] = 1


@njit(cache=True, inline="always")
def _gather(edges, table, neighbours, first, count, factors):
    """Copy the packed rows of a batch of neighbours beside one another."""
    width = padded(2 * factors + 4)
    step = width + padded(factors + 3)
    for edge in range(count):
        source = np.int64(neighbours[first + edge]) * width
        for lane in range(0, width, LANES):
            copy_lanes(edges, edge * step + lane, table, source + lane)
        ahead = min(first + edge + AHEAD, len(neighbours) - 1)
        source = np.int64(neighbours[ahead]) * width
        for lane in range(0, width, LANES):
            prefetch(table, source + lane)


@njit(cache=True, fastmath=FAST, inline="always")
def _moments(edges, own, columns, count, factors):
    """Mean (column 0) and second moment (column 1) of the logits of a batch; the latter is xi^2, eq. 16."""
    step = padded(2 * factors + 4) + padded(factors + 3)
    width = padded(factors + 2)
    for edge in range(count):
        mean, variance = product_moments(edges, edge * step, edge * step + factors + 2, own, width)
        columns[0, edge], columns[1, edge] = mean, variance + mean * mean


@njit(cache=True, fastmath=FAST, inline="always")
def twice_lambda(xi_squared):
    """2 lambda(xi) = tanh(xi / 2) / (2 xi), as a function of xi^2: no root near zero, no special case there.

    The rational minimax approximation of tanh on +-7.9 that Eigen and XNNPACK use; relative error below 5e-7.
    """
    y = np.float32(0.25) * xi_squared
    s = min(y, np.float32(62.4))
    top = np.float32(-2.76076847742355e-16)
    top = top * s + np.float32(2.00018790482477e-13)
    top = top * s + np.float32(-8.60467152213735e-11)
    top = top * s + np.float32(5.12229709037114e-08)
    top = top * s + np.float32(1.48572235717979e-05)
    top = top * s + np.float32(6.37261928875436e-04)
    top = top * s + np.float32(4.89352455891786e-03)
    bottom = np.float32(1.19825839466702e-06)
    bottom = bottom * s + np.float32(1.18534705686654e-04)
    bottom = bottom * s + np.float32(2.26843463243900e-03)
    bottom = bottom * s + np.float32(4.89352518554385e-03)
    tiny = np.float32(1e-30)
    return np.float32(0.25) * top / bottom * np.sqrt((s + tiny) / (y + tiny))


@njit(cache=True, fastmath=FAST, inline="always")
def _weights(columns, count):
    """Column 2: w = 2 lambda(xi)."""
    for edge in range(count):
        columns[2, edge] = twice_lambda(columns[1, edge])


@njit(cache=True, fastmath=FAST, inline="always")
def _add_batch(edges, sums, columns, count, sign, factors):
    """Add the outer products of a batch, all of one g; `sign` is g - 1/2."""
    width, stride = padded(2 * factors + 4), padded(factors + 3)
    step = width + stride
    rows = (factors + 2 + ROWS) // ROWS * ROWS
    for edge in range(count):
        at, weight = edge * step, columns[2, edge]
        for lane in range(0, stride, LANES):
            scale_lanes(edges, at + width + lane, weight, edges, at + lane)
        edges[at + width + factors + 2] = sign
    whole = -(-count // UNROLLED) * UNROLLED
    columns[2, count:whole] = 0
    for lane in range(0, stride, LANES):
        add_weighted_lanes(sums, rows * stride + lane, columns, 2 * BATCH, edges, factors + 2 + lane, step, whole)
    for row in range(0, rows, ROWS):
        for lane in range(0, min(row + ROWS, factors + 1), LANES):
            add_outer(sums, row * stride + lane, stride, edges, width + row, step, edges, lane, step, count)


@njit(cache=True, fastmath=FAST, inline="always")
def _solve(sums, stride, size, solution):
    """Overwrite z with P^-1 z; P's lower triangle lies in `sums` and is eliminated from the last row up."""
    for last in range(size - 1, -1, -1):
        pivot = 1 / sums[last * stride + last]
        for row in range(last):
            factor = -sums[last * stride + row] * pivot
            for lane in range(0, row + 1, LANES):
                add_scaled_lanes(sums, row * stride + lane, factor, sums, last * stride + lane)
            solution[row] += factor * solution[last]
    for row in range(size):
        total = solution[row]
        for column in range(row):
            total -= sums[row * stride + column] * solution[column]
        solution[row] = total / sums[row * stride + row]


@njit(cache=True, fastmath=FAST, inline="always")
def _natural_parameters(sums, own, solution, size, factors, tau, tau_bias):
    """P (eq. 15, lower triangle, in place) and z of one vertex, from its sums; `size` is K, or K + 1 with bias."""
    stride = padded(factors + 3)
    spread = (factors + 2 + ROWS) // ROWS * ROWS * stride
    for row in range(size):
        sums[row * stride + row] += sums[spread + row] + (tau if row < factors else tau_bias)
        solution[row] = sums[(factors + 2) * stride + row] - sums[(factors + 1) * stride + row]
        if size == factors:  # the own bias is held
            solution[row] -= own[factors] * sums[factors * stride + row]


@njit(cache=True, fastmath=FAST, inline="always")
def _step_towards(sums, stride, size, solution, step, mean, precision, bias_mean, bias_precision, vertex):
    """Eq. 17: move the natural parameters by `step` from the diagonal ones, diag(omega) and diag(omega) eta."""
    factors = mean.shape[1]
    keep = 1 - step
    for row in range(size):
        old = precision[vertex, row] if row < factors else bias_precision[vertex]
        eta = mean[vertex, row] if row < factors else bias_mean[vertex]
        for column in range(row + 1):
            sums[row * stride + column] *= step
        sums[row * stride + row] += keep * old
        solution[row] = step * solution[row] + keep * old * eta


@njit(cache=True, fastmath=FAST, parallel=True)
def update_factors(posterior, table, likes, negatives, bounds, tau, tau_bias, step, joint):
    """Update q(u_m) of every vertex of one side, eq. 17 and 18, in place; with `joint`, of (u_m, b_m) at once.

    Args:
        posterior: float32 mean (M, K), precision (M, K), bias mean (M,), bias precision (M,).
        table: packed rows of the other side.
        likes, negatives: (starts int64 (M + 1,), neighbours int32) of either part of the hidden graph.
        bounds: shards of vertices.
        tau, tau_bias: E[tau_u], E[tau_bu], float32.
        step: epsilon_t, float32.
        joint: the exact maximum over the block of factors and bias together, in place of a pass for biases.
    """
    mean, precision, bias_mean, bias_precision = posterior
    factors = mean.shape[1]
    size = factors + 1 if joint else factors
    stride = padded(factors + 3)
    for shard in prange(len(bounds) - 1):
        edges, own, sums, columns = _workspace(factors)
        solution = np.zeros(size, dtype=np.float32)
        for vertex in range(bounds[shard], bounds[shard + 1]):
            _take_own(own, vertex, mean, precision, bias_mean, bias_precision)
            sums[:] = 0
            for part in range(2):
                starts, neighbours = likes if part == 0 else negatives
                sign = HALF if part == 0 else -HALF
                for first in range(starts[vertex], starts[vertex + 1], BATCH):
                    count = min(BATCH, starts[vertex + 1] - first)
                    _gather(edges, table, neighbours, first, count, factors)
                    _moments(edges, own, columns, count, factors)
                    _weights(columns, count)
                    _add_batch(edges, sums, columns, count, sign, factors)
            _natural_parameters(sums, own, solution, size, factors, tau, tau_bias)
            if step < 1:
                _step_towards(sums, stride, size, solution, step, mean, precision, bias_mean, bias_precision, vertex)
            for row in range(factors):
                precision[vertex, row] = sums[row * stride + row]
            if joint:
                bias_precision[vertex] = sums[factors * stride + factors]
            _solve(sums, stride, size, solution)
            for row in range(factors):
                mean[vertex, row] = solution[row]
            if joint:
                bias_mean[vertex] = solution[factors]


@njit(cache=True, fastmath=FAST, parallel=True)
def update_biases(posterior, table, likes, negatives, bounds, tau_bias, step):
    """Update q(b_m) of every vertex of one side, eq. 19, in place; arguments as in `update_factors`."""
    mean, precision, bias_mean, bias_precision = posterior
    factors = mean.shape[1]
    for shard in prange(len(bounds) - 1):
        edges, own, sums, columns = _workspace(factors)
        for vertex in range(bounds[shard], bounds[shard + 1]):
            _take_own(own, vertex, mean, precision, bias_mean, bias_precision)
            weight_sum, z = np.float64(tau_bias), 0.0
            for part in range(2):
                starts, neighbours = likes if part == 0 else negatives
                z += (0.5 if part == 0 else -0.5) * (starts[vertex + 1] - starts[vertex])
                for first in range(starts[vertex], starts[vertex + 1], BATCH):
                    count = min(BATCH, starts[vertex + 1] - first)
                    _gather(edges, table, neighbours, first, count, factors)
                    _moments(edges, own, columns, count, factors)
                    _weights(columns, count)
                    for edge in range(count):
                        weight_sum += columns[2, edge]
                        z -= columns[2, edge] * (columns[0, edge] - own[factors])
            old = bias_precision[vertex]
            new = step * weight_sum + (1 - step) * old
            bias_mean[vertex] = (step * z + (1 - step) * old * bias_mean[vertex]) / new
            bias_precision[vertex] = new


@njit(cache=True, fastmath=FAST, parallel=True)
def edge_bound(posterior, table, likes, negatives, bounds):
    """What the edges of H add to the bound, with xi at its best (eq. 16): (shards,) float64 partial sums.

    An edge adds (g - 1/2) E a - log(2 cosh(xi / 2)).
    """
    mean, precision, bias_mean, bias_precision = posterior
    factors = mean.shape[1]
    totals = np.zeros(len(bounds) - 1)
    for shard in prange(len(bounds) - 1):
        edges, own, sums, columns = _workspace(factors)
        total = 0.0
        for vertex in range(bounds[shard], bounds[shard + 1]):
            _take_own(own, vertex, mean, precision, bias_mean, bias_precision)
            for part in range(2):
                starts, neighbours = likes if part == 0 else negatives
                sign = HALF if part == 0 else -HALF
                for first in range(starts[vertex], starts[vertex + 1], BATCH):
                    count = min(BATCH, starts[vertex + 1] - first)
                    _gather(edges, table, neighbours, first, count, factors)
                    _moments(edges, own, columns, count, factors)
                    for edge in range(count):
                        xi = np.sqrt(columns[1, edge])
                        total += sign * columns[0, edge] - HALF * xi - np.log1p(np.exp(-xi))
        totals[shard] = total
    return totals
