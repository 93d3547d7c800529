"""Rows of arrays by SIMD vectors (`models.numerics.simd`): copies, products, and sums of eight rows side by side."""

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

from oneclass.models.numerics.simd import (
    EIGHT,
    F32_WIDTH,
    IN_ORDER,
    INDEX,
    ROWS,
    ZERO,
    Vector,
    broadcast,
    element,
    element_pointer,
    horizontal_sum,
    intrinsic,
    load,
    load_tile,
    plus_products,
    store,
    store_tile,
)


@njit(**IN_ORDER)
def copy(target, at, source, source_at, width):
    """target[at + l] = source[source_at + l], l < width."""
    for lane in range(0, width, F32_WIDTH):
        store(target, at + lane, load(source, source_at + lane))


@njit(**IN_ORDER)
def dot(one, one_at, other, other_at, width):
    """sum_{l < width} one[one_at + l] other[other_at + l], float32; `width` a multiple of F32_WIDTH."""
    total = broadcast(ZERO)
    for lane in range(0, width, F32_WIDTH):
        total = total + load(one, one_at + lane) * load(other, other_at + lane)
    return horizontal_sum(total)


@njit(**IN_ORDER)
def eight(array, at):
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


@intrinsic
def horizontal_sums(typing, rows):
    """The total of each of ROWS rows of lanes, as lanes: 24 instructions, instead of 64 for one row after another."""
    (count,), half = {len(rows)}, Vector(rows.dtype.element, ROWS)

    def generate(context, builder, call, arguments):
        def shuffle(one, other, lanes):
            return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(INDEX, len(lanes)), lanes))

        def halve(one, other, part):
            """Add every second run of `part` lanes to the run before it, in `one` and then in `other`."""
            lanes = [lane for lane in range(2 * F32_WIDTH) if lane // part % 2 == 0]
            behind = [lane + part for lane in lanes]
            return builder.fadd(shuffle(one, other, lanes), shuffle(one, other, behind))

        vectors, part = [builder.extract_value(arguments[0], row) for row in range(count)], F32_WIDTH // 2
        while len(vectors) > 1:
            vectors = [halve(one, other, part) for one, other in zip(vectors[::2], vectors[1::2])]
            part //= 2
        even, odd = (list(range(first, F32_WIDTH, 2)) for first in range(2))
        return builder.fadd(*(shuffle(vectors[0], vectors[0], lanes) for lanes in (even, odd)))

    return half(rows), generate


@intrinsic
def prefetch(typing, array, at):
    """Prefetch the cache line of array[at] into the first-level cache."""

    def generate(context, builder, call, arguments):
        array, at = arguments
        place = element_pointer(context, builder, call.args[0], array, at, ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [place.type] + [INDEX] * 3)
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [place, INDEX(0), INDEX(3), INDEX(1)])  # to read, first level, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@njit(**IN_ORDER)
def prefetch_row(array, at, width):
    """Ask for the cache lines of array[at : at + width]."""
    for lane in range(0, width, F32_WIDTH):
        prefetch(array, at + lane)


@njit(**IN_ORDER)
def add_product(target, at, stride, left, left_at, row_step, left_step, right, right_at, right_step, count):
    """Add a product of ROWS rows and `count` rows to a tile of ROWS x F32_WIDTH, with the whole tile in registers.

    target[at + stride r + l] += sum_{c < count} left[left_at + row_step r + left_step c]
                                                 right[right_at + right_step c + l],    in the order of c.
    As in BLAS, each of the three arrays comes with a place and steps; callers hold each in a larger table.
    """
    tile = load_tile(EIGHT, broadcast(ZERO), target, at, stride)
    for c in range(count):
        tile = plus_products(tile, left, left_at + left_step * c, row_step, load(right, right_at + right_step * c))
    store_tile(target, at, stride, tile)
