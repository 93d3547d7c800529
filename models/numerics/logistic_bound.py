"""The bound of Jaakkola and Jordan on the logistic function, and sums over the edges of a vertex by it.

Jaakkola and Jordan, "Bayesian parameter estimation via variational methods", 2000, eq. 10 and 11: for every xi,

    log sigma(a) >= log sigma(xi) + (a - xi) / 2 - lambda(xi) (a^2 - xi^2),
    lambda(xi) = (sigma(xi) - 1/2) / (2 xi) = tanh(xi / 2) / (4 xi),    lambda(0) = 1/8.

If a has a posterior, the best xi^2 is E a^2. Kernels compute that square, so functions named `of_square` take xi^2, and
the others take xi. Errors are relative, against float64, for xi up to 300. Times are nanoseconds for one number in a
loop over 250,000.

**Edges**: a = u'v + b_m + b_n has Gaussian factors and biases. A packed row of a vertex has the means of x = [v, 1, b]
and then their variances, each filled up with zeros to whole cache lines, H numbers. With a weight w and a pull p of
every edge, the sums of a vertex over its edges are flat rows of H:

    row k < K     sum of w v_k v; only the lower triangle is correct
    row H         sum of w x
    row H + 1     sum of p x
    row H + 2     sum of w var x

Sums stay in registers while a batch is added: what bounds the loop over edges is to load the numbers of a row, one for
each product with a vector. The edges of a vertex are summed in their order, so that a result does not depend on the
shards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.simd import (
    EIGHT,
    F32_WIDTH,
    IN_ORDER,
    ZERO,
    add_scaled,
    aligned_zeros,
    broadcast,
    element,
    horizontal_sum,
    load,
    load_tile,
    pad_width,
    plus_products,
    store,
    store_tile,
)

FAST = {"reassoc", "contract", "arcp", "afn", "nsz"}  # NaN stays NaN
PLAIN: dict[str, Any] = {"cache": True, "fastmath": {"contract"}, "error_model": "numpy", "nogil": True}
# As in numpy, division by zero is no error: its test would keep loops from being vectorized.
OPTIONS: dict[str, Any] = {"cache": True, "fastmath": FAST, "error_model": "numpy", "nogil": True}
INLINED: dict[str, Any] = OPTIONS | {"forceinline": True}
BATCH = 64  # edges that are worked on together, whose packed rows stay in the first-level cache
MEAN, SQUARE, WEIGHT, PULL = range(4)  # E[a], E[a^2], w and p of every edge of a batch
ROWS_16, ROWS_24 = (0,) * 16, (0,) * 24  # heights of tiles whose sums stay in registers


@njit(cache=True, fastmath=set(), forceinline=True)
def best_square(mean, variance):
    """The best xi^2, E a^2, float32. The product is rounded before the sum, and the sum after it.

    `fastmath` is empty, not absent: without it numba takes the caller's, and then it depends on how the caller was
    optimized whether the product and the sum become one instruction. Published parameters depend on the rounding.
    """
    return mean * mean + variance


@njit(**PLAIN)
def exp_of_minus(x):
    """exp(-x), float32, for 0 <= x <= 80; error below 1e-7. It calls nothing, so that loops over it vectorize."""
    whole = np.int32(x * np.float32(1.44269504) + np.float32(0.5))
    rest = np.float32(whole) * np.float32(0.693145752) - x + np.float32(whole) * np.float32(1.42860677e-6)
    total = np.float32(1 / 5040)
    for inverse in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
        total = total * rest + np.float32(inverse)
    return total * np.int32((127 - whole) << 23).view(np.float32)  # times 2^-whole, whose bits are its exponent


@njit(**PLAIN)
def lambda_of_square(xi_squared):
    """lambda(xi), float32, from xi^2; its Taylor series below xi = 1/4; error below 3e-7; 0.3 ns."""
    xi = np.sqrt(xi_squared)
    tail = exp_of_minus(min(xi, np.float32(80)))
    far = (np.float32(1) - tail) / ((np.float32(1) + tail) * np.float32(4) * max(xi, np.float32(0.25)))
    near = np.float32(0.125) - xi_squared * (np.float32(1 / 96) - xi_squared * np.float32(1 / 960))
    return near if xi < np.float32(0.25) else far


@njit(**PLAIN)
def best_bound_of_square(xi_squared):
    """log sigma(xi) - xi / 2, float32, from xi^2: the expected bound without its term a / 2, if E a^2 is xi^2.

    log(1 + x) is a series in x / (2 + x); error below 3e-7; 0.5 ns.
    """
    xi = np.sqrt(xi_squared)
    tail = exp_of_minus(min(xi, np.float32(80)))
    ratio = tail / (np.float32(2) + tail)
    total = np.float32(1 / 15)
    for inverse in (1 / 13, 1 / 11, 1 / 9, 1 / 7, 1 / 5, 1 / 3, 1.0):
        total = total * ratio * ratio + np.float32(inverse)
    return np.float32(-0.5) * xi - np.float32(2) * ratio * total


@dataclass
class GaussianFactors:
    """q of all vertices of one side of the graph, the users or the items. Arrays are float32.

    Attributes:
        mean, precision: (vertices, K), of the factors.
        bias_mean, bias_precision: (vertices,); a bias clamped at zero has mean 0 and precision infinity.
    """

    mean: np.ndarray
    precision: np.ndarray
    bias_mean: np.ndarray
    bias_precision: np.ndarray

    @classmethod
    def prior(cls, vertices: int, factors: int, *, clamped: bool) -> Self:
        """Means of zero and precisions of one: the posterior of vertices without edges, and the start of a fold-in."""
        return cls(
            mean=np.zeros((vertices, factors), dtype=np.float32),
            precision=np.ones((vertices, factors), dtype=np.float32),
            bias_mean=np.zeros(vertices, dtype=np.float32),
            bias_precision=np.full(vertices, np.inf if clamped else 1, dtype=np.float32),
        )

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The four arrays, in the order in which the kernels take them."""
        return self.mean, self.precision, self.bias_mean, self.bias_precision

    def rows(self, at: np.ndarray | slice) -> Self:
        """Return a copy of some vertices."""
        return type(self)(*(np.array(array[at]) for array in self.arrays))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], side: str) -> Self:
        """Return what `to_arrays` gave for this side."""
        return cls(*(arrays[f"{side}_{field.name}"] for field in fields(cls)))

    def to_arrays(self, side: str) -> dict[str, np.ndarray]:
        """Return the arrays by name, each with the side's name before it."""
        return {f"{side}_{name}": array for name, array in vars(self).items()}

    def table(self) -> np.ndarray:
        """Return the packed rows that the update of the other side reads."""
        return _pack(*self.arrays)

    def squares(self) -> tuple[float, float]:
        """What -tau / 2 multiplies in a bound, float64: the sums of E|u|^2 and of E b^2 over the vertices.

        The second is 0 for clamped biases.
        """
        factors, biases = (
            float(np.sum(mean.astype(np.float64) ** 2 + 1.0 / precision))
            for mean, precision in ((self.mean, self.precision), (self.bias_mean, self.bias_precision))
        )
        return factors, biases

    def prior_bound(self, taus: tuple[float, float], log_taus: tuple[float, float]) -> float:
        """Return E log p(u, b | tau) plus the entropy of q(u, b), by E tau and E log tau of factors and of biases."""
        total = 0.0
        parts = zip((self.precision, self.bias_precision), self.squares(), taus, log_taus, strict=True)
        for precision, squares, tau, log_tau in parts:
            if np.isfinite(precision).all():
                log_precision = np.sum(np.log(precision, dtype=np.float64))
                total += 0.5 * (precision.size * (log_tau + 1.0) - log_precision - tau * squares)
        return total


@njit(parallel=True, **OPTIONS)
def _pack(mean, precision, bias_mean, bias_precision):
    """The packed rows of one side, flat float32, as the first lines of this file describe them."""
    count, factors = mean.shape
    half = pad_width(factors + 2)
    table = aligned_zeros(count * 2 * half)
    for vertex in prange(count):
        at = vertex * 2 * half
        for factor in range(factors):
            table[at + factor], table[at + half + factor] = mean[vertex, factor], 1 / precision[vertex, factor]
        table[at + factors], table[at + factors + 1] = 1, bias_mean[vertex]
        table[at + half + factors + 1] = 1 / bias_precision[vertex]
    return table


@njit(**INLINED)
def allocate_workspace(factors):
    """The scratch arrays of one shard.

    Returns:
        rows: int64 (BATCH,), where the packed rows of a batch's edges begin.
        own: what a packed row is multiplied by for E[a] and for var[a], and its squares for var[a].
        sums: the sums of a vertex, as the first lines of this file describe them.
        columns: (4, BATCH), MEAN, SQUARE, WEIGHT and PULL of every edge of the batch.
    """
    half = pad_width(factors + 2)
    sums = aligned_zeros((half + 3) * half)
    return np.zeros(BATCH, dtype=np.int64), aligned_zeros(3 * half), sums, np.zeros((4, BATCH), dtype=np.float32)


@njit(**INLINED)
def load_own_vertex(own, vertex, posterior):
    """Fill `own` with the means, second moments and variances of [u_m, b_m, 1], each where its factor is in a row."""
    mean, precision, bias_mean, bias_precision = posterior
    factors = mean.shape[1]
    half = pad_width(factors + 2)
    for factor in range(factors):
        value, variance = mean[vertex, factor], 1 / precision[vertex, factor]
        own[factor], own[half + factor], own[2 * half + factor] = value, value * value + variance, variance
    own[factors], own[2 * half + factors] = bias_mean[vertex], 1 / bias_precision[vertex]
    own[factors + 1] = own[half + factors + 1] = 1


@njit(**INLINED)
def locate_edges(rows, neighbours, start, first, count, factors):
    """Find the packed rows of edges first .. count - 1 of a batch, of which edge e goes to neighbours[start + e]."""
    width = 2 * pad_width(factors + 2)
    for edge in range(first, count):
        rows[edge] = np.int64(element(neighbours, start + edge)) * width


@njit(**IN_ORDER)
def fill_logits(rows, own, columns, table, count, factors):
    """Mean and second moment of the logits of a batch, which is the best xi^2 (eq. 16).

    E a = sum E x E y and var a = sum var x E y^2 + (E x)^2 var y, where x are the neighbour's numbers and y the own.
    """
    half = pad_width(factors + 2)
    for edge in range(count):
        at = element(rows, edge)
        mean = variance = broadcast(ZERO)
        for lane in range(0, half, F32_WIDTH):
            x = load(table, at + lane)
            mean = mean + x * load(own, lane)
            variance = variance + x * x * load(own, 2 * half + lane)
            variance = variance + load(table, at + half + lane) * load(own, half + lane)
        columns[MEAN, edge] = horizontal_sum(mean)
        columns[SQUARE, edge] = best_square(columns[MEAN, edge], horizontal_sum(variance))


@njit(**OPTIONS)
def fill_weights(columns, count):
    """w = 2 lambda(xi) of a batch."""
    for edge in range(pad_width(count)):
        columns[WEIGHT, edge] = np.float32(2) * lambda_of_square(columns[SQUARE, edge])


@njit(**IN_ORDER)
def _add_tile(height, sums, top, lane, half, rows, columns, table, count):
    """Add a batch to rows top .. top + len(height) - 1 and lanes lane .. lane + F32_WIDTH - 1 of the sums.

    A tile on the diagonal adds these lanes of the last three rows too.
    """
    at, last, diagonal = top * half + lane, half * half + lane, top == lane
    tile = load_tile(height, broadcast(ZERO), sums, at, half)
    one, pull, spread = load(sums, last), load(sums, last + half), load(sums, last + 2 * half)
    for edge in range(count):
        row, weight = element(rows, edge), element(columns, WEIGHT * BATCH + edge)
        mean = load(table, row + lane)
        weighted = weight * mean
        tile = plus_products(tile, table, row + top, 1, weighted)
        if diagonal:
            one = one + weighted
            pull = pull + element(columns, PULL * BATCH + edge) * mean
            spread = spread + weight * load(table, row + half + lane)
    store_tile(sums, at, half, tile)
    if diagonal:
        store(sums, last, one)
        store(sums, last + half, pull)
        store(sums, last + 2 * half, spread)


@njit(**OPTIONS)
def add_batch(rows, sums, columns, table, count, factors):
    """Add a batch to the sums of its vertex; of w v v' the lower triangle."""
    half = pad_width(factors + 2)
    for lane in range(0, half, F32_WIDTH):
        top = lane
        while top < max(factors, lane + 1):
            left = factors - top
            if left <= 8:
                _add_tile(EIGHT, sums, top, lane, half, rows, columns, table, count)
                top += 8
            elif 16 < left <= 24:
                _add_tile(ROWS_24, sums, top, lane, half, rows, columns, table, count)
                top += 24
            else:
                _add_tile(ROWS_16, sums, top, lane, half, rows, columns, table, count)
                top += 16


@njit(cache=True, fastmath=FAST, inline="always")
def solve_in_rows(matrix, stride, size, vector, least):
    """vector = P^-1 vector; the lower triangle of P, with rows `stride` long, is eliminated from the last row up.

    No eigenvalue of P may lie below `least`: a pivot that rounding made smaller is raised to it.
    """
    for last in range(size - 1, -1, -1):
        matrix[last * stride + last] = max(matrix[last * stride + last], least)
        pivot = 1 / matrix[last * stride + last]
        for row in range(last):
            factor = -matrix[last * stride + row] * pivot
            add_scaled(matrix, row * stride, np.float32(factor), matrix, last * stride, row + 1)
            vector[row] += factor * vector[last]
    for row in range(size):
        total = vector[row]
        for column in range(row):
            total -= matrix[row * stride + column] * vector[column]
        vector[row] = total / matrix[row * stride + row]
