"""q of the random-graph model (Paquet and Koenigstein 2014, eq. 6), and the steps of Algorithm 1, one method each.

A hidden graph is drawn, and then one block of q after another is moved towards the maximum of the bound (eq. 12) on it.
The kernels of `models.numerics.logistic_bound` sum over edges, with w = 2 lambda(xi) and p = g - 1/2 - w E b_n.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numba import njit, prange
from scipy.special import gammaln, psi

from oneclass.models.fit_options import Start, copy_rows
from oneclass.models.negatives.sampling import build_alias_table, draw_negatives, negative_starts
from oneclass.models.numerics.adjacency import Adjacency, partition_shards, transpose
from oneclass.models.numerics.logistic_bound import (
    BATCH,
    INLINED,
    MEAN,
    OPTIONS,
    PULL,
    SQUARE,
    WEIGHT,
    GaussianFactors,
    add_batch,
    allocate_workspace,
    best_bound_of_square,
    fill_logits,
    fill_weights,
    load_own_vertex,
    locate_edges,
    solve_in_rows,
)
from oneclass.models.numerics.random_numbers import normals, purpose
from oneclass.models.numerics.simd import element, pad_width, scale

ALPHA, BETA = 0.01, 0.01  # shape and rate of the Gamma prior of the precisions
USER_FACTORS, USER_BIAS, ITEM_FACTORS, ITEM_BIAS = range(4)  # the precisions tau_u, tau_bu, tau_v, tau_bv
HALF = np.float32(0.5)
T_EPSILON = 10  # iterations with a step size of one
START_USERS, START_ITEMS = purpose("random graph: users"), purpose("random graph: items")
INITIAL_SCALE = 0.1  # standard deviation of the first means of the factors


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

    def side_bound(self, side: GaussianFactors, factors: int, bias: int) -> float:
        """E log p(u, b | tau) plus the entropy of q(u, b); `factors` and `bias` are the places of their precisions."""
        return side.prior_bound((self.mean(factors), self.mean(bias)), (self.log_mean(factors), self.log_mean(bias)))

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

    @property
    def by_user(self) -> tuple[Adjacency, Adjacency, np.ndarray]:
        """Likes, negatives and shards of users, as the kernels take them."""
        return self.likes, self.negatives, partition_shards(self.likes[0])

    @property
    def by_item(self) -> tuple[Adjacency, Adjacency, np.ndarray]:
        """The same by item."""
        return self.likes_by_item, self.negatives_by_item, partition_shards(self.likes_by_item[0])


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
        self.bounds, self.likes_by_item = partition_shards(likes[0]), transpose(*likes, len(weights))
        self._alias = build_alias_table(weights)
        self._starts = negative_starts(likes, weights)

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
        users, items: q of their factors and biases, the eta and omega of eq. 6 as `mean` and `precision`.
        taus: the Gamma factors.
    """

    users: GaussianFactors
    items: GaussianFactors
    taus: PrecisionPosterior

    @classmethod
    def initial(cls, shape: tuple[int, int], settings: Any, seed: int, start: Start | None = None) -> Self:
        """Return small random means, since u = v = 0 is a fixed point, or the posterior of the earlier fit.

        Args:
            shape: (M users, N items).
            settings: `RandomGraphSettings`.
        """
        q = cls(
            users=GaussianFactors.prior(shape[0], settings.factors, clamped=True),
            items=GaussianFactors.prior(shape[1], settings.factors, clamped=False),
            taus=PrecisionPosterior.from_mean(settings.tau, shape, settings.factors),
        )
        for side, draws in ((q.users, START_USERS), (q.items, START_ITEMS)):
            side.mean = normals(seed, draws, *side.mean.shape) * np.float32(INITIAL_SCALE)
        if start is not None:
            q.copy_earlier(start, learned_taus=settings.learn_tau)
        return q

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
        tau = np.float64(np.float32(self.taus.mean(ITEM_BIAS)))
        sums = sum_bias_parameters(self.items.arrays, self.users.table(), *graph.by_item, tau)
        move_biases(self.items, sums[:, 0], sums[:, 1], float(np.float32(step)))

    def update_users(self, graph: HiddenGraph, step: float) -> None:
        """Eq. 17 and 18, Algorithm 1, line 13."""
        sizes = np.float32(self.taus.mean(USER_FACTORS)), np.float32(step)
        update_factors(self.users.arrays, self.items.table(), *graph.by_user, *sizes)

    def update_items(self, graph: HiddenGraph, step: float) -> None:
        """Algorithm 1, line 16."""
        sizes = np.float32(self.taus.mean(ITEM_FACTORS)), np.float32(step)
        update_factors(self.items.arrays, self.users.table(), *graph.by_item, *sizes)

    def update_taus(self, step: float) -> None:
        """Eq. 20, Algorithm 1, line 20."""
        self.taus.update(self.users.squares() + self.items.squares(), step)

    def bound(self, graph: HiddenGraph) -> float:
        """The lower bound of eq. 12 for a given H, in nats, with every xi at its optimum (eq. 16)."""
        return combine_bound(self.bound_of_users(graph), self.items, self.taus)

    def bound_of_users(self, graph: HiddenGraph) -> float:
        """The terms of the edges and of the users; those of users in blocks add up."""
        edges = float(edge_bound(self.users.arrays, self.items.table(), *graph.by_user).sum())
        return edges + self.taus.side_bound(self.users, USER_FACTORS, USER_BIAS)


def move_biases(side: GaussianFactors, precision: np.ndarray, z: np.ndarray, step: float) -> None:
    """Eq. 19 in place with P and z of the biases, float64 (vertices,), weighted by `step`."""
    old = side.bias_precision.astype(np.float64)
    new = step * precision + (1 - step) * old
    side.bias_mean[:] = (step * z + (1 - step) * old * side.bias_mean) / new
    side.bias_precision[:] = new


def combine_bound(of_users: float, items: GaussianFactors, taus: PrecisionPosterior) -> float:
    """The bound of eq. 12 from the terms of the edges and users."""
    total = of_users + taus.side_bound(items, ITEM_FACTORS, ITEM_BIAS)
    return total + sum(taus.bound(tau) for tau in (USER_FACTORS, ITEM_FACTORS, ITEM_BIAS))


@njit(**INLINED)
def load_batch(rows, own, columns, table, parts, vertex, first, factors):
    """Fill the logits of a vertex's edges from its edge `first` on, likes and behind them negatives, and g - 1/2.

    Returns:
        The number of edges, at most BATCH.
    """
    (like_starts, likes), (negative_starts, negatives) = parts
    liked = like_starts[vertex + 1] - like_starts[vertex]
    count = min(BATCH, liked + negative_starts[vertex + 1] - negative_starts[vertex] - first)
    turn = min(max(liked - first, 0), count)
    locate_edges(rows, likes, like_starts[vertex] + first, 0, turn, factors)
    locate_edges(rows, negatives, negative_starts[vertex] + first - liked, turn, count, factors)
    for edge in range(count):
        columns[PULL, edge] = HALF if edge < turn else -HALF
    fill_logits(rows, own, columns, table, count, factors)
    return count


@njit(**INLINED)
def count_edges(parts, vertex):
    """The degree of a vertex in the hidden graph."""
    return parts[0][0][vertex + 1] - parts[0][0][vertex] + parts[1][0][vertex + 1] - parts[1][0][vertex]


@njit(**INLINED)
def add_edges(workspace, table, parts, vertex, factors):
    """The sums of one vertex over its edges; `parts` are the likes and the negatives."""
    rows, own, sums, columns = workspace
    sums[:] = 0
    for first in range(0, count_edges(parts, vertex), BATCH):
        count = load_batch(rows, own, columns, table, parts, vertex, first, factors)
        fill_weights(columns, count)
        for edge in range(count):
            columns[PULL, edge] -= columns[WEIGHT, edge] * element(table, element(rows, edge) + factors + 1)
        add_batch(rows, sums, columns, table, count, factors)


@njit(**OPTIONS)
def move_vertex(matrix, stride, z, step, tau, mean, precision, vertex):
    """Eq. 17 and 18: the factors of one vertex from P (eq. 15, its lower triangle) and z, weighted by `step`.

    The precisions are the diagonal of the new P. The arrays of the posterior come one by one: numba counts references
    to what it takes from a tuple.
    """
    factors = mean.shape[1]
    for row in range(factors):
        if step < 1:
            scale(matrix, row * stride, step, matrix, row * stride, row + 1)
            kept = (1 - step) * precision[vertex, row]
            matrix[row * stride + row] += kept
            z[row] = step * z[row] + kept * mean[vertex, row]
        precision[vertex, row] = matrix[row * stride + row]
    solve_in_rows(matrix, stride, factors, z, step * tau)
    for row in range(factors):
        mean[vertex, row] = z[row]


@njit(**OPTIONS)
def update_vertex(workspace, posterior, table, parts, vertex, tau, step):
    """Update q(u_m) of one vertex, whose bias is fixed, by its edges."""
    _, own, sums, _ = workspace
    mean, precision, bias_mean, _ = posterior
    factors = mean.shape[1]
    half = pad_width(factors + 2)
    load_own_vertex(own, vertex, posterior)
    add_edges(workspace, table, parts, vertex, factors)
    ones, pulls, spreads = sums[half * half :], sums[(half + 1) * half :], sums[(half + 2) * half :]
    for row in range(factors):
        sums[row * half + row] += spreads[row] + tau
        pulls[row] -= bias_mean[vertex] * ones[row]
    move_vertex(sums, half, pulls, step, tau, mean, precision, vertex)


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
    for shard in prange(len(bounds) - 1):
        workspace = allocate_workspace(posterior[0].shape[1])
        for vertex in range(bounds[shard], bounds[shard + 1]):
            update_vertex(workspace, posterior, table, (likes, negatives), vertex, tau, step)


@njit(parallel=True, **OPTIONS)
def sum_bias_parameters(posterior, table, likes, negatives, bounds, tau_bias):
    """P and z of the bias of every vertex of one side, eq. 19: float64 (M, 2); arguments as in `update_factors`."""
    factors = posterior[0].shape[1]
    found = np.empty((len(posterior[0]), 2))
    for shard in prange(len(bounds) - 1):
        rows, own, _, columns = allocate_workspace(factors)
        for vertex in range(bounds[shard], bounds[shard + 1]):
            load_own_vertex(own, vertex, posterior)
            precision, z = np.float64(tau_bias), 0.0
            for first in range(0, count_edges((likes, negatives), vertex), BATCH):
                count = load_batch(rows, own, columns, table, (likes, negatives), vertex, first, factors)
                fill_weights(columns, count)
                for edge in range(count):
                    precision += columns[WEIGHT, edge]
                    z += columns[PULL, edge] - columns[WEIGHT, edge] * (columns[MEAN, edge] - own[factors])
            found[vertex, 0], found[vertex, 1] = precision, z
    return found


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
                count = load_batch(rows, own, columns, table, (likes, negatives), vertex, first, factors)
                for edge in range(pad_width(count)):
                    columns[WEIGHT, edge] = best_bound_of_square(columns[SQUARE, edge])
                for edge in range(count):
                    total += columns[PULL, edge] * columns[MEAN, edge] + columns[WEIGHT, edge]
        totals[shard] = total
    return totals
