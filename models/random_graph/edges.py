"""Edges of the hidden graph, a batch at a time: the numbers of a vertex's neighbours, and the moments of their logits.

One side is updated while the other is fixed. Both sides use the same kernels; the comments speak of a user and its
items. Each vertex of the fixed side has one packed row in a flat table: means [v_n, 1, b_n], then variances
[var v_n, 0, var b_n]. With the own means [u_m, b_m, 1] the logit a = u'v + b_m + b_n is one sum of products.
"""

import numpy as np
from numba import njit, prange

from models.numerics.lane_products import IN_ORDER, ROWS, ZERO, copy, prefetch_row
from models.numerics.lanes import LANES, load, padded, spread, total_of, zeros
from models.numerics.logistic_bound import FAST, best_square, twice_lambda_of_square

BATCH = 64  # edges gathered at a time; their packed rows fill half of a first-level cache
AHEAD = 64  # a packed row is prefetched so many edges before it is read


@njit(cache=True, fastmath=FAST, parallel=True, nogil=True)
def pack(mean, precision, bias_mean, bias_precision):
    """The packed rows of one side, flat float32, as the first lines of this file describe them."""
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
def workspace(factors):
    """The scratch arrays of one shard.

    Returns:
        edges: a row for each edge of a batch: a packed row, then room for its weighted means.
        own: means, second moments and variances of [u_m, b_m, 1].
        sums: the tile of `models.random_graph.kernels`.
        columns: (3, BATCH), E[a], E[a^2] and w of every edge of the batch.
    """
    edges = zeros(BATCH * (padded(2 * factors + 4) + padded(factors + 3)) + LANES)
    own = zeros(3 * padded(factors + 2))
    rows = (factors + 2 + ROWS) // ROWS * ROWS
    sums = zeros((rows + 1) * padded(factors + 3))
    return edges, own, sums, np.zeros((3, BATCH), dtype=np.float32)


@njit(cache=True, inline="always")
def take_own(own, vertex, posterior):
    """Fill `own` with the means, second moments and variances of [u_m, b_m, 1]."""
    mean, precision, bias_mean, bias_precision = posterior
    factors = mean.shape[1]
    width = padded(factors + 2)
    for factor in range(factors):
        value, variance = mean[vertex, factor], 1 / precision[vertex, factor]
        own[factor], own[2 * width + factor] = value, variance
        own[width + factor] = value * value + variance
    own[factors], own[2 * width + factors] = bias_mean[vertex], 1 / bias_precision[vertex]
    own[factors + 1] = own[width + factors + 1] = 1


@njit(cache=True, inline="always")
def gather(edges, table, neighbours, first, count, factors):
    """Copy the packed rows of a batch of neighbours beside one another."""
    width = padded(2 * factors + 4)
    step = width + padded(factors + 3)
    for edge in range(count):
        source = np.int64(neighbours[first + edge]) * width
        copy(edges, edge * step, table, source, width)
        ahead = min(first + edge + AHEAD, len(neighbours) - 1)
        prefetch_row(table, np.int64(neighbours[ahead]) * width, width)


@njit(**IN_ORDER)
def moments(edges, own, columns, count, factors):
    """Mean (column 0) and second moment (column 1) of the logits of a batch; the second moment is xi^2 (eq. 16).

    E a = sum E x E y and var a = sum var x E y^2 + (E x)^2 var y, where x are the neighbour's numbers and y the own.
    """
    step = padded(2 * factors + 4) + padded(factors + 3)
    width = padded(factors + 2)
    for edge in range(count):
        at = edge * step
        means = variances = spread(ZERO)
        for lane in range(0, width, LANES):
            mean, variance = load(edges, at + lane), load(edges, at + factors + 2 + lane)
            means = means + mean * load(own, lane)
            variances = variances + variance * load(own, width + lane)
            variances = variances + mean * mean * load(own, 2 * width + lane)
        columns[0, edge], columns[1, edge] = total_of(means), total_of(variances)
    for edge in range(count):
        columns[1, edge] = best_square(columns[0, edge], columns[1, edge])


@njit(cache=True, fastmath=FAST, inline="always")
def weights(columns, count):
    """Column 2: w = 2 lambda(xi)."""
    for edge in range(count):
        columns[2, edge] = twice_lambda_of_square(columns[1, edge])
