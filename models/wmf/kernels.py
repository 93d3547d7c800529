"""Kernels of weighted matrix factorization: half a pass, which solves every row of one side while the other is fixed.

With either loss, the row x of a vertex minimizes x'A x - 2 y'x with

    A = w0 G + sum_e a_e v_e v_e' + ridge I,    y = sum_e y_e v_e

over its edges e, where w0 G is the weighted Gram matrix of the other side. Tables are flat. A row has `width` float32:
the factors, filled up with zeros to a multiple of F32_WIDTH. The last row of a table is zeros: the edges of a vertex
are filled up to a multiple of ROWS with edges of weight 0 to that row. One thread solves a row, over its edges in their
order.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.cholesky import factorize, solve_factorized
from oneclass.models.numerics.random_numbers import normal, stream
from oneclass.models.numerics.simd import (
    F32_WIDTH,
    ROWS,
    add_rows,
    add_scaled,
    aligned_zeros,
    copy,
    dot,
    dot_rows,
    prefetch_row,
    scale,
)
from oneclass.models.numerics.simd_tiles import add_outer, add_products

PARTS = 16  # runs of rows, each with a Gram matrix of its own; these are added in order
BATCH = 64  # rows whose outer products are added at a time
PREFETCHED = 32  # edges of a row whose rows of the other side are fetched ahead
ROUNDING = np.float32(1e-12)  # stop where the squared residual has shrunk to this: a millionth of the residual
FAST = {"contract", "nsz"}


class System(NamedTuple):
    """The linear system of one row, A x = y.

    Attributes:
        table: the other side's table.
        edges: the row's edges, as `workspace` lays them out and `enter` fills them in.
        edge_count: their number, filled up to a multiple of ROWS.
        gram: float32 (width^2,), w0 G; gram_places: int64 (width,), where its rows begin.
        ridge: float32.
        width: numbers in a row.
    """

    table: np.ndarray
    edges: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    edge_count: int
    gram: np.ndarray
    gram_places: np.ndarray
    ridge: np.float32
    width: int


@njit(cache=True, parallel=True, nogil=True)
def draw_factors(seed, purpose, scale, factors, table):
    """Fill a table, float32 (rows, width), with normal factors of the standard deviation `scale`, keyed by row."""
    for row in prange(len(table)):
        key = stream(seed, purpose, 0, row)
        for column in range(factors):
            table[row, column] = np.float32(normal(key, column)) * scale


@njit(cache=True, parallel=True, nogil=True)
def gram_parts(weighted, table, rows, width, parts):
    """Add to `parts`, float32 (PARTS, width^2), the upper triangles of weighted' table over each run of rows."""
    size = -(-rows // PARTS)
    for part in prange(PARTS):
        sums = parts[part]
        for first in range(part * size, min(part * size + size, rows), BATCH):
            count = min(BATCH, min(part * size + size, rows) - first)
            for row in range(0, width, ROWS):
                for lane in range(row // F32_WIDTH * F32_WIDTH, width, F32_WIDTH):
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


@njit(cache=True, parallel=True, nogil=True)
def sum_squares(table, width, out):
    """Fill `out`, float64 (rows,), with the sum of the squares of each row of a table."""
    for row in prange(len(out)):
        out[row] = dot(table, row * width, table, row * width, width)


@njit(cache=True, fastmath=FAST)
def allocate_row_workspace(indptr, width):
    """The scratch arrays of one run of rows.

    Returns:
        edges: for the edges of a vertex: where their rows of the other side's table begin, int64; a_e; y_e; and one
            more number for each edge, float32.
        gram_places: int64 (width,), where the rows of G begin.
    """
    longest = 0
    for vertex in range(len(indptr) - 1):
        longest = max(longest, indptr[vertex + 1] - indptr[vertex])
    room = longest + ROWS
    return (np.zeros(room, dtype=np.int64), aligned_zeros(room), aligned_zeros(room), aligned_zeros(room)), np.arange(
        width
    ) * width


@njit(cache=True, fastmath=FAST)
def load_vertex_edges(edges, at, graph, vertex, width, rows):
    """Fill `edges` from place `at` on with those of a vertex; returns their number, up to a multiple of ROWS."""
    places, weights, pulls, _ = edges
    indptr, indices, of_squares, of_products = graph
    first, degree = indptr[vertex], indptr[vertex + 1] - indptr[vertex]
    count = -(-degree // ROWS) * ROWS
    for edge in range(degree):
        places[at + edge] = indices[first + edge] * width
        weights[at + edge], pulls[at + edge] = of_squares[first + edge], of_products[first + edge]
    for edge in range(at + degree, at + count):
        places[edge], weights[edge], pulls[edge] = rows * width, 0, 0
    return count


@njit(cache=True, fastmath=FAST)
def _add_product(out, vector, system, start, size):
    """out[l] += (w0 G x)[start + l] for l < size."""
    for column in range(0, system.width, ROWS):
        add_rows(out, 0, vector, column, system.gram, system.gram_places, column, start, size)


@njit(cache=True, fastmath=FAST)
def _allocate_group_workspace(indptr, first, last):
    """The arrays of the edges of ROWS vertices, as in `allocate_row_workspace`, for any such group of a run."""
    most = 0
    for start in range(first, last, ROWS):
        room = 0
        for vertex in range(start, min(start + ROWS, last)):
            room += -(-(indptr[vertex + 1] - indptr[vertex]) // ROWS) * ROWS
        most = max(most, room)
    return np.zeros(most, dtype=np.int64), aligned_zeros(most), aligned_zeros(most), aligned_zeros(most)


@njit(cache=True, fastmath=FAST)
def _multiply_dense(out, vectors, gram, ridges, width):
    """out = (w0 G + ridge I) x for ROWS vectors, which share the loads of G."""
    for row in range(ROWS):
        scale(out, row * width, ridges[row], vectors, row * width, width)
    add_products(out, vectors, width, gram)


@njit(cache=True, fastmath=FAST)
def _add_edges(out, at, vector, table, edges, first, last, width):
    """out += sum_e a_e v_e v_e'x over the edges first .. last - 1; the vectors begin at `at`."""
    places, weights, _, values = edges
    for edge in range(first, last, ROWS):
        dot_rows(values, edge, table, places, edge, 0, width, vector, at)
        for one in range(edge, edge + ROWS):
            values[one] *= weights[one]
        add_rows(out, at, values, edge, table, places, edge, 0, width)


@njit(cache=True, fastmath=FAST)
def _subtract_from_pulls(out, at, vector, table, edges, first, last, width):
    """out = y - A x from out = (w0 G + ridge I) x; arguments as in `_add_edges`. Returns x'A x - 2 y'x."""
    places, weights, pulls, values = edges
    value = np.float64(dot(out, at, vector, at, width))
    scale(out, at, np.float32(-1), out, at, width)
    for edge in range(first, last, ROWS):
        dot_rows(values, edge, table, places, edge, 0, width, vector, at)
        for one in range(edge, edge + ROWS):
            product = values[one]
            value += product * (weights[one] * product - 2 * pulls[one])
            values[one] = pulls[one] - weights[one] * product
        add_rows(out, at, values, edge, table, places, edge, 0, width)
    return value


@njit(cache=True, fastmath=FAST, parallel=True, nogil=True)
def conjugate_gradient(own, table, gram, graph, ridges, width, bounds, steps, values):
    """Improve every row of `own` by some steps of conjugate gradients.

    Takacs, Pilaszy and Tikk, "Applications of the conjugate gradient method for implicit feedback collaborative
    filtering", 2011. ROWS rows go step by step together, so that they share the loads of G.

    Args:
        own, table: tables of this side and of the other.
        gram: float32 (width^2,), w0 G.
        graph: (indptr int64, indices int32, a_e float32, y_e float32) of this side's edges.
        ridges: float32 (rows,).
        bounds: int64, runs of rows.
        steps: the largest number of steps; fewer are taken if the residual is down to rounding errors.
        values: float64 (rows,), filled with x'A x - 2 y'x.
    """
    indptr, others = graph[0], len(table) // width - 1
    by_lanes = aligned_zeros(width * width)
    for row in range(width):
        for lane in range(0, width, F32_WIDTH):
            copy(by_lanes, lane * width + row * F32_WIDTH, gram, row * width + lane, F32_WIDTH)
    for run in prange(len(bounds) - 1):
        edges = _allocate_group_workspace(indptr, bounds[run], bounds[run + 1])
        ends, squares, of_group = np.zeros(ROWS + 1, dtype=np.int64), aligned_zeros(ROWS), aligned_zeros(ROWS)
        enough, total = aligned_zeros(ROWS), np.zeros(ROWS)
        x, residual = aligned_zeros(ROWS * width), aligned_zeros(ROWS * width)
        direction, product = aligned_zeros(ROWS * width), aligned_zeros(ROWS * width)
        for first in range(bounds[run], bounds[run + 1], ROWS):
            count = min(ROWS, bounds[run + 1] - first)
            for row in range(count):
                vertex = first + row
                ends[row + 1] = ends[row] + load_vertex_edges(edges, ends[row], graph, vertex, width, others)
                keeps = np.float32(indptr[vertex + 1] > indptr[vertex])
                scale(x, row * width, keeps, own, vertex * width, width)
                of_group[row] = ridges[vertex]
                for edge in range(ends[row], min(ends[row + 1], ends[row] + PREFETCHED)):
                    prefetch_row(table, edges[0][edge], width)  # while G is multiplied
            _multiply_dense(residual, x, by_lanes, of_group, width)
            for row in range(count):
                at = row * width
                total[row] = _subtract_from_pulls(residual, at, x, table, edges, ends[row], ends[row + 1], width)
                copy(direction, at, residual, at, width)
                squares[row] = dot(residual, at, residual, at, width)
                enough[row] = ROUNDING * squares[row]
            for _ in range(steps):
                if not (squares[:count] > enough[:count]).any():
                    break
                _multiply_dense(product, direction, by_lanes, of_group, width)
                for row in range(count):
                    if squares[row] <= enough[row]:
                        continue
                    at = row * width
                    _add_edges(product, at, direction, table, edges, ends[row], ends[row + 1], width)
                    before = squares[row]
                    step = before / dot(direction, at, product, at, width)
                    total[row] -= np.float64(step) * before
                    add_scaled(x, at, step, direction, at, width)
                    add_scaled(residual, at, -step, product, at, width)
                    squares[row] = dot(residual, at, residual, at, width)
                    scale(direction, at, squares[row] / before, direction, at, width)
                    add_scaled(direction, at, np.float32(1), residual, at, width)
            for row in range(count):
                copy(own, (first + row) * width, x, row * width, width)
                values[first + row] = total[row]


@njit(cache=True, fastmath=FAST)
def add_negative_outer(matrix, size, system, start, batch):
    """matrix -= sum_e a_e v_e v_e' over lanes start .. start + size, upper triangle."""
    table, count = system.table, system.edge_count
    places, weights, _, _ = system.edges
    for first in range(0, count, BATCH):
        number = min(BATCH, count - first)
        for edge in range(number):
            row = places[first + edge] + start
            copy(batch, 2 * edge * size, table, row, size)
            scale(batch, (2 * edge + 1) * size, -weights[first + edge], table, row, size)
        for row in range(0, size, ROWS):
            for lane in range(row // F32_WIDTH * F32_WIDTH, size, F32_WIDTH):
                add_outer(matrix, row * size + lane, size, batch, size + row, 2 * size, batch, lane, 2 * size, number)


@njit(cache=True, fastmath=FAST)
def _solve_block(x, start, size, system, work):
    """Minimize over lanes start .. start + size of x; `values` holds v_e'x of each edge, before and after."""
    table, count, ridge, width = system.table, system.edge_count, system.ridge, system.width
    places, weights, pulls, values = system.edges
    matrix, batch, gradient, half, errors = work
    for row in range(size):
        begin = row // F32_WIDTH * F32_WIDTH
        scale(
            matrix,
            row * size + begin,
            np.float32(-1),
            system.gram,
            (start + row) * width + start + begin,
            size - begin,
        )
        matrix[row * size + row] -= ridge
    add_negative_outer(matrix, size, system, start, batch)
    scale(gradient, 0, ridge, x, start, size)
    _add_product(gradient, x, system, start, size)
    for edge in range(count):
        errors[edge] = weights[edge] * values[edge] - pulls[edge]
    for edge in range(0, count, ROWS):
        add_rows(gradient, 0, errors, edge, table, places, edge, start, size)
    sound = factorize(matrix, size)
    solve_factorized(matrix, size, gradient, half)
    add_scaled(x, start, np.float32(-1), gradient, 0, size)
    for edge in range(0, count, ROWS):
        dot_rows(errors, edge, table, places, edge, start, size, gradient, 0)
        for at in range(edge, edge + ROWS):
            values[at] -= errors[at]
    return sound


@njit(cache=True, fastmath=FAST, parallel=True, nogil=True)
def solve_blocks(own, table, gram, graph, ridges, width, bounds, block, values):
    """Minimize every row of `own` exactly over one block of its factors after another, the other factors fixed.

    Rendle, Krichene, Zhang and Koren, "iALS++: speeding up matrix factorization with subspace optimization", 2021;
    with a single block of all factors this solves the normal equations, and the old row does not matter. Arguments are
    those of `conjugate_gradient`, but for:

    Args:
        block: number of factors in a block, a multiple of LANES; the last block may be smaller.
        values: float64 (rows,), filled with x'A x - 2 y'x; NaN where A is not positive definite in float32.
    """
    indptr = graph[0]
    rows = len(table) // width - 1
    for run in prange(len(bounds) - 1):
        edges, gram_places = allocate_row_workspace(indptr, width)
        work = (
            aligned_zeros(block * block),
            aligned_zeros(2 * BATCH * block),
            aligned_zeros(block),
            aligned_zeros(block),
            aligned_zeros(len(edges[3])),
        )
        x, product = aligned_zeros(width), aligned_zeros(width)
        for vertex in range(bounds[run], bounds[run + 1]):
            count, degree = load_vertex_edges(edges, 0, graph, vertex, width, rows), indptr[vertex + 1] - indptr[vertex]
            copy(x, 0, own, vertex * width, width)
            if degree == 0:
                x[:] = 0
            for edge in range(0, count, ROWS):
                dot_rows(edges[3], edge, table, edges[0], edge, 0, width, x, 0)
            system = System(table, edges, count, gram, gram_places, ridges[vertex], width)
            sound = True
            for start in range(0, width if degree > 0 else 0, block):
                size = min(block, width - start)
                sound &= _solve_block(x, start, size, system, work)
            scale(product, 0, system.ridge, x, 0, width)
            copy(own, vertex * width, x, 0, width)
            _add_product(product, x, system, 0, width)
            value = np.float64(dot(product, 0, x, 0, width))
            for edge in range(degree):
                value += edges[3][edge] * (edges[1][edge] * edges[3][edge] - 2 * edges[2][edge])
            values[vertex] = value if sound else np.nan
