"""Coordinate ascent of hierarchical Poisson factorization, block by block; symbols as in `models.hpf.model`."""

from math import lgamma, log
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import gammaln

from models.hpf import kernels
from models.numerics import random_numbers
from models.numerics.products import read_only
from models.numerics.shards import even_runs, runs

SHARDS = 16  # parts that users, and items, are cut into; partial sums are added up in their order


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
    """One side's hyperpriors: rows Gamma(shape, activity) with activity ~ Gamma(top_shape, top_rate)."""

    shape: float
    top_shape: float
    top_rate: float
    factors: int

    @property
    def activity_shape(self) -> float:
        """kappa_shp or tau_shp, which no update changes."""
        return self.top_shape + self.factors * self.shape

    @property
    def of_rows(self) -> tuple[float, float, float]:
        """Shape of a row's numbers, and rate and shape of its activity, as the kernels take them."""
        return self.shape, self.top_rate, self.activity_shape

    @property
    def constant(self) -> float:
        """The terms of R_u that depend on nothing but the prior."""
        k = self.activity_shape
        return (
            lgamma(k)
            + k
            - self.factors * lgamma(self.shape)
            + self.top_shape * log(self.top_rate)
            - lgamma(self.top_shape)
        )


class Ascent:
    """The state of one fit, and its steps in the paper's order: phi; gamma, kappa; lambda, tau.

    Attributes:
        users, items: the Gamma factors of q.
    """

    def __init__(self, interactions: csr_matrix, ones: bool, user: Prior, item: Prior, seed: int) -> None:
        self.indptr, self.indices, self.counts = edges(interactions, ones)
        users, items = interactions.shape
        self.users = GammaFactors(user, start(user, users, seed, "users"))
        self.items = GammaFactors(item, start(item, items, seed, "items"))
        # as many parts as the edges can pay for, so that adding up the parts of the items' sums stays cheap
        parts = min(SHARDS, max(1, interactions.nnz // items))
        self.shards = runs(self.indptr, parts)
        self.user_sums = np.empty_like(self.users.factors)
        self.item_sums = np.empty((parts, *self.items.factors.shape), dtype=np.float32)
        values, numbers = np.unique(self.counts, return_counts=True)
        self.log_factorials = gammaln(values.astype(np.float64) + 1) @ numbers

    def allocate(self) -> float:
        """One pass over the edges: phi's block maximum, kept as both sides' sums; returns the bound there."""
        logs = np.zeros(len(self.shards) - 1)
        kernels.allocate(
            self.indptr,
            self.indices,
            self.counts,
            self.users.factors,
            self.items.factors,
            self.shards,
            self.user_sums,
            self.item_sums,
            logs,
        )
        rates = self.users.total @ self.items.total
        return float(logs.sum() - self.log_factorials - rates + self.users.row_bound + self.items.row_bound)

    def update_users(self) -> None:
        """Block maxima of gamma, then of kappa, at the phi of the last `allocate`."""
        self.users.update(self.user_sums[None], self.items.total)

    def update_items(self) -> None:
        """Block maxima of lambda, then of tau, at the phi of the last `allocate`."""
        self.items.update(self.item_sums, self.users.total)


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
        self.shards = even_runs(rows, SHARDS)
        width = -(-prior.factors // kernels.LANES) * kernels.LANES
        self.factors = np.zeros((rows, width), dtype=np.float32)
        self._describe()

    def update(self, sums: np.ndarray, other_total: np.ndarray) -> None:
        """Block maxima of the shapes and rates, then of the activity rate.

        Args:
            sums: float32 (parts, rows, padded K); added up over parts, for each row the sum over its edges of
                y / s times the other side's factors.
            other_total: the other side's `total`.
        """
        kernels.maximise(
            sums,
            self.factors,
            other_total,
            self.posterior,
            self.prior.of_rows,
            self.shards,
        )
        self._describe()

    def take(self, posterior: GammaParameters, rows: np.ndarray) -> None:
        """Set every row to the given row of another posterior; those with a row of -1 stay as they are."""
        known = rows >= 0
        for own, other in zip(self.posterior, posterior, strict=True):
            own[known] = other[rows[known]]
        self._describe()

    def _describe(self) -> None:
        totals, bounds = np.zeros((SHARDS, self.prior.factors)), np.zeros(SHARDS)
        kernels.describe(self.posterior, self.prior.of_rows, self.shards, self.factors, totals, bounds)
        self.total = totals.sum(axis=0)
        self.row_bound = bounds.sum() + len(self.factors) * self.prior.constant


def start(prior: Prior, rows: int, seed: int, side: str) -> GammaParameters:
    """A first posterior, every number raised by a draw of its own from Uniform(0, 1), after section 4.1.

    Shapes begin at the prior's, rates of the rows and of their activity both at the activity's prior rate, a'/b'
    (c'/d'). For the rows' rates the section has a/b' (c/d'), the same where a = a' (c = c').
    """
    shape, rate = (np.empty((rows, prior.factors), dtype=np.float32) for _ in range(2))
    activity_rate = np.empty(rows)
    purpose = random_numbers.purpose(f"hpf {side}")
    kernels.start(seed, purpose, prior.shape, prior.top_rate, shape, rate, activity_rate)
    return GammaParameters(shape, rate, activity_rate)


def edges(interactions: csr_matrix, ones: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """CSR arrays in the kernels' types, int64, int32 and float32, read-only; every count as one if `ones`."""
    counts = np.ones(interactions.nnz, dtype=np.float32) if ones else interactions.data
    return (
        read_only(interactions.indptr, np.int64),
        read_only(interactions.indices, np.int32),
        read_only(counts, np.float32),
    )
