"""Kernels of weighted matrix factorization: half a sweep, which solves every row of one side with the other held.

Whatever the loss, the row x of a vertex minimizes x'A x - 2 y'x with

    A = w0 G + sum_e a_e v_e v_e' + ridge I,    y = sum_e y_e v_e

over its edges e, where w0 G is the Gram matrix of the other side, weighted. Tables are flat, rows of `width`
float32 (the factors, filled up with zeros to a multiple of LANES), one row of zeros behind the last: a vertex's
edges are filled up to a multiple of EDGES with edges of weight 0 to that row. A row is solved by one thread, over
its edges in their order.
"""

import numpy as np
from numba import njit, prange

from models.numerics.lanes import (
    LANES,
    ROWS,
    add_outer,
    add_scaled_lanes,
    copy_lanes,
    scale_lanes,
    zeros,
)
from models.wmf.lanes import EDGES, add_rows, dot_lanes, dot_rows

PARTS = 16  # runs of rows whose Gram matrices are summed apart
BATCH = 64  # rows of which outer products are added at a time
NONE = np.float32(0)
ROUNDING = np.float32(1e-12)  # of the residual's square: a millionth of the residual
FAST = {"contract", "nsz"}


@njit(cache=True, parallel=True)
def gram_parts(weighted, table, rows, width, parts):
    """Fill `parts`, zeros float32 (PARTS, width^2), with upper triangles of weighted' table over runs of rows."""
    size = -(-rows // PARTS)
    for part in prange(PARTS):
        sums = parts[part]
        for first in range(part * size, min(part * size + size, rows), BATCH):
            count = min(BATCH, min(part * size + size, rows) - first)
            for row in range(0, width, ROWS):
                for lane in range(row // LANES * LANES, width, LANES):
                    add_outer(
                        sums,
                        row * width + lane,
                        width,
                        weighted,
                        first * width + row,
                        width,
                        table,
                        first * width + lane,
                        width,
                        count,
                    )


@njit(cache=True, fastmath=FAST)
def _workspace(indptr, width):
    """What one run of rows writes in, by vertex and by edge.

    Returns:
        edges: of a vertex: int64 places where the other side's rows begin, a_e, y_e, and a number each.
        gram_places: int64 (width,), where the rows of G begin.
    """
    longest = 0
    for vertex in range(len(indptr) - 1):
        longest = max(longest, indptr[vertex + 1] - indptr[vertex])
    room = longest + EDGES
    return (np.zeros(room, dtype=np.int64), zeros(room), zeros(room), zeros(room)), np.arange(width) * width


@njit(cache=True, fastmath=FAST)
def _enter(edges, graph, vertex, width, rows):
    """Take a vertex's edges; returns their number, and that filled up to a multiple of EDGES."""
    places, weights, pulls, _ = edges
    indptr, indices, of_squares, of_products = graph
    first, degree = indptr[vertex], indptr[vertex + 1] - indptr[vertex]
    count = -(-degree // EDGES) * EDGES
    for edge in range(degree):
        places[edge] = indices[first + edge] * width
        weights[edge], pulls[edge] = of_squares[first + edge], of_products[first + edge]
    for edge in range(degree, count):
        places[edge], weights[edge], pulls[edge] = rows * width, 0, 0
    return degree, count


@njit(cache=True, fastmath=FAST)
def _add_product(out, vector, gram, gram_places, start, size, width):
    """out[l] += (w0 G x)[start + l] for l < size; `gram` is w0 G."""
    for column in range(0, width, EDGES):
        add_rows(out, 0, vector, column, gram, gram_places, column, start, size)


@njit(cache=True, fastmath=FAST)
def _apply(out, vector, table, edges, count, gram, gram_places, ridge, width):
    """out = A x."""
    places, weights, _, values = edges
    for lane in range(0, width, LANES):
        scale_lanes(out, lane, ridge, vector, lane)
    _add_product(out, vector, gram, gram_places, 0, width, width)
    for edge in range(0, count, EDGES):
        dot_rows(values, edge, table, places, edge, 0, width, vector, 0)
        for at in range(edge, edge + EDGES):
            values[at] *= weights[at]
        add_rows(out, 0, values, edge, table, places, edge, 0, width)


@njit(cache=True, fastmath=FAST)
def _residual(out, vector, table, edges, count, gram, gram_places, ridge, width):
    """out = y - A x; returns x'A x - 2 y'x."""
    places, weights, pulls, values = edges
    for lane in range(0, width, LANES):
        scale_lanes(out, lane, ridge, vector, lane)
    _add_product(out, vector, gram, gram_places, 0, width, width)
    value = np.float64(dot_lanes(out, 0, vector, 0, width))
    for lane in range(0, width, LANES):
        scale_lanes(out, lane, np.float32(-1), out, lane)
    for edge in range(0, count, EDGES):
        dot_rows(values, edge, table, places, edge, 0, width, vector, 0)
        for at in range(edge, edge + EDGES):
            product = values[at]
            value += product * (weights[at] * product - 2 * pulls[at])
            values[at] = pulls[at] - weights[at] * product
        add_rows(out, 0, values, edge, table, places, edge, 0, width)
    return value


@njit(cache=True, fastmath=FAST, parallel=True)
def conjugate_gradient(own, table, gram, graph, ridges, width, bounds, steps, values):
    """Move every row of `own` by steps of conjugate gradients from where it is.

    Takacs, Pilaszy and Tikk, "Applications of the conjugate gradient method for implicit feedback collaborative
    filtering", 2011.

    Args:
        own, table: tables of this side and of the other.
        gram: float32 (width^2,), w0 G.
        graph: (indptr int64, indices int32, a_e float32, y_e float32) of this side's edges.
        ridges: float32 (rows,).
        bounds: int64, runs of rows.
        steps: at most so many, fewer where rounding has taken over.
        values: float64 (rows,), filled with x'A x - 2 y'x.
    """
    indptr = graph[0]
    rows = len(table) // width - 1
    for run in prange(len(bounds) - 1):
        edges, gram_places = _workspace(indptr, width)
        x, residual, direction, product = zeros(width), zeros(width), zeros(width), zeros(width)
        for vertex in range(bounds[run], bounds[run + 1]):
            degree, count = _enter(edges, graph, vertex, width, rows)
            for lane in range(0, width, LANES):
                if degree > 0:
                    copy_lanes(x, lane, own, vertex * width + lane)
                else:
                    scale_lanes(x, lane, NONE, x, lane)
            ridge = ridges[vertex]
            value = _residual(residual, x, table, edges, count, gram, gram_places, ridge, width)
            for lane in range(0, width, LANES):
                copy_lanes(direction, lane, residual, lane)
            square = dot_lanes(residual, 0, residual, 0, width)
            enough = ROUNDING * square
            for _ in range(steps):
                if square <= enough:
                    break
                _apply(product, direction, table, edges, count, gram, gram_places, ridge, width)
                step = square / dot_lanes(direction, 0, product, 0, width)
                value -= np.float64(step) * square
                for lane in range(0, width, LANES):
                    add_scaled_lanes(x, lane, step, direction, lane)
                    add_scaled_lanes(residual, lane, -step, product, lane)
                before, square = square, dot_lanes(residual, 0, residual, 0, width)
                for lane in range(0, width, LANES):
                    scale_lanes(direction, lane, square / before, direction, lane)
                    add_scaled_lanes(direction, lane, np.float32(1), residual, lane)
            for lane in range(0, width, LANES):
                copy_lanes(own, vertex * width + lane, x, lane)
            values[vertex] = value


@njit(cache=True, fastmath=FAST)
def _add_negative_outer(matrix, size, table, edges, count, start, batch):
    """matrix -= sum_e a_e v_e v_e' over lanes start .. start + size, upper triangle."""
    places, weights, _, _ = edges
    for first in range(0, count, BATCH):
        number = min(BATCH, count - first)
        for edge in range(number):
            for lane in range(0, size, LANES):
                copy_lanes(batch, 2 * edge * size + lane, table, places[first + edge] + start + lane)
                scale_lanes(
                    batch,
                    (2 * edge + 1) * size + lane,
                    -weights[first + edge],
                    table,
                    places[first + edge] + start + lane,
                )
        for row in range(0, size, ROWS):
            for lane in range(row // LANES * LANES, size, LANES):
                add_outer(matrix, row * size + lane, size, batch, size + row, 2 * size, batch, lane, 2 * size, number)


@njit(cache=True, fastmath=FAST)
def _factorize(matrix, size):
    """Upper factor U of A = U'U in place of -A, of which the upper triangle is read; False if A is not definite.

    ROWS rows at a time: all that the rows above take away from them, in tiles, then the rows among themselves.
    """
    for first in range(0, size, ROWS):
        begin = first // LANES * LANES
        for lane in range(begin, size, LANES):
            add_outer(matrix, first * size + lane, size, matrix, first, size, matrix, lane, size, first)
        for row in range(first, first + ROWS):
            for above in range(first, row):
                for lane in range(begin, size, LANES):
                    add_scaled_lanes(matrix, row * size + lane, matrix[above * size + row], matrix, above * size + lane)
            pivot = -matrix[row * size + row]
            if not pivot > 0:
                return False
            for lane in range(begin, size, LANES):
                scale_lanes(matrix, row * size + lane, np.float32(-1) / np.sqrt(pivot), matrix, row * size + lane)
    return True


@njit(cache=True, fastmath=FAST)
def _solve(matrix, size, vector, half):
    """vector = (U'U)^-1 vector, by way of half = U'^-1 vector."""
    for row in range(size):
        half[row] = vector[row] / matrix[row * size + row]
        for lane in range(row // LANES * LANES, size, LANES):
            add_scaled_lanes(vector, lane, -half[row], matrix, row * size + lane)
    vector[:size] = 0
    for row in range(size - 1, -1, -1):
        begin = row // LANES * LANES
        known = dot_lanes(matrix, row * size + begin, vector, begin, size - begin)
        vector[row] = (half[row] - known) / matrix[row * size + row]


@njit(cache=True, fastmath=FAST)
def _solve_block(x, start, size, table, edges, count, gram, gram_places, ridge, work, width):
    """Minimize over lanes start .. start + size of x; the edges' products are held in `values`, and kept so."""
    places, weights, pulls, values = edges
    matrix, batch, gradient, half, errors = work
    for row in range(size):
        for lane in range(row // LANES * LANES, size, LANES):
            scale_lanes(matrix, row * size + lane, np.float32(-1), gram, (start + row) * width + start + lane)
        matrix[row * size + row] -= ridge
    _add_negative_outer(matrix, size, table, edges, count, start, batch)
    for lane in range(0, size, LANES):
        scale_lanes(gradient, lane, ridge, x, start + lane)
    _add_product(gradient, x, gram, gram_places, start, size, width)
    for edge in range(count):
        errors[edge] = weights[edge] * values[edge] - pulls[edge]
    for edge in range(0, count, EDGES):
        add_rows(gradient, 0, errors, edge, table, places, edge, start, size)
    sound = _factorize(matrix, size)
    _solve(matrix, size, gradient, half)
    for lane in range(0, size, LANES):
        add_scaled_lanes(x, start + lane, np.float32(-1), gradient, lane)
    for edge in range(0, count, EDGES):
        dot_rows(errors, edge, table, places, edge, start, size, gradient, 0)
        for at in range(edge, edge + EDGES):
            values[at] -= errors[at]
    return sound


@njit(cache=True, fastmath=FAST, parallel=True)
def solve_blocks(own, table, gram, graph, ridges, width, bounds, block, values):
    """Minimize every row of `own` exactly over one block of its factors after the other, the rest held.

    Rendle, Krichene, Zhang and Koren, "iALS++: speeding up matrix factorization with subspace optimization", 2021;
    with one block of all factors the normal equations are solved, whatever the row was.

    Args:
        block: factors to a block, a multiple of LANES; the last one may be smaller.
        values: float64 (rows,), filled with x'A x - 2 y'x; NaN where A is not positive definite in float32.
        and as for `conjugate_gradient`.
    """
    indptr = graph[0]
    rows = len(table) // width - 1
    for run in prange(len(bounds) - 1):
        edges, gram_places = _workspace(indptr, width)
        work = (zeros(block * block), zeros(2 * BATCH * block), zeros(block), zeros(block), zeros(len(edges[3])))
        x, product = zeros(width), zeros(width)
        for vertex in range(bounds[run], bounds[run + 1]):
            degree, count = _enter(edges, graph, vertex, width, rows)
            for lane in range(0, width, LANES):
                copy_lanes(x, lane, own, vertex * width + lane)
            if degree == 0:
                x[:] = 0
            for edge in range(0, count, EDGES):
                dot_rows(edges[3], edge, table, edges[0], edge, 0, width, x, 0)
            sound, ridge = True, ridges[vertex]
            for start in range(0, width if degree > 0 else 0, block):
                size = min(block, width - start)
                sound &= _solve_block(x, start, size, table, edges, count, gram, gram_places, ridge, work, width)
            for lane in range(0, width, LANES):
                scale_lanes(product, lane, ridge, x, lane)
                copy_lanes(own, vertex * width + lane, x, lane)
            _add_product(product, x, gram, gram_places, 0, width, width)
            value = np.float64(dot_lanes(product, 0, x, 0, width))
            for edge in range(degree):
                value += edges[3][edge] * (edges[1][edge] * edges[3][edge] - 2 * edges[2][edge])
            values[vertex] = value if sound else np.nan
