"""q of the random-graph model (Paquet and Koenigstein 2014, eq. 6), and the steps of Algorithm 1, one method each.

A hidden graph is drawn, and then one block of q after another is moved towards the maximum of the bound (eq. 12) on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.special import gammaln, psi

from oneclass.models.fit_options import Start, copy_rows
from oneclass.models.negatives.sampling import build_alias_table, draw_negatives, negative_starts
from oneclass.models.numerics.adjacency import (
    Adjacency,
    partition_shards,
    transpose,
)
from oneclass.models.numerics.random_numbers import normals
from oneclass.models.random_graph.kernels import edge_bound, pack, sum_bias_parameters, update_factors

ALPHA, BETA = 0.01, 0.01  # shape and rate of the Gamma prior of the precisions
USER_FACTORS, USER_BIAS, ITEM_FACTORS, ITEM_BIAS = range(4)  # the precisions tau_u, tau_bu, tau_v, tau_bv
T_EPSILON = 10  # iterations with a step size of one


@dataclass
class VertexPosterior:
    """q of all users, or of all items. Arrays are float32.

    Attributes:
        mean, precision: (vertices, K), of the factors, the eta and omega of eq. 6.
        bias_mean, bias_precision: (vertices,); a bias clamped at zero has mean 0 and precision infinity.
    """

    mean: np.ndarray
    precision: np.ndarray
    bias_mean: np.ndarray
    bias_precision: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The four arrays, in the order in which the kernels take them."""
        return self.mean, self.precision, self.bias_mean, self.bias_precision

    @classmethod
    def prior(cls, vertices: int, factors: int, *, clamped: bool) -> Self:
        """Means of zero: the posterior of vertices without edges, and the start of a fold-in."""
        return cls(
            mean=np.zeros((vertices, factors), dtype=np.float32),
            precision=np.ones((vertices, factors), dtype=np.float32),
            bias_mean=np.zeros(vertices, dtype=np.float32),
            bias_precision=np.full(vertices, np.inf if clamped else 1, dtype=np.float32),
        )

    @classmethod
    def random(cls, key: tuple[int, np.uint64], scale: float, shape: tuple[int, int], *, clamped: bool) -> Self:
        """Small random means, because u = v = 0 is a fixed point of the updates; `key` is (seed, purpose)."""
        side = cls.prior(*shape, clamped=clamped)
        side.mean = normals(*key, *shape) * np.float32(scale)
        return side

    def table(self) -> np.ndarray:
        """The packed rows that the update of the other side reads."""
        return pack(*self.arrays)

    def update_biases(self, precision: np.ndarray, z: np.ndarray, step: float) -> None:
        """Eq. 19 with P and z of the biases, float64 (vertices,)."""
        old = self.bias_precision.astype(np.float64)
        new = step * precision + (1 - step) * old
        self.bias_mean[:] = (step * z + (1 - step) * old * self.bias_mean) / new
        self.bias_precision[:] = new

    def squares(self) -> tuple[float, float]:
        """What -tau / 2 multiplies in the bound, float64: the sums of E|u|^2 and of E b^2 over the vertices.

        The second is 0 for clamped biases.
        """
        factors, biases = (
            float(np.sum(mean.astype(np.float64) ** 2 + 1.0 / precision))
            for mean, precision in ((self.mean, self.precision), (self.bias_mean, self.bias_precision))
        )
        return factors, biases

    def bound(self, taus: "PrecisionPosterior", factors: int, bias: int) -> float:
        """E log p(u, b | tau) plus the entropy of q(u, b); `factors` and `bias` are the places of their precisions."""
        of_factors, of_biases = self.squares()
        total = _gaussian_bound(of_factors, self.precision, taus, factors)
        if np.isfinite(self.bias_precision).all():
            total += _gaussian_bound(of_biases, self.bias_precision, taus, bias)
        return total


def _gaussian_bound(squares: float, precision: np.ndarray, taus: "PrecisionPosterior", which: int) -> float:
    log_precision = np.sum(np.log(precision, dtype=np.float64))
    return 0.5 * (precision.size * (taus.log_mean(which) + 1.0) - log_precision - taus.mean(which) * squares)


@dataclass
class PrecisionPosterior:
    """q of the four precisions tau, which are Gamma factors.

    Attributes:
        shape, rate: float64 (4,), phi and varphi of eq. 20, in the order of the constants USER_FACTORS to ITEM_BIAS.
        fixed: whether they stay as they are.
    """

    shape: np.ndarray
    rate: np.ndarray
    fixed: bool = False

    @classmethod
    def from_mean(cls, mean: float, counts: tuple[int, int], factors: int) -> Self:
        """Factors with the given mean, and with the shape that eq. 20 has for `counts` = (M users, N items)."""
        users, items = counts
        shape = ALPHA + np.array([factors * users, users, factors * items, items]) / 2.0
        return cls(shape=shape, rate=shape / mean)

    def mean(self, which: int) -> float:
        """E[tau]."""
        return float(self.shape[which] / self.rate[which])

    def log_mean(self, which: int) -> float:
        """E[log tau]."""
        return float(psi(self.shape[which]) - np.log(self.rate[which]))

    def update(self, squares: tuple[float, float, float, float], step: float) -> None:
        """Eq. 20 with a stochastic step. Only the rate moves, for the shape does not depend on the hidden graph.

        Args:
            squares: for each of the four, the sum of the second moments; zero for clamped biases.
        """
        for which, square in enumerate(squares):
            if square > 0 and not self.fixed:
                self.rate[which] += step * (BETA + 0.5 * square - self.rate[which])

    def bound(self, which: int) -> float:
        """E log p(tau) plus the entropy of q(tau)."""
        shape, rate = self.shape[which], self.rate[which]
        prior = ALPHA * np.log(BETA) - gammaln(ALPHA)
        prior += (ALPHA - 1) * self.log_mean(which) - BETA * self.mean(which)
        return float(prior + shape - np.log(rate) + gammaln(shape) + (1 - shape) * psi(shape))


@dataclass(frozen=True)
class HiddenGraph:
    """One sample of H: the likes (g = 1) and the negatives (g = 0), listed by user and by item."""

    likes: Adjacency
    negatives: Adjacency
    likes_by_item: Adjacency
    negatives_by_item: Adjacency


class GraphSampler:
    """q(H): the observed graph, and random negatives beside it.

    Args:
        likes: the observed graph, by user.
        weights: float64 (items,), the histogram pi, positive wherever an item has an edge.
        seed: the seed of all draws.
        units: uint64 (users,), the unit of each user's stream in `models.numerics.random_numbers`.

    Attributes:
        known: the edges that are not drawn, by user: the likes.
    """

    def __init__(self, likes: Adjacency, weights: np.ndarray, seed: int, units: np.ndarray) -> None:
        self.likes = self.known = likes
        self.weights, self.seed, self.units = weights, seed, units
        self.bounds = partition_shards(likes[0])
        self._alias = build_alias_table(weights)
        self._starts = negative_starts(likes, weights)

    @cached_property
    def likes_by_item(self) -> Adjacency:
        """The observed graph by item; only `draw` needs it."""
        return transpose(*self.likes, len(self.weights))

    def negatives(self, iteration: int) -> Adjacency:
        """The negatives of one iteration, by user."""
        key = self.seed, iteration
        return draw_negatives(self.known, self.weights, self._alias, self.bounds, key, self.units, self._starts)

    def draw(self, iteration: int) -> HiddenGraph:
        """H^(t), Algorithm 1, line 5."""
        negatives = self.negatives(iteration)
        turned = transpose(*negatives, len(self.weights))
        return HiddenGraph(self.likes, negatives, self.likes_by_item, turned)


def step_sizes(iterations: int) -> Iterator[float]:
    """epsilon_t for t = 1, 2, ...: Algorithm 1, lines 2, 3 and 22 to 25."""
    accumulator, step = 0.0, 1.0
    for t in range(1, iterations + 1):
        yield step
        delta = t - T_EPSILON
        if delta > 0:
            accumulator = (1.0 - delta**-0.6) * accumulator + 1.0
            step = 1.0 / accumulator


@dataclass
class RandomGraphPosterior:
    """q of all parameters but H, and its block updates; with `step` 1 an update is the exact maximum of its block.

    Attributes:
        users, items: the Gaussian factors.
        taus: the Gamma factors.
    """

    users: VertexPosterior
    items: VertexPosterior
    taus: PrecisionPosterior

    def copy_earlier(self, start: Start, *, learned_taus: bool) -> None:
        """Start at the posterior of an earlier fit; precisions that it learned are then fixed.

        A cold fit stops while the precisions still grow, and the more they grow the worse it ranks: learned further
        with every warm start they would shrink the factors away.
        """
        before = start.previous.posterior
        for own, old, rows in ((self.users, before.users, start.users), (self.items, before.items, start.items)):
            for array, other in zip(own.arrays, old.arrays, strict=True):
                copy_rows(array, other, rows)
        if learned_taus:
            self.taus.rate = self.taus.shape * before.taus.rate / before.taus.shape
            self.taus.fixed = True

    def update_item_biases(self, graph: HiddenGraph, step: float) -> None:
        """Eq. 19, Algorithm 1, line 10. The users' biases are clamped at zero, as in section 6."""
        parts, bounds = (graph.likes_by_item, graph.negatives_by_item), partition_shards(graph.likes_by_item[0])
        tau = np.float64(np.float32(self.taus.mean(ITEM_BIAS)))
        sums = sum_bias_parameters(self.items.arrays, self.users.table(), *parts, bounds, tau)
        self.items.update_biases(sums[:, 0], sums[:, 1], float(np.float32(step)))

    def update_users(self, graph: HiddenGraph, step: float) -> None:
        """Eq. 17 and 18, Algorithm 1, line 13."""
        update_side(self.users, self.items, (graph.likes, graph.negatives), self.taus.mean(USER_FACTORS), step)

    def update_items(self, graph: HiddenGraph, step: float) -> None:
        """Algorithm 1, line 16."""
        parts = graph.likes_by_item, graph.negatives_by_item
        update_side(self.items, self.users, parts, self.taus.mean(ITEM_FACTORS), step)

    def update_taus(self, step: float) -> None:
        """Eq. 20, Algorithm 1, line 20."""
        self.taus.update(self.users.squares() + self.items.squares(), step)

    def bound(self, graph: HiddenGraph) -> float:
        """The lower bound of eq. 12 for a given H, in nats, with every xi at its optimum (eq. 16)."""
        return combine_bound(self.bound_of_users(graph), self.items, self.taus)

    def bound_of_users(self, graph: HiddenGraph) -> float:
        """The terms of the edges and of the users; those of users in blocks add up."""
        parts, bounds = (graph.likes, graph.negatives), partition_shards(graph.likes[0])
        edges = float(edge_bound(self.users.arrays, self.items.table(), *parts, bounds).sum())
        return edges + self.users.bound(self.taus, USER_FACTORS, USER_BIAS)


def combine_bound(of_users: float, items: VertexPosterior, taus: PrecisionPosterior) -> float:
    """The bound of eq. 12 from the terms of the edges and users."""
    total = of_users + items.bound(taus, ITEM_FACTORS, ITEM_BIAS)
    return total + sum(taus.bound(tau) for tau in (USER_FACTORS, ITEM_FACTORS, ITEM_BIAS))


def update_side(
    side: VertexPosterior, other: VertexPosterior, parts: tuple[Adjacency, Adjacency], tau: float, step: float
) -> None:
    """Update the factors of one side in place; `other` is the fixed side."""
    bounds = partition_shards(parts[0][0])
    update_factors(side.arrays, other.table(), *parts, bounds, np.float32(tau), np.float32(step))
