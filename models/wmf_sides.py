"""One side of weighted matrix factorization, users or items: its edges, its penalties, and its half of a sweep."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from models.products import read_only
from models.random_numbers import normals, purpose
from models.vector_lanes import padded, zeros
from models.wmf_kernels import PARTS, conjugate_gradient, gram_parts, solve_blocks

RUNS = 64  # runs of rows that threads take up


@dataclass(frozen=True)
class Loss:
    """What `models.wmf` minimizes, as the kernels see it.

    sum_S [a (u'v)^2 - 2 (base + a) u'v + (base + a)] + unobserved sum_all (u'v)^2 + sum_rows penalty |row|^2

    Attributes:
        unobserved: weight of every pair, observed or not.
        base: 1 where the weight of observed pairs comes on top of that of all, else 0.
        alpha: a = alpha count; 0 for a = 1.
        regularization, exponent: a row's penalty is regularization (d + unobserved other side)^exponent.
    """

    unobserved: float
    base: float
    alpha: float
    regularization: float
    exponent: float

    def edge_weights(self, counts: np.ndarray) -> np.ndarray:
        """a of every edge, float32."""
        return (self.alpha * counts if self.alpha > 0 else np.ones(len(counts))).astype(np.float32)


@dataclass(frozen=True)
class Solver:
    """How a row is solved: by `steps` conjugate gradients from where it is, or by blocks of factors.

    Attributes:
        steps: 0 for blocks.
        block: factors to a block, a multiple of LANES; all of them for the exact solution.
    """

    steps: int
    block: int


class Side:
    """The rows of a (rows, others) CSR matrix.

    Attributes:
        constant: the part of the loss that no factor changes.
    """

    def __init__(self, matrix: csr_matrix, loss: Loss) -> None:
        self.loss = loss
        of_entries = loss.edge_weights(matrix.data)
        self.graph = (read_only(matrix.indptr, np.int64), read_only(matrix.indices, np.int32),
                      read_only(of_entries, np.float32))
        self.constant = float(np.sum(loss.base + of_entries, dtype=np.float64))
        weights = np.diff(matrix.indptr) + loss.unobserved * matrix.shape[1]
        self.penalties = read_only(loss.regularization * weights**loss.exponent, np.float32)

    def start(self, factors: int, scale: float, seed: int, name: str) -> np.ndarray:
        """A table of normal factors of deviation scale / sqrt(K), laid out for the kernels."""
        table = empty_table(len(self.penalties), factors)
        draws = normals(seed, purpose(name), len(self.penalties), factors)
        rows(table, factors)[:] = draws * np.float32(scale / np.sqrt(factors))
        return table

    def solve(self, own: np.ndarray, other: np.ndarray, factors: int, solver: Solver) -> float:
        """Solve every row of the table `own` with `other` held.

        Returns:
            The loss less its constant and the other side's penalty.

        Raises:
            ValueError: a system of equations is not positive definite in float32, or a factor not finite.
        """
        width = int(padded(factors))
        gram = _gram(other, width) * np.float32(self.loss.unobserved)
        values = np.zeros(len(self.penalties))
        common = (own, other, gram, self.graph, self.penalties, np.float32(self.loss.base), width,
                  self._runs(width))
        if solver.steps > 0:
            conjugate_gradient(*common, solver.steps, values)
        else:
            solve_blocks(*common, min(solver.block, width), values)
        if not np.isfinite(values).all():
            raise ValueError("wmf: a row's equations cannot be solved in float32; raise regularization")
        return float(values.sum())

    def penalty(self, own: np.ndarray, factors: int) -> float:
        """What the side's own penalties add to the loss."""
        squares = np.square(rows(own, factors)).sum(axis=1, dtype=np.float64)
        return float(squares @ self.penalties)

    def _runs(self, width: int) -> np.ndarray:
        """Bounds int64 of RUNS runs of rows of about equal cost; a row costs about as much as width / 2 edges."""
        cost = self.graph[0] + np.arange(len(self.graph[0])) * (width // 2)
        bounds = np.searchsorted(cost, np.linspace(0, cost[-1], RUNS + 1))
        bounds[0], bounds[-1] = 0, len(cost) - 1
        return bounds.astype(np.int64)


def empty_table(count: int, factors: int) -> np.ndarray:
    """Zeros float32 for `count` rows, each filled up to a multiple of LANES, and one row of zeros behind them."""
    return zeros((count + 1) * int(padded(factors)))


def rows(table: np.ndarray, factors: int) -> np.ndarray:
    """The factors in a table, a float32 view (rows, K)."""
    return table.reshape(-1, int(padded(factors)))[:-1, :factors]


def _gram(table: np.ndarray, width: int) -> np.ndarray:
    """float32 (width^2,), the Gram matrix of the rows of a table, summed in a fixed order."""
    parts = np.zeros((PARTS, width * width), dtype=np.float32)
    gram_parts(table, len(table) // width - 1, width, parts)
    upper = np.triu(parts.sum(axis=0).reshape(width, width))
    return (upper + np.triu(upper, 1).T).reshape(-1)


