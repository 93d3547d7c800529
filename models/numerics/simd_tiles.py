"""Tiles: tuples of vectors, the rows of a small matrix, that stay in registers while sums are added to them.

As in `models.numerics.simd`, positions are element numbers and bounds are not checked.
"""

from collections.abc import Callable, Iterator
from typing import Any

from numba import njit, types

from oneclass.models.numerics.simd import (
    F32_WIDTH,
    IN_ORDER,
    ROWS,
    ZERO,
    broadcast,
    element_pointer,
    intrinsic,
    load,
    splat,
)

EIGHT = (0,) * ROWS


@intrinsic
def plus_rows(typing, totals, array, places, at, lanes):
    """The tuple of totals[r] + array[places[r] + at] lanes, row by row; `places` is a tuple as long as `totals`."""
    return totals(totals, array, places, types.intp, lanes), _row_sums(squared=False)


@intrinsic
def plus_squared_rows(typing, totals, array, places, at, lanes):
    """The tuple of totals[r] + array[places[r] + at]^2 lanes; as `plus_rows`."""
    return totals(totals, array, places, types.intp, lanes), _row_sums(squared=True)


def _row_sums(squared: bool) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        totals, array, places, at, factor = arguments
        sums = []
        for row in range(len(call.args[0])):
            place = builder.add(builder.extract_value(places, row), at)
            value = builder.load(
                element_pointer(context, builder, call.args[1], array, place, factor.type),
                align=call.args[1].dtype.bitwidth // 8,
            )
            product = builder.fmul(value, builder.fmul(value, factor) if squared else factor)
            sums.append(builder.fadd(builder.extract_value(totals, row), product))
        return context.make_tuple(builder, call.return_type, sums)

    return generate


def _places(
    context: Any, builder: Any, array_type: Any, array: Any, at: Any, stride: Any, tile: types.UniTuple
) -> Iterator[Any]:
    """LLVM pointers to the rows of a tile in an array."""
    for row in range(len(tile)):
        place = builder.add(at, builder.mul(stride, stride.type(row)))
        yield element_pointer(context, builder, array_type, array, place, context.get_value_type(tile.dtype))


@intrinsic
def load_tile(typing, rows, lanes, array, at, stride):
    """A tuple of lanes like `lanes`, as many as the tuple `rows` is long; row r is loaded from at + stride r."""
    tile = types.UniTuple(lanes, len(rows))

    def generate(context, builder, call, arguments):
        array, at, stride = arguments[2:]
        places = _places(context, builder, call.args[2], array, at, stride, tile)
        align = lanes.element.bitwidth // 8
        return context.make_tuple(builder, tile, [builder.load(place, align=align) for place in places])

    return tile(rows, lanes, array, types.intp, types.intp), generate


@intrinsic
def store_tile(typing, array, at, stride, tile):
    """Store row r of a tuple of lanes at place at + stride r."""

    def generate(context, builder, call, arguments):
        array, at, stride, rows = arguments
        for row, place in enumerate(_places(context, builder, call.args[0], array, at, stride, tile)):
            value = builder.extract_value(rows, row)
            builder.store(value, place, align=tile.dtype.element.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, tile), generate


@intrinsic
def plus_products(typing, tile, array, at, step, lanes):
    """The tuple of tile[r] + array[at + step r] lanes."""

    def generate(context, builder, call, arguments):
        tile, array, at, step, value = arguments
        rows, kind = [], types.UniTuple(call.args[1].dtype, len(call.args[0]))
        for row, place in enumerate(_places(context, builder, call.args[1], array, at, step, kind)):
            scaled = builder.fmul(splat(builder, builder.load(place), lanes.count), value)
            rows.append(builder.fadd(builder.extract_value(tile, row), scaled))
        return context.make_tuple(builder, call.return_type, rows)

    return tile(tile, array, types.intp, types.intp, lanes), generate


@njit(**IN_ORDER)
def add_outer(target, at, stride, left, left_at, left_step, right, right_at, right_step, count):
    """Add `count` outer products to a tile of ROWS x F32_WIDTH, in their order, with the whole tile in registers.

    target[at + stride r + l] += sum_{c < count} left[left_at + left_step c + r] right[right_at + right_step c + l].
    As in BLAS, each of the three arrays comes with a place and a step; callers hold each in a larger table.
    """
    tile = load_tile(EIGHT, broadcast(ZERO), target, at, stride)
    for c in range(count):
        tile = plus_products(tile, left, left_at + left_step * c, 1, load(right, right_at + right_step * c))
    store_tile(target, at, stride, tile)


@njit(**IN_ORDER)
def add_product(target, at, stride, left, left_at, left_step, right, right_at, right_step, count):
    """Add a product of ROWS rows and `count` rows to a tile of ROWS x F32_WIDTH, each sum in their order.

    target[at + stride r + l] += sum_{c < count} left[left_at + left_step r + c] right[right_at + right_step c + l].
    """
    tile = load_tile(EIGHT, broadcast(ZERO), target, at, stride)
    for c in range(count):
        tile = plus_products(tile, left, left_at + c, left_step, load(right, right_at + right_step * c))
    store_tile(target, at, stride, tile)


@njit(**IN_ORDER)
def add_products(target, left, width, right):
    """Add the product of ROWS rows and a matrix to ROWS rows, each sum in the order of the columns of `left`.

    Args:
        target, left: float32 (ROWS width,), rows of `width` numbers, a multiple of F32_WIDTH.
        right: float32 (width^2,), the matrix by runs of F32_WIDTH columns, one after the other, each row by row.
    """
    for lane in range(0, width, F32_WIDTH):
        add_product(target, lane, width, left, 0, width, right, lane * width, F32_WIDTH, width)
