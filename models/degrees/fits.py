"""Maximum-likelihood fits of the laws of `models.degrees.distributions`, and a test of how well they fit.

Everything is computed from the histogram of the degrees and from sums over cells of the support, so that the cost
depends neither on the number of edges nor, beyond some thousands, on the range of degrees. The first degrees are cells
of one. Beyond them a cell is a sixteenth as wide as it is far from the smallest degree, and a sum over it is taken at
eight nodes: those of the Gauss quadrature for sums over equidistant points, whose orthogonal polynomials are the
discrete Chebyshev polynomials (Golub and Welsch 1969). It is exact for polynomials of degree 15: of three million
degrees the shares agree with the whole sums to 1e-11 (`tests/models/degrees/test_degree_fits.py`).

The log-likelihood of an exponential family is concave in its natural parameters, and the means of T are sufficient
statistics, so that Newton's method with the exact covariance finds the maximum. The test of fit is that of Clauset,
Shalizi and Newman (2009, section 4): a parametric bootstrap of the Kolmogorov-Smirnov distance, in which the law is
fitted anew to every replicate.
"""

from dataclasses import dataclass

import numpy as np

from oneclass.models.degrees.distributions import FAMILIES, Distribution, Family, support
from oneclass.models.numerics.random_numbers import purpose, stream

SINGLE_CELLS = 8192  # degrees that are a cell each
NODES_PER_CELL = 8
CELL_WIDTH_RATIO = 16  # of the distance to the smallest degree, a cell's width


class Cells:
    """The cells of the support d_min .. d_max.

    Attributes:
        starts: int64 (C + 1,), the first degree of each cell, and d_max + 1.
        nodes: float64 (G,), where a summand is evaluated; whole degrees in the cells of one.
        weights: float64 (G,), what its value there counts; a cell's weights add up to the number of its degrees.
    """

    def __init__(self, d_min: int, d_max: int) -> None:
        self.d_min, self.d_max = d_min, d_max
        first = support(d_min, min(d_max, d_min + SINGLE_CELLS - 1))
        starts = [d_min + len(first)]
        while starts[-1] <= d_max:
            starts.append(min(d_max + 1, starts[-1] + (starts[-1] - d_min) // CELL_WIDTH_RATIO))
        blocks = [summation_nodes(starts[k], starts[k + 1] - starts[k]) for k in range(len(starts) - 1)]
        self.singles = len(first)
        self.starts = np.concatenate([first.astype(np.int64), starts])
        self.nodes = np.concatenate([first, *(nodes for nodes, _ in blocks)])
        self.weights = np.concatenate([np.ones(len(first)), *(weights for _, weights in blocks)])
        ends = np.cumsum([len(nodes) for nodes, _ in blocks], dtype=np.int64) + self.singles - 1
        self.ends = np.concatenate([np.arange(self.singles), ends])  # each cell's last node

    def cdf(self, law: Distribution) -> np.ndarray:
        """P(degree <= d) for the last degree of each cell, float64 (C,); the last is exactly one."""
        value = law.log_weights(self.nodes)
        value = value - np.log((self.weights * np.exp(value)).sum())
        total = np.cumsum(self.weights * np.exp(value))
        return np.minimum(total[self.ends] / total[-1], 1.0)

    def ks_distance(self, law: Distribution, degrees: np.ndarray, counts: np.ndarray) -> float:
        """The largest difference between the two distribution functions at the ends of the cells.

        That is the Kolmogorov-Smirnov distance where every cell is of one degree.

        Args:
            degrees, counts: int64 (D,), ascending, and how many vertices have each.
        """
        up_to = np.concatenate([[0], np.cumsum(counts)])
        empirical = up_to[np.searchsorted(degrees, self.starts[1:])]
        return float(np.abs(empirical / up_to[-1] - self.cdf(law)).max())

    def sample(self, law: Distribution, draws: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Independent draws from a law on this support: the degrees drawn, ascending, and how often each; int64 (D,).

        Many draws are one of the numbers of draws in each cell, and of degrees within the wide cells.
        """
        if self.singles == len(self.ends):
            histogram = law.sample(draws, generator)
            at = np.flatnonzero(histogram)
            return at + self.d_min, histogram[at]
        if draws <= len(self.ends):
            at = np.searchsorted(law.cdf, generator.random(draws), side="right")
            return np.unique(at + self.d_min, return_counts=True)
        up_to = np.concatenate([[0.0], self.cdf(law)])
        histogram = generator.multinomial(draws, np.diff(up_to))
        wide = np.repeat(np.arange(self.singles, len(self.ends)), histogram[self.singles :])
        chance = up_to[wide] + generator.random(len(wide)) * (up_to[wide + 1] - up_to[wide])
        drawn = np.searchsorted(law.cdf, chance, side="right") + self.d_min
        far, counts = np.unique(np.clip(drawn, self.starts[wide], self.starts[wide + 1] - 1), return_counts=True)
        near = np.flatnonzero(histogram[: self.singles])
        return np.concatenate([near + self.d_min, far]), np.concatenate([histogram[near], counts])


def summation_nodes(first: int, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights, float64, for the sum of a smooth function over `points` integers from `first` on.

    The nodes are the eigenvalues of the Jacobi matrix of the discrete Chebyshev polynomials, whose squared
    off-diagonals are k^2 (N^2 - k^2) / (4 (4 k^2 - 1)).
    """
    if points <= NODES_PER_CELL:
        return np.arange(first, first + points, dtype=np.float64), np.ones(points)
    k = np.arange(1, NODES_PER_CELL, dtype=np.float64)
    side = np.sqrt(k**2 * (float(points) ** 2 - k**2) / (4 * (4 * k**2 - 1)))
    values, vectors = np.linalg.eigh(np.diag(side, 1) + np.diag(side, -1))
    return first + (points - 1) / 2 + values, points * vectors[0] ** 2


BOOTSTRAP_REPLICATES = 99  # p-values come in steps of 1 / 100
MAX_NEWTON_STEPS = 200
NEWTON_TOLERANCE = 1e-11  # stop if another Newton step would gain less than this, in nats for each vertex


@dataclass(frozen=True)
class FittedDistribution:
    """A law fitted to one side's degrees.

    Attributes:
        exponent, cutoff: as `Law` defines them; None if infinite, or if all degrees are equal.
        log_likelihood: natural log, summed over the vertices.
        aic: 2 parameters - 2 log_likelihood.
        ks: the Kolmogorov-Smirnov distance, the largest difference between the two distribution functions.
        p_value: (1 + replicates with a distance at least as large) / (1 + replicates), the distances at the ends of
            cells; None if all degrees are equal, for then there is nothing to fit.
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


def fit_family(
    family: str, degrees: np.ndarray, counts: np.ndarray, d_max: int, seed: int = 0, replicates: int = 0
) -> FittedDistribution:
    """Fit one family, on the degrees from the smallest one in the data to `d_max`.

    Args:
        degrees: int64 (D,), ascending, at least one and at most `d_max`.
        counts: int64 (D,), positive: vertices of each degree.
        replicates: number of bootstrap samples for the p-value; with 0 there is no p-value.
    """
    d_min, parameters = int(degrees[0]), FAMILIES[family].parameters
    if len(degrees) == 1:  # the likelihood has no maximum: it grows towards a law with all mass on this degree
        return FittedDistribution(family, None, None, d_min, d_max, 0.0, 2.0 * parameters, 0.0, None)
    likelihood = Likelihood(family, d_min, d_max)
    law = likelihood.maximise(degrees, counts)
    value = float((counts * law.log_mass[degrees - law.d_min]).sum())
    distance = ks_distance(law, degrees, counts)
    p_value = bootstrap_p_value(likelihood, law, degrees, counts, seed, replicates) if replicates else None
    return FittedDistribution(
        family, law.exponent, law.cutoff, d_min, d_max, value, 2 * parameters - 2 * value, distance, p_value
    )


def ks_distance(law: Distribution, degrees: np.ndarray, counts: np.ndarray) -> float:
    """The largest |F_empirical(d) - F_law(d)| over the support, for int64 (D,) degrees, ascending, and their counts.

    F_empirical is level between two degrees, where F_law grows: the largest is at a degree, or just before the next.
    """
    up_to = np.concatenate([[0], np.cumsum(counts)]) / counts.sum()
    cumulative = np.concatenate([[0.0], law.cdf])  # of d_min - 1, d_min, ...
    at = np.abs(up_to[1:] - cumulative[degrees - law.d_min + 1])
    before_next = np.abs(up_to - cumulative[np.append(degrees, law.d_max + 1) - law.d_min])
    return float(max(at.max(), before_next.max()))


def bootstrap_p_value(
    likelihood: "Likelihood", law: Distribution, degrees: np.ndarray, counts: np.ndarray, seed: int, replicates: int
) -> float:
    """The p-value of the distance of degrees to their law; the parameters are fitted anew to every sample."""
    cells, vertices = likelihood.cells, int(counts.sum())
    distance, as_large = cells.ks_distance(law, degrees, counts), 0
    for replicate in range(replicates):
        key = stream(seed, purpose(f"bootstrap: {law.family}"), law.d_max, replicate)
        generator = np.random.Generator(np.random.Philox(key=key))
        sample = cells.sample(law, vertices, generator)
        as_large += cells.ks_distance(likelihood.maximise(*sample, law.eta), *sample) >= distance
    return (1 + as_large) / (1 + replicates)


class Likelihood:
    """The likelihood of one family on one support, ready to be maximised for many samples."""

    def __init__(self, family: str, d_min: int, d_max: int) -> None:
        self.family: Family = FAMILIES[family]
        self.cells = Cells(d_min, d_max)
        self.base = self.family.base(self.cells.nodes)
        rows = self.family.statistics(self.cells.nodes)
        self.scale = rows.std(axis=1, keepdims=True)
        self.rows = rows / self.scale

    def maximise(self, degrees: np.ndarray, counts: np.ndarray, start: tuple[float, ...] | None = None) -> Distribution:
        """The law with the highest likelihood for int64 (D,) degrees of the support, ascending, and their counts.

        If the last natural parameter must not be positive, but the unconstrained maximum has it positive, then by
        concavity the maximum has it at zero, and the others are fitted alone. If the maximum lies at infinity, as for
        two neighbouring degrees, the steps end when they gain almost nothing.
        """
        rows = self.family.statistics(degrees.astype(np.float64)) / self.scale
        target = (rows * counts).sum(axis=1) / counts.sum()
        eta = np.zeros(len(target)) if start is None else np.asarray(start) * self.scale[:, 0]
        eta = self._newton(target, eta)
        if self.family.last_parameter_nonpositive and eta[-1] >= 0:
            eta = np.append(self._newton(target[:-1], eta[:-1]) if len(eta) > 1 else [], 0.0)
        cells = self.cells
        return Distribution(self.family.name, tuple(float(e) for e in eta / self.scale[:, 0]), cells.d_min, cells.d_max)

    def _newton(self, target: np.ndarray, eta: np.ndarray) -> np.ndarray:
        """Solve E[T] = target over the first len(target) statistics, in units of their scale."""
        rows = self.rows[: len(target)] - target[:, None]
        log_z, mean, covariance = self._moments(rows, eta)
        for _ in range(MAX_NEWTON_STEPS):
            covariance = covariance + np.eye(len(eta)) * (1e-13 * np.trace(covariance) + 1e-300)
            step = np.linalg.solve(covariance, -mean)
            gain, length = float(-mean @ step), 1.0
            if gain < NEWTON_TOLERANCE:
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
        weight *= self.cells.weights
        total = weight.sum()
        weighted = [weight * row for row in rows]
        mean = np.array([part.sum() for part in weighted]) / total
        second = np.empty((len(rows), len(rows)))
        for j, part in enumerate(weighted):
            for k in range(j + 1):
                second[j, k] = second[k, j] = (part * rows[k]).sum() / total
        return float(np.log(total) + top), mean, second - np.outer(mean, mean)
