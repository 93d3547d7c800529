"""Vector instructions for the kernels of paired symbols, which numba's own loops do not reach.

numba cannot know that two arrays do not overlap, so a plain loop over an edge's K numbers keeps no running
sum in a register. These steps are written as LLVM vectors of 16 and 8 floats instead; LLVM lowers them to
whatever the processor has (one AVX-512 register, two of AVX2, four of NEON).

Layout. A table has one float32 row a vertex, 2 W long: means y = [v_1 .. v_K, b, 1, 0 ..], then variances
[.., var b, share, 0 ..], W being n = K + 2 rounded up to a multiple of 8. `share` is t_j (s_i), which rides
in the place where the constant's variance would stand. The type of `lanes`, a tuple of n integers, carries n,
so that code is made for each n. Nothing is checked: places must lie inside the arrays.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

FLOAT, DOUBLE, INT64 = ir.FloatType(), ir.DoubleType(), ir.IntType(64)
FUSE = ("contract",)  # a multiply and an add may become one instruction
MOST_SUMS = 24  # vector sums that one loop keeps in registers


def padded(n: int) -> int:
    """Numbers in half a row: n rounded up to a multiple of 8."""
    return -(-n // 8) * 8


def column_blocks(n: int) -> list[tuple[int, int]]:
    """(first column, columns) of the vectors that make up half a row; eight columns come first."""
    odd = padded(n) % 16
    return [(0, 8)] * (odd == 8) + [(first, 16) for first in range(odd, padded(n), 16)]


class Arrays:
    """Loads and stores of vectors at computed places, on top of an LLVM builder."""

    def __init__(self, context, builder, signature, arguments):
        self.builder = builder
        self.base = [
            context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments)
        ]

    def at(self, base, *offsets):
        """Address of an element: the base moved by the sum of the offsets, in elements."""
        offset = INT64(0)
        for part in offsets:
            offset = self.builder.add(offset, INT64(part) if isinstance(part, int) else part)
        return self.builder.gep(base, [offset])

    def vector(self, address, lanes, element=FLOAT):
        pointer = self.builder.bitcast(address, ir.VectorType(element, lanes).as_pointer())
        return self.builder.load(pointer, align=4 if element is FLOAT else 8)

    def store(self, value, address):
        pointer = self.builder.bitcast(address, value.type.as_pointer())
        self.builder.store(value, pointer, align=4 if value.type.element == FLOAT else 8)

    def spread(self, scalar, lanes):
        """The vector whose every lane is the scalar."""
        kind = ir.VectorType(scalar.type, lanes)
        one = self.builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, INT64(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        return self.builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)

    def multiply_add(self, a, b, total):
        product = self.builder.fmul(a, b, flags=FUSE)
        return self.builder.fadd(product, total, flags=FUSE)

    def sum_lanes(self, vectors):
        """The sum of all lanes of all vectors (16 or 8 lanes each)."""
        total = None
        for vector in vectors:
            if vector.type.count == 16:
                low, high = (
                    ir.Constant(ir.VectorType(ir.IntType(32), 8), list(range(first, first + 8))) for first in (0, 8)
                )
                vector = self.builder.fadd(
                    self.builder.shuffle_vector(vector, vector, low), self.builder.shuffle_vector(vector, vector, high)
                )
            total = vector if total is None else self.builder.fadd(total, vector)
        kind = ir.FunctionType(FLOAT, [FLOAT, total.type])
        reduce = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.vector.reduce.fadd.v8f32")
        return self.builder.call(reduce, [FLOAT(-0.0), total], fastmath=("reassoc",))

    def row(self, table, indices, place, stride):
        """Address of the table's row that `indices` names at `place`."""
        index = self.builder.load(self.builder.gep(indices, [place]))
        return self.at(table, self.builder.mul(self.builder.sext(index, INT64), INT64(stride)))


@intrinsic
def moments(typing, lanes, own, table, indices, start, count, means, squares):
    """E[a] and E[a^2] of `count` edges, a = u.v + b_i + b_j, from the places start .. of `indices`.

    own: float32 (3 W), what multiplies a row's means, variances and squared means:
        [u, 1, b_i], [E u^2, 1, 0] and [var u, 0, var b_i].
    means, squares: float32, filled from place 0.
    """

    def generate(context, builder, signature, arguments):
        blocks, width = column_blocks(len(signature.args[0])), padded(len(signature.args[0]))
        arrays = Arrays(context, builder, signature, arguments)
        _, own, table, indices, start, count, means, squares = arrays.base
        factors = [
            [arrays.vector(arrays.at(own, part * width + first), size) for first, size in blocks] for part in range(3)
        ]
        with cgutils.for_range(builder, count) as loop:
            row = arrays.row(table, indices, builder.add(start, loop.index), 2 * width)
            mean_parts, spread_parts = [], []
            for (first, size), by_mean, by_variance, by_square in zip(blocks, *factors):
                mean = arrays.vector(arrays.at(row, first), size)
                variance = arrays.vector(arrays.at(row, width + first), size)
                mean_parts.append(builder.fmul(mean, by_mean))
                square = builder.fmul(mean, mean)
                spread = builder.fmul(variance, by_variance)
                spread_parts.append(arrays.multiply_add(square, by_square, spread))
            mean = arrays.sum_lanes(mean_parts)
            builder.store(mean, builder.gep(means, [loop.index]))
            builder.store(
                arrays.multiply_add(mean, mean, arrays.sum_lanes(spread_parts)), builder.gep(squares, [loop.index])
            )
        return context.get_dummy_value()

    return types.void(lanes, own, table, indices, start, count, means, squares), generate


@intrinsic
def prefetch(typing, lanes, table, indices, start, count):
    """Ask for the rows of `count` edges ahead of their use."""

    def generate(context, builder, signature, arguments):
        width = padded(len(signature.args[0]))
        arrays = Arrays(context, builder, signature, arguments)
        _, table, indices, start, count = arrays.base
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte] + [ir.IntType(32)] * 3)
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        with cgutils.for_range(builder, count) as loop:
            row = arrays.row(table, indices, builder.add(start, loop.index), 2 * width)
            for line in range(0, 2 * width, 16):
                address = builder.bitcast(arrays.at(row, line), byte)
                builder.call(ask, [address] + [ir.IntType(32)(number) for number in (0, 3, 1)])
        return context.get_dummy_value()

    return types.void(lanes, table, indices, start, count), generate


@intrinsic
def add_outer(typing, lanes, table, indices, start, count, weights, halves, sums):
    """Add weighted outer products of `count` rows' means to `sums`, float32 ((n + 2) W).

    Row k < n of `sums` gains sum_e weights_e y_ek y_e (the upper triangle is right, the rest is not kept
    up), row n sum_e weights_e (variances), row n + 1 sum_e halves_e y_e.
    """

    def generate(context, builder, signature, arguments):
        n = len(signature.args[0])
        arrays = Arrays(context, builder, signature, arguments)
        for first, size in column_blocks(n):
            rows = list(range(min(n, first + size))) + [n, n + 1]
            for group in range(0, len(rows), MOST_SUMS):
                _add_block(arrays, n, first, size, rows[group : group + MOST_SUMS])
        return context.get_dummy_value()

    return types.void(lanes, table, indices, start, count, weights, halves, sums), generate


def _add_block(arrays, n, first, size, rows):
    """The part of `add_outer` in the columns first .. first + size - 1 of some rows of `sums`."""
    builder, width = arrays.builder, padded(n)
    _, table, indices, start, count, weights, halves, sums = arrays.base
    kept = {}
    for k in rows:
        kept[k] = cgutils.alloca_once_value(builder, arrays.vector(arrays.at(sums, k * width + first), size))
    with cgutils.for_range(builder, count) as loop:
        row = arrays.row(table, indices, builder.add(start, loop.index), 2 * width)
        mean = arrays.vector(arrays.at(row, first), size)
        weight = arrays.spread(builder.load(builder.gep(weights, [loop.index])), size)
        weighted = builder.fmul(mean, weight)
        for k in rows:
            if k < n:
                one, other = arrays.spread(builder.load(arrays.at(row, k)), size), weighted
            elif k == n:
                one, other = arrays.vector(arrays.at(row, width + first), size), weight
            else:
                one, other = arrays.spread(builder.load(builder.gep(halves, [loop.index])), size), mean
            builder.store(arrays.multiply_add(one, other, builder.load(kept[k])), kept[k])
    for k in rows:
        arrays.store(builder.load(kept[k]), arrays.at(sums, k * width + first))


@intrinsic
def eliminate(typing, lanes, matrix, k, inverse):
    """matrix[i] -= inverse * matrix[k, i] * matrix[k] for k < i < n - 1: one step of a symmetric elimination.

    matrix: float64, rows W long, flat; only its columns from i on are kept up in row i.
    """

    def generate(context, builder, signature, arguments):
        n = len(signature.args[0])
        arrays = Arrays(context, builder, signature, arguments)
        _, matrix, k, inverse = arrays.base
        pivot = arrays.at(matrix, builder.mul(k, INT64(padded(n))))
        columns = range(0, padded(n), 8)
        rows = [arrays.vector(arrays.at(pivot, column), 8, DOUBLE) for column in columns]
        following = builder.add(k, INT64(1))
        for block in columns:  # of rows, whose columns in front of the block are left alone
            first = builder.select(builder.icmp_signed(">", following, INT64(block)), following, INT64(block))
            end = INT64(min(block + 8, n - 1))
            with cgutils.for_range_slice(builder, first, end, INT64(1), INT64) as (i, _):
                factor = builder.fneg(builder.fmul(inverse, builder.load(builder.gep(pivot, [i]))))
                row = arrays.at(matrix, builder.mul(i, INT64(padded(n))))
                for column in columns[block // 8 :]:
                    place = arrays.at(row, column)
                    arrays.store(
                        arrays.multiply_add(
                            arrays.spread(factor, 8), rows[column // 8], arrays.vector(place, 8, DOUBLE)
                        ),
                        place,
                    )
        return context.get_dummy_value()

    return types.void(lanes, matrix, k, inverse), generate


@intrinsic
def power_of_two(typing, exponent):
    """2^exponent as float32, for an int32 from -126 to 127."""

    def generate(context, builder, signature, arguments):
        kind = ir.IntType(32)
        return builder.bitcast(builder.shl(builder.add(arguments[0], kind(127)), kind(23)), FLOAT)

    return types.float32(types.int32), generate
