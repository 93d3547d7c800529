"""Kernels of the binary-matrix model; the symbols are those of `models.binary_matrix`.

A side, users or items, is one float32 table (vertices, 2 W): means in columns 0 .. K - 1, variances from column
W on, zeros behind either, W the next multiple of LANES. A minibatch's entries are grouped by vertex, and every
vertex adds up its own entries in the order in which they were drawn, so that vertices are updated side by side
without conflict and results do not depend on threads. Sums over all entries are made in a fixed number of
shards.
"""

import numpy as np
from numba import njit, prange

LANES = 8
SHARDS = 16
NOISE_STRIDE = 8  # every so manieth entry is looked at for the noise
FAST = {"reassoc", "contract", "arcp", "afn", "nsz"}  # NaN stays NaN
LIKELIHOOD, Z_CURVATURE, Z_SLOPE, NOISE, NOISE_COUNT = range(5)  # columns of the shards' sums
HALF = np.float32(0.5)


@njit(cache=True, nogil=True)
def group(vertices, count):
    """(starts int64 (count + 1,), order int32): the entries of each vertex, in the order in which they came."""
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


@njit(cache=True, nogil=True, fastmath=FAST, inline="always")
def curvature_and_log_sigma(xi):
    """2 lambda(xi) = tanh(xi / 2) / (2 xi), and log sigma(xi), for xi > 0."""
    decay = np.exp(-xi)
    curvature = HALF * HALF
    if xi > np.float32(1e-3):
        curvature = (1 - decay) / ((1 + decay) * 2 * xi)
    return curvature, -np.log1p(decay)


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def bound_xi(starts, order, columns, ones, weights, users, items, z_mean, z_variance, means, curvatures, sums):
    """Box 5, step 3: the best xi_ij of every entry, kept as E a and 2 lambda, and the sums that z needs."""
    width = users.shape[1] // 2
    shards = np.searchsorted(starts, np.linspace(0, len(order), SHARDS + 1))
    for shard in prange(SHARDS):
        for row in range(shards[shard], shards[shard + 1]):
            for place in range(starts[row], starts[row + 1]):
                entry = order[place]
                mean, variance = logit_moments(users[row], items[columns[entry]], width)
                mean, variance = mean + z_mean, variance + z_variance
                xi = np.sqrt(mean * mean + variance)
                curvature, log_sigma = curvature_and_log_sigma(xi)
                sign = HALF if ones[entry] else -HALF
                means[entry], curvatures[entry] = mean, curvature
                weight = np.float64(weights[entry, 2])
                sums[shard, LIKELIHOOD] += weight * (log_sigma + sign * mean - HALF * xi)
                sums[shard, Z_CURVATURE] += weight * curvature
                sums[shard, Z_SLOPE] += weight * (sign - curvature * (mean - z_mean))


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def step(starts, order, others, ones, weights, own, other, prior_precision, probabilities, updates, schedule,
         means, curvatures, next_own, sums):
    """Box 6: the natural parameters of every vertex that the minibatch touches, moved towards their average.

    Args:
        starts, order: `group` of the entries by this side's vertices.
        others: the other side's vertex of every entry.
        weights: (entries,), this side's scaling constants.
        own, other: tables, `other` as it was before the minibatch.
        probabilities: p(i) of this side's vertices.
        updates: int64, updates that each vertex has had; counted up.
        schedule: (t0, power) of the step sizes.
        means, curvatures: E a and 2 lambda of every entry.
        next_own: where the new rows go; may be `own`.
        sums: (SHARDS, 5), of which NOISE and NOISE_COUNT are added to.
    """
    width = own.shape[1] // 2
    shards = np.searchsorted(starts, np.linspace(0, len(order), SHARDS + 1))
    for shard in prange(SHARDS):
        # sums over a vertex's entries of c 2 lambda E[v]^2, c 2 lambda var v and c {(x - 1/2) - 2 lambda E a} E v
        squares, spreads, slopes = np.empty((3, width), dtype=np.float32)
        for vertex in range(shards[shard], shards[shard + 1]):
            if starts[vertex] == starts[vertex + 1]:
                continue
            squares[:], spreads[:], slopes[:] = 0, 0, 0
            for place in range(starts[vertex], starts[vertex + 1]):
                entry = order[place]
                v = other[others[entry]]
                pull = weights[entry] * curvatures[entry]
                slope = weights[entry] * ((HALF if ones[entry] else -HALF) - curvatures[entry] * means[entry])
                for k in range(width):
                    squares[k] += pull * v[k] * v[k]
                    spreads[k] += pull * v[width + k]
                    slopes[k] += slope * v[k]
            rho = (schedule[0] + updates[vertex]) ** -schedule[1]
            updates[vertex] += 1
            share = rho / (starts[vertex + 1] - starts[vertex])
            for k in range(width):
                mean, variance = own[vertex, k], own[vertex, width + k]
                if variance == 0:  # padding
                    continue
                precision = (1 - rho) / variance + rho * prior_precision + share * (squares[k] + spreads[k])
                natural = (1 - rho) * mean / variance + share * (slopes[k] + mean * squares[k])
                next_own[vertex, k], next_own[vertex, width + k] = natural / precision, 1 / precision
            for place in range(starts[vertex], starts[vertex + 1]):
                entry = order[place]
                if entry % NOISE_STRIDE == 0:
                    pull = weights[entry] * curvatures[entry]
                    slope = weights[entry] * ((HALF if ones[entry] else -HALF) - curvatures[entry] * means[entry])
                    noise = _noise(own[vertex], next_own[vertex], other[others[entry]], pull, slope, prior_precision)
                    sums[shard, NOISE] += noise / probabilities[vertex]
                    sums[shard, NOISE_COUNT] += 1


@njit(cache=True, nogil=True, fastmath=FAST)
def _noise(own, new, v, pull, slope, prior_precision):
    """Squared distance of one entry's maximizer from the vertex's new natural parameters, over their length."""
    width = len(own) // 2
    distance, length = 0.0, 0.0
    for k in range(width):
        if new[width + k] == 0:
            continue
        precision = 1 / new[width + k]
        natural = new[k] * precision
        length += precision * precision + natural * natural
        precision -= prior_precision + pull * (v[k] * v[k] + v[width + k])
        natural -= slope * v[k] + pull * own[k] * v[k] * v[k]
        distance += precision * precision + natural * natural
    return distance / length


@njit(cache=True, parallel=True, nogil=True)
def copy_rows(starts, source, target):
    """Rows of the vertices that a minibatch touches."""
    for vertex in prange(len(starts) - 1):
        if starts[vertex] < starts[vertex + 1]:
            target[vertex] = source[vertex]


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def log_likelihood_bound(indptr, indices, users, items, z_mean, z_variance):
    """Sum over every entry of the matrix of E log tau(x, xi) at its best xi; float64 (users,)."""
    width = users.shape[1] // 2
    totals = np.zeros(len(users))
    for row in prange(len(users)):
        place = indptr[row]
        for column in range(len(items)):
            one = place < indptr[row + 1] and indices[place] == column
            place += one
            mean, variance = logit_moments(users[row], items[column], width)
            mean, variance = mean + z_mean, variance + z_variance
            xi = np.sqrt(mean * mean + variance)
            totals[row] += curvature_and_log_sigma(xi)[1] + (HALF if one else -HALF) * mean - HALF * xi
    return totals


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def fold_in(indptr, indices, items, factors, z_mean, z_variance, prior_precision, iterations, tolerance, users):
    """Rows of `users` (a table) at the maximum of the bound over q(u) and xi, with items and z held.

    For fixed xi the best means solve P m = h with the whole K x K matrix P, and the best variances are one over
    its diagonal; the two steps take turns.
    """
    width = items.shape[1] // 2
    shards = np.linspace(0, len(users), SHARDS + 1).astype(np.int64)
    for shard in prange(SHARDS):
        P, h = np.empty((factors, width)), np.empty(factors)
        for row in range(shards[shard], shards[shard + 1]):
            own = users[row]
            own[:] = 0
            own[width : width + factors] = 1 / prior_precision
            for _ in range(iterations):
                _normal_equations(indices[indptr[row] : indptr[row + 1]], items, own, z_mean, z_variance, P, h)
                for k in range(factors):
                    P[k, k] += prior_precision
                    own[width + k] = 1 / P[k, k]
                _solve(P, h)
                change, largest = 0.0, 0.0
                for k in range(factors):
                    change, largest = max(change, abs(h[k] - own[k])), max(largest, abs(h[k]))
                    own[k] = h[k]
                if change <= tolerance * largest:
                    break


@njit(cache=True, nogil=True, fastmath=FAST)
def _normal_equations(history, items, own, z_mean, z_variance, P, h):
    """P = sum_j 2 lambda_j E[v v'] (lower triangle) and h = sum_j {(x_j - 1/2) - 2 lambda_j E z} E v_j."""
    factors, width = P.shape
    P[:], h[:] = 0, 0
    place = 0
    for column in range(len(items)):
        v = items[column]
        one = place < len(history) and history[place] == column
        place += one
        mean, variance = logit_moments(own, v, width)
        mean, variance = mean + z_mean, variance + z_variance
        curvature = curvature_and_log_sigma(np.sqrt(mean * mean + variance))[0]
        slope = (HALF if one else -HALF) - curvature * z_mean
        for row in range(factors):
            scaled = curvature * v[row]
            for k in range(width):
                P[row, k] += scaled * v[k]
            P[row, row] += curvature * v[width + row]
            h[row] += slope * v[row]


@njit(cache=True, nogil=True)
def _solve(P, h):
    """Overwrite h with P^-1 h, P symmetric and positive definite, by Cholesky in P's lower triangle."""
    for row in range(len(h)):
        for column in range(row):
            total = P[row, column]
            for k in range(column):
                total -= P[row, k] * P[column, k]
            P[row, column] = total / P[column, column]
            P[row, row] -= P[row, column] * P[row, column]
        P[row, row] = np.sqrt(P[row, row])
        for k in range(row):
            h[row] -= P[row, k] * h[k]
        h[row] /= P[row, row]
    for row in range(len(h) - 1, -1, -1):
        for k in range(row + 1, len(h)):
            h[row] -= P[k, row] * h[k]
        h[row] /= P[row, row]
