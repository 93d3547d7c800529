"""Tiles: tuples of several rows of lanes, which a kernel holds in registers while it adds outer products to them.

A loop over an array of lanes would pass each row through memory at every step. The number of rows is the length of
a tuple, so that numba knows it when it compiles. The conventions are those of `models.numerics.lanes`.
"""

from numba import njit, types
from numba.extending import intrinsic

from models.numerics.lane_products import IN_ORDER, ROWS, ZERO
from models.numerics.lanes import address, load, spread, spread_over

EIGHT = (0,) * ROWS


def _places(context, builder, array_type, array, at, stride, tile):
    """LLVM pointers to the rows of a tile in an array."""
    for row in range(len(tile)):
        place = builder.add(at, builder.mul(stride, stride.type(row)))
        yield address(context, builder, array_type, array, place, context.get_value_type(tile.dtype))


@intrinsic
def load_tile(typing, rows, lanes, array, at, stride):
    """A tuple of lanes like `lanes`, as many as the tuple `rows` is long; row r is loaded from at + stride r."""
    tile = types.UniTuple(lanes, len(rows))

    def generate(context, builder, call, arguments):
        places = _places(context, builder, call.args[2], *arguments[2:], tile)
        align = lanes.element.bitwidth // 8
        return context.make_tuple(builder, tile, [builder.load(place, align=align) for place in places])

    return tile(rows, lanes, array, types.intp, types.intp), generate


@intrinsic
def store_tile(typing, array, at, stride, tile):
    """Store row r of a tuple of lanes at place at + stride r."""

    def generate(context, builder, call, arguments):
        for row, place in enumerate(_places(context, builder, call.args[0], *arguments[:3], tile)):
            value = builder.extract_value(arguments[3], row)
            builder.store(value, place, align=tile.dtype.element.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, tile), generate


@intrinsic
def plus_outer(typing, tile, array, at, lanes):
    """The tuple of tile[r] + array[at + r] lanes."""

    def generate(context, builder, call, arguments):
        tile, array, at, value = arguments
        rows = []
        for row in range(len(call.args[0])):
            place = address(context, builder, call.args[1], array, builder.add(at, at.type(row)), value.type.element)
            scaled = builder.fmul(spread_over(builder, builder.load(place), lanes.count), value)
            rows.append(builder.fadd(builder.extract_value(tile, row), scaled))
        return context.make_tuple(builder, call.return_type, rows)

    return tile(tile, array, types.intp, lanes), generate


@njit(**IN_ORDER)
def add_outer(target, at, stride, left, left_at, left_step, right, right_at, right_step, count):
    """Add `count` outer products to a tile of ROWS x LANES, in their order, with the whole tile in registers.

    target[at + stride r + l] += sum_{c < count} left[left_at + left_step c + r] right[right_at + right_step c + l].
    As in BLAS, each of the three arrays comes with a place and a step; callers hold each in a larger table.
    """
    tile = load_tile(EIGHT, spread(ZERO), target, at, stride)
    for c in range(count):
        tile = plus_outer(tile, left, left_at + left_step * c, load(right, right_at + right_step * c))
    store_tile(target, at, stride, tile)
