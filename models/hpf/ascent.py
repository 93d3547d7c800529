"""Coordinate ascent of hierarchical Poisson factorization, by blocks; `models.hpf.model` defines the symbols."""

from math import lgamma, log
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import copy_rows
from oneclass.models.hpf import kernels
from oneclass.models.numerics import random_numbers
from oneclass.models.numerics.adjacency import copy_pattern, partition_evenly, partition_rows
from oneclass.models.numerics.simd import pad_width

SHARDS = 16  # users, and items, are cut into so many parts; partial sums are added in their order


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
        """One pass over the edges: set phi to its block maximum, kept as sums for both sides; returns the bound
        then.
        """
        users, items, logs = self.users, self.items, np.zeros(len(self.shards) - 1)
        tables = users.factors, items.factors
        kernels.allocate_edges(*self.graph, *tables, self.shards, self.user_sums, self.item_sums, logs)
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
        self.factors = np.zeros((rows, pad_width(prior.factors, kernels.LANES)), dtype=np.float32)
        self._compute_expectations()

    def update(self, sums: np.ndarray, other_total: np.ndarray) -> None:
        """Set the shapes and rates, then the activity rate, to their block maxima.

        Args:
            sums: float32 (parts, rows, K or more). Summed over the parts it is, for each row, the sum over its edges of
                1 / s times the other side's factors.
            other_total: the other side's `total`.
        """
        kernels.update_posterior(sums, self.factors, other_total, self.posterior, self.prior.of_rows, self.shards)
        self._compute_expectations()

    def take(self, posterior: GammaParameters, rows: np.ndarray) -> None:
        """Copy rows of another posterior: `rows` names one for each own row, or is -1 to keep the own row."""
        for own, other in zip(self.posterior, posterior, strict=True):
            copy_rows(own, other, rows)
        self._compute_expectations()

    def _compute_expectations(self) -> None:
        totals, bounds = np.zeros((SHARDS, self.prior.factors)), np.zeros(SHARDS)
        kernels.compute_expectations(self.posterior, self.prior.of_rows, self.shards, self.factors, totals, bounds)
        self.total = totals.sum(axis=0)
        self.row_bound = bounds.sum() + len(self.factors) * self.prior.constant


def draw_initial_posterior(prior: Prior, rows: int, seed: int, side: str) -> GammaParameters:
    """The first posterior, after section 4.1: prior values, to each of which a draw from Uniform(0, 1) is added.

    Shapes begin at the prior's shape. Rates, of the rows and of the activity, begin at the prior rate of the activity,
    a'/b' (or c'/d'). Section 4.1 has a/b' (or c/d') for the rates of the rows, which is the same if a = a' (c = c').
    """
    shape, rate = (np.empty((rows, prior.factors), dtype=np.float32) for _ in range(2))
    activity_rate = np.empty(rows)
    purpose = random_numbers.purpose(f"hpf {side}")
    kernels.fill_initial_posterior(seed, purpose, prior.shape, prior.top_rate, shape, rate, activity_rate)
    return GammaParameters(shape, rate, activity_rate)
