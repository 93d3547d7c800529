"""The linear systems of one side of weighted matrix factorization, users or items, and its half of a pass."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.attributes.prior_means import PriorMeans
from oneclass.models.numerics.matmul import as_read_only
from oneclass.models.numerics.partition import partition_rows
from oneclass.models.numerics.random_numbers import purpose
from oneclass.models.numerics.simd import aligned_zeros, pad_width
from oneclass.models.numerics.validation import row_sums
from oneclass.models.wmf.kernels import PARTS, conjugate_gradient, draw_factors, gram_parts, solve_exactly, sum_squares


def merge_explicit_negatives(
    interactions: csr_matrix, explicit_negatives: csr_matrix | None, weight: float
) -> tuple[csr_matrix, np.ndarray | None]:
    """Merge likes and explicit negatives into the pairs of S and their targets.

    Args:
        interactions: (users, items) CSR, sorted columns, the likes.
        explicit_negatives: CSR of that shape, sorted columns, disjoint from the likes; None if the log has none.
        weight: p of explicit negatives.

    Returns:
        (users, items) CSR with sorted columns, whose values are the targets, and these, float64 (pairs,); the likes
        themselves and None without explicit negatives.

    Raises:
        ValueError: the shapes differ, or a pair is in both matrices.
    """
    if not weight or explicit_negatives is None or not explicit_negatives.nnz:
        return interactions, None
    if explicit_negatives.shape != interactions.shape:
        raise ValueError(
            f"explicit negatives: the shape {explicit_negatives.shape} beside likes of the shape {interactions.shape}"
        )
    likes, others = (
        csr_matrix((np.full(pairs.nnz, value), pairs.indices, pairs.indptr), shape=pairs.shape)
        for pairs, value in ((interactions, 1.0), (explicit_negatives, weight))
    )
    both = likes + others
    if both.nnz < likes.nnz + others.nnz:
        raise ValueError(
            f"explicit negatives: {likes.nnz + others.nnz - both.nnz} pairs are likes too; leave them out of one"
        )
    both.sort_indices()
    return both, both.data


NUM_ROW_PARTS = 64  # parts of the rows, distributed over the threads


@dataclass(frozen=True)
class Loss:
    """The loss of `models.wmf.model`, in one form for both kinds.

    sum_S w (a (u'v)^2 - 2 (base + a) p u'v + (base + a) p^2) + unobserved sum_all w (u'v)^2
        + regularization (sum_users w (d + unobserved items)^exponent |u|^2
                          + sum_items (sum_S w + unobserved sum_users w)^exponent |v|^2)

    with w the weight of the pair's user, d the user's degree, and p = 1 but with `targets`.

    Attributes:
        unobserved: weight of every pair, observed or not.
        base: 1 for hu2008, where an observed pair has the weight 1 + a; 0 for rendle2021.
        alpha: a = alpha count^count_power; if it is 0, a = 1.
        regularization, exponent: lambda and nu of a row's penalty.
        targets: whether the values of the matrix are p, and not counts.
        count_power: of the counts in a.
    """

    unobserved: float
    base: float
    alpha: float
    regularization: float
    exponent: float
    targets: bool = False
    count_power: float = 1.0

    def terms(self, matrix: csr_matrix, others: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """w a and w (base + a) p of every edge, float64; w is the weight of its column's vertex, 1 where `others` is
        None.
        """
        squares = np.ones(matrix.nnz)
        if self.alpha > 0:
            counts = matrix.data.astype(np.float64)
            squares = self.alpha * (counts if self.count_power == 1 else counts**self.count_power)
        pulls = self.base + squares
        if self.targets:
            pulls *= matrix.data
        if others is None:
            return squares, pulls
        of_entries = others[matrix.indices]
        return of_entries * squares, of_entries * pulls

    def constant(self, matrix: csr_matrix, own: np.ndarray | None, others: np.ndarray | None) -> float:
        """The part that does not depend on the factors; arguments as for `RowSystems`."""
        of_edges = self.terms(matrix, others)[1]
        of_rows = row_sums(matrix.indptr, of_edges * matrix.data if self.targets else of_edges)
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
        self.graph = _make_graph(matrix.indptr, matrix.indices, squares, pulls)
        penalties = loss.regularization * (of_rows + loss.unobserved * all_others) ** loss.exponent
        self.penalties = as_read_only(penalties, np.float32)
        self._with_priors: tuple[np.ndarray, ...] | None = None

    def solve(
        self,
        own: np.ndarray,
        other: np.ndarray,
        factors: int,
        steps: int,
        gram: np.ndarray | None = None,
        means: np.ndarray | None = None,
    ) -> float:
        """Solve every row of the table `own` while `other` is fixed; a row without an edge becomes zero.

        Args:
            steps: of conjugate gradients from the old row; 0 for the exact solution.
            gram: `gram(other, factors)`, where it is known.
            means: float32 (rows, K), the prior means m, by which y gains ridge m; zeros by default.

        Returns:
            The loss without its constant and without the penalty of the other side.

        Raises:
            ValueError: a system of equations is not positive definite in float32, or a factor is not finite.
        """
        width = int(pad_width(factors))
        gram = self.gram(other, factors) if gram is None else gram
        values, graph = np.zeros(len(self.penalties)), self.graph
        if means is not None:
            graph, other = self._graph_with_priors(len(other) // width - 1), _append_rows(other, means, width)
        common = (own, other, gram, graph, self.penalties, width, self._partition_rows(width))
        if steps > 0:
            conjugate_gradient(*common, steps, values)
        else:
            solve_exactly(*common, values)
        if not np.isfinite(values).all():
            raise ValueError("wmf: the equations of a row cannot be solved in float32; raise regularization")
        if means is not None:
            values += self.penalties * np.square(means).sum(axis=1, dtype=np.float64)
        return float((values if self.own is None else self.own * values).sum())

    @property
    def has_edges(self) -> np.ndarray:
        """Whether each row has an edge, bool (rows,)."""
        return np.diff(self.graph[0]) > 0

    def prior_means(self, features: csr_matrix | None, regularization: float, factors: int) -> PriorMeans | None:
        """Return the prior means of the rows with edges; the square of their map weighs `regularization` mean rows."""
        if features is None:
            return None
        weights, used = self.penalties.astype(np.float64) * (1 if self.own is None else self.own), self.has_edges
        return PriorMeans(features, used, weights, regularization * float(weights[used].mean()), factors)

    def penalty(self, own: np.ndarray, factors: int, means: np.ndarray | None = None) -> float:
        """The penalty of this side's factors in the loss."""
        squares = np.empty(len(self.penalties))
        if means is None:
            sum_squares(own, int(pad_width(factors)), squares)
        else:
            squares[:] = np.square(factor_view(own, factors) - means).sum(axis=1, dtype=np.float64)
        return float(np.sum((squares if self.own is None else squares * self.own) * self.penalties))

    def gram(self, other: np.ndarray, factors: int) -> np.ndarray:
        """w0 G, float32 (width^2,): the Gram matrix of the other side by its weights, summed in a fixed order."""
        width = int(pad_width(factors))
        count, weighted = len(other) // width - 1, other  # a table ends in a row of zeros
        if self.others is not None and (self.others != 1).any():
            weighted = (other[: count * width].reshape(count, width) * self.others[:, None]).reshape(-1)
        parts = np.zeros((PARTS, width * width), dtype=np.float32)
        gram_parts(weighted, other, count, width, parts)
        upper = np.triu(parts.sum(axis=0).reshape(width, width))
        return (upper + np.triu(upper, 1).T).reshape(-1) * np.float32(self.unobserved)

    def _graph_with_priors(self, others: int) -> tuple[np.ndarray, ...]:
        """The graph in which each row with edges has one more, with a = 0 and y = ridge, to its prior mean.

        The means are rows of the other side's table, behind its own `others` rows.
        """
        if self._with_priors is None:
            indptr, indices, squares, pulls = self.graph
            rows, ends = np.flatnonzero(self.has_edges), indptr[1:][self.has_edges]
            self._with_priors = _make_graph(
                indptr + np.concatenate([[0], np.cumsum(self.has_edges)]),
                np.insert(indices, ends, others + rows),
                np.insert(squares, ends, 0),
                np.insert(pulls, ends, self.penalties[rows]),
            )
        return self._with_priors

    def _partition_rows(self, width: int) -> np.ndarray:
        """Bounds int64 of at most RUNS runs of rows with about equal cost; a row costs about as much as width / 2
        edges.

        None is empty: each takes the time to clear its scratch arrays, which for one user is most of it.
        """
        if len(self.penalties) == 1:  # folding in one user, for whom partitioning would take as long as the solution
            return np.arange(2)
        return np.unique(partition_rows(self.graph[0], NUM_ROW_PARTS, width // 2))


@dataclass
class FactorSide:
    """The users or the items of a fit.

    Attributes:
        systems: their equations.
        table: their factors, in the layout of the kernels.
        factors: K.
        prior: their prior means by attributes; None for zeros.
    """

    systems: RowSystems
    table: np.ndarray
    factors: int
    prior: PriorMeans | None

    @property
    def vectors(self) -> np.ndarray:
        """The factors, a float32 view (rows, K)."""
        return factor_view(self.table, self.factors)

    def update(self, other: "FactorSide", steps: int) -> float:
        """Fit the map of the attributes, then every row; returns the loss without its constant and the other side."""
        if self.prior is None:
            return self.systems.solve(self.table, other.table, self.factors, steps)
        self.prior.fit(self.vectors)
        value = self.systems.solve(self.table, other.table, self.factors, steps, means=self.prior.means)
        return value + self.prior.penalty()

    def penalty(self) -> float:
        """Return the terms of the loss that depend on this side alone."""
        if self.prior is None:
            return self.systems.penalty(self.table, self.factors)
        return self.systems.penalty(self.table, self.factors, self.prior.means) + self.prior.penalty()

    def finish(self, features: csr_matrix | None) -> tuple[np.ndarray, np.ndarray | None]:
        """Return copies of the factors, completed for rows without an edge by their map, and the map; float32."""
        vectors = self.vectors.copy()
        if self.prior is None or features is None:
            return vectors, None
        coefficients = self.prior.map_new_rows(vectors)
        without = ~self.systems.has_edges
        vectors[without] = features[without] @ coefficients
        return vectors, coefficients


def _make_graph(
    indptr: np.ndarray, indices: np.ndarray, squares: np.ndarray, pulls: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The edges as the kernels take them: indptr, indices, a_e and y_e."""
    edges = as_read_only(indptr, np.int64), as_read_only(indices, np.int32)
    return *edges, as_read_only(squares, np.float32), as_read_only(pulls, np.float32)


def _append_rows(table: np.ndarray, vectors: np.ndarray, width: int) -> np.ndarray:
    """A table with more rows, behind those it has."""
    count, factors = len(table) // width - 1, vectors.shape[1]
    longer = empty_table(count + len(vectors), factors)
    longer[: count * width] = table[: count * width]
    factor_view(longer, factors)[count:] = vectors
    return longer


def draw_factor_table(count: int, factors: int, scale: float, seed: int, name: str) -> np.ndarray:
    """A table of normal factors with standard deviation scale / sqrt(K), in the layout of the kernels."""
    table = empty_table(count, factors)
    rows = table.reshape(count + 1, -1)[:-1]
    draw_factors(seed, purpose(name), np.float32(scale / np.sqrt(factors)), factors, rows)
    return table


def empty_table(count: int, factors: int) -> np.ndarray:
    """A table of zeros, float32: `count` rows, each filled up to a multiple of LANES, and one more row."""
    return aligned_zeros((count + 1) * int(pad_width(factors)))


def factor_view(table: np.ndarray, factors: int) -> np.ndarray:
    """The factors in a table, a float32 view (rows, K)."""
    return table.reshape(-1, int(pad_width(factors)))[:-1, :factors]
