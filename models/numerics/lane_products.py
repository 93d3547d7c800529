"""Sums of products over several rows at once, with the running sums held in registers.

The conventions are those of `models.numerics.lanes`: arrays are contiguous float32, places are element numbers, and
bounds are not checked. Every element is summed in one fixed order. Loops over ROWS are unrolled by hand, because a loop
over sums in an array would pass each of them through memory.
"""

import numpy as np
from llvmlite import ir
from numba import njit
from numba.extending import intrinsic

from models.numerics.lanes import INDEX, LANES, Lanes, element, load, prefetch, spread, store, total_of

ROWS = 8  # rows that are worked on side by side
UNROLLED = 4  # running sums in `add_weighted`
ZERO = np.float32(0)
IN_ORDER = {"cache": True, "fastmath": {"contract"}, "forceinline": True}


@njit(**IN_ORDER)
def prefetch_row(array, at, width):
    """Ask for the cache lines of array[at : at + width]."""
    for lane in range(0, width, LANES):
        prefetch(array, at + lane)


@njit(**IN_ORDER)
def copy(target, at, source, source_at, width):
    """target[at + l] = source[source_at + l], l < width."""
    for lane in range(0, width, LANES):
        store(target, at + lane, load(source, source_at + lane))


@njit(**IN_ORDER)
def scale(target, at, factor, source, source_at, width):
    """target[at + l] = factor source[source_at + l], l < width."""
    for lane in range(0, width, LANES):
        store(target, at + lane, factor * load(source, source_at + lane))


@njit(**IN_ORDER)
def add_scaled(target, at, factor, source, source_at, width):
    """target[at + l] += factor source[source_at + l], l < width."""
    for lane in range(0, width, LANES):
        store(target, at + lane, load(target, at + lane) + factor * load(source, source_at + lane))


@njit(**IN_ORDER)
def add_weighted(target, at, weights, weights_at, source, source_at, step, count):
    """target[at + l] += sum_{c < count} weights[weights_at + c] source[source_at + step c + l], l < LANES.

    `count` is a multiple of UNROLLED. There are UNROLLED running sums, so that an addition need not wait for the last.
    """
    s0 = s1 = s2 = s3 = spread(ZERO)
    for c in range(0, count, UNROLLED):
        weight, row = weights_at + c, source_at + step * c
        s0 = s0 + element(weights, weight) * load(source, row)
        s1 = s1 + element(weights, weight + 1) * load(source, row + step)
        s2 = s2 + element(weights, weight + 2) * load(source, row + 2 * step)
        s3 = s3 + element(weights, weight + 3) * load(source, row + 3 * step)
    store(target, at, load(target, at) + ((s0 + s1) + (s2 + s3)))


@njit(**IN_ORDER)
def dot(one, one_at, other, other_at, width):
    """sum_{l < width} one[one_at + l] other[other_at + l], float32; `width` a multiple of LANES."""
    total = spread(ZERO)
    for lane in range(0, width, LANES):
        total = total + load(one, one_at + lane) * load(other, other_at + lane)
    return total_of(total)


@intrinsic
def _totals(typing, rows):
    """The total of each of ROWS rows of lanes, as lanes: 24 instructions, instead of 64 for one row after another."""
    (count,), half = {len(rows)}, Lanes(rows.dtype.element, ROWS)

    def generate(context, builder, call, arguments):
        def shuffled(one, other, lanes):
            return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(INDEX, len(lanes)), lanes))

        def halved(one, other, part):
            """Add every second run of `part` lanes to the run before it, in `one` and then in `other`."""
            lanes = [lane for lane in range(2 * LANES) if lane // part % 2 == 0]
            behind = [lane + part for lane in lanes]
            return builder.fadd(shuffled(one, other, lanes), shuffled(one, other, behind))

        vectors, part = [builder.extract_value(arguments[0], row) for row in range(count)], LANES // 2
        while len(vectors) > 1:
            vectors = [halved(one, other, part) for one, other in zip(vectors[::2], vectors[1::2])]
            part //= 2
        even, odd = (list(range(first, LANES, 2)) for first in range(2))
        return builder.fadd(*(shuffled(vectors[0], vectors[0], lanes) for lanes in (even, odd)))

    return half(rows), generate


@njit(**IN_ORDER)
def dot_rows(out, at, table, places, places_at, start, width, vector, vector_at):
    """out[at + e] = sum_{l < width} table[places[places_at + e] + start + l] vector[vector_at + l], e < ROWS."""
    r0, r1, r2, r3, r4, r5, r6, r7 = _eight(places, places_at)
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = spread(ZERO)
    for lane in range(0, width, LANES):
        x, column = load(vector, vector_at + lane), start + lane
        s0, s1 = s0 + load(table, r0 + column) * x, s1 + load(table, r1 + column) * x
        s2, s3 = s2 + load(table, r2 + column) * x, s3 + load(table, r3 + column) * x
        s4, s5 = s4 + load(table, r4 + column) * x, s5 + load(table, r5 + column) * x
        s6, s7 = s6 + load(table, r6 + column) * x, s7 + load(table, r7 + column) * x
    store(out, at, _totals((s0, s1, s2, s3, s4, s5, s6, s7)))


@njit(**IN_ORDER)
def add_rows(target, at, weights, weights_at, table, places, places_at, start, width):
    """target[at + l] += sum_{e < ROWS} weights[weights_at + e] table[places[places_at + e] + start + l], l < width."""
    r0, r1, r2, r3, r4, r5, r6, r7 = _eight(places, places_at)
    w0, w1, w2, w3, w4, w5, w6, w7 = _eight(weights, weights_at)
    for lane in range(0, width, LANES):
        column, total = start + lane, load(target, at + lane)
        total = total + w0 * load(table, r0 + column) + w1 * load(table, r1 + column)
        total = total + w2 * load(table, r2 + column) + w3 * load(table, r3 + column)
        total = total + w4 * load(table, r4 + column) + w5 * load(table, r5 + column)
        total = total + w6 * load(table, r6 + column) + w7 * load(table, r7 + column)
        store(target, at + lane, total)


@njit(**IN_ORDER)
def _eight(array, at):
    """array[at : at + ROWS] as a tuple."""
    return (
        element(array, at),
        element(array, at + 1),
        element(array, at + 2),
        element(array, at + 3),
        element(array, at + 4),
        element(array, at + 5),
        element(array, at + 6),
        element(array, at + 7),
    )
