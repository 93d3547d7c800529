"""Kernels of the binary-matrix model; `models.binary_matrix.model` defines the symbols.

The users, and the items, are one float32 table (vertices, 2 W): means in columns 0 .. K - 1, variances from column W
on, and zeros after either, where W is K rounded up to a multiple of LANES. The entries of a minibatch are grouped by
vertex, and each vertex sums its own entries in the order in which they were drawn. So vertices can be updated in
parallel, and results do not depend on the number of threads. Sums over all entries are made in a fixed number of
shards.
"""

from typing import NamedTuple, Self

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.adjacency import partition_rows
from oneclass.models.numerics.logistic_bound import FAST, best_bound_of_square, lambda_of_square

# Of the step size (T0 + t)^-POWER. If T0 is small, the first steps, taken in all K directions at once, may diverge.
T0, POWER = 30.0, 0.7
NOISE_STRIDE = 8  # the noise is estimated from every eighth entry
SHARDS = 16  # runs of vertices, each with its own sums
LANES = 8


@njit(cache=True, nogil=True)
def group_by_vertex(vertices, count):
    """Group entries by their vertex: (starts int64 (count + 1,), order int32 (entries,)).

    `order[starts[v] : starts[v + 1]]` are the entries of vertex v, ascending.

    Args:
        vertices: (entries,), the vertex of each entry.
        count: number of vertices.
    """
    starts = np.zeros(count + 2, dtype=np.int64)
    for vertex in vertices:
        starts[vertex + 2] += 1
    for vertex in range(count):
        starts[vertex + 2] += starts[vertex + 1]
    order = np.empty(len(vertices), dtype=np.int32)
    for entry in range(len(vertices)):
        vertex = vertices[entry]
        order[starts[vertex + 1]] = entry
        starts[vertex + 1] += 1
    return starts[:-1], order


class Grouping(NamedTuple):
    """The entries of a minibatch by the vertices of one side.

    Attributes:
        starts, order: the result of `group_by_vertex`.
        bounds: int64 (SHARDS + 1,), runs of vertices with about equal numbers of entries.
    """

    starts: np.ndarray
    order: np.ndarray
    bounds: np.ndarray

    @classmethod
    def of(cls, vertices: np.ndarray, count: int) -> Self:
        """Group entries by their vertices, of which there are `count`."""
        starts, order = group_by_vertex(vertices, count)
        return cls(starts, order, partition_rows(starts, SHARDS))


class Entries(NamedTuple):
    """The entries of a minibatch, for the update of one side; all arrays are (entries,).

    Attributes:
        others: int32, the vertex of the other side.
        ones: bool, whether the entry is a one.
        weights: float32, the scaling constants for the parameters that are updated.
        means, twice_lambdas: float32, E a and 2 lambda at the best xi.
    """

    others: np.ndarray
    ones: np.ndarray
    weights: np.ndarray
    means: np.ndarray
    twice_lambdas: np.ndarray


class UpdatedSide(NamedTuple):
    """The side that a step moves.

    Attributes:
        own: its table before the minibatch.
        moved: the table into which the new rows are written.
        prior_precision: the prior precision of its factors.
        p: float64 (vertices,), p(i).
        updates: int64 (vertices,), the number of updates of each vertex; increased by the step.
    """

    own: np.ndarray
    moved: np.ndarray
    prior_precision: float
    p: np.ndarray
    updates: np.ndarray


LIKELIHOOD, Z_TWICE_LAMBDA, Z_SLOPE, NOISE, NOISE_COUNT = range(5)  # columns of the shards' sums
HALF = np.float32(0.5)


@njit(cache=True, nogil=True, fastmath=FAST, inline="always")
def logit_moments(own, other, width):
    """E and var of u'v for two rows of tables."""
    mean, variance = np.float32(0), np.float32(0)
    for k in range(width):
        mean += own[k] * other[k]
    for k in range(width):
        u, u_variance, v, v_variance = own[k], own[width + k], other[k], other[width + k]
        variance += u_variance * (v * v + v_variance) + u * u * v_variance
    return mean, variance


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def maximise_xi(by_row, entries, users, items, z, sums):
    """Box 5, step 3: E a and 2 lambda of every entry at its best xi_ij, and the sums for the update of z.

    Args:
        by_row: the `Grouping` of the entries by their rows.
        entries: `Entries` with the weights for z; means and twice_lambdas are filled in.
        users, items: tables.
        z: (mean, variance), float32.
        sums: (SHARDS, 5); all columns but NOISE and NOISE_COUNT are added to.
    """
    starts, order, shards = by_row
    columns, ones, weights, means, twice_lambdas = entries
    width = users.shape[1] // 2
    for shard in prange(SHARDS):
        for row in range(shards[shard], shards[shard + 1]):
            for place in range(starts[row], starts[row + 1]):
                entry = order[place]
                mean, variance = logit_moments(users[row], items[columns[entry]], width)
                mean, variance = mean + z[0], variance + z[1]
                square = mean * mean + variance
                twice_lambda = np.float32(2) * lambda_of_square(square)
                sign = HALF if ones[entry] else -HALF
                means[entry], twice_lambdas[entry] = mean, twice_lambda
                weight = np.float64(weights[entry])
                sums[shard, LIKELIHOOD] += weight * (best_bound_of_square(square) + sign * mean)
                sums[shard, Z_TWICE_LAMBDA] += weight * twice_lambda
                sums[shard, Z_SLOPE] += weight * (sign - twice_lambda * (mean - z[0]))


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def update_vertices(by_vertex, entries, side, other, sums):
    """Box 6: move the natural parameters of every vertex with an entry towards the average maximizer of its entries.

    Args:
        by_vertex: the `Grouping` of the entries by this side's vertices.
        entries: `Entries` with the weights for this side.
        side: the `UpdatedSide` side.
        other: the other side's table as it was before the minibatch.
        sums: (SHARDS, 5); NOISE and NOISE_COUNT are added to.
    """
    starts, order, shards = by_vertex
    others, ones, weights, means, twice_lambdas = entries
    own, moved, prior_precision, p, updates = side
    width = own.shape[1] // 2
    for shard in prange(SHARDS):
        # over a vertex's entries: c 2 lambda E[v]^2, c 2 lambda var v, c {(x - 1/2) - 2 lambda E a} E v
        squares, spreads, slopes = np.empty((3, width), dtype=np.float32)
        for vertex in range(shards[shard], shards[shard + 1]):
            count = starts[vertex + 1] - starts[vertex]
            if count == 0:
                continue
            squares[:], spreads[:], slopes[:] = 0, 0, 0
            for place in range(starts[vertex], starts[vertex + 1]):
                entry = order[place]
                v = other[others[entry]]
                pull, slope = entry_gradients(ones[entry], weights[entry], means[entry], twice_lambdas[entry])
                for k in range(width):
                    squares[k] += pull * v[k] * v[k]
                    spreads[k] += pull * v[width + k]
                    slopes[k] += slope * v[k]
            rho = (T0 + updates[vertex]) ** -POWER
            updates[vertex] += 1
            for k in range(width):
                mean, variance = own[vertex, k], own[vertex, width + k]
                if variance == 0:  # padding
                    continue
                precision = prior_precision + (squares[k] + spreads[k]) / count
                natural = (slopes[k] + mean * squares[k]) / count
                precision = (1 - rho) / variance + rho * precision
                moved[vertex, k] = ((1 - rho) * mean / variance + rho * natural) / precision
                moved[vertex, width + k] = 1 / precision
            for place in range(starts[vertex], starts[vertex + 1]):
                entry = order[place]
                if entry % NOISE_STRIDE == 0:
                    pull, slope = entry_gradients(ones[entry], weights[entry], means[entry], twice_lambdas[entry])
                    v = other[others[entry]]
                    noise = _noise(own[vertex], moved[vertex], v, pull, slope, prior_precision)
                    sums[shard, NOISE] += noise / p[vertex]
                    sums[shard, NOISE_COUNT] += 1


@njit(cache=True, nogil=True, fastmath=FAST, inline="always")
def entry_gradients(one, weight, mean, twice_lambda):
    """The numbers c 2 lambda and c {(x - 1/2) - 2 lambda E a} of one entry."""
    return weight * twice_lambda, weight * ((HALF if one else -HALF) - twice_lambda * mean)


@njit(cache=True, nogil=True, fastmath=FAST)
def _noise(own, moved, v, pull, slope, prior_precision):
    """Squared distance of one entry's maximizer from a vertex's new natural parameters, over their squared length."""
    width = len(own) // 2
    distance, length = 0.0, 0.0
    for k in range(width):
        if moved[width + k] == 0:
            continue
        precision = 1 / moved[width + k]
        natural = moved[k] * precision
        length += precision * precision + natural * natural
        precision -= prior_precision + pull * (v[k] * v[k] + v[width + k])
        natural -= slope * v[k] + pull * own[k] * v[k] * v[k]
        distance += precision * precision + natural * natural
    return distance / length
