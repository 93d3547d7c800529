"""Kernels of the random-graph model: the block updates (17) to (19) of one side, and the terms of the edges in the
bound.

Every batch of a vertex's edges adds its outer products to a tile of sums. With the weights w = 2 lambda(xi) and
x = [v_n, 1, b_n], rows 0 .. K + 1 of the tile are the sum of w x x', and row K + 2 is the sum of (g - 1/2) x. One more
row, behind the tile, is the sum of w var x. The edges of a vertex are summed in the order of the graph, so that a
result does not depend on the shards.
"""

import numpy as np
from numba import njit, prange

from oneclass.models.negatives.sampling import HEAVY_USER_RATIO, allocate_draw_scratch, draw_user_negatives
from oneclass.models.numerics.cholesky import solve_in_rows
from oneclass.models.numerics.logistic_bound import FAST, best_square, twice_lambda_of_square
from oneclass.models.numerics.random_numbers import GOLDEN, mix, purpose
from oneclass.models.numerics.simd import (
    F32_WIDTH,
    IN_ORDER,
    ROWS,
    UNROLLED,
    ZERO,
    add_outer,
    add_weighted,
    aligned_zeros,
    broadcast,
    copy,
    horizontal_sum,
    load,
    pad_width,
    prefetch_row,
    scale,
)

FOLD_IN = purpose("random graph: fold-in")
BATCH = 64  # edges gathered at a time; their packed rows fill half of a first-level cache
AHEAD = 64  # a packed row is prefetched so many edges before it is read


@njit(cache=True, fastmath=FAST, parallel=True, nogil=True)
def pack(mean, precision, bias_mean, bias_precision):
    """The packed rows of one side, flat float32, as the first lines of this file describe them."""
    count, factors = mean.shape
    width = pad_width(2 * factors + 4)
    table = aligned_zeros(count * width + F32_WIDTH)
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
def allocate_workspace(factors):
    """The scratch arrays of one shard.

    Returns:
        edges: a row for each edge of a batch: a packed row, then room for its weighted means.
        own: means, second moments and variances of [u_m, b_m, 1].
        sums: the tile of `models.random_graph.kernels`.
        columns: (3, BATCH), E[a], E[a^2] and w of every edge of the batch.
    """
    edges = aligned_zeros(BATCH * (pad_width(2 * factors + 4) + pad_width(factors + 3)) + F32_WIDTH)
    own = aligned_zeros(3 * pad_width(factors + 2))
    rows = (factors + 2 + ROWS) // ROWS * ROWS
    sums = aligned_zeros((rows + 1) * pad_width(factors + 3))
    return edges, own, sums, np.zeros((3, BATCH), dtype=np.float32)


@njit(cache=True, inline="always")
def load_own_vertex(own, vertex, posterior):
    """Fill `own` with the means, second moments and variances of [u_m, b_m, 1]."""
    mean, precision, bias_mean, bias_precision = posterior
    factors = mean.shape[1]
    width = pad_width(factors + 2)
    for factor in range(factors):
        value, variance = mean[vertex, factor], 1 / precision[vertex, factor]
        own[factor], own[2 * width + factor] = value, variance
        own[width + factor] = value * value + variance
    own[factors], own[2 * width + factors] = bias_mean[vertex], 1 / bias_precision[vertex]
    own[factors + 1] = own[width + factors + 1] = 1


@njit(cache=True, inline="always")
def gather(edges, table, neighbours, first, count, factors):
    """Copy the packed rows of a batch of neighbours beside one another."""
    width = pad_width(2 * factors + 4)
    step = width + pad_width(factors + 3)
    for edge in range(count):
        source = np.int64(neighbours[first + edge]) * width
        copy(edges, edge * step, table, source, width)
        ahead = min(first + edge + AHEAD, len(neighbours) - 1)
        prefetch_row(table, np.int64(neighbours[ahead]) * width, width)


@njit(**IN_ORDER)
def fill_logit_moments(edges, own, columns, count, factors):
    """Mean (column 0) and second moment (column 1) of the logits of a batch; the second moment is xi^2 (eq. 16).

    E a = sum E x E y and var a = sum var x E y^2 + (E x)^2 var y, where x are the neighbour's numbers and y the own.
    """
    step = pad_width(2 * factors + 4) + pad_width(factors + 3)
    width = pad_width(factors + 2)
    for edge in range(count):
        at = edge * step
        means = variances = broadcast(ZERO)
        for lane in range(0, width, F32_WIDTH):
            mean, variance = load(edges, at + lane), load(edges, at + factors + 2 + lane)
            means = means + mean * load(own, lane)
            variances = variances + variance * load(own, width + lane)
            variances = variances + mean * mean * load(own, 2 * width + lane)
        columns[0, edge], columns[1, edge] = horizontal_sum(means), horizontal_sum(variances)
    for edge in range(count):
        columns[1, edge] = best_square(columns[0, edge], columns[1, edge])


@njit(cache=True, fastmath=FAST, inline="always")
def fill_weights(columns, count):
    """Column 2: w = 2 lambda(xi)."""
    for edge in range(count):
        columns[2, edge] = twice_lambda_of_square(columns[1, edge])


HALF = np.float32(0.5)


@njit(cache=True, fastmath=FAST, inline="always")
def _add_batch(edges, sums, columns, count, sign, factors):
    """Add the outer products of a batch whose edges have the same g; `sign` is g - 1/2."""
    width, stride = pad_width(2 * factors + 4), pad_width(factors + 3)
    step = width + stride
    rows = (factors + 2 + ROWS) // ROWS * ROWS
    for edge in range(count):
        at, weight = edge * step, columns[2, edge]
        scale(edges, at + width, weight, edges, at, stride)
        edges[at + width + factors + 2] = sign
    whole = -(-count // UNROLLED) * UNROLLED
    for edge in range(count, whole):
        columns[2, edge] = 0
    for lane in range(0, stride, F32_WIDTH):
        add_weighted(sums, rows * stride + lane, columns, 2 * BATCH, edges, factors + 2 + lane, step, whole)
    for row in range(0, rows, ROWS):
        for lane in range(0, min(row + ROWS, factors + 1), F32_WIDTH):
            add_outer(sums, row * stride + lane, stride, edges, width + row, step, edges, lane, step, count)


@njit(cache=True, fastmath=FAST, inline="always")
def add_edges(edges, own, sums, columns, table, parts, vertex, factors):
    """The tile of sums of one vertex; `own` is taken already, and `parts` are the likes and the negatives."""
    sums[:] = 0
    for part in range(2):
        starts, neighbours = parts[0] if part == 0 else parts[1]
        sign = HALF if part == 0 else -HALF
        for first in range(starts[vertex], starts[vertex + 1], BATCH):
            count = min(BATCH, starts[vertex + 1] - first)
            gather(edges, table, neighbours, first, count, factors)
            fill_logit_moments(edges, own, columns, count, factors)
            fill_weights(columns, count)
            _add_batch(edges, sums, columns, count, sign, factors)


@njit(cache=True, fastmath=FAST, inline="always")
def add_bias_edges(edges, own, columns, table, parts, vertex, factors, weight_sum):
    """The sums of eq. 19 over the edges of one vertex: of w added to `weight_sum`, and z. Float64."""
    z = 0.0
    for part in range(2):
        starts, neighbours = parts[0] if part == 0 else parts[1]
        z += (0.5 if part == 0 else -0.5) * (starts[vertex + 1] - starts[vertex])
        for first in range(starts[vertex], starts[vertex + 1], BATCH):
            count = min(BATCH, starts[vertex + 1] - first)
            gather(edges, table, neighbours, first, count, factors)
            fill_logit_moments(edges, own, columns, count, factors)
            fill_weights(columns, count)
            for edge in range(count):
                weight_sum += columns[2, edge]
                z -= columns[2, edge] * (columns[0, edge] - own[factors])
    return weight_sum, z


@njit(cache=True, fastmath=FAST, inline="always")
def _natural_parameters(sums, own, solution, size, factors, tau, tau_bias):
    """P (eq. 15; its lower triangle, in place) and z of one vertex; `size` is K, or K + 1 if the bias is updated
    too.
    """
    stride = pad_width(factors + 3)
    spread = (factors + 2 + ROWS) // ROWS * ROWS * stride
    for row in range(size):
        sums[row * stride + row] += sums[spread + row] + (tau if row < factors else tau_bias)
        solution[row] = sums[(factors + 2) * stride + row] - sums[(factors + 1) * stride + row]
        if size == factors:  # the own bias is fixed
            solution[row] -= own[factors] * sums[factors * stride + row]


@njit(cache=True, fastmath=FAST, inline="always")
def add_prior_means(solution, size, factors, taus, prior, vertex):
    """Add the prior precisions times the prior means to z of one vertex; `prior` is empty where all means are zero."""
    means, bias_means = prior
    if len(means) > 0:
        for row in range(factors):
            solution[row] += taus[0] * means[vertex, row]
        if size > factors:
            solution[factors] += taus[1] * bias_means[vertex]


@njit(cache=True, fastmath=FAST, inline="always")
def _step_towards(sums, stride, size, solution, step, posterior, vertex):
    """Eq. 17: average the new natural parameters, with weight `step`, and the old, diag(omega) and diag(omega) eta."""
    mean, precision, bias_mean, bias_precision = posterior
    factors = mean.shape[1]
    keep = 1 - step
    for row in range(size):
        old = precision[vertex, row] if row < factors else bias_precision[vertex]
        eta = mean[vertex, row] if row < factors else bias_mean[vertex]
        for column in range(row + 1):
            sums[row * stride + column] *= step
        sums[row * stride + row] += keep * old
        solution[row] = step * solution[row] + keep * old * eta


@njit(cache=True, fastmath=FAST, forceinline=True)
def update_vertex(sums, stride, size, solution, step, posterior, vertex):
    """Eq. 17 and 18: q of one vertex from P (in the tile) and z (in `solution`); `size` is K, or K + 1 with its bias.

    `forceinline`: with `inline="always"` numba 0.68 gives wrong numbers for K + 1.
    """
    mean, precision, bias_mean, bias_precision = posterior
    factors = mean.shape[1]
    if step < 1:
        _step_towards(sums, stride, size, solution, step, posterior, vertex)
    for row in range(factors):
        precision[vertex, row] = sums[row * stride + row]
    if size > factors:
        bias_precision[vertex] = sums[factors * stride + factors]
    solve_in_rows(sums, stride, size, solution)
    for row in range(factors):
        mean[vertex, row] = solution[row]
    if size > factors:
        bias_mean[vertex] = solution[factors]


@njit(cache=True, fastmath=FAST, parallel=True, nogil=True)
def update_factors(posterior, prior, table, likes, negatives, bounds, taus, step, joint):
    """Update q(u_m) of every vertex of one side in place, eq. 17 and 18; with `joint`, of (u_m, b_m) together.

    Args:
        posterior: float32 mean (M, K), precision (M, K), bias mean (M,), bias precision (M,).
        prior: float32 prior means (M, K), of biases (M,); both empty if all are zero.
        table: packed rows of the other side.
        likes, negatives: (starts int64 (M + 1,), neighbours int32), the two parts of the hidden graph.
        bounds: int64, where the shards of vertices begin and end.
        taus: E[tau_u], E[tau_bu], float32.
        step: epsilon_t, float32.
        joint: maximise over factors and bias as one block, instead of in two passes.
    """
    factors = posterior[0].shape[1]
    size = factors + 1 if joint else factors
    stride = pad_width(factors + 3)
    for shard in prange(len(bounds) - 1):
        edges, own, sums, columns = allocate_workspace(factors)
        solution = np.zeros(size, dtype=np.float32)
        for vertex in range(bounds[shard], bounds[shard + 1]):
            load_own_vertex(own, vertex, posterior)
            add_edges(edges, own, sums, columns, table, (likes, negatives), vertex, factors)
            _natural_parameters(sums, own, solution, size, factors, taus[0], taus[1])
            add_prior_means(solution, size, factors, taus, prior, vertex)
            update_vertex(sums, stride, size, solution, step, posterior, vertex)


@njit(cache=True, fastmath=FAST, parallel=True, nogil=True)
def fold_in_users(posterior, prior, table, likes, starts, draws, availability, bounds, taus, iterations, joint):
    """Find q(u_m) of users who were not in training in place, the items fixed: each iteration draws new negatives.

    Steps are one at first, and then average over the draws. A user has all updates before the next one, since for one
    user a call, and a parallel loop too, takes as long as the update.

    Args:
        posterior, prior, table, bounds, joint: as in `update_factors`.
        likes, starts: the histories, and the `room` for their negatives.
        draws: (pi, its alias table, seed, units) as in `models.negatives.sampling.draw_negatives`, like `availability`.
        taus: E[tau_u] and E[tau_bu], float32.
    """
    pi, alias, seed, units = draws
    factors = posterior[0].shape[1]
    size = factors + 1 if joint else factors
    stride = pad_width(factors + 3)
    negatives = np.empty(starts[-1], dtype=np.int32)
    heavy = np.int64(
        HEAVY_USER_RATIO
    )  # a bare HEAVY has a type of its own, for which `draw_user_negatives` would be compiled once more
    for shard in prange(len(bounds) - 1):
        edges, own, sums, columns = allocate_workspace(factors)
        solution = np.zeros(size, dtype=np.float32)
        scratch = allocate_draw_scratch(len(pi))
        for user in range(bounds[shard], bounds[shard + 1]):
            for t in range(1, iterations + 1):
                mark = user * iterations + t
                key = (seed, t)
                draw_user_negatives(
                    likes, starts, negatives, pi, alias, user, mark, key, units, heavy, availability, scratch
                )
                step = np.float32(1.0 / max(t - 3, 1))
                load_own_vertex(own, user, posterior)
                add_edges(edges, own, sums, columns, table, (likes, (starts, negatives)), user, factors)
                _natural_parameters(sums, own, solution, size, factors, taus[0], taus[1])
                add_prior_means(solution, size, factors, taus, prior, user)
                update_vertex(sums, stride, size, solution, step, posterior, user)


@njit(cache=True, fastmath=FAST, parallel=True, nogil=True)
def update_biases(posterior, prior, table, likes, negatives, bounds, tau_bias, step):
    """Update q(b_m) of every vertex of one side, eq. 19, in place; arguments as in `update_factors`."""
    mean, _, bias_mean, bias_precision = posterior
    factors = mean.shape[1]
    for shard in prange(len(bounds) - 1):
        edges, own, _, columns = allocate_workspace(factors)
        for vertex in range(bounds[shard], bounds[shard + 1]):
            load_own_vertex(own, vertex, posterior)
            weight_sum, z = add_bias_edges(
                edges, own, columns, table, (likes, negatives), vertex, factors, np.float64(tau_bias)
            )
            if len(prior[1]) > 0:
                z += tau_bias * prior[1][vertex]
            old = bias_precision[vertex]
            new = step * weight_sum + (1 - step) * old
            bias_mean[vertex] = (step * z + (1 - step) * old * bias_mean[vertex]) / new
            bias_precision[vertex] = new


@njit(cache=True, fastmath=FAST, parallel=True, nogil=True)
def edge_bound(posterior, table, likes, negatives, bounds):
    """The terms of H's edges in the bound, with xi at its optimum (eq. 16): float64 (shards,), partial sums.

    The term of an edge is (g - 1/2) E a - log(2 cosh(xi / 2)).
    """
    factors = posterior[0].shape[1]
    totals = np.zeros(len(bounds) - 1)
    for shard in prange(len(bounds) - 1):
        edges, own, _, columns = allocate_workspace(factors)
        total = 0.0
        for vertex in range(bounds[shard], bounds[shard + 1]):
            load_own_vertex(own, vertex, posterior)
            for part in range(2):
                starts, neighbours = likes if part == 0 else negatives
                sign = HALF if part == 0 else -HALF
                for first in range(starts[vertex], starts[vertex + 1], BATCH):
                    count = min(BATCH, starts[vertex + 1] - first)
                    gather(edges, table, neighbours, first, count, factors)
                    fill_logit_moments(edges, own, columns, count, factors)
                    for edge in range(count):
                        xi = np.sqrt(columns[1, edge])
                        total += sign * columns[0, edge] - HALF * xi - np.log1p(np.exp(-xi))
        totals[shard] = total
    return totals


@njit(cache=True, nogil=True)
def history_keys(starts, items):
    """A number for each history, whatever its row: the sum of the hashes of its items."""
    names = np.empty(len(starts) - 1, dtype=np.uint64)
    for user in range(len(names)):
        name = FOLD_IN
        for at in range(starts[user], starts[user + 1]):
            name += mix(np.uint64(items[at]) + GOLDEN)
        names[user] = name
    return names
