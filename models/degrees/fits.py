"""Maximum-likelihood fits of the laws of `models.degrees.laws`, and a test of how well they fit.

Everything is computed from the histogram of the degrees, so that the cost depends on the range of degrees and not on
the number of vertices or edges. The log-likelihood of an exponential family is concave in its natural parameters, and
the means of T are sufficient statistics, so that Newton's method with the exact covariance finds the maximum. The test
of fit is that of Clauset, Shalizi and Newman (2009, section 4): a parametric bootstrap of the Kolmogorov-Smirnov
distance, in which the law is fitted anew to every replicate.
"""

from dataclasses import dataclass

import numpy as np

from models.degrees.laws import FAMILIES, Family, Law, support
from models.numerics.random_numbers import purpose, stream

REPLICATES = 99  # p-values come in steps of 1 / 100
STEPS = 200
TOLERANCE = 1e-11  # stop if another Newton step would gain less than this, in nats for each vertex


@dataclass(frozen=True)
class Fit:
    """A law fitted to one side's degrees.

    Attributes:
        exponent, cutoff: as `Law` defines them; None if infinite, or if all degrees are equal.
        log_likelihood: natural log, summed over the vertices.
        aic: 2 parameters - 2 log_likelihood.
        ks: the Kolmogorov-Smirnov distance, the largest difference between the two distribution functions.
        p_value: (1 + replicates with a distance at least as large) / (1 + replicates); None if all degrees are
            equal, for then there is nothing to fit.
    """

    family: str
    exponent: float | None
    cutoff: float | None
    d_min: int
    d_max: int
    log_likelihood: float
    aic: float
    ks: float
    p_value: float | None


def fit(family: str, degrees: np.ndarray, counts: np.ndarray, d_max: int, seed: int = 0, replicates: int = 0) -> Fit:
    """Fit one family, on the degrees from the smallest one in the data to `d_max`.

    Args:
        degrees: int64 (D,), ascending, at least one and at most `d_max`.
        counts: int64 (D,), positive: vertices of each degree.
        replicates: number of bootstrap samples for the p-value; with 0 there is no p-value.
    """
    d_min, parameters = int(degrees[0]), FAMILIES[family].parameters
    if len(degrees) == 1:  # the likelihood has no maximum: it grows towards a law with all mass on this degree
        return Fit(family, None, None, d_min, d_max, 0.0, 2.0 * parameters, 0.0, None)
    histogram = np.zeros(d_max - d_min + 1, dtype=np.int64)
    histogram[degrees - d_min] = counts
    likelihood = Likelihood(family, d_min, d_max)
    law = likelihood.maximise(histogram)
    value = log_likelihood(law, degrees, counts)
    distance = ks_distance(law, histogram)
    p_value = bootstrap(likelihood, law, distance, int(counts.sum()), seed, replicates) if replicates else None
    return Fit(family, law.exponent, law.cutoff, d_min, d_max, value, 2 * parameters - 2 * value, distance, p_value)


def log_likelihood(law: Law, degrees: np.ndarray, counts: np.ndarray) -> float:
    """Sum over the vertices of log p(degree)."""
    return float((counts * law.log_mass[degrees - law.d_min]).sum())


def ks_distance(law: Law, histogram: np.ndarray) -> float:
    """The largest |F_empirical(d) - F_law(d)| over the support; `histogram` counts each degree of it."""
    empirical = np.cumsum(histogram)
    return float(np.abs(empirical / empirical[-1] - law.cumulative).max())


def bootstrap(likelihood: "Likelihood", law: Law, distance: float, vertices: int, seed: int, replicates: int) -> float:
    """The p-value of a KS distance under `law`; the parameters are fitted anew to every sample."""
    as_large = 0
    for replicate in range(replicates):
        key = stream(seed, purpose(f"bootstrap: {law.family}"), law.d_max, replicate)
        generator = np.random.Generator(np.random.Philox(key=key))
        sample = law.sample(vertices, generator)
        as_large += ks_distance(likelihood.maximise(sample, law.eta), sample) >= distance
    return (1 + as_large) / (1 + replicates)


class Likelihood:
    """The likelihood of one family on one support, ready to be maximised for many histograms."""

    def __init__(self, family: str, d_min: int, d_max: int) -> None:
        self.family: Family = FAMILIES[family]
        self.d_min, self.d_max = d_min, d_max
        degrees = support(d_min, d_max)
        self.base = self.family.base(degrees)
        rows = self.family.statistics(degrees)
        self.scale = rows.std(axis=1, keepdims=True)
        self.rows = rows / self.scale

    def maximise(self, histogram: np.ndarray, start: tuple[float, ...] | None = None) -> Law:
        """The law with the highest likelihood for a histogram, int64 (S,): the count of each degree of the support.

        If the last natural parameter must not be positive, but the unconstrained maximum has it positive, then by
        concavity the maximum has it at zero, and the others are fitted alone. If the maximum lies at infinity, as for
        a histogram of two neighbouring degrees, the steps end when they gain almost nothing.
        """
        at = np.flatnonzero(histogram)
        target = (self.rows[:, at] * histogram[at]).sum(axis=1) / histogram.sum()
        eta = np.zeros(len(target)) if start is None else np.asarray(start) * self.scale[:, 0]
        eta = self._newton(target, eta)
        if self.family.curbed and eta[-1] >= 0:
            eta = np.append(self._newton(target[:-1], eta[:-1]) if len(eta) > 1 else [], 0.0)
        return Law(self.family.name, tuple(float(e) for e in eta / self.scale[:, 0]), self.d_min, self.d_max)

    def _newton(self, target: np.ndarray, eta: np.ndarray) -> np.ndarray:
        """Solve E[T] = target over the first len(target) statistics, in units of their scale."""
        rows = self.rows[: len(target)] - target[:, None]
        log_z, mean, covariance = self._moments(rows, eta)
        for _ in range(STEPS):
            covariance = covariance + np.eye(len(eta)) * (1e-13 * np.trace(covariance) + 1e-300)
            step = np.linalg.solve(covariance, -mean)
            gain, length = float(-mean @ step), 1.0
            if gain < TOLERANCE:
                break
            while length > 1e-9:
                moved = self._moments(rows, eta + length * step)
                if moved[0] <= log_z - 0.1 * length * gain:
                    break
                length /= 2
            else:
                break
            eta, (log_z, mean, covariance) = eta + length * step, moved
        return eta

    def _moments(self, rows: np.ndarray, eta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """log Z, and the mean and covariance of T minus its target; the mean is minus the slope of the likelihood."""
        exponent = self.base.copy()
        for value, row in zip(eta, rows, strict=True):
            exponent += value * row
        top = exponent.max()
        weight = np.exp(exponent - top, out=exponent)
        total = weight.sum()
        weighted = [weight * row for row in rows]
        mean = np.array([part.sum() for part in weighted]) / total
        second = np.empty((len(rows), len(rows)))
        for j, part in enumerate(weighted):
            for k in range(j + 1):
                second[j, k] = second[k, j] = (part * rows[k]).sum() / total
        return float(np.log(total) + top), mean, second - np.outer(mean, mean)
