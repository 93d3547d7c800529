"""Sixteen float32 at a time: the few vector steps that numba's own loops do not turn into good code.

A loop over a runtime number of factors (21, say) costs more in tests for aliasing and in leftovers than in
arithmetic. These intrinsics emit the vector instructions themselves; LLVM lowers them to one AVX-512, two AVX
or four SSE instructions, whichever the processor has. Arrays are flat and contiguous, places in them are
element numbers, and nothing is checked: callers keep LANES elements free behind every place they name.
Every element of a result is summed in one fixed order, whatever the instruction set.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16  # one AVX-512 register of float32
ROWS = 8  # rows of a tile of `add_outer`
UNROLLED = 4  # sums side by side in `add_weighted_lanes`

_LANE = ir.FloatType()
_VECTOR = ir.VectorType(_LANE, LANES)
_FUSED = ("contract", "reassoc", "nsz")


@njit(cache=True, inline="always")
def padded(width):
    """The next multiple of LANES."""
    return -(-width // LANES) * LANES


@njit(cache=True)
def zeros(size):
    """Zeros, float32 (size,), beginning at a cache line, so that vectors of a padded table straddle none."""
    room = np.zeros(size + LANES, dtype=np.float32)
    start = (-room.ctypes.data // 4) % LANES
    return room[start : start + size]


def address(context, builder, array_type, array, index):
    data = context.make_array(array_type)(context, builder, value=array).data
    return builder.gep(data, [index])


def load_vector(builder, place):
    return builder.load(builder.bitcast(place, _VECTOR.as_pointer()), align=4)


def store_vector(builder, value, place):
    builder.store(value, builder.bitcast(place, _VECTOR.as_pointer()), align=4)


def splat(builder, scalar):
    first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), scalar, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(_VECTOR, ir.Undefined), mask)


def multiply_add(builder, left, right, total):
    return builder.fadd(total, builder.fmul(left, right, flags=_FUSED), flags=_FUSED)


def sum_of_lanes(builder, vector):
    name = f"llvm.vector.reduce.fadd.v{LANES}f32"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_LANE, [_LANE, _VECTOR]), name)
    return builder.call(function, [_LANE(0.0), vector], fastmath=("reassoc",))


@intrinsic
def copy_lanes(typingctx, target, at, source, source_at):
    """target[at + l] = source[source_at + l]."""

    def codegen(context, builder, signature, arguments):
        target, at, source, source_at = arguments
        value = load_vector(builder, address(context, builder, signature.args[2], source, source_at))
        store_vector(builder, value, address(context, builder, signature.args[0], target, at))
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp), codegen


@intrinsic
def prefetch(typingctx, array, at):
    """Ask for the cache line of array[at], to be had from the second-level cache when it is needed."""

    def codegen(context, builder, signature, arguments):
        array, at = arguments
        place = address(context, builder, signature.args[0], array, at)
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [builder.bitcast(place, byte), flag(0), flag(2), flag(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@intrinsic
def scale_lanes(typingctx, target, at, scale, source, source_at):
    """target[at + l] = scale source[source_at + l]."""

    def codegen(context, builder, signature, arguments):
        target, at, scale, source, source_at = arguments
        value = load_vector(builder, address(context, builder, signature.args[3], source, source_at))
        value = builder.fmul(splat(builder, scale), value)
        store_vector(builder, value, address(context, builder, signature.args[0], target, at))
        return context.get_dummy_value()

    return types.void(target, types.intp, types.float32, source, types.intp), codegen


@intrinsic
def add_weighted_lanes(typingctx, target, at, weights, weights_at, source, source_at, step, count):
    """target[at + l] += sum_{c < count} weights[weights_at + c] source[source_at + step c + l].

    `count` is a multiple of UNROLLED: that many sums are kept, so that one need not wait for the one before.
    """

    def codegen(context, builder, signature, arguments):
        target, at, weights, weights_at, source, source_at, step, count = arguments
        place = address(context, builder, signature.args[0], target, at)
        first_weight = address(context, builder, signature.args[2], weights, weights_at)
        first_source = address(context, builder, signature.args[4], source, source_at)
        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(UNROLLED)]
        unrolled = count.type(UNROLLED)
        with cgutils.for_range_slice(builder, count.type(0), count, unrolled, count.type) as (first, _):
            for part, total in enumerate(sums):
                number = builder.add(first, first.type(part))
                weight = builder.load(builder.gep(first_weight, [number]))
                values = load_vector(builder, builder.gep(first_source, [builder.mul(number, step)]))
                added = multiply_add(builder, splat(builder, weight), values, builder.load(total))
                builder.store(added, total)
        result = load_vector(builder, place)
        for total in sums:
            result = builder.fadd(result, builder.load(total))
        store_vector(builder, result, place)
        return context.get_dummy_value()

    place = types.intp
    return types.void(target, place, weights, place, source, place, place, place), codegen


@intrinsic
def add_scaled_lanes(typingctx, target, at, scale, source, source_at):
    """target[at + l] += scale source[source_at + l]."""

    def codegen(context, builder, signature, arguments):
        target, at, scale, source, source_at = arguments
        place = address(context, builder, signature.args[0], target, at)
        value = load_vector(builder, address(context, builder, signature.args[3], source, source_at))
        store_vector(builder, multiply_add(builder, splat(builder, scale), value, load_vector(builder, place)), place)
        return context.get_dummy_value()

    return types.void(target, types.intp, types.float32, source, types.intp), codegen


@intrinsic
def product_moments(typingctx, row, means_at, variances_at, own, width):
    """Mean and variance of the sum of products of independent Gaussians, two float32.

    With x_l of mean row[means_at + l] and variance row[variances_at + l], and y_l of mean own[l], second
    moment own[width + l] and variance own[2 width + l], l < width (a multiple of LANES):
    E sum x y = sum E x E y,  var sum x y = sum var x E y^2 + (E x)^2 var y.
    """

    def codegen(context, builder, signature, arguments):
        row, means_at, variances_at, own, width = arguments
        means, variances = (address(context, builder, signature.args[0], row, at) for at in (means_at, variances_at))
        own_means, own_seconds, own_variances = (
            address(context, builder, signature.args[3], own, builder.mul(width, width.type(part))) for part in range(3)
        )
        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        mean_sum, variance_sum = (cgutils.alloca_once_value(builder, zero) for _ in range(2))
        with cgutils.for_range_slice(builder, width.type(0), width, width.type(LANES), width.type) as (
            lane,
            _,
        ):
            mean = load_vector(builder, builder.gep(means, [lane]))
            total = multiply_add(
                builder, mean, load_vector(builder, builder.gep(own_means, [lane])), builder.load(mean_sum)
            )
            builder.store(total, mean_sum)
            total = multiply_add(
                builder,
                load_vector(builder, builder.gep(variances, [lane])),
                load_vector(builder, builder.gep(own_seconds, [lane])),
                builder.load(variance_sum),
            )
            total = multiply_add(
                builder, builder.fmul(mean, mean), load_vector(builder, builder.gep(own_variances, [lane])), total
            )
            builder.store(total, variance_sum)
        totals = [sum_of_lanes(builder, builder.load(place)) for place in (mean_sum, variance_sum)]
        return context.make_tuple(builder, signature.return_type, totals)

    return types.UniTuple(types.float32, 2)(row, types.intp, types.intp, own, types.intp), codegen


@intrinsic
def add_outer(typingctx, target, at, stride, left, left_at, left_step, right, right_at, right_step, count):
    """Add `count` outer products to a tile of ROWS x LANES.

    target[at + stride r + l] += sum_{c < count} left[left_at + left_step c + r]
    right[right_at + right_step c + l], summed in the order of c with the whole tile in registers.
    """

    def codegen(context, builder, signature, arguments):
        target, at, stride, left, left_at, left_step, right, right_at, right_step, count = arguments
        first = address(context, builder, signature.args[0], target, at)
        rows = [builder.gep(first, [builder.mul(stride, stride.type(row))]) for row in range(ROWS)]
        left_place = address(context, builder, signature.args[3], left, left_at)
        right_place = address(context, builder, signature.args[6], right, right_at)
        before = builder.block
        loop, after = (builder.append_basic_block(name) for name in ("edges", "done"))
        starts = [load_vector(builder, row) for row in rows]
        builder.cbranch(builder.icmp_signed(">", count, count.type(0)), loop, after)
        builder.position_at_end(loop)
        number = builder.phi(count.type)
        sums = [builder.phi(_VECTOR) for _ in rows]
        offset = builder.mul(number, left_step)
        x = load_vector(builder, builder.gep(right_place, [builder.mul(number, right_step)]))
        scalars = [
            builder.load(builder.gep(left_place, [builder.add(offset, offset.type(row))])) for row in range(ROWS)
        ]
        nexts = [multiply_add(builder, splat(builder, scalar), x, total) for scalar, total in zip(scalars, sums)]
        following = builder.add(number, number.type(1))
        builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
        number.add_incoming(number.type(0), before)
        number.add_incoming(following, loop)
        for total, start, value in zip(sums, starts, nexts):
            total.add_incoming(start, before)
            total.add_incoming(value, loop)
        builder.position_at_end(after)
        ends = [builder.phi(_VECTOR) for _ in rows]
        for end, start, value, row in zip(ends, starts, nexts, rows):
            end.add_incoming(start, before)
            end.add_incoming(value, loop)
        for end, row in zip(ends, rows):
            store_vector(builder, end, row)
        return context.get_dummy_value()

    place = types.intp
    signature = types.void(target, place, place, left, place, place, right, place, place, place)
    return signature, codegen
