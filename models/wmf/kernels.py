"""Kernels of weighted matrix factorization: half a pass, which solves every row of one side while the other is fixed.

With either loss, the row x of a vertex minimizes x'A x - 2 y'x with

    A = w0 G + sum_e a_e v_e v_e' + ridge I,    y = sum_e y_e v_e

over its edges e, where w0 G is the weighted Gram matrix of the other side. Tables are flat. A row has `width` float32:
the factors, filled up with zeros to a multiple of F32_WIDTH. The last row of a table is zeros: the edges of a vertex
are filled up to a multiple of ROWS with edges of weight 0 to that row. One thread solves a row, over its edges in their
order.
"""

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.simd import (
    F32_WIDTH,
    IN_ORDER,
    ROWS,
    ZERO,
    add_scaled,
    aligned_zeros,
    broadcast,
    load,
    scale,
    store,
)
from oneclass.models.numerics.simd_rows import add_product, copy, dot, eight, horizontal_sums

ROUNDING = np.float32(1e-12)  # stop where the squared residual has shrunk to this: a millionth of the residual
FAST = {"contract", "nsz"}


@njit(**IN_ORDER)
def add_rows(target, at, weights, weights_at, table, places, places_at, width):
    """target[at + l] += sum_{e < ROWS} weights[weights_at + e] table[places[places_at + e] + l], l < width."""
    r0, r1, r2, r3, r4, r5, r6, r7 = eight(places, places_at)
    w0, w1, w2, w3, w4, w5, w6, w7 = eight(weights, weights_at)
    for lane in range(0, width, F32_WIDTH):
        total = load(target, at + lane)
        total = total + w0 * load(table, r0 + lane) + w1 * load(table, r1 + lane)
        total = total + w2 * load(table, r2 + lane) + w3 * load(table, r3 + lane)
        total = total + w4 * load(table, r4 + lane) + w5 * load(table, r5 + lane)
        total = total + w6 * load(table, r6 + lane) + w7 * load(table, r7 + lane)
        store(target, at + lane, total)


@njit(**IN_ORDER)
def dot_rows(out, at, table, places, places_at, width, vector, vector_at):
    """out[at + e] = sum_{l < width} table[places[places_at + e] + l] vector[vector_at + l], e < ROWS."""
    r0, r1, r2, r3, r4, r5, r6, r7 = eight(places, places_at)
    t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = broadcast(ZERO)
    for lane in range(0, width, F32_WIDTH):
        factor = load(vector, vector_at + lane)
        t0, t1 = t0 + factor * load(table, r0 + lane), t1 + factor * load(table, r1 + lane)
        t2, t3 = t2 + factor * load(table, r2 + lane), t3 + factor * load(table, r3 + lane)
        t4, t5 = t4 + factor * load(table, r4 + lane), t5 + factor * load(table, r5 + lane)
        t6, t7 = t6 + factor * load(table, r6 + lane), t7 + factor * load(table, r7 + lane)
    store(out, at, horizontal_sums((t0, t1, t2, t3, t4, t5, t6, t7)))


@njit(**IN_ORDER)
def add_products(target, left, width, right):
    """Add the product of ROWS rows and a matrix to ROWS rows, each sum in the order of the columns of `left`.

    Args:
        target, left: float32 (ROWS width,), rows of `width` numbers, a multiple of F32_WIDTH.
        right: float32 (width^2,), the matrix by runs of F32_WIDTH columns, one after the other, each row by row.
    """
    for lane in range(0, width, F32_WIDTH):
        add_product(target, lane, width, left, 0, width, 1, right, lane * width, F32_WIDTH, width)


@njit(cache=True, fastmath=FAST)
def _allocate_edges(indptr, first, last):
    """Scratch arrays for the edges of any ROWS vertices in turn from `first` up to `last`.

    Returns:
        for each edge, where its row of the other side's table begins, int64; a_e; y_e; and one more number, float32.
    """
    most = 0
    for start in range(first, last, ROWS):
        room = 0
        for vertex in range(start, min(start + ROWS, last)):
            room += -(-(indptr[vertex + 1] - indptr[vertex]) // ROWS) * ROWS
        most = max(most, room)
    return np.zeros(most, dtype=np.int64), aligned_zeros(most), aligned_zeros(most), aligned_zeros(most)


@njit(cache=True, fastmath=FAST)
def _load_edges(edges, at, graph, vertex, width, rows):
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
        dot_rows(values, edge, table, places, edge, width, vector, at)
        for one in range(edge, edge + ROWS):
            values[one] *= weights[one]
        add_rows(out, at, values, edge, table, places, edge, width)


@njit(cache=True, fastmath=FAST)
def _subtract_from_pulls(out, at, vector, table, edges, first, last, width):
    """out = y - A x from out = (w0 G + ridge I) x; arguments as in `_add_edges`. Returns x'A x - 2 y'x."""
    places, weights, pulls, values = edges
    value = np.float64(dot(out, at, vector, at, width))
    scale(out, at, np.float32(-1), out, at, width)
    for edge in range(first, last, ROWS):
        dot_rows(values, edge, table, places, edge, width, vector, at)
        for one in range(edge, edge + ROWS):
            product = values[one]
            value += product * (weights[one] * product - 2 * pulls[one])
            values[one] = pulls[one] - weights[one] * product
        add_rows(out, at, values, edge, table, places, edge, width)
    return value


@njit(cache=True, fastmath=FAST, parallel=True, nogil=True)
def solve_rows(own, table, gram, graph, ridges, width, bounds, steps, values):
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
        edges = _allocate_edges(indptr, bounds[run], bounds[run + 1])
        ends, squares, of_group = np.zeros(ROWS + 1, dtype=np.int64), aligned_zeros(ROWS), aligned_zeros(ROWS)
        enough, total = aligned_zeros(ROWS), np.zeros(ROWS)
        x, residual = aligned_zeros(ROWS * width), aligned_zeros(ROWS * width)
        direction, product = aligned_zeros(ROWS * width), aligned_zeros(ROWS * width)
        for first in range(bounds[run], bounds[run + 1], ROWS):
            count = min(ROWS, bounds[run + 1] - first)
            for row in range(count):
                vertex = first + row
                ends[row + 1] = ends[row] + _load_edges(edges, ends[row], graph, vertex, width, others)
                keeps = np.float32(indptr[vertex + 1] > indptr[vertex])
                scale(x, row * width, keeps, own, vertex * width, width)
                of_group[row] = ridges[vertex]
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
