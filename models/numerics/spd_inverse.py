"""The inverse of a large symmetric positive definite matrix, in place, with the same bits on any number of threads.

LAPACK's potrf and potri change their last bits with the number of threads, and OpenBLAS 0.3.30 crashes in a
multi-threaded float32 potrf of some 33,000 rows. Here the matrix is cut into fixed tiles. Pivot tiles are
eliminated one after the other (the sweep operator, in blocks): with P the inverse of the pivot tile A_kk,
by Cholesky,

    A_ij <- A_ij - A_ik P A_kj,    A_ik <- A_ik P,    A_kk <- -P        (i, j != k)

After the last step A holds minus its inverse. Each pivot is a Schur complement of the matrix, so that its Cholesky
factor exists exactly if that of the whole matrix does. The arithmetic is that of potrf + potri, n^3 floating-point
operations, nearly all of them in products of tiles. A product runs on one BLAS thread, and different tiles run on
different threads.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import get_num_threads
from scipy.linalg import lapack

from oneclass.models.numerics.threads import single_threaded_blas

TILE = 768


def work_bytes(size: int) -> int:
    """Return the bytes that `invert_lower` takes beside a matrix of `size` rows, on one thread."""
    tile = min(TILE, size)
    return 4 * tile * (2 * size + 3 * tile)  # a thread's scratch, the inverse of the pivot, and a copy of it


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
    with single_threaded_blas(), ThreadPoolExecutor(get_num_threads()) as pool:
        tiles = _Tiles(matrix, blocks, pool)
        for pivot in blocks:
            tiles.eliminate(pivot)
        list(pool.map(lambda at: np.negative(matrix[at], out=matrix[at]), tiles.lower))


class _Scratch(threading.local):
    """Room for one tile; each thread has its own."""

    def __init__(self, numbers: int) -> None:
        self.numbers = np.empty(numbers, dtype=np.float32)


class _Tiles:
    """The matrix cut into tiles, with work space for a column of tiles A_ik and their products with P."""

    def __init__(self, matrix: np.ndarray, blocks: list[slice], pool: ThreadPoolExecutor) -> None:
        self.matrix, self.blocks, self.pool = matrix, blocks, pool
        self.lower = [(rows, columns) for rows in blocks for columns in blocks if columns.start <= rows.start]
        self.work = np.empty((2, len(matrix), blocks[0].stop), dtype=np.float32)
        self.scratch = _Scratch(blocks[0].stop ** 2)

    def eliminate(self, pivot: slice) -> None:
        column, product = self.work[:, :, : pivot.stop - pivot.start]
        inverse = _inverse(self.matrix[pivot, pivot])

        def multiply(rows: slice) -> None:
            below = rows.start > pivot.start
            column[rows] = self.matrix[rows, pivot] if below else self.matrix[pivot, rows].T
            np.matmul(column[rows], inverse, out=product[rows])
            if below:
                self.matrix[rows, pivot] = product[rows]
            else:
                self.matrix[pivot, rows] = product[rows].T

        def subtract(at: tuple[slice, slice]) -> None:
            rows, columns = at
            target = self.matrix[at]
            part = self.scratch.numbers[: target.size].reshape(target.shape)
            np.matmul(product[rows], column[columns].T, out=part)
            np.subtract(target, part, out=target)

        list(self.pool.map(multiply, [rows for rows in self.blocks if rows != pivot]))
        list(self.pool.map(subtract, [at for at in self.lower if pivot not in at]))
        self.matrix[pivot, pivot] = -inverse


def _inverse(tile: np.ndarray) -> np.ndarray:
    """The whole inverse of a tile; only its lower triangle is read."""
    factor, info = lapack.spotrf(np.asfortranarray(tile), lower=1, overwrite_a=1)
    if info > 0:
        raise ValueError("the matrix to invert is not positive definite in float32: raise l2")
    inverse, _ = lapack.spotri(factor, lower=1, overwrite_c=1)
    return np.tril(inverse) + np.tril(inverse, -1).T
