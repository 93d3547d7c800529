"""Kernels of hierarchical Poisson factorization; `models.hpf.model` defines the symbols.

Tables of exp E log theta and exp E log beta are float32, (rows, padded K), with zeros from column K on. Loops run over
shards that depend on the data alone, and each shard has its own sums. So results do not depend on the number of
threads. A posterior is the `GammaParameters` of `models.hpf.ascent`, a prior is its `Prior.of_rows`.
"""

import numpy as np
from numba import njit, prange

from oneclass.models.numerics import random_numbers

LANES = 8  # rows of the tables are padded to a multiple of this, so that loops over them fill registers
TINY = np.float32(1e-37)  # keeps 1 / s finite
FAST = {"reassoc", "contract", "arcp", "afn", "nsz"}  # NaN stays NaN


@njit(cache=True)
def fill_initial_posterior(seed, purpose, shape_prior, rate_prior, shape, rate, activity_rate):
    """Fill in `shape_prior`, or `rate_prior`, plus draws from Uniform(0, 1); see
    `models.hpf.ascent.draw_initial_posterior`.
    """
    K = shape.shape[1]
    for row in range(len(shape)):
        key = random_numbers.stream(seed, purpose, 0, row)
        for k in range(K):
            shape[row, k] = shape_prior + random_numbers.uniform(key, 2 * k)
            rate[row, k] = rate_prior + random_numbers.uniform(key, 2 * k + 1)
        activity_rate[row] = rate_prior + random_numbers.uniform(key, 2 * K)


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def allocate_edges(indptr, indices, user_factors, item_factors, shards, user_sums, item_sums, logs):
    """Add every edge's weight 1 / s into the sums of both sides; fill `logs` with each shard's sum of log s."""
    K = user_factors.shape[1]
    for shard in prange(len(shards) - 1):
        sums = item_sums[shard]
        sums[:] = 0
        total, product, factors = 0.0, 1.0, 0
        for user in range(shards[shard], shards[shard + 1]):
            t, own = user_factors[user], user_sums[user]
            own[:] = 0
            for edge in range(indptr[user], indptr[user + 1]):
                item = indices[edge]
                s = TINY
                for k in range(K):
                    s += t[k] * item_factors[item, k]
                weight = np.float32(1) / s
                for k in range(K):
                    own[k] += weight * item_factors[item, k]
                    sums[item, k] += weight * t[k]
                product *= s
                factors += 1
                if factors == 8:  # the product of eight float32 numbers fits float64: one logarithm for all of them
                    total += np.log(product)
                    product, factors = 1.0, 0
        logs[shard] = total + np.log(product)


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def update_posterior(sums, factors, other_total, posterior, prior, shards):
    """Update gamma, then kappa (or lambda, then tau) of every row in place; `sums` as in `GammaFactors.update`."""
    shape, rate, activity_rate = posterior
    shape_prior, top_rate, activity_shape = prior
    parts, K = len(sums), shape.shape[1]
    for shard in prange(len(shards) - 1):
        for row in range(shards[shard], shards[shard + 1]):
            activity = activity_shape / activity_rate[row]
            mean_sum = 0.0
            for k in range(K):
                gathered = 0.0
                for part in range(parts):
                    gathered += sums[part, row, k]
                shape[row, k] = shape_prior + factors[row, k] * gathered
                rate[row, k] = activity + other_total[k]
                mean_sum += shape[row, k] / rate[row, k]
            activity_rate[row] = top_rate + mean_sum


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def compute_expectations(posterior, prior, shards, factors, totals, bounds):
    """Fill `factors` with exp E log theta; add to each shard's `totals` E theta, and to `bounds` R_u less its
    constant.
    """
    shape, rate, activity_rate = posterior
    shape_prior, top_rate, activity_shape = prior
    K = shape.shape[1]
    for shard in prange(len(shards) - 1):
        for row in range(shards[shard], shards[shard + 1]):
            bound, mean_sum = 0.0, 0.0
            for k in range(K):
                g, r = np.float64(shape[row, k]), np.float64(rate[row, k])
                psi, log_gamma = digamma_and_log_gamma(g)
                factors[row, k] = np.exp(psi) / r
                bound += (shape_prior - g) * psi + log_gamma + g - shape_prior * np.log(r)
                totals[shard, k] += g / r
                mean_sum += g / r
            top = activity_rate[row]
            bound -= activity_shape * (np.log(top) + (top_rate + mean_sum) / top)
            bounds[shard] += bound


@njit(cache=True, nogil=True)
def digamma_and_log_gamma(x):
    """Psi(x) and log Gamma(x), x > 0, to 1e-10: the recurrence up to x >= 6, then Stirling's series."""
    product, slope = 1.0, 0.0  # x (x + 1) ... and its derivative, so that all steps share a division and a logarithm
    while x < 6.0:
        slope = slope * x + product
        product *= x
        x += 1.0
    log_x, inverse = np.log(x), 1.0 / x
    square = inverse * inverse
    tail = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    psi = log_x - 0.5 * inverse - tail - slope / product
    tail = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))))
    return psi, (x - 0.5) * log_x - x + 0.9189385332046727 + tail - np.log(product)


@njit(cache=True, parallel=True, nogil=True, fastmath=FAST)
def fold_in(history, item_factors, item_total, prior, limits, shards, means):
    """Fill `means` with E theta of each history; at every step the edges' phi is at its block maximum.

    Args:
        history: (indptr, indices).
        limits: the largest number of updates of a user, and the tolerance at which they end.
    """
    indptr, indices = history
    shape_prior, top_rate, activity_shape = prior
    iterations, tolerance = limits
    K = means.shape[1]
    for shard in prange(len(shards) - 1):
        t, sums = np.zeros(item_factors.shape[1], dtype=np.float32), np.zeros(item_factors.shape[1])
        for user in range(shards[shard], shards[shard + 1]):
            own = means[user]
            t[:K] = 1
            own[:] = 0
            activity = activity_shape / top_rate
            for _ in range(iterations):
                sums[:] = 0
                for edge in range(indptr[user], indptr[user + 1]):
                    item = indices[edge]
                    s = TINY
                    for k in range(len(t)):
                        s += t[k] * item_factors[item, k]
                    weight = np.float32(1) / s
                    for k in range(len(t)):
                        sums[k] += weight * item_factors[item, k]
                largest, change, mean_sum = 0.0, 0.0, 0.0
                for k in range(K):
                    shape, rate = shape_prior + t[k] * sums[k], activity + item_total[k]
                    t[k] = np.exp(digamma_and_log_gamma(shape)[0]) / rate
                    change = max(change, abs(shape / rate - own[k]))
                    own[k] = shape / rate
                    largest, mean_sum = max(largest, shape / rate), mean_sum + shape / rate
                activity = activity_shape / (top_rate + mean_sum)
                if change <= tolerance * largest:
                    break
