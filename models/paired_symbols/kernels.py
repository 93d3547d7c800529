"""Kernels of paired symbols: the moments of edges' logits and sums of outer products, a batch of edges at a time; the
block update of one side, its background cache, and its sums over edges.

Users and items are treated alike: every kernel takes `own`, the table of the side that it works on, and `other`, that
of the other side. A kernel runs over shards, which are fixed runs of vertices with about equally many edges. A shard
writes its own rows, or its own partial sums, which are added in order. So the result does not depend on the number of
threads.

A table has one float32 row for each vertex, 2 W long: means y = [v_1 .. v_K, b, 1, 0 ..], then variances
[.., var b, share, 0 ..], where W is n = K + 2 rounded up to a multiple of UNIT. `share` is t_j (or s_i); it is stored
in the place of the variance of the constant 1. Kernels read half a row in steps of F32_WIDTH; if W is not a multiple of
F32_WIDTH, the first step is UNIT. `lanes` is a tuple of n integers: numba knows its length, so that it unrolls the
loops over half a row for each n. Bounds are not checked: places must lie inside the arrays.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.cholesky import solve_with_pivot_floor
from oneclass.models.numerics.logistic_bound import best_bound_of_square, best_square, lambda_of_square
from oneclass.models.numerics.simd import (
    F32_WIDTH,
    F64_WIDTH,
    ROWS,
    ZERO,
    add_halves,
    aligned_zeros,
    broadcast,
    element,
    horizontal_sums,
    join_halves,
    load,
    load_like,
    load_tile,
    pad_width,
    plus_products,
    plus_rows,
    plus_squared_rows,
    put,
    store,
    store_tile,
)
from oneclass.models.numerics.threads import NUMBA_CONFIG

EDGES_PER_BATCH = 32  # edges that are worked on together
COLUMN_UNIT = F32_WIDTH // 2  # half rows are filled up to a multiple of it
JIT_OPTIONS: dict[str, Any] = {"cache": True, "fastmath": {"contract"}, "error_model": "numpy", "nogil": True}
ROWS_8, ROWS_16, ROWS_24 = (0,) * 8, (0,) * 16, (0,) * 24  # heights of tiles whose sums stay in registers
INLINED: dict[str, Any] = JIT_OPTIONS | {"forceinline": True}
SUMMED: dict[str, Any] = JIT_OPTIONS | {"fastmath": {"contract", "reassoc"}}  # lets float64 sums vectorize
FLUSH = 32  # so many batches are summed in float32 before their sum is added to a float64 sum
SHARDS = 64  # fixed, so that sums do not depend on the number of threads
SOLVE_COST_IN_EDGES = 60  # the cost of solving a vertex's linear system, in edges
MAX_FACTORS = 256
NUMBA_CONFIG.PARFOR_MAX_TUPLE_SIZE = max(
    NUMBA_CONFIG.PARFOR_MAX_TUPLE_SIZE, MAX_FACTORS + 2
)  # of `lanes`; numba has 100


class WeightedEdges(NamedTuple):
    """A batch of edges with their weights.

    Attributes:
        table: the table of the other side.
        indices, start, edge_count: the edges are those at the places start .. start + edge_count - 1 of `indices`.
        weights, halves: float32 (BATCH,), for each edge the weight of its outer product, and that of its means.
    """

    table: np.ndarray
    indices: np.ndarray
    start: int
    edge_count: int
    weights: np.ndarray
    halves: np.ndarray


@njit(**INLINED)
def row_start(indices, edge, width):
    """Where the row of an edge's other end begins."""
    return np.int64(element(indices, edge)) * (2 * width)


@njit(**JIT_OPTIONS)
def fill_row_factors(row, n, factors):
    """Fill `factors` (3 W) from an own row (2 W): the numbers by which `moments` multiplies rows of the other side."""
    width, like = len(row) // 2, add_halves(broadcast(ZERO))
    for k in range(0, width, COLUMN_UNIT):
        mean, variance = load_like(like, row, k), load_like(like, row, width + k)
        store(factors, k, mean)
        store(factors, width + k, mean * mean + variance)
        store(factors, 2 * width + k, variance)
    factors[n - 2], factors[n - 1] = 1, row[n - 2]
    factors[width + n - 2], factors[width + n - 1] = 1, 0
    factors[2 * width + n - 2], factors[2 * width + n - 1] = 0, row[width + n - 2]


@njit(**INLINED)
def _row_starts(indices, edge, last, width):
    """Where the rows of ROWS edges begin; behind the edge `last`, that of it."""
    return (
        row_start(indices, edge, width),
        row_start(indices, min(edge + 1, last), width),
        row_start(indices, min(edge + 2, last), width),
        row_start(indices, min(edge + 3, last), width),
        row_start(indices, min(edge + 4, last), width),
        row_start(indices, min(edge + 5, last), width),
        row_start(indices, min(edge + 6, last), width),
        row_start(indices, min(edge + 7, last), width),
    )


@njit(**INLINED)
def fill_moments(lanes, own, table, indices, start, count, means, variances):
    """E[a] and var[a], a = u.v + b_i + b_j, of the `count` edges from the place `start` of `indices`.

    A row is read by cache lines. Where W is not a multiple of F32_WIDTH, one line has means and variances.

    own: float32 (3 W), the factors of a row's means, variances and squared means: [u, 1, b_i], [E u^2, 1, 0] and
        [var u, 0, var b_i].
    means, variances: float32, filled from place 0 up to a multiple of ROWS.
    """
    width = pad_width(len(lanes), COLUMN_UNIT)
    middle, zero, nothing = width - width % F32_WIDTH, broadcast(ZERO), add_halves(broadcast(ZERO))
    for edge in range(0, count, ROWS):
        rows = _row_starts(indices, start + edge, start + count - 1, width)
        mean = spread = (zero, zero, zero, zero, zero, zero, zero, zero)
        for line in range(0, middle, F32_WIDTH):
            mean = plus_rows(mean, table, rows, line, load(own, line))
            spread = plus_squared_rows(spread, table, rows, line, load(own, 2 * width + line))
        if width % F32_WIDTH:
            last, first, squared = middle, width, 2 * width + middle
            mean = plus_rows(mean, table, rows, middle, join_halves(load_like(nothing, own, last), nothing))
            spread = plus_rows(spread, table, rows, middle, join_halves(nothing, load_like(nothing, own, first)))
            squares = join_halves(load_like(nothing, own, squared), nothing)
            spread = plus_squared_rows(spread, table, rows, middle, squares)
        for line in range(width + width % F32_WIDTH, 2 * width, F32_WIDTH):
            spread = plus_rows(spread, table, rows, line, load(own, line))
        store(means, edge, horizontal_sums(mean))
        store(variances, edge, horizontal_sums(spread))


@njit(**INLINED)
def add_outer(lanes, weighted, sums):
    """Add the outer products of the means of `WeightedEdges` edges' rows to `sums`, float32 ((W + 2) W).

    Row k < W of `sums` gains sum_e weights_e y_ek y_e, row W sum_e weights_e (variances), and row W + 1
    sum_e halves_e y_e. Of the first W rows only the upper triangle is correct.
    """
    width = pad_width(len(lanes), COLUMN_UNIT)
    if width % F32_WIDTH:
        _add_tile(ROWS_8, add_halves(broadcast(ZERO)), 0, 0, width, weighted, sums)
        for first in range(COLUMN_UNIT, width, F32_WIDTH):
            _add_tile(ROWS_24, broadcast(ZERO), 0, first, width, weighted, sums)
            for top in range(24, first + F32_WIDTH, 16):
                _add_tile(ROWS_16, broadcast(ZERO), top, first, width, weighted, sums)
    else:
        for first in range(0, width, F32_WIDTH):
            for top in range(0, first + F32_WIDTH, 16):
                _add_tile(ROWS_16, broadcast(ZERO), top, first, width, weighted, sums)


@njit(**INLINED)
def _add_tile(rows, like, top, first, width, weighted, sums):
    """Part of `add_outer`, held in registers: the rows from `top` on, and if `top` is 0 also the last two rows.

    There are as many rows as `rows` is long, and as many columns, from `first` on, as `like` has lanes.
    """
    table, indices, start, count, weights, halves = weighted
    at, last = top * width + first, width * width + first
    tile = load_tile(rows, like, sums, at, width)
    spreads, pulls = load_like(like, sums, last), load_like(like, sums, last + width)
    for edge in range(count):
        row, weight = row_start(indices, start + edge, width), element(weights, edge)
        mean = load_like(like, table, row + first)
        tile = plus_products(tile, table, row + top, 1, weight * mean)
        if top == 0:
            spreads = spreads + weight * load_like(like, table, row + width + first)
            pulls = pulls + element(halves, edge) * mean
    store_tile(sums, at, width, tile)
    if top == 0:
        store(sums, last, spreads)
        store(sums, last + width, pulls)


class Edges(NamedTuple):
    """The edges of one side's vertices.

    Attributes:
        indptr, indices: int64 (vertices + 1,) and int32 (edges,), CSR of the other side's vertices.
        counts: float32 (edges,), c_ij.
        bounds: int64, at most SHARDS + 1, runs of vertices of about equal load.
    """

    indptr: np.ndarray
    indices: np.ndarray
    counts: np.ndarray
    bounds: np.ndarray


class Censored(NamedTuple):
    """The censored pairs of one side's vertices.

    Attributes:
        pseudo: float64 (vertices,), D' s_i.
        lambda_star: lambda(xi*).
        background: float64 (n W,), E_t[y y'], its rows padded to W.
    """

    pseudo: np.ndarray
    lambda_star: float
    background: np.ndarray


class Scratch(NamedTuple):
    """The scratch arrays with which a shard updates its vertices.

    Attributes:
        factors: float32 (3 W,), filled by `fill_row_factors` for one vertex.
        batch: float32 (6, BATCH), six numbers for each edge of a batch.
        sums: float32 ((W + 2) W,), sums over some batches; total: float64 ((W + 2) W,), sums over all of them.
        diagonal: float64 (n,), that of P.
    """

    factors: np.ndarray
    batch: np.ndarray
    sums: np.ndarray
    total: np.ndarray
    diagonal: np.ndarray


@njit(**JIT_OPTIONS)
def load_counts(lanes, edges, other, first, count, hits, shares):
    """Fill `hits` and `shares` (BATCH,) with c_ij and t_j of the `count` edges from `first` on, zero behind them."""
    width = pad_width(len(lanes), COLUMN_UNIT)
    for e in range(count):
        row = row_start(edges.indices, first + e, width)
        put(hits, e, element(edges.counts, first + e))
        put(shares, e, element(other, row + width + len(lanes) - 1))
    for e in range(count, EDGES_PER_BATCH):
        hits[e] = shares[e] = 0


@njit(**JIT_OPTIONS)
def sum_weighted_edges(lanes, vertex, edges, other, censored, scratch):
    """Fill `total` with sums over one vertex's edges: of w y y' (W rows), of w var, and of c y / 2 (one row each).

    w_ij = 2 lambda_ij c_ij + D' s_i t_j 2 (lambda_ij - lambda*), with xi_ij at its optimum for the present
    factors.
    """
    indptr, indices, _, _ = edges
    factors, batch, sums, total = scratch.factors, scratch.batch, scratch.sums, scratch.total
    means, variances, hits, shares, weights, halves = batch[0], batch[1], batch[2], batch[3], batch[4], batch[5]
    pseudo, lambda_star = np.float32(censored.pseudo[vertex]), np.float32(censored.lambda_star)
    start, end = indptr[vertex], indptr[vertex + 1]
    sums[:] = 0
    if start == end:
        total[:] = 0
    for first in range(start, end, EDGES_PER_BATCH):
        count = min(EDGES_PER_BATCH, end - first)
        fill_moments(lanes, factors, other, indices, first, count, means, variances)
        load_counts(lanes, edges, other, first, count, hits, shares)
        for e in range(EDGES_PER_BATCH):
            bend = lambda_of_square(best_square(means[e], variances[e]))
            weights[e] = np.float32(2) * (bend * hits[e] + pseudo * shares[e] * (bend - lambda_star))
            halves[e] = np.float32(0.5) * hits[e]
        add_outer(lanes, WeightedEdges(other, indices, first, count, weights, halves), sums)
        batch_number = (first - start) // EDGES_PER_BATCH
        if batch_number % FLUSH == FLUSH - 1 or first + count == end:
            for place in range(len(sums)):
                total[place] = sums[place] + (total[place] if batch_number >= FLUSH else 0.0)
            if first + count < end:
                sums[:] = 0


@njit(**JIT_OPTIONS)
def build_system(n, vertex, censored, precisions, scratch, system):
    """Fill `system` (float64, n rows W long) with the upper triangle of P and z, for the joint (u_i, b_i).

    With x_j = (v_j, 1): P = sum_G w E[x x'] + g E_t[x x'] + tau and z = sum_G (c/2 - w E b_j) E x_j
    - (D' s_i / 2) E_t[x] - g E_t[b x], where g = D' s_i 2 lambda*. Most of this is in
    M = sum_G w E[y y'] + g E_t[y y'], y = (v, b, 1): P is M without the row and column of b, and the column of b is
    subtracted from z. Column n - 1 of `system` becomes z; `diagonal` becomes the diagonal of P.
    """
    background, pseudo, (precision, bias_precision) = censored.background, censored.pseudo[vertex], precisions
    total, diagonal = scratch.total, scratch.diagonal
    width = len(background) // n
    grip, bias, one = 2 * pseudo * censored.lambda_star, n - 2, n - 1
    for place in range(0, len(background), F64_WIDTH):
        store(system, place, load(total, place) + grip * load(background, place))
    for a in range(n - 1):
        row = a * width
        if a < bias:
            y, least, pulled = a, precision, system[row + bias]
            own = system[row + a] + total[width * width + a]
            system[row + bias] = system[row + one]
        else:
            y, least, pulled = one, bias_precision, system[row + one]
            own = system[one * width + one]
        diagonal[a] = system[row + a] = max(own + least, least)
        system[row + one] = total[(width + 1) * width + y] - pulled - 0.5 * pseudo * background[y * width + one]


@njit(**JIT_OPTIONS)
def update_shard(lanes, shard, edges, own, other, censored, precisions, limits):
    n, least, width = len(lanes), min(precisions), own.shape[1] // 2
    batch, size = np.zeros((6, EDGES_PER_BATCH), np.float32), (width + 2) * width
    scratch = Scratch(aligned_zeros(3 * width), batch, aligned_zeros(size), np.empty(size), np.empty(n))
    system, solution = np.zeros(n * width), np.empty(n)
    for vertex in range(edges.bounds[shard], edges.bounds[shard + 1]):
        for _ in range(limits[0]):
            fill_row_factors(own[vertex], n, scratch.factors)
            sum_weighted_edges(lanes, vertex, edges, other, censored, scratch)
            build_system(n, vertex, censored, precisions, scratch, system)
            solve_with_pivot_floor(lanes, system, least, solution)
            change = np.float32(0)
            for k in range(n - 1):
                mean = np.float32(solution[k])
                change = max(change, abs(mean - own[vertex, k]))
                own[vertex, k], own[vertex, width + k] = mean, np.float32(1 / scratch.diagonal[k])
            if change <= limits[1]:
                break


@njit(parallel=True, **JIT_OPTIONS)
def update_rows(lanes, edges, own, other, censored, precisions, limits):
    """The joint update of (u_i, b_i) for every vertex of `own`, in place.

    Args:
        edges: the `Edges` of these vertices.
        censored: their `Censored` pairs.
        precisions: those of the priors of the factors and of the biases.
        limits: (passes, tolerance): each vertex is updated up to `passes` times, until no mean moves by more than
            `tolerance`.
    """
    for shard in prange(len(edges.bounds) - 1):
        if edges.bounds[shard] < edges.bounds[shard + 1]:  # with few vertices, some shards are empty
            # numba types the loop's index as int64 and runs it as uint64: as it is, it compiles what it calls for both
            update_shard(lanes, np.int64(shard), edges, own, other, censored, precisions, limits)


@njit(**SUMMED)
def sum_batch(batch):
    """Over a batch, the sums of c (log sigma(xi) - xi/2 + E a / 2); t (log sigma(xi) - xi/2); t; t E a^2. Float64."""
    likelihood = high = mass = spread = 0.0
    for e in range(EDGES_PER_BATCH):
        mean, square, height = np.float64(batch[0, e]), np.float64(batch[1, e]), np.float64(batch[2, e])
        hit, share = np.float64(batch[3, e]), np.float64(batch[4, e])
        likelihood += hit * (height + 0.5 * mean)
        high += share * height
        mass += share
        spread += share * square
    return likelihood, high, mass, spread


@njit(**JIT_OPTIONS)
def edge_sums_of_shard(lanes, shard, edges, own, other, out):
    indptr, indices, _, bounds = edges
    factors, batch = aligned_zeros(3 * own.shape[1] // 2), np.zeros((5, EDGES_PER_BATCH), np.float32)
    means, squares, heights = batch[0], batch[1], batch[2]
    for vertex in range(bounds[shard], bounds[shard + 1]):
        fill_row_factors(own[vertex], len(lanes), factors)
        end, sums = indptr[vertex + 1], (0.0, 0.0, 0.0, 0.0)
        for first in range(indptr[vertex], end, EDGES_PER_BATCH):
            count = min(EDGES_PER_BATCH, end - first)
            fill_moments(lanes, factors, other, indices, first, count, means, squares)
            load_counts(lanes, edges, other, first, count, batch[3], batch[4])
            for e in range(EDGES_PER_BATCH):
                squares[e] = best_square(means[e], squares[e])
                heights[e] = best_bound_of_square(squares[e])
            gained = sum_batch(batch)
            sums = (sums[0] + gained[0], sums[1] + gained[1], sums[2] + gained[2], sums[3] + gained[3])
        out[vertex, 0], out[vertex, 1], out[vertex, 2], out[vertex, 3] = sums


@njit(parallel=True, **JIT_OPTIONS)
def sum_edges(lanes, edges, own, other, out):
    """Fill `out`, float64 (vertices, 4), with four sums over each vertex's edges, xi_ij being sqrt(E a_ij^2).

    They are of c (log sigma(xi) - xi/2 + E a / 2); t (log sigma(xi) - xi/2); t; t E a^2.
    """
    for shard in prange(len(edges.bounds) - 1):
        edge_sums_of_shard(lanes, np.int64(shard), edges, own, other, out)


@njit(**JIT_OPTIONS)
def background_of_shard(lanes, first, last, rows, background, prior):
    n, width = len(lanes), rows.shape[1] // 2
    places, weights = np.empty(EDGES_PER_BATCH, np.int32), np.zeros(EDGES_PER_BATCH, np.float32)
    nothing = np.zeros(EDGES_PER_BATCH, np.float32)
    sums = np.zeros((width + 2) * width, np.float32)
    for start in range(first, last, EDGES_PER_BATCH):
        count = min(EDGES_PER_BATCH, last - start)
        for e in range(count):
            places[e], weights[e] = start + e, rows[start + e, width + n - 1]
        add_outer(lanes, WeightedEdges(rows, places, 0, count, weights, nothing), sums)
        for i in range(n):
            for j in range(i, n):
                background[i, j] += sums[i * width + j]
            background[i, i] += sums[width * width + i] if i < n - 1 else 0.0
        sums[:] = 0
        for row in range(start, start + count):
            for k in range(n - 1):
                part = 0 if k < n - 2 else 2
                prior[part] += np.log(rows[row, width + k])
                prior[part + 1] += rows[row, width + k] + rows[row, k] ** 2


@njit(parallel=True, **JIT_OPTIONS)
def sum_backgrounds(lanes, rows, backgrounds, priors):
    """Sums over all rows, by shards: second moments weighted by the shares, and the terms of the Gaussian priors.

    backgrounds: float64 (SHARDS, n, n), upper triangles of sum_j t_j E[y y'], y = (v, b, 1). They contain the
    paper's P_- and m_-, and the same for the biases. priors: float64 (SHARDS, 4), the sums of log var and of E v^2
    over factors, then over biases. The caller fills both with zeros.
    """
    for shard in prange(SHARDS):
        first, last = shard * len(rows) // SHARDS, (shard + 1) * len(rows) // SHARDS
        background_of_shard(lanes, first, last, rows, backgrounds[shard], priors[shard])


@njit(parallel=True, **JIT_OPTIONS)
def average_background(lanes, own, background, out):
    """Fill `out`, float64 (vertices, 2), with E_t[a] and E_t[a^2]: for each vertex, averages over the other side.

    `background` is that of `Censored`.
    """
    n = len(lanes)
    for vertex in prange(len(own)):
        row = own[vertex]
        width = len(row) // 2
        mean = square = 0.0
        for i in range(n):
            left = np.float64(row[i] if i < n - 2 else row[2 * n - 3 - i])
            inner, at = 0.0, i * width
            for j in range(n):
                inner += background[at + j] * (row[j] if j < n - 2 else row[2 * n - 3 - j])
            square += left * inner
            mean += left * background[at + n - 1]
            if i < n - 2:
                square += row[width + i] * background[at + i]
        last = (n - 1) * width + n - 1
        out[vertex, 0], out[vertex, 1] = mean, square + row[width + n - 2] * background[last]
