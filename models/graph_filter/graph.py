"""The normalised graph W = D_u^-a R D_i^-b, products of S = W'W with blocks of items, and its top singular vectors.

S z is two sparse products by the graph; where a filter of all items is made from many edges, S itself is formed first,
which takes fewer operations than so many walks over the edges.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numba import get_num_threads
from scipy.sparse import csr_matrix

from oneclass.models.numerics.column_moments import exact_degree_weights
from oneclass.models.numerics.gram import lower_gram
from oneclass.models.numerics.gram_inverse import mirror_lower
from oneclass.models.numerics.matmul import TILE, SparseTable, gram_times_vector, sparse_table, tall_times
from oneclass.models.numerics.random_numbers import normals, purpose
from oneclass.models.numerics.threads import single_threaded_blas

COLUMNS = TILE  # of a block that goes through the graph at a time: a row of it is four cache lines
WIDE = 1024  # columns of a block that is multiplied by the formed S, and rows of S of one BLAS call
CHUNK = 8192  # rows whose products are added up at a time, in float64
NULL = 1e-5  # an eigenvalue of S below this share of the largest is zero in float32
OVERSAMPLING = 16  # vectors that the iteration carries beside the wanted ones


@dataclass(frozen=True)
class NormalizedGraph:
    """W, float32, in both orders.

    Attributes:
        of_users: (users, items) CSR, W.
        of_items: (items, users) CSR, W'.
        columns: of a block that `multiply` takes best.
    """

    of_users: csr_matrix
    of_items: csr_matrix
    columns: ClassVar[int] = COLUMNS

    @classmethod
    def of(cls, edges: csr_matrix, user_exponent: float, item_exponent: float) -> Self:
        """D_u^-user_exponent R D_i^-item_exponent; R is the (users, items) matrix, read as zeros and ones."""
        degrees = np.diff(edges.indptr)
        of_user = degree_powers(degrees, -user_exponent)
        of_item = degree_powers(np.bincount(edges.indices, minlength=edges.shape[1]), -item_exponent)
        values = np.repeat(of_user, degrees) * of_item[edges.indices]
        whole = csr_matrix((values, edges.indices, edges.indptr), shape=edges.shape)
        return cls(whole, whole.T.tocsr())

    def over(self, eigenvalue: float) -> Self:
        """The graph with S divided by a number."""
        factor = np.float32(eigenvalue**-0.5)
        return type(self)(self.of_users * factor, self.of_items * factor)

    def multiply(self, block: np.ndarray) -> np.ndarray:
        """S z, float32 (items, width), for a block z of that shape."""
        if block.shape[1] == 1:
            return gram_times_vector(*self.tables, block[:, 0])[:, None]
        return tall_times(self.of_items, tall_times(self.of_users, block))

    @functools.cached_property
    def tables(self) -> tuple[SparseTable, SparseTable]:
        """W and W' as kernels take them."""
        return sparse_table(self.of_users), sparse_table(self.of_items)


@dataclass(frozen=True)
class DenseSquare:
    """S itself. Its bits, and those of its products, depend on no number of threads.

    Attributes:
        matrix: float32 (items, items).
        columns: of a block that `multiply` takes best.
    """

    matrix: np.ndarray
    columns: ClassVar[int] = WIDE

    @classmethod
    def of(cls, pattern: csr_matrix, user_exponent: float, item_exponent: float) -> Self:
        """The square of `NormalizedGraph.of` these, summed in float64; the matrix is read as zeros and ones."""
        items = pattern.shape[1]
        of_users = exact_degree_weights(np.diff(pattern.indptr), 2 * user_exponent)
        of_items = degree_powers(np.bincount(pattern.indices, minlength=items), -item_exponent)
        matrix = lower_gram(pattern, of_users, np.zeros(items), of_items)
        mirror_lower(matrix)
        return cls(matrix)

    def over(self, eigenvalue: float) -> Self:
        """S divided by a number, in place."""
        np.multiply(self.matrix, np.float32(1 / eigenvalue), out=self.matrix)
        return self

    def multiply(self, block: np.ndarray) -> np.ndarray:
        """S z, float32 (items, width), for a block z of that shape."""
        out = np.empty_like(block)

        def multiply(start: int) -> None:
            np.matmul(self.matrix[start : start + WIDE], block, out=out[start : start + WIDE])

        self._map_rows(multiply)
        return out

    def sharpen(self, time: float) -> np.ndarray:
        """S - h S^2 for h = time, float32 (items, items), by half of its products, since it is symmetric."""
        out = self.matrix.copy()
        if not time:
            return out

        def subtract(start: int) -> None:
            stop = start + WIDE
            out[start:stop, :stop] -= np.float32(time) * (self.matrix[start:stop] @ self.matrix[:, :stop])

        self._map_rows(subtract)
        mirror_lower(out)
        return out

    def _map_rows(self, work: Callable[[int], None]) -> None:
        """Call a function with the first of every WIDE rows, the last ones before the others."""
        with single_threaded_blas(), ThreadPoolExecutor(get_num_threads()) as pool:
            list(pool.map(work, reversed(range(0, len(self.matrix), WIDE))))


def degree_powers(degrees: np.ndarray, exponent: float) -> np.ndarray:
    """degree^exponent, float32; 0 for a vertex without an edge."""
    found = np.zeros(len(degrees), dtype=np.float32)
    active = degrees > 0
    found[active] = degrees[active].astype(np.float64) ** exponent
    return found


def top_eigenvectors(
    graph: NormalizedGraph | DenseSquare, shape: tuple[int, int], count: int, passes: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of S and their eigenvectors, which are the right singular vectors of W.

    Randomized subspace iteration, Halko, Martinsson and Tropp, "Finding structure with randomness", 2011, algorithm
    4.4: normal starts, keyed by seed and item, go through S again and again, and are made orthogonal after each pass.
    With BLAS on one thread, its bits do not depend on the number of kernel threads.

    Args:
        shape: (users, items).
        count: vectors wanted; there are fewer where the rank of W is lower.
        passes: products with S; each turns the wanted vectors towards the top by the ratio of their eigenvalues to that
            of the last of the OVERSAMPLING more that are iterated.

    Returns:
        eigenvalues, float64 (count,), the largest first, and eigenvectors, float32 (items, count).
    """
    width = min(count + OVERSAMPLING, *shape)
    basis = normals(seed, purpose("graph_filter vectors"), shape[1], width)
    values = np.zeros(0)
    for _ in range(passes):
        for start in range(0, width, graph.columns):
            some = slice(start, start + graph.columns)
            basis[:, some] = graph.multiply(np.ascontiguousarray(basis[:, some]))
        values, basis = _orthogonalize(basis)
        width = len(values)
    return values[:count], np.ascontiguousarray(basis[:, :count])


def _orthogonalize(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values and left singular vectors of a tall block, those of a null direction left out.

    By the eigenvectors of its Gram matrix, the sums of which are in float64: that is far cheaper than a QR of so tall a
    block. If the block is S times orthonormal columns, the singular values approach S's eigenvalues.
    """
    gram = np.zeros((block.shape[1],) * 2)
    for start in range(0, len(block), CHUNK):
        rows = block[start : start + CHUNK].astype(np.float64)
        gram += rows.T @ rows
    squares, rotation = np.linalg.eigh(gram)
    values = np.sqrt(np.maximum(squares[::-1], 0))
    kept = values > NULL * values[0]
    turn = rotation[:, ::-1][:, kept] / values[kept]
    return values[kept], block @ turn.astype(np.float32)
