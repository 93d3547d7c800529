"""Small systems with a symmetric positive definite matrix, solved in vector lanes: kernels solve one for each vertex.

Arrays are flat, as in `models.numerics.lanes`, and rows are filled up to whole lanes. There are three forms, because
each keeps the bits of fits that were published with it:

    solve_in_rows       float32, K about 20: no square root, no second array; it overwrites the diagonal of P
    factorize_tiled     float32, up to hundreds of rows: works in tiles of ROWS; returns False if P is not definite
    solve_lifted        float64, K about 20: a pivot that rounding made too small is raised to a known lower bound

Plain loops are in `models.numerics.spd_solvers`.
"""

import numpy as np
from numba import njit

from models.numerics.lane_products import ROWS, add_scaled, dot, scale
from models.numerics.lane_tiles import add_outer
from models.numerics.lanes import DOUBLES, LANES, element, load, padded, store
from models.numerics.logistic_bound import FAST as LOOSE

STRICT = {"contract", "nsz"}
DOUBLE = {"cache": True, "fastmath": {"contract"}, "error_model": "numpy", "nogil": True}


@njit(cache=True, fastmath=LOOSE, inline="always")
def solve_in_rows(matrix, stride, size, vector):
    """vector = P^-1 vector; the lower triangle of P, with rows `stride` long, is eliminated from the last row up."""
    for last in range(size - 1, -1, -1):
        pivot = 1 / matrix[last * stride + last]
        for row in range(last):
            factor = -matrix[last * stride + row] * pivot
            add_scaled(matrix, row * stride, np.float32(factor), matrix, last * stride, row + 1)
            vector[row] += factor * vector[last]
    for row in range(size):
        total = vector[row]
        for column in range(row):
            total -= matrix[row * stride + column] * vector[column]
        vector[row] = total / matrix[row * stride + row]


@njit(cache=True, fastmath=STRICT)
def factorize_tiled(matrix, size):
    """Replace the upper triangle of -A by the factor U of A = U'U; returns False if A is not positive definite.

    Works on ROWS rows at a time: first subtracts what the rows above contribute, in tiles, then factorizes these rows.
    """
    for first in range(0, size, ROWS):
        begin = first // LANES * LANES
        for lane in range(begin, size, LANES):
            add_outer(matrix, first * size + lane, size, matrix, first, size, matrix, lane, size, first)
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
def solve_factorized(matrix, size, vector, half):
    """vector = (U'U)^-1 vector; `half` is scratch, for U'^-1 vector."""
    for row in range(size):
        half[row] = vector[row] / matrix[row * size + row]
        begin = row // LANES * LANES
        add_scaled(vector, begin, -half[row], matrix, row * size + begin, size - begin)
    vector[:size] = 0
    for row in range(size - 1, -1, -1):
        begin = row // LANES * LANES
        known = dot(matrix, row * size + begin, vector, begin, size - begin)
        vector[row] = (half[row] - known) / matrix[row * size + row]


@njit(**DOUBLE, forceinline=True)
def _eliminate(lanes, matrix, k, inverse):
    """matrix[i] -= inverse matrix[k, i] matrix[k] for k < i < n - 1: one step of a symmetric elimination.

    matrix: float64, rows W long, flat. Row i is updated from the last multiple of DOUBLES up to i on.
    """
    n, width = len(lanes), padded(len(lanes), DOUBLES)
    for begin in range(0, width, DOUBLES):
        for i in range(max(k + 1, begin), min(begin + DOUBLES, n - 1)):
            factor = -(inverse * element(matrix, k * width + i))
            for column in range(begin, width, DOUBLES):
                at = i * width + column
                store(matrix, at, load(matrix, at) + factor * load(matrix, k * width + column))


@njit(**DOUBLE)
def solve_lifted(lanes, system, least, solution):
    """solution = P^-1 z by Gaussian elimination; no eigenvalue of P may lie below `least`.

    Then no pivot lies below it either: a pivot that rounding made smaller is raised to `least`.

    Args:
        lanes: a tuple of n integers; only its length counts.
        system: float64, flat, rows of n numbers filled up to a multiple of DOUBLES: the upper triangle of P, of
            size n - 1, and z in column n - 1. It is overwritten.
    """
    n, width = len(lanes), padded(len(lanes), DOUBLES)
    for k in range(n - 1):
        system[k * width + k] = max(system[k * width + k], least)
        _eliminate(lanes, system, k, 1 / system[k * width + k])
    for k in range(n - 2, -1, -1):
        solution[k] = system[k * width + n - 1] / system[k * width + k]
        for i in range(k):
            system[i * width + n - 1] -= system[i * width + k] * solution[k]
