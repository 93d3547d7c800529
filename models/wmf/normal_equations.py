"""The linear systems of one side of weighted matrix factorization, users or items, and its half of a pass."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numba import get_num_threads
from scipy.sparse import csr_matrix

from oneclass.models.numerics.adjacency import as_read_only, partition_evenly, partition_rows
from oneclass.models.numerics.random_numbers import normals, purpose
from oneclass.models.numerics.simd import aligned_zeros, pad_width
from oneclass.models.numerics.threads import single_threaded_blas
from oneclass.models.numerics.validation import row_sums
from oneclass.models.wmf.kernels import solve_rows

NUM_ROW_PARTS = 64  # parts of the rows, distributed over the threads
GRAM_PARTS = 16  # parts of the rows, whose Gram matrices are added in order


@dataclass(frozen=True)
class Loss:
    """The loss of `models.wmf.model`, with the weight w of the pair's user and the target p of the pair, 1 by default.

    sum_S w (u'v - p)^2 + unobserved sum_all w (u'v)^2
        + regularization (sum_users w (d + unobserved items) |u|^2
                          + sum_items (sum_S w + unobserved sum_users w) |v|^2)

    Attributes:
        unobserved: weight of every pair, observed or not.
        regularization: lambda of a row's penalty.
        has_targets: whether the values of the matrix are p, and not counts.
    """

    unobserved: float
    regularization: float
    has_targets: bool = False

    def terms(self, matrix: csr_matrix, others: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """w and w p of every edge, float64; w is the weight of its column's vertex, 1 where `others` is None."""
        squares = np.ones(matrix.nnz) if others is None else others[matrix.indices]
        return squares, squares * matrix.data if self.has_targets else squares

    def constant(self, matrix: csr_matrix, own: np.ndarray | None, others: np.ndarray | None) -> float:
        """The part that does not depend on the factors; arguments as for `RowSystems`."""
        of_edges = self.terms(matrix, others)[1]
        of_rows = row_sums(matrix.indptr, of_edges * matrix.data if self.has_targets else of_edges)
        return float(np.sum(of_rows if own is None else own * of_rows))


class RowSystems:
    """The linear systems of one side, users or items: one system for each row of a (rows, others) CSR matrix.

    A row's own weight does not change the row's solution, so unseen users need no weight.
    """

    def __init__(self, matrix: csr_matrix, loss: Loss, own: np.ndarray | None, others: np.ndarray | None) -> None:
        """`own` and `others` are float64 weights of the own rows and of the other side's; None for weights of one."""
        self.unobserved = loss.unobserved
        self.own = own
        self.others = None if others is None else as_read_only(others, np.float32)
        squares, pulls = loss.terms(matrix, others)
        of_rows, all_others = matrix.indptr[1:] - matrix.indptr[:-1], float(matrix.shape[1])
        if others is not None:
            of_rows, all_others = row_sums(matrix.indptr, others[matrix.indices]), others.sum()
        edges = as_read_only(matrix.indptr, np.int64), as_read_only(matrix.indices, np.int32)
        self.graph = *edges, as_read_only(squares, np.float32), as_read_only(pulls, np.float32)  # as kernels take it
        self.penalties = as_read_only(loss.regularization * (of_rows + loss.unobserved * all_others), np.float32)

    def solve(
        self, own: np.ndarray, other: np.ndarray, factors: int, steps: int, gram: np.ndarray | None = None
    ) -> float:
        """Solve every row of the table `own` while `other` is fixed; a row without an edge becomes zero.

        Args:
            steps: of conjugate gradients from the old row, at most.
            gram: `gram(other, factors)`, where it is known.

        Returns:
            The loss without its constant and without the penalty of the other side.

        Raises:
            ValueError: a factor is not finite.
        """
        width = int(pad_width(factors))
        gram = self.gram(other, factors) if gram is None else gram
        values = np.zeros(len(self.penalties))
        solve_rows(own, other, gram, self.graph, self.penalties, width, self._partition_rows(width), steps, values)
        if not np.isfinite(values).all():
            raise ValueError("wmf: the equations of a row cannot be solved in float32; raise regularization")
        return float((values if self.own is None else self.own * values).sum())

    def penalty(self, own: np.ndarray, factors: int) -> float:
        """The penalty of this side's factors in the loss."""
        squares = np.square(factor_view(own, factors)).sum(axis=1, dtype=np.float64)
        return float(np.sum((squares if self.own is None else squares * self.own) * self.penalties))

    def gram(self, other: np.ndarray, factors: int) -> np.ndarray:
        """w0 G, float32 (width^2,): the Gram matrix of the other side by its weights, summed in a fixed order."""
        rows = other.reshape(-1, int(pad_width(factors)))[:-1]  # a table ends in a row of zeros
        weighted = rows if self.others is None else rows * self.others[:, None]
        bounds = pairwise(partition_evenly(len(rows), GRAM_PARTS).tolist())
        with single_threaded_blas(), ThreadPoolExecutor(get_num_threads()) as pool:
            parts = pool.map(lambda some: weighted[slice(*some)].T @ rows[slice(*some)], bounds)
            return sum(parts, np.zeros((rows.shape[1],) * 2, np.float32)).reshape(-1) * np.float32(self.unobserved)

    def _partition_rows(self, width: int) -> np.ndarray:
        """Return bounds, int64, of at most NUM_ROW_PARTS runs of rows of about equal cost.

        A row costs about as much as width / 2 edges. No run is empty: each takes the time to clear its scratch arrays,
        which for one user is most of it.
        """
        if len(self.penalties) == 1:  # folding in one user, for whom partitioning would take as long as the solution
            return np.arange(2)
        return np.unique(partition_rows(self.graph[0], NUM_ROW_PARTS, width // 2))


def draw_factor_table(count: int, factors: int, scale: float, seed: int, name: str) -> np.ndarray:
    """A table of normal factors with standard deviation scale / sqrt(K), in the layout of the kernels."""
    table = empty_table(count, factors)
    factor_view(table, factors)[:] = normals(seed, purpose(name), count, factors) * np.float32(scale / np.sqrt(factors))
    return table


def empty_table(count: int, factors: int) -> np.ndarray:
    """A table of zeros, float32: `count` rows, each filled up to a multiple of F32_WIDTH, and one more row."""
    return aligned_zeros((count + 1) * int(pad_width(factors)))


def factor_view(table: np.ndarray, factors: int) -> np.ndarray:
    """The factors in a table, a float32 view (rows, K)."""
    return table.reshape(-1, int(pad_width(factors)))[:-1, :factors]
