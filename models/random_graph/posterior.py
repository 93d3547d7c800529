"""The factors of the posterior q of the random-graph model (Paquet and Koenigstein 2014, eq. 6), and their terms in
the bound (eq. 12).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import gammaln, psi

from oneclass.models.negatives.like_probability import GaussianFactors
from oneclass.models.numerics.random_numbers import normals
from oneclass.models.random_graph.edges import pack

ALPHA, BETA = 0.01, 0.01  # shape and rate of the Gamma prior of the precisions
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
