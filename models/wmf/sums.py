"""What blocks of users and the items of weighted matrix factorization tell each other, and how the items are solved by it.

A, y and the edges' a_e and y_e are those of `models.wmf.kernels`; here the edges of an item are those that one block has,
and u_e is the factor of the edge's user. A step of conjugate gradients needs of every block, float32 (items, K),

    sum_e (y_e - a_e u_e'x) u_e    at the old factors x, and then    -sum_e a_e (u_e'd) u_e    for each direction d.

A solution needs its part of the normal equations, float32 (items, K (K + 3) / 2): the lower triangle of sum_e a_e u_e u_e',
row by row, and behind it sum_e y_e u_e.
"""

from collections.abc import Callable

import numpy as np
from numba import njit, prange

from models.numerics.lane_products import ROWS, add_rows, dot_rows
from models.numerics.lanes import padded, zeros
from models.numerics.products import dense_times
from models.numerics.spd_lane_solvers import factorize_tiled, solve_factorized
from models.wmf.kernels import BATCH, FAST, ROUNDING, System, add_negative_outer, enter, workspace


def numbers(factors: int) -> int:
    """Of a message of normal equations, for one item."""
    return factors * (factors + 3) // 2


@njit(cache=True, fastmath=FAST, parallel=True, nogil=True)
def sum_products(table, graph, width, vectors, bounds, pulled, out, values):
    """out[n] = sum_e (y_e - a_e u_e'x_n) u_e, and values[n] = sum_e a_e (u_e'x_n)^2 - 2 y_e u_e'x_n.

    Args:
        table: the users' table.
        graph: (indptr, indices, a_e, y_e) of the items' edges.
        vectors: the items' table, of x_n.
        bounds: int64, runs of items.
        pulled: whether y_e is there; otherwise it is taken as 0.
        out: a table of zeros for the items, filled; values: float64 (items,), filled.
    """
    users = len(table) // width - 1
    for run in prange(len(bounds) - 1):
        edges = workspace(graph[0], width)[0]
        places, weights, pulls, products = edges
        for item in range(bounds[run], bounds[run + 1]):
            _, count = enter(edges, graph, item, width, users)
            value = 0.0
            for edge in range(0, count, ROWS):
                dot_rows(products, edge, table, places, edge, 0, width, vectors, item * width)
                for at in range(edge, edge + ROWS):
                    product, pull = products[at], pulls[at] if pulled else np.float32(0)
                    value += product * (weights[at] * product - 2 * pull)
                    products[at] = pull - weights[at] * product
                add_rows(out, item * width, products, edge, table, places, edge, 0, width)
            values[item] = value


@njit(cache=True, fastmath=FAST, parallel=True, nogil=True)
def sum_equations(table, graph, width, factors, bounds, message):
    """Fill `message`, float32 (items, `numbers`), with a block's part of the normal equations."""
    users = len(table) // width - 1
    for run in prange(len(bounds) - 1):
        edges, places = workspace(graph[0], width)
        matrix, batch, y = zeros(width * width), zeros(2 * BATCH * width), zeros(width)
        for item in range(bounds[run], bounds[run + 1]):
            _, count = enter(edges, graph, item, width, users)
            matrix[:], y[:] = 0, 0
            add_negative_outer(matrix, width, System(table, edges, count, y, places, np.float32(0), width), 0, batch)
            for edge in range(0, count, ROWS):
                add_rows(y, 0, edges[2], edge, table, edges[0], edge, 0, width)
            at = 0
            for row in range(factors):
                for column in range(row + 1):
                    message[item, at + column] = -matrix[column * width + row]
                at += row + 1
            message[item, at:] = y[:factors]


def conjugate_gradients(
    x: np.ndarray,
    residual: np.ndarray,
    gram: np.ndarray,
    ridges: np.ndarray,
    product: Callable[[np.ndarray], np.ndarray],
    steps: int,
) -> tuple[np.ndarray, float]:
    """Improve the items by some steps of conjugate gradients, all of them in step (`models.wmf.kernels`).

    Args:
        x: float32 (items, K), the old factors.
        residual: float64 (items, K), the edges' part of y - A x, over all blocks.
        gram: float32 (K, K), w0 G of the users.
        ridges: float32 (items,).
        product: of a direction, float32 (items, K), the edges' part of A d, float64, over all blocks.

    Returns:
        The new factors, float64, and the sum over the items of x'A x - 2 y'x without the edges' part of it at the old ones.
    """
    gram, ridges = np.ascontiguousarray(gram), ridges[:, None].astype(np.float64)
    common = dense_times(x, gram) + ridges * x
    x, residual = x.astype(np.float64), residual - common
    value = float(_dots(x, common).sum())
    direction, square = residual.astype(np.float32), _dots(residual, residual)
    enough = ROUNDING * square
    for _ in range(steps):
        active = square > enough
        if not active.any():
            break
        applied = product(direction) + dense_times(direction, gram) + ridges * direction
        step = np.divide(square, _dots(direction, applied), out=np.zeros(len(x)), where=active)
        value -= float(step @ square)
        x += step[:, None] * direction
        residual -= step[:, None] * applied
        before, square = square, _dots(residual, residual)
        ratio = np.divide(square, before, out=np.zeros(len(x)), where=active)
        direction = (residual + ratio[:, None] * direction).astype(np.float32)
    return x, value


def _dots(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.einsum("nk,nk->n", one, other, dtype=np.float64)


@njit(cache=True, fastmath=FAST, parallel=True, nogil=True)
def solve_equations(items, total, gram, ridges, bounds, block, values):
    """Minimize every row of `items` over one block of its factors after another, as `models.wmf.kernels.solve_blocks`.

    Args:
        items: float32 (items, K), the factors, replaced.
        total: float64 (items, `numbers`), the sum of the messages of all blocks of users.
        gram: float32 (K, K), w0 G of the users; ridges: float32 (items,).
        bounds: int64, runs of items.
        block: number of factors in a block, a multiple of LANES.
        values: float64 (items,), filled with x'A x - 2 y'x; NaN where A is not positive definite in float32.
    """
    factors = items.shape[1]
    for run in prange(len(bounds) - 1):
        size = min(block, padded(factors))
        A, x, error = np.zeros((factors, factors)), np.zeros(factors), np.zeros(factors)
        work = zeros(size * size), zeros(size), zeros(size)
        for item in range(bounds[run], bounds[run + 1]):
            y = total[item, factors * (factors + 1) // 2 :]
            for row in range(factors):
                x[row] = items[item, row]
                for column in range(row + 1):
                    A[row, column] = total[item, row * (row + 1) // 2 + column] + gram[row, column]
                    A[column, row] = A[row, column]
                A[row, row] += ridges[item]
            sound = True
            for start in range(0, factors, size):
                sound &= _solve_part(x, A, y, error, ridges[item], start, min(size, padded(factors) - start), work)
            _errors(error, A, x, y)
            values[item] = 0.0 if sound else np.nan
            for row in range(factors):
                items[item, row] = x[row]
                values[item] += x[row] * (error[row] - y[row])


@njit(cache=True, fastmath=FAST)
def _errors(error, A, x, y):
    """error = A x - y."""
    for row in range(len(x)):
        error[row] = -y[row]
        for column in range(len(x)):
            error[row] += A[row, column] * x[column]


@njit(cache=True, fastmath=FAST)
def _solve_part(x, A, y, error, ridge, start, size, work):
    """Minimize over factors start .. start + size of x; returns whether A is positive definite there."""
    matrix, gradient, half = work
    used = min(size, len(x) - start)
    _errors(error, A, x, y)
    matrix[:], gradient[:] = 0, 0
    for row in range(size):
        matrix[row * size + row] = -ridge
    for row in range(used):
        gradient[row] = error[start + row]
        for column in range(used):
            matrix[row * size + column] = -A[start + row, start + column]
    sound = factorize_tiled(matrix, size)
    solve_factorized(matrix, size, gradient, half)
    for row in range(used):
        x[start + row] -= gradient[row]
    return sound
