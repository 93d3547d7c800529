"""The factors of the posterior q of the random-graph model (Paquet and Koenigstein 2014, eq. 6), and their terms in
the bound (eq. 12).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import gammaln, psi

from oneclass.models.attributes.prior_means import PriorMeans
from oneclass.models.negatives.like_probability import GaussianFactors
from oneclass.models.numerics.random_numbers import normals
from oneclass.models.random_graph.edges import pack

USER_FACTORS, USER_BIAS, ITEM_FACTORS, ITEM_BIAS = range(4)  # the precisions tau_u, tau_bu, tau_v, tau_bv


class VertexPosterior(GaussianFactors):
    """q of all users, or of all items; `mean` and `precision` are the eta and omega of eq. 6."""

    @classmethod
    def prior(cls, vertices: int, factors: int, *, clamped: bool, precision: float = 1.0) -> Self:
        """Means of zero: the posterior of vertices without edges, and the start of a fold-in."""
        return cls(
            mean=np.zeros((vertices, factors), dtype=np.float32),
            precision=np.full((vertices, factors), precision, dtype=np.float32),
            bias_mean=np.zeros(vertices, dtype=np.float32),
            bias_precision=np.full(vertices, np.inf if clamped else precision, dtype=np.float32),
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

    def squares(self, prior: "VertexPrior | None" = None) -> tuple[float, float]:
        """What -tau / 2 multiplies in the bound, float64: the sums of E|u - A'f|^2 and of E(b - a'f)^2 over the
        vertices, with the penalties of the maps; without a prior A = a = 0. The second is 0 for clamped biases.
        """
        means, penalties = ((prior.means, prior.bias_means), prior.penalties) if prior else ((0.0, 0.0), (0.0, 0.0))
        posteriors = (self.mean, self.precision), (self.bias_mean, self.bias_precision)
        factors, biases = (
            float(np.sum((mean.astype(np.float64) - prior_mean) ** 2 + 1.0 / precision) + penalty)
            for (mean, precision), prior_mean, penalty in zip(posteriors, means, penalties, strict=True)
        )
        return factors, biases

    def bound(self, taus: "PrecisionPosterior", factors: int, bias: int, prior: "VertexPrior | None" = None) -> float:
        """E log p(u, b | tau) plus the entropy of q(u, b); `factors` and `bias` are the places of their precisions."""
        of_factors, of_biases = self.squares(prior)
        total = _gaussian_bound(of_factors, self.precision, taus, factors)
        if np.isfinite(self.bias_precision).all():
            total += _gaussian_bound(of_biases, self.bias_precision, taus, bias)
        return total


def _gaussian_bound(squares: float, precision: np.ndarray, taus: "PrecisionPosterior", which: int) -> float:
    log_precision = np.sum(np.log(precision, dtype=np.float64))
    return 0.5 * (precision.size * (taus.log_mean(which) + 1.0) - log_precision - taus.mean(which) * squares)


@dataclass
class VertexPrior:
    """The prior means of one side by its attributes f: u ~ N(A'f, 1 / tau_u) and b ~ N(a'f, 1 / tau_bu).

    The maps A and a are point estimates, and the bound gains -ridge (E[tau_u] |A|^2 + E[tau_bu] |a|^2) / 2. So whatever
    the precisions are, the maps are ridge regressions of the posterior means on the features. A vertex without an edge
    has the prior mean zero in the fit, and afterwards that of a map fitted to the final means.

    Attributes:
        regression: A, and a behind it unless the biases are clamped at zero.
        factors: K.
        means, bias_means: A'f and a'f, float32 (vertices, K) and (vertices,).
    """

    regression: PriorMeans
    factors: int
    means: np.ndarray
    bias_means: np.ndarray

    @classmethod
    def build(
        cls, features: csr_matrix | None, has_edges: np.ndarray, ridge: float, side: VertexPosterior
    ) -> "VertexPrior | None":
        """Start at means of zero; None without features."""
        if features is None:
            return None
        width = side.mean.shape[1] + bool(np.isfinite(side.bias_precision).all())
        regression = PriorMeans(features, has_edges, np.ones(len(has_edges)), ridge, width)
        return cls(regression, side.mean.shape[1], np.zeros_like(side.mean), np.zeros_like(side.bias_mean))

    @property
    def penalties(self) -> tuple[float, float]:
        """ridge |A|^2 and ridge |a|^2."""
        squares = self.regression.ridge * np.square(self.regression.coefficients)
        return float(squares[:, : self.factors].sum()), float(squares[:, self.factors :].sum())

    def fit(self, side: VertexPosterior) -> None:
        """Set the maps to the maximum of the bound for the posterior means of the side."""
        vectors = np.column_stack([side.mean, side.bias_mean])
        self.regression.fit(vectors[:, : self.regression.coefficients.shape[1]])
        self.means, self.bias_means = split_means(self.regression.means, self.factors)

    def finish(
        self, side: VertexPosterior, features: csr_matrix, has_edges: np.ndarray, taus: tuple[float, float]
    ) -> np.ndarray:
        """Set q of the vertices without an edge to the prior, and return their maps, float32 (F, width).

        Args:
            taus: E[tau_u], E[tau_bu].
        """
        width = self.regression.coefficients.shape[1]
        maps = self.regression.map_new_rows(np.column_stack([side.mean, side.bias_mean])[:, :width])
        means, bias_means = split_means(features[~has_edges] @ maps, self.factors)
        side.mean[~has_edges], side.precision[~has_edges] = means, taus[0]
        if width > self.factors:
            side.bias_mean[~has_edges], side.bias_precision[~has_edges] = bias_means, taus[1]
        return maps


def split_means(means: np.ndarray, factors: int) -> tuple[np.ndarray, np.ndarray]:
    """Split the means of factors from those of biases, float32 (vertices, K) and (vertices,); zeros without the last
    column.
    """
    biases = means[:, factors] if means.shape[1] > factors else np.zeros(len(means))
    return np.ascontiguousarray(means[:, :factors], np.float32), np.ascontiguousarray(biases, np.float32)


def prior_arrays(prior: VertexPrior | None, side: VertexPosterior) -> tuple[np.ndarray, np.ndarray]:
    """Return the prior means as the kernels take them, empty for means of zero."""
    if prior is None:
        return np.zeros((0, side.mean.shape[1]), dtype=np.float32), np.zeros(0, dtype=np.float32)
    return prior.means, prior.bias_means


@dataclass
class PrecisionPosterior:
    """q of the four precisions tau, which are Gamma factors.

    Attributes:
        shape, rate: float64 (4,), phi and varphi of eq. 20, in the order of the constants USER_FACTORS to ITEM_BIAS.
        alpha, beta: shape and rate of the prior.
        fixed: whether they stay as they are.
    """

    shape: np.ndarray
    rate: np.ndarray
    alpha: float
    beta: float
    fixed: bool = False

    @classmethod
    def from_mean(cls, mean: float, counts: tuple[int, int], factors: int, alpha: float, beta: float) -> Self:
        """Factors with the given mean, and with the shape that eq. 20 has for `counts` = (M users, N items)."""
        users, items = counts
        shape = alpha + np.array([factors * users, users, factors * items, items]) / 2.0
        return cls(shape=shape, rate=shape / mean, alpha=alpha, beta=beta)

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
                self.rate[which] += step * (self.beta + 0.5 * square - self.rate[which])

    def bound(self, which: int) -> float:
        """E log p(tau) plus the entropy of q(tau)."""
        shape, rate = self.shape[which], self.rate[which]
        prior = self.alpha * np.log(self.beta) - gammaln(self.alpha)
        prior += (self.alpha - 1) * self.log_mean(which) - self.beta * self.mean(which)
        return float(prior + shape - np.log(rate) + gammaln(shape) + (1 - shape) * psi(shape))
