"""A long support of degrees in few cells, so that sums over it cost the same however long it is.

The first degrees are cells of one. Beyond them a cell is a sixteenth as wide as it is far from the smallest degree, and
a sum over it is taken at eight nodes: those of the Gauss quadrature for sums over equidistant points, whose orthogonal
polynomials are the discrete Chebyshev polynomials (Golub and Welsch 1969). It is exact for polynomials of degree 15,
and what a law has so far from its smallest degree is smooth on that scale, or nothing: of three million degrees the
shares agree with the whole sums to 1e-11 (`tests/models/degrees/test_degree_fits.py`).
"""

import numpy as np

from oneclass.models.degrees.distributions import Distribution, support

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
