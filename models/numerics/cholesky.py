"""Small systems with a symmetric positive definite matrix, solved inside kernels, each by one thread.

The bits of fits depend on the order of the operations, so each form stays as it is. `solve` is for float64 systems of a
few tens of rows; `factorize` with `invert_last_columns` is for float32 matrices of up to a
thousand rows. The inverse of a large matrix is in `models.numerics.gram_inverse`.
"""

import numpy as np
from numba import njit

from oneclass.models.numerics.simd import (
    F32_WIDTH,
    ROWS,
    add_product,
    add_scaled,
    pad_width,
    scale,
)

STRICT = {"contract", "nsz"}


@njit(cache=True, fastmath=STRICT)
def factorize(matrix, size):
    """Replace the upper triangle of -A by the factor U of A = U'U; returns False if A is not positive definite.

    Works on ROWS rows at a time: first subtracts what the rows above contribute, in tiles, then factorizes these rows.
    """
    for first in range(0, size, ROWS):
        begin = first // F32_WIDTH * F32_WIDTH
        for lane in range(begin, size, F32_WIDTH):
            add_product(matrix, first * size + lane, size, matrix, first, 1, size, matrix, lane, size, first)
        for row in range(first, first + ROWS):
            for above in range(first, row):
                factor = matrix[above * size + row]
                add_scaled(matrix, row * size + begin, factor, matrix, above * size + begin, size - begin)
            pivot = -matrix[row * size + row]
            if not pivot > 0:
                return False
            factor = np.float32(-1) / np.sqrt(pivot)
            scale(matrix, row * size + begin, factor, matrix, row * size + begin, size - begin)
    return True


@njit(cache=True, fastmath=STRICT)
def invert_last_columns(factor, size, work, inverse):
    """Fill the rows of `inverse` (d, n) with the last d columns of (U'U)^-1: solve U'Y = E forward, U X = Y backward.

    Args:
        factor: U by `factorize`, whose rows and columns from n to `size` are those of the identity.
        work: float32, flat, n rows filled up to a multiple of ROWS, each of d numbers filled up to a multiple of
            F32_WIDTH; minus Y, then X.
    """
    d, n = inverse.shape
    width = pad_width(d)
    work[: pad_width(n, ROWS) * width] = 0
    for row in range(n - d, n):
        work[row * width + row - (n - d)] = -1
        for above in range(n - d, row):
            add_scaled(work, row * width, -factor[above * size + row], work, above * width, width)
        scale(work, row * width, np.float32(1) / factor[row * size + row], work, row * width, width)
    for first in range((n - 1) // ROWS * ROWS, -1, -ROWS):
        end = min(first + ROWS, n)
        for lane in range(0, width, F32_WIDTH):
            at = first * width + lane
            add_product(work, at, width, factor, first * size + end, size, 1, work, end * width + lane, width, n - end)
        for row in range(end - 1, first - 1, -1):
            for below in range(row + 1, end):
                add_scaled(work, row * width, factor[row * size + below], work, below * width, width)
            scale(work, row * width, np.float32(-1) / factor[row * size + row], work, row * width, width)
    for row in range(n):
        for c in range(d):
            inverse[c, row] = work[row * width + c]


@njit(cache=True, nogil=True)
def solve(P, h):
    """Overwrite h with P^-1 h: float64 (n,) and (n, n or more), by Cholesky, row by row.

    Only the lower triangle of P is read; it is overwritten by the factor.
    """
    for row in range(len(h)):
        for column in range(row):
            total = P[row, column]
            for k in range(column):
                total -= P[row, k] * P[column, k]
            P[row, column] = total / P[column, column]
            P[row, row] -= P[row, column] * P[row, column]
        P[row, row] = np.sqrt(P[row, row])
        for k in range(row):
            h[row] -= P[row, k] * h[k]
        h[row] /= P[row, row]
    for row in range(len(h) - 1, -1, -1):
        for k in range(row + 1, len(h)):
            h[row] -= P[k, row] * h[k]
        h[row] /= P[row, row]
