"""The inverse of the regularized Gram matrix of the items, computed over users or items, whichever are fewer.

With Y the weighted, centred and rescaled users x items matrix, C = (Y'Y + l2 I)^-1 is an inverse over items, and

    C = (I - Y' M Y) / l2,    M = (Y Y' + l2 I)^-1

has an inverse over users (the Woodbury identity). On a log of few users and many items this saves most of the n^3
operations, and the products with Y are cheap, because Y is sparse before it is centred. Centring subtracts from each
column of Y its projection on q, q_m = sqrt(w_m / n). With the uncentred Y and E = I - q q', the matrix
M = (E Y Y' E + l2 I)^-1 has the eigenvector q with the eigenvalue 1 / l2, so that Y'E M E Y = Y' (M - q q' / l2) Y.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.numerics.column_scaling import ColumnMoments, Rescaling
from oneclass.models.numerics.gram import lower_gram
from oneclass.models.numerics.matmul import pattern_times
from oneclass.models.numerics.spd_inverse import invert_lower
from oneclass.models.numerics.threads import kernel_threads

MAX_USER_ITEM_RATIO = (
    0.9  # invert over users if they are fewer than this share of the items: only then the products with Y pay
)
BLOCK_ROWS = 1024  # columns of C that are filled at once, and rows of M that are mirrored
STRIP_ROWS = 64  # rows of a smaller piece


def regularized_inverse(
    interactions: csr_matrix,
    moments: ColumnMoments,
    rescaled: Rescaling,
    l2: float,
    threads: int,
) -> np.ndarray:
    """The lower triangle of (Y'Y + l2 I)^-1; the numbers above the diagonal mean nothing.

    Args:
        interactions: (users, items) CSR, sorted columns, read as zeros and ones.
        moments: of `interactions`; its weights are those of the users.
        rescaled: the centring and rescaling of the columns.
        l2: the ridge penalty, above 0.

    Returns:
        float32 (items, items), C order. The bits do not depend on the number of threads.

    Raises:
        ValueError: the matrix to invert is not positive definite in float32.
    """
    if moments.users < MAX_USER_ITEM_RATIO * interactions.shape[1]:
        return _inverse_over_users(interactions[moments.weights > 0], moments, rescaled, l2, threads)
    gram = lower_gram(interactions, moments.weights, rescaled.shift, rescaled.factor, threads)
    return inverse_of_gram(gram, l2, threads)


def inverse_of_gram(gram: np.ndarray, l2: float, threads: int) -> np.ndarray:
    """The lower triangle of (Y'Y + l2 I)^-1 in the place of that of Y'Y, float32 (items, items).

    Raises:
        ValueError: the matrix to invert is not positive definite in float32.
    """
    gram.flat[:: len(gram) + 1] += np.float32(l2)
    invert_lower(gram, threads)
    return gram


def _inverse_over_users(
    active: csr_matrix, moments: ColumnMoments, rescaled: Rescaling, l2: float, threads: int
) -> np.ndarray:
    """The same, from an inverse over users; each row of `active` has an edge."""
    root = np.sqrt(moments.weights[moments.weights > 0])
    values = np.repeat(root, np.diff(active.indptr)) * rescaled.factor[active.indices]
    y = csr_matrix((values, active.indices, active.indptr), shape=active.shape)
    matrix = lower_gram(active.T.tocsr(), rescaled.factor**2, np.zeros(len(root)), root, threads)
    q = root * np.sqrt(moments.unit / moments.users)
    if rescaled.shift.any():
        along = y @ (y.T @ q)
        along -= q * (q @ along) / 2
        _add_to_rows(matrix, lambda rows: -q[rows, None] * along - along[rows, None] * q, threads)
    matrix.flat[:: len(matrix) + 1] += np.float32(l2)
    invert_lower(matrix, threads)
    mirror_lower(matrix, threads)
    if rescaled.shift.any():
        _add_to_rows(matrix, lambda rows: -q[rows, None] * q / l2, threads)
    return _back_to_items(y, matrix, l2, threads)


def _add_to_rows(matrix: np.ndarray, term: Callable[[slice], np.ndarray], threads: int) -> None:
    """matrix[rows] += term(rows), a block of rows at a time."""

    def add(rows: slice) -> None:
        matrix[rows] += term(rows).astype(np.float32)

    _map_blocks(add, len(matrix), STRIP_ROWS, threads)


def mirror_lower(matrix: np.ndarray, threads: int) -> None:
    """Copy the lower triangle onto the upper one, a block of rows at a time."""

    def copy(rows: slice) -> None:
        on_diagonal = np.tril(matrix[rows, rows], -1)
        matrix[rows, rows] = np.tril(matrix[rows, rows]) + on_diagonal.T
        matrix[: rows.start, rows] = matrix[rows, : rows.start].T

    _map_blocks(copy, len(matrix), BLOCK_ROWS, threads)


def _back_to_items(y: csr_matrix, over_users: np.ndarray, l2: float, threads: int) -> np.ndarray:
    """(I - Y' M Y) / l2 on and below the diagonal, a block of columns at a time."""
    of_items = csr_matrix(y.T, dtype=np.float32)
    of_items.sort_indices()
    out = np.empty((y.shape[1],) * 2, dtype=np.float32)
    for start in range(0, len(out), BLOCK_ROWS):
        block = slice(start, min(start + BLOCK_ROWS, len(out)))
        with kernel_threads(threads):
            below = _times(of_items[start:], _columns_as_rows(_times(of_items[block], over_users), threads))

        def fill(rows: slice, below: np.ndarray = below, target: np.ndarray = out[start:, block]) -> None:
            np.divide(below[rows], -l2, out=target[rows])

        _map_blocks(fill, len(below), BLOCK_ROWS, threads)
    out.flat[:: len(out) + 1] += np.float32(1 / l2)
    return out


def _times(rows: csr_matrix, table: np.ndarray) -> np.ndarray:
    """R T, float32, of a sparse R and a dense T."""
    return pattern_times(rows, table, rows.data)


def _columns_as_rows(table: np.ndarray, threads: int) -> np.ndarray:
    """The transpose of a dense table, copied into C order."""
    out = np.empty(table.shape[::-1], dtype=table.dtype)

    def copy(rows: slice) -> None:
        out[rows] = table[:, rows].T

    _map_blocks(copy, len(out), STRIP_ROWS, threads)
    return out


def _map_blocks(work: Callable[[slice], None], size: int, width: int, threads: int) -> None:
    """Cut 0 .. `size` into blocks of `width` and call `work` for each, in parallel on some threads."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, [slice(start, min(start + width, size)) for start in range(0, size, width)]))
