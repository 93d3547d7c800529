"""Kernels of the random-graph model: the block updates (17) to (19) of one side, and the terms of the edges in the
bound. `models.random_graph.edges` has a vertex's sums over its edges.
"""

import numpy as np
from numba import njit, prange

from oneclass.models.negatives.sampling import HEAVY_USER_RATIO, allocate_draw_scratch, draw_user_negatives
from oneclass.models.numerics.cholesky import solve_in_rows
from oneclass.models.numerics.logistic_bound import best_bound_of_square
from oneclass.models.numerics.random_numbers import GOLDEN, mix, purpose
from oneclass.models.numerics.simd import pad_width, scale
from oneclass.models.random_graph.edges import (
    BATCH,
    INLINED,
    MEAN,
    OPTIONS,
    PULL,
    SQUARE,
    WEIGHT,
    add_bias_edges,
    add_edges,
    allocate_workspace,
    count_edges,
    fill_logit_moments,
    load_own_vertex,
    locate_batch,
    ones_start,
    pulls_start,
    spreads_start,
)

FOLD_IN = purpose("random graph: fold-in")


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


@njit(**INLINED)
def _step_row(sums, stride, row, solution, step, eta, omega):
    """One row of eq. 17: average new and old natural parameters, with weight `step` on the new; the new omega."""
    if step < 1:
        scale(sums, row * stride, step, sums, row * stride, row + 1)
        kept = (1 - step) * omega
        sums[row * stride + row] += kept
        solution[row] = step * solution[row] + kept * eta
    return sums[row * stride + row]


@njit(**OPTIONS)
def update_vertex(sums, stride, solution, step, tau, mean, precision, vertex):
    """Eq. 17 and 18: the factors of one vertex from P (in `sums`) and z (in `solution`).

    The precisions are the diagonal of the new P. The arrays of the posterior come one by one: numba counts references
    to what it takes from a tuple.
    """
    factors = mean.shape[1]
    for row in range(factors):
        eta, omega = mean[vertex, row], precision[vertex, row]
        precision[vertex, row] = _step_row(sums, stride, row, solution, step, eta, omega)
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
def fold_in_users(posterior, table, likes, starts, draws, bounds, tau, iterations):
    """Find q(u_m) of users who were not in training in place, the items fixed: each iteration draws new negatives.

    Steps are one at first, and then average over the draws. A user has all updates before the next one, since for one
    user a call, and a parallel loop too, takes as long as the update.

    Args:
        posterior, table, bounds: as in `update_factors`.
        likes, starts: the histories, and the `room` for their negatives.
        draws: (pi, its alias table, seed, units) as in `models.negatives.sampling.draw_negatives`.
        tau: E[tau_u], float32.
    """
    pi, alias, seed, units = draws
    mean, precision, _, _ = posterior
    factors = mean.shape[1]
    stride = pad_width(factors + 1)
    negatives = np.empty(starts[-1], dtype=np.int32)
    heavy = np.int64(
        HEAVY_USER_RATIO
    )  # a bare HEAVY has a type of its own, for which `draw_user_negatives` would be compiled once more
    for shard in prange(len(bounds) - 1):
        rows, own, sums, columns = allocate_workspace(factors)
        solution = np.zeros(factors, dtype=np.float32)
        scratch = allocate_draw_scratch(len(pi))
        for user in range(bounds[shard], bounds[shard + 1]):
            for t in range(1, iterations + 1):
                mark = user * iterations + t
                key = (seed, t)
                draw_user_negatives(likes, starts, negatives, pi, alias, user, mark, key, units, heavy, scratch)
                step = np.float32(1.0 / max(t - 3, 1))
                load_own_vertex(own, user, posterior)
                add_edges(rows, own, sums, columns, table, (likes, (starts, negatives)), user, factors)
                natural_parameters(sums, own[factors], solution, factors, tau)
                update_vertex(sums, stride, solution, step, tau, mean, precision, user)


@njit(parallel=True, **OPTIONS)
def update_biases(posterior, table, likes, negatives, bounds, tau_bias, step):
    """Update q(b_m) of every vertex of one side, eq. 19, in place; arguments as in `update_factors`."""
    mean, _, bias_mean, bias_precision = posterior
    factors = mean.shape[1]
    for shard in prange(len(bounds) - 1):
        rows, own, _, columns = allocate_workspace(factors)
        for vertex in range(bounds[shard], bounds[shard + 1]):
            load_own_vertex(own, vertex, posterior)
            weight_sum, z = add_bias_edges(
                rows, own, columns, table, (likes, negatives), vertex, factors, np.float64(tau_bias)
            )
            old = bias_precision[vertex]
            new = step * weight_sum + (1 - step) * old
            bias_mean[vertex] = (step * z + (1 - step) * old * bias_mean[vertex]) / new
            bias_precision[vertex] = new


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
