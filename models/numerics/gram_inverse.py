"""The inverse of the regularized Gram matrix of the items, computed over users or items, whichever are fewer.

With Y the weighted, centred and rescaled users x items matrix, C = (Y'Y + l2 I)^-1 is an inverse over items, and

    C = (I - Y' M Y) / l2,    M = (Y Y' + l2 I)^-1

has an inverse over users (the Woodbury identity). On a log of few users and many items this saves most of the n^3
operations, and the products with Y are cheap, because Y is sparse before it is centred. Centring subtracts from each
column of Y its projection on q, q_m = sqrt(w_m / n). With the uncentred Y and E = I - q q', the matrix
M = (E Y Y' E + l2 I)^-1 has the eigenvector q with the eigenvalue 1 / l2, so that Y'E M E Y = Y' (M - q q' / l2) Y.

`invert_lower` has the same bits on any number of threads. LAPACK's potrf and potri change their last bits with it, and
OpenBLAS 0.3.30 crashes in a multi-threaded float32 potrf of some 33,000 rows. Here the matrix is cut into fixed tiles.
Pivot tiles are eliminated one after the other (the sweep operator, in blocks): with P the inverse of the pivot tile
A_kk, by Cholesky,

    A_ij <- A_ij - A_ik P A_kj,    A_ik <- A_ik P,    A_kk <- -P        (i, j != k)

After the last step A holds minus its inverse. Each pivot is a Schur complement of the matrix, so that its Cholesky
factor exists exactly if that of the whole matrix does. The arithmetic is that of potrf + potri, n^3 floating-point
operations, nearly all of them in products of tiles. A product runs on one BLAS thread, and different tiles run on
different threads.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import get_num_threads
from scipy.linalg import lapack
from scipy.sparse import csr_matrix

from oneclass.models.numerics.column_moments import ColumnMoments, Rescaling
from oneclass.models.numerics.gram import lower_gram
from oneclass.models.numerics.matmul import pattern_times
from oneclass.models.numerics.threads import single_threaded_blas

# Invert over users if they are fewer than this share of the items: only then the products with Y pay.
MAX_USER_ITEM_RATIO = 0.9
BLOCK_ROWS = 1024  # columns of C that are filled at once, and rows of M that are mirrored
TILE = 768


def regularized_inverse(
    interactions: csr_matrix,
    moments: ColumnMoments,
    rescaled: Rescaling,
    l2: float,
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
        return _inverse_over_users(interactions[moments.weights > 0], moments, rescaled, l2)
    gram = lower_gram(interactions, moments.weights, rescaled.shift, rescaled.factor)
    gram.flat[:: len(gram) + 1] += np.float32(l2)
    invert_lower(gram)
    return gram


def _inverse_over_users(active: csr_matrix, moments: ColumnMoments, rescaled: Rescaling, l2: float) -> np.ndarray:
    """The same, from an inverse over users; each row of `active` has an edge."""
    root = np.sqrt(moments.weights[moments.weights > 0])
    values = np.repeat(root, np.diff(active.indptr)) * rescaled.factor[active.indices]
    y = csr_matrix((values, active.indices, active.indptr), shape=active.shape)
    matrix = lower_gram(active.T.tocsr(), rescaled.factor**2, np.zeros(len(root)), root)
    q = root * np.sqrt(moments.unit / moments.users)
    if rescaled.shift.any():
        along = y @ (y.T @ q)
        along -= q * (q @ along) / 2
        for rows in _iterate_blocks(len(q)):
            matrix[rows] -= (q[rows, None] * along + along[rows, None] * q).astype(np.float32)
    matrix.flat[:: len(matrix) + 1] += np.float32(l2)
    invert_lower(matrix)
    mirror_lower(matrix)
    if rescaled.shift.any():
        for rows in _iterate_blocks(len(q)):
            matrix[rows] -= (q[rows, None] * q / l2).astype(np.float32)
    return _back_to_items(y, matrix, l2)


def mirror_lower(matrix: np.ndarray) -> None:
    """Copy the lower triangle onto the upper one, a block of rows at a time."""
    for rows in _iterate_blocks(len(matrix)):
        on_diagonal = np.tril(matrix[rows, rows], -1)
        matrix[rows, rows] = np.tril(matrix[rows, rows]) + on_diagonal.T
        matrix[: rows.start, rows] = matrix[rows, : rows.start].T


def _back_to_items(y: csr_matrix, over_users: np.ndarray, l2: float) -> np.ndarray:
    """(I - Y' M Y) / l2 on and below the diagonal, a block of columns at a time."""
    of_items = csr_matrix(y.T, dtype=np.float32)
    of_items.sort_indices()
    out = np.empty((y.shape[1],) * 2, dtype=np.float32)
    for block in _iterate_blocks(len(out)):
        of_block = pattern_times(of_items[block], over_users, of_items[block].data)
        below = of_items[block.start :]
        np.divide(pattern_times(below, of_block.T, below.data), -l2, out=out[block.start :, block])
    out.flat[:: len(out) + 1] += np.float32(1 / l2)
    return out


def _iterate_blocks(size: int) -> Iterator[slice]:
    """Cut 0 .. `size` into blocks of BLOCK_ROWS."""
    return (slice(start, min(start + BLOCK_ROWS, size)) for start in range(0, size, BLOCK_ROWS))


def multiply_dense(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """L R, float32 (rows, columns), of float32 matrices; its bits do not depend on the number of threads."""
    out = np.empty((len(left), right.shape[1]), dtype=np.float32)
    with single_threaded_blas(), ThreadPoolExecutor(get_num_threads()) as pool:
        list(pool.map(lambda rows: np.matmul(left[rows], right, out=out[rows]), _iterate_blocks(len(left))))
    return out


def work_bytes(size: int) -> int:
    """Return the bytes that `invert_lower` takes beside a matrix of `size` rows, on one thread."""
    tile = min(TILE, size)
    return 4 * tile * (2 * size + 3 * tile)  # a thread's product, the inverse of the pivot, and a copy of it


def invert_lower(matrix: np.ndarray, tile: int = TILE) -> None:
    """Replace the lower triangle of a symmetric positive definite matrix by that of its inverse.

    The upper triangle is not read, and is overwritten with numbers of no meaning. Work space: 2 n `tile` numbers, and
    `tile`^2 for each thread.

    Args:
        matrix: float32 (n, n), C order.

    Raises:
        ValueError: the matrix is not positive definite in float32.
    """
    size = len(matrix)
    blocks = [slice(start, min(start + tile, size)) for start in range(0, size, tile)]
    lower = [(rows, columns) for rows in blocks for columns in blocks if columns.start <= rows.start]
    work = np.empty((2, size, blocks[0].stop), dtype=np.float32)
    with single_threaded_blas(), ThreadPoolExecutor(get_num_threads()) as pool:
        for pivot in blocks:
            _eliminate(matrix, pivot, blocks, lower, work, pool)
        list(pool.map(lambda at: np.negative(matrix[at], out=matrix[at]), lower))


def _eliminate(
    matrix: np.ndarray,
    pivot: slice,
    blocks: list[slice],
    lower: list[tuple[slice, slice]],
    work: np.ndarray,
    pool: ThreadPoolExecutor,
) -> None:
    """Eliminate a pivot tile; `work` has room for a column of tiles A_ik and for their products with P."""
    column, product = work[:, :, : pivot.stop - pivot.start]
    inverse = _inverse(matrix[pivot, pivot])

    def multiply(rows: slice) -> None:
        below = rows.start > pivot.start
        column[rows] = matrix[rows, pivot] if below else matrix[pivot, rows].T
        np.matmul(column[rows], inverse, out=product[rows])
        if below:
            matrix[rows, pivot] = product[rows]
        else:
            matrix[pivot, rows] = product[rows].T

    def subtract(at: tuple[slice, slice]) -> None:
        matrix[at] -= product[at[0]] @ column[at[1]].T

    list(pool.map(multiply, [rows for rows in blocks if rows != pivot]))
    list(pool.map(subtract, [at for at in lower if pivot not in at]))
    matrix[pivot, pivot] = -inverse


def _inverse(tile: np.ndarray) -> np.ndarray:
    """The whole inverse of a tile; only its lower triangle is read."""
    factor, info = lapack.spotrf(np.asfortranarray(tile), lower=1, overwrite_a=1)
    if info > 0:
        raise ValueError("the matrix to invert is not positive definite in float32: raise l2")
    inverse, _ = lapack.spotri(factor, lower=1, overwrite_c=1)
    return np.tril(inverse) + np.tril(inverse, -1).T
