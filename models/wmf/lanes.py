"""Eight rows of a table at a time: the two vector steps that nearly all time of weighted factorization goes into.

A product with one row waits for the sum over its lanes; with eight rows side by side the sums of all are taken
together, 24 instructions instead of 64. Conventions are those of `models.numerics.lanes`: flat contiguous arrays,
places are element numbers, nothing is checked, and each element is summed in one fixed order.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from models.numerics.lanes import LANES, address, load_vector, multiply_add, splat, store_vector, sum_of_lanes

EDGES = 8  # rows to a step

_ZERO = ir.Constant(ir.VectorType(ir.FloatType(), LANES), [0.0] * LANES)


def _shuffle(builder, one, other, lanes):
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(one, other, mask)


def _halved(builder, one, other, part):
    """Sums of two vectors' runs of `part` lanes with the runs behind them: those of `one`, then of `other`."""
    lanes = [lane for lane in range(2 * LANES) if lane // part % 2 == 0]
    low = _shuffle(builder, one, other, lanes)
    high = _shuffle(builder, one, other, [lane + part for lane in lanes])
    return builder.fadd(low, high)


def _totals(builder, vectors):
    """The sums over lanes of EDGES vectors, as one vector of EDGES."""
    part = LANES // 2
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2])
        vectors = [_halved(builder, one, other, part) for one, other in pairs]
        part //= 2
    even, odd = ([lane + first for lane in range(0, LANES, 2)] for first in range(2))
    (last,) = vectors
    return builder.fadd(_shuffle(builder, last, last, even), _shuffle(builder, last, last, odd))


def _row_places(builder, table, places, start):
    """Where the EDGES rows begin: table + places[e] + start."""
    for edge in range(EDGES):
        place = builder.load(builder.gep(places, [ir.IntType(64)(edge)]))
        yield builder.gep(table, [builder.add(place, start)])


@intrinsic
def dot_rows(typingctx, out, at, table, places, places_at, start, width, vector, vector_at):
    """out[at + e] = sum_{l < width} table[places[places_at + e] + start + l] vector[vector_at + l], e < EDGES."""

    def codegen(context, builder, signature, arguments):
        out, at, table, places, places_at, start, width, vector, vector_at = arguments
        kinds = signature.args
        numbers = address(context, builder, kinds[3], places, places_at)
        first = address(context, builder, kinds[2], table, width.type(0))
        rows = list(_row_places(builder, first, numbers, start))
        factor = address(context, builder, kinds[7], vector, vector_at)
        sums = [cgutils.alloca_once_value(builder, _ZERO) for _ in rows]
        step = width.type(LANES)
        with cgutils.for_range_slice(builder, width.type(0), width, step, width.type) as (lane, _):
            values = load_vector(builder, builder.gep(factor, [lane]))
            for row, total in zip(rows, sums):
                term = load_vector(builder, builder.gep(row, [lane]))
                builder.store(multiply_add(builder, term, values, builder.load(total)), total)
        result = _totals(builder, [builder.load(total) for total in sums])
        target = address(context, builder, kinds[0], out, at)
        builder.store(result, builder.bitcast(target, result.type.as_pointer()), align=4)
        return context.get_dummy_value()

    i = types.intp
    return types.void(out, i, table, places, i, i, i, vector, i), codegen


@intrinsic
def add_rows(typingctx, target, at, weights, weights_at, table, places, places_at, start, width):
    """target[at + l] += sum_{e < EDGES} weights[weights_at + e] table[places[places_at + e] + start + l], l < width."""

    def codegen(context, builder, signature, arguments):
        target, at, weights, weights_at, table, places, places_at, start, width = arguments
        kinds = signature.args
        numbers = address(context, builder, kinds[5], places, places_at)
        first = address(context, builder, kinds[4], table, width.type(0))
        rows = list(_row_places(builder, first, numbers, start))
        scalars = address(context, builder, kinds[2], weights, weights_at)
        scales = [splat(builder, builder.load(builder.gep(scalars, [width.type(edge)]))) for edge in range(EDGES)]
        sums = address(context, builder, kinds[0], target, at)
        step = width.type(LANES)
        with cgutils.for_range_slice(builder, width.type(0), width, step, width.type) as (lane, _):
            place = builder.gep(sums, [lane])
            total = load_vector(builder, place)
            for row, scale in zip(rows, scales):
                total = multiply_add(builder, scale, load_vector(builder, builder.gep(row, [lane])), total)
            store_vector(builder, total, place)
        return context.get_dummy_value()

    i = types.intp
    return types.void(target, i, weights, i, table, places, i, i, i), codegen


@intrinsic
def dot_lanes(typingctx, one, one_at, other, other_at, width):
    """sum_{l < width} one[one_at + l] other[other_at + l], float32; `width` a multiple of LANES."""

    def codegen(context, builder, signature, arguments):
        one, one_at, other, other_at, width = arguments
        left = address(context, builder, signature.args[0], one, one_at)
        right = address(context, builder, signature.args[2], other, other_at)
        total = cgutils.alloca_once_value(builder, _ZERO)
        step = width.type(LANES)
        with cgutils.for_range_slice(builder, width.type(0), width, step, width.type) as (lane, _):
            values = (load_vector(builder, builder.gep(side, [lane])) for side in (left, right))
            builder.store(multiply_add(builder, *values, builder.load(total)), total)
        return sum_of_lanes(builder, builder.load(total))

    i = types.intp
    return types.float32(one, i, other, i, i), codegen
