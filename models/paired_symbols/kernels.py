"""Kernels of paired symbols over the edges of one side's vertices: the block update of factors, and sums of the bound.

Users and items are treated alike: every kernel takes the posterior of the side that it works on, and the packed rows
(`models.numerics.logistic_bound`) and shares t of the other side. A kernel runs over shards, fixed runs of vertices,
each of which writes its own rows; so the result does not depend on the number of threads.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.logistic_bound import (
    BATCH,
    INLINED,
    MEAN,
    OPTIONS,
    PULL,
    SQUARE,
    WEIGHT,
    add_batch,
    allocate_workspace,
    best_bound_of_square,
    fill_logits,
    fill_weights,
    load_own_vertex,
    locate_edges,
    solve_in_rows,
)
from oneclass.models.numerics.simd import element, pad_width

HALF = np.float32(0.5)


class Edges(NamedTuple):
    """The edges of one side's vertices.

    Attributes:
        indptr, indices: int64 (vertices + 1,) and int32 (edges,), CSR of the other side's vertices.
        counts: float32 (edges,), c_ij.
        bounds: int64, runs of vertices of about equal load.
    """

    indptr: np.ndarray
    indices: np.ndarray
    counts: np.ndarray
    bounds: np.ndarray


class Censored(NamedTuple):
    """The censored pairs of one side's vertices.

    Attributes:
        pseudo: float64 (vertices,), D' s_i.
        lambda_star: lambda(xi*).
        shares: float32, t_j of the other side's vertices.
        background: float32 (K + 2, K + 2), E_t[y y'], y = (v, 1, b).
    """

    pseudo: np.ndarray
    lambda_star: float
    shares: np.ndarray
    background: np.ndarray


@njit(**INLINED)
def _load_batch(workspace, table, edges, vertex, first, factors):
    """Fill the logits of a vertex's edges from its edge `first` on; returns their number, at most BATCH."""
    rows, own, _, columns = workspace
    count = min(BATCH, edges.indptr[vertex + 1] - edges.indptr[vertex] - first)
    locate_edges(rows, edges.indices, edges.indptr[vertex] + first, 0, count, factors)
    fill_logits(rows, own, columns, table, count, factors)
    return count


@njit(**OPTIONS)
def _sum_edges(workspace, table, edges, vertex, censored, factors):
    """Fill the sums of a vertex over its edges.

    w_ij = 2 lambda_ij c_ij + D' s_i t_j 2 (lambda_ij - lambda*) and p_ij = c_ij / 2 - w_ij E b_j, where xi_ij
    is at its optimum for the present factors.
    """
    rows, _, sums, columns = workspace
    sums[:] = 0
    pseudo, background = np.float32(censored.pseudo[vertex]), np.float32(2 * censored.lambda_star)
    for first in range(0, edges.indptr[vertex + 1] - edges.indptr[vertex], BATCH):
        count = _load_batch(workspace, table, edges, vertex, first, factors)
        fill_weights(columns, count)
        for e in range(count):
            place, twice_lambda = edges.indptr[vertex] + first + e, columns[WEIGHT, e]
            hits, share = element(edges.counts, place), element(censored.shares, element(edges.indices, place))
            weight = twice_lambda * hits + pseudo * share * (twice_lambda - background)
            columns[WEIGHT, e] = weight
            columns[PULL, e] = HALF * hits - weight * element(table, element(rows, e) + factors + 1)
        add_batch(rows, sums, columns, table, count, factors)


@njit(**OPTIONS)
def _update_vertex(workspace, posterior, table, edges, vertex, censored, precisions):
    """Update q(u_i, b_i) of one vertex; returns the largest change of a mean.

    With x_j = (v_j, 1) and g = D' s_i 2 lambda*, the precision matrix is P = sum_G w E[x x'] + g E_t[x x'] + tau, and
    the mean P^-1 z with z = sum_G (c/2 - w E b_j) E x_j - (D' s_i / 2) E_t[x] - g E_t[b x]. The sums lie in the
    workspace: z takes the place of the pulls, and the last row of P is the row of w x.
    """
    mean, precision, bias_mean, bias_precision = posterior
    _, own, sums, _ = workspace
    factors = mean.shape[1]
    half = pad_width(factors + 2)
    load_own_vertex(own, vertex, posterior)
    _sum_edges(workspace, table, edges, vertex, censored, factors)
    ones, z, spreads = sums[half * half :], sums[(half + 1) * half :], sums[(half + 2) * half :]
    background, pseudo = censored.background, np.float32(censored.pseudo[vertex])
    grip = np.float32(2 * censored.lambda_star) * pseudo
    for row in range(factors + 1):
        sums[factors * half + row] = ones[row]
    for row in range(factors):
        sums[row * half + row] += spreads[row]
    for row in range(factors + 1):
        for column in range(row + 1):
            sums[row * half + column] += grip * background[row, column]
        z[row] -= HALF * pseudo * background[factors, row] + grip * background[factors + 1, row]
        least = np.float32(precisions[0] if row < factors else precisions[1])
        own_precision = max(sums[row * half + row] + least, least)
        sums[row * half + row] = own_precision
        if row < factors:
            precision[vertex, row] = own_precision
        else:
            bias_precision[vertex] = own_precision
    solve_in_rows(sums, half, factors + 1, z, np.float32(min(precisions)))
    change = abs(z[factors] - bias_mean[vertex])
    for row in range(factors):
        change = max(change, abs(z[row] - mean[vertex, row]))
        mean[vertex, row] = z[row]
    bias_mean[vertex] = z[factors]
    return change


@njit(parallel=True, **OPTIONS)
def update_factors(posterior, table, edges, censored, precisions, limits):
    """The joint update of (u_i, b_i) for every vertex of one side, in place.

    Args:
        posterior: float32 mean (M, K), precision (M, K), bias mean (M,), bias precision (M,).
        table: packed rows of the other side.
        edges, censored: the `Edges` and `Censored` pairs of these vertices.
        precisions: those of the priors of the factors and of the biases.
        limits: (passes, tolerance): each vertex is updated up to `passes` times, until no mean moves by more than
            `tolerance`.
    """
    for shard in prange(len(edges.bounds) - 1):
        workspace = allocate_workspace(posterior[0].shape[1])
        for vertex in range(edges.bounds[shard], edges.bounds[shard + 1]):
            for _ in range(limits[0]):
                if _update_vertex(workspace, posterior, table, edges, vertex, censored, precisions) <= limits[1]:
                    break


@njit(parallel=True, **OPTIONS)
def sum_edges(posterior, table, edges, shares):
    """Four sums over each vertex's edges, float64 (vertices, 4), xi_ij being sqrt(E a_ij^2).

    They are of c (log sigma(xi) - xi/2 + E a / 2); t (log sigma(xi) - xi/2); t; t E a^2.
    """
    factors = posterior[0].shape[1]
    found = np.zeros((len(posterior[0]), 4))
    for shard in prange(len(edges.bounds) - 1):
        workspace = allocate_workspace(factors)
        _, own, _, columns = workspace
        for vertex in range(edges.bounds[shard], edges.bounds[shard + 1]):
            load_own_vertex(own, vertex, posterior)
            likelihood = high = mass = spread = 0.0
            for first in range(0, edges.indptr[vertex + 1] - edges.indptr[vertex], BATCH):
                count = _load_batch(workspace, table, edges, vertex, first, factors)
                for e in range(pad_width(count)):
                    columns[WEIGHT, e] = best_bound_of_square(columns[SQUARE, e])
                for e in range(count):
                    place, height = edges.indptr[vertex] + first + e, np.float64(columns[WEIGHT, e])
                    share = np.float64(element(shares, element(edges.indices, place)))
                    likelihood += element(edges.counts, place) * (height + 0.5 * np.float64(columns[MEAN, e]))
                    high += share * height
                    mass += share
                    spread += share * np.float64(columns[SQUARE, e])
            found[vertex] = likelihood, high, mass, spread
    return found
