"""Coordinate ascent of hierarchical Poisson factorization, by blocks; `models.hpf.model` defines the symbols.

Tables of exp E log theta and exp E log beta are float32, (rows, padded K), with zeros from column K on. Loops run over
shards that depend on the data alone, and each shard has its own sums. So results do not depend on the number of
threads. Kernels take a posterior as `GammaParameters`, and a prior as its `Prior.of_rows`.
"""

from math import lgamma, log
from typing import NamedTuple

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import copy_rows
from oneclass.models.numerics.adjacency import copy_pattern, partition_evenly, partition_rows
from oneclass.models.numerics.logistic_bound import FAST
from oneclass.models.numerics.random_numbers import purpose, stream, uniform
from oneclass.models.numerics.simd import pad_width

SHARDS = 16  # users, and items, are cut into so many parts; partial sums are added in their order
LANES = 8  # rows of the tables are padded to a multiple of this, so that loops over them fill registers
TINY = np.float32(1e-37)  # keeps 1 / s finite


class GammaParameters(NamedTuple):
    """Parameters of q for the users, or for the items.

    Attributes:
        shape, rate: float32 (rows, K), of the preferences theta (of the attributes beta).
        activity_rate: float64 (rows,), of the activity xi (of the popularity eta); its shape is `Prior.activity_shape`.
    """

    shape: np.ndarray
    rate: np.ndarray
    activity_rate: np.ndarray


class Prior(NamedTuple):
    """The prior of users, or of items: rows are Gamma(shape, activity), and the activity Gamma(top_shape, top_rate)."""

    shape: float
    top_shape: float
    top_rate: float
    factors: int

    @property
    def activity_shape(self) -> float:
        """kappa_shp (or tau_shp); no update changes it."""
        return self.top_shape + self.factors * self.shape

    @property
    def of_rows(self) -> tuple[float, float, float]:
        """Shape of a row's numbers, prior rate of its activity, and posterior shape of it, as the kernels take them."""
        return self.shape, self.top_rate, self.activity_shape

    @property
    def constant(self) -> float:
        """The terms of R_u that depend on the prior alone."""
        k = self.activity_shape
        of_rows = lgamma(k) + k - self.factors * lgamma(self.shape)
        return of_rows + self.top_shape * log(self.top_rate) - lgamma(self.top_shape)


class Ascent:
    """The state of one fit, and its steps in the paper's order: phi; gamma, kappa; lambda, tau.

    Attributes:
        users, items: the Gamma factors of q.
        user_sums: float32 (users, padded K), for each user the sum over the user's edges of 1 / s times exp E log beta.
        item_sums: float32 (parts, items, padded K), the same for each item; its parts are yet to be added.
    """

    def __init__(self, interactions: csr_matrix, users: "GammaFactors", items: "GammaFactors") -> None:
        self.users, self.items, self.graph = users, items, copy_pattern(interactions)
        # each part has its own sums over all items; few edges get few parts, so that adding the parts stays cheap
        parts = min(SHARDS, max(1, interactions.nnz // interactions.shape[1]))
        self.shards = partition_rows(self.graph[0], parts)
        self.user_sums = np.empty_like(users.factors)
        self.item_sums = np.empty((parts, *items.factors.shape), dtype=np.float32)

    def allocate(self) -> float:
        """Set phi to its block maximum in a pass over the edges, kept as sums for both sides; return the bound."""
        users, items, logs = self.users, self.items, np.zeros(len(self.shards) - 1)
        tables = users.factors, items.factors
        allocate_edges(*self.graph, *tables, self.shards, self.user_sums, self.item_sums, logs)
        return float(logs.sum() - users.total @ items.total + users.row_bound + items.row_bound)

    def update_users(self) -> None:
        """Set gamma, then kappa, to their block maxima, with phi from the last `allocate`."""
        self.users.update(self.user_sums[None], self.items.total)

    def update_items(self) -> None:
        """Set lambda, then tau, to their block maxima, with phi from the last `allocate`."""
        self.items.update(self.item_sums, self.users.total)

    def iterate(self) -> float:
        """All of these; returns the bound after phi."""
        bound = self.allocate()
        self.update_users()
        self.update_items()
        return bound


class GammaFactors:
    """The Gamma factors of q for the users, or for the items, and the expectations that the updates need.

    Attributes:
        posterior: their parameters, updated in place.
        factors: float32 (rows, padded K), exp E log theta.
        total: float64 (K,), the sum over rows of E theta.
        row_bound: the sum over rows of R_u.
    """

    def __init__(self, prior: Prior, posterior: GammaParameters) -> None:
        self.prior, self.posterior = prior, posterior
        rows = len(posterior.shape)
        self.shards = partition_evenly(rows, SHARDS)
        self.factors = np.zeros((rows, pad_width(prior.factors, LANES)), dtype=np.float32)
        self._compute_expectations()

    def update(self, sums: np.ndarray, other_total: np.ndarray) -> None:
        """Set the shapes and rates, then the activity rate, to their block maxima.

        Args:
            sums: float32 (parts, rows, K or more). Summed over the parts it is, for each row, the sum over its edges of
                1 / s times the other side's factors.
            other_total: the other side's `total`.
        """
        update_posterior(sums, self.factors, other_total, self.posterior, self.prior.of_rows, self.shards)
        self._compute_expectations()

    def take(self, posterior: GammaParameters, rows: np.ndarray) -> None:
        """Copy rows of another posterior: `rows` names one for each own row, or is -1 to keep the own row."""
        for own, other in zip(self.posterior, posterior, strict=True):
            copy_rows(own, other, rows)
        self._compute_expectations()

    def _compute_expectations(self) -> None:
        totals, bounds = np.zeros((SHARDS, self.prior.factors)), np.zeros(SHARDS)
        compute_expectations(self.posterior, self.prior.of_rows, self.shards, self.factors, totals, bounds)
        self.total = totals.sum(axis=0)
        self.row_bound = bounds.sum() + len(self.factors) * self.prior.constant


def draw_initial_posterior(prior: Prior, rows: int, seed: int, side: str) -> GammaParameters:
    """The first posterior, after section 4.1: prior values, to each of which a draw from Uniform(0, 1) is added.

    Shapes begin at the prior's shape. Rates, of the rows and of the activity, begin at the prior rate of the activity,
    a'/b' (or c'/d'). Section 4.1 has a/b' (or c/d') for the rates of the rows, which is the same if a = a' (c = c').
    """
    shape, rate = (np.empty((rows, prior.factors), dtype=np.float32) for _ in range(2))
    activity_rate = np.empty(rows)
    fill_initial_posterior(seed, purpose(f"hpf {side}"), prior.shape, prior.top_rate, shape, rate, activity_rate)
    return GammaParameters(shape, rate, activity_rate)


@njit(cache=True)
def fill_initial_posterior(seed, purpose, shape_prior, rate_prior, shape, rate, activity_rate):
    """Fill in `shape_prior`, or `rate_prior`, plus draws from Uniform(0, 1); see `draw_initial_posterior`."""
    K = shape.shape[1]
    for row in range(len(shape)):
        key = stream(seed, purpose, 0, row)
        for k in range(K):
            shape[row, k] = shape_prior + uniform(key, 2 * k)
            rate[row, k] = rate_prior + uniform(key, 2 * k + 1)
        activity_rate[row] = rate_prior + uniform(key, 2 * K)


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
