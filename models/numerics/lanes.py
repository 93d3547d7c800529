"""Lanes: short vectors of numbers that a kernel loads, adds, multiplies and stores in one step, as values in numba code.

numba cannot know that two arrays do not overlap. So a plain loop over a few dozen factors keeps no running sum in a
register, and spends more time on tests and on the rest of the last vector than on arithmetic. Here a kernel says which
vectors it holds:

    total = total + load(table, at) * load(own, 0)

`total` has 16 float32 or 8 float64 (64 bytes, LANES or DOUBLES of them); `folded` adds the halves of 16 float32 to
make 8. LLVM maps lanes to what the processor has: one AVX-512 register, two of AVX2, four of SSE or NEON. Lanes add to
and multiply with lanes of the same kind, and a number of their type multiplies all of them. As everywhere in numba, the
`fastmath` of the function decides whether a product and a sum become one instruction ("contract").

Arrays are contiguous, and places in them are element numbers. Bounds are not checked: the caller makes sure that all
lanes from a place on lie in the array. `models.numerics.lane_products` has loops over whole rows of numbers,
`models.numerics.lane_tiles` holds several rows of lanes at once.
"""

import operator

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

BYTES = 64  # a cache line, and an AVX-512 register
LANES = BYTES // 4  # float32
DOUBLES = BYTES // 8  # float64
INDEX = ir.IntType(32)


class Lanes(types.Type):
    """The numba type of `count` numbers of the numba type `element`."""

    def __init__(self, element: types.Float, count: int) -> None:
        self.element, self.count = element, count
        super().__init__(name=f"Lanes({element}, {count})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes):
        element = manager.lookup(lanes.element).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(element, lanes.count))


def full(element: types.Float) -> Lanes:
    """The type of BYTES bytes of numbers."""
    return Lanes(element, BYTES * 8 // element.bitwidth)


def spread_over(builder, number, count):
    """LLVM vector whose `count` lanes are all the number."""
    empty = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    first = builder.insert_element(empty, number, INDEX(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(INDEX, count), [0] * count))


def _arithmetic(operation, name):
    @infer_global(operation)
    class _Rule(AbstractTemplate):
        def generic(self, arguments, keywords):
            left, right = arguments
            scaled = operation is operator.mul and isinstance(right, Lanes) and left == right.element
            if isinstance(right, Lanes) and left == right or scaled:
                return signature(right, left, right)

    @lower_builtin(operation, Lanes, Lanes)
    @lower_builtin(operation, types.Float, Lanes)
    def _lower(context, builder, call, arguments):
        left, right = arguments
        if call.args[0] != call.args[1]:
            left = spread_over(builder, left, call.args[1].count)
        return getattr(builder, name)(left, right)


_arithmetic(operator.add, "fadd")
_arithmetic(operator.mul, "fmul")


def address(context, builder, array_type, array, at, kind):
    """LLVM pointer to a place in an array, at which a value of the LLVM type `kind` lies."""
    data = context.make_array(array_type)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [at]), kind.as_pointer())


def _loads(kind):
    """Code that loads a value of the numba type `kind` from its last two arguments, an array and a place."""

    def generate(context, builder, call, arguments):
        place = address(context, builder, call.args[-2], *arguments[-2:], context.get_value_type(kind))
        return builder.load(place, align=call.args[-2].dtype.bitwidth // 8)

    return generate


@intrinsic
def load(typing, array, at):
    """array[at : at + n] as lanes, n = LANES for float32 and DOUBLES for float64."""
    lanes = full(array.dtype)
    return lanes(array, types.intp), _loads(lanes)


@intrinsic
def load_like(typing, lanes, array, at):
    """array[at : at + n] as lanes of the kind of `lanes`."""
    return lanes(lanes, array, types.intp), _loads(lanes)


@intrinsic
def element(typing, array, at):
    """array[at], without numba's test for a negative place."""
    return array.dtype(array, types.intp), _loads(array.dtype)


@intrinsic
def store(typing, array, at, lanes):
    """array[at : at + n] = lanes."""

    def generate(context, builder, call, arguments):
        array, at, value = arguments
        place = address(context, builder, call.args[0], array, at, value.type)
        builder.store(value, place, align=lanes.element.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic
def spread(typing, number):
    """Lanes (LANES float32 or DOUBLES float64) that are all the number."""
    lanes = full(number)

    def generate(context, builder, call, arguments):
        return spread_over(builder, arguments[0], lanes.count)

    return lanes(number), generate


@intrinsic
def folded(typing, lanes):
    """The first half of the lanes plus the second half: half as many lanes."""
    count = lanes.count // 2

    def generate(context, builder, call, arguments):
        halves = (ir.Constant(ir.VectorType(INDEX, count), list(range(part, part + count))) for part in (0, count))
        return builder.fadd(*(builder.shuffle_vector(arguments[0], arguments[0], half) for half in halves))

    return Lanes(lanes.element, count)(lanes), generate


@intrinsic
def total_of(typing, lanes):
    """The sum of float32 lanes, by halves: the first half plus the second, and so on."""

    def generate(context, builder, call, arguments):
        (value,) = arguments
        number = value.type.element
        name, kind = f"llvm.vector.reduce.fadd.v{lanes.count}f32", ir.FunctionType(number, [number, value.type])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(function, [number(-0.0), value], fastmath=("reassoc",))

    return lanes.element(lanes), generate


@intrinsic
def prefetch(typing, array, at):
    """Prefetch the cache line of array[at] into the first-level cache."""

    def generate(context, builder, call, arguments):
        place = address(context, builder, call.args[0], *arguments, ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [place.type] + [INDEX] * 3)
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [place, INDEX(0), INDEX(3), INDEX(1)])  # to read, first level, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@njit(cache=True, inline="always")
def padded(width, lanes=LANES):
    """The next multiple of `lanes`."""
    return -(-width // lanes) * lanes


@njit(cache=True)
def zeros(size):
    """Zeros, float32 (size,), aligned so that no lanes of a padded table cross a cache line."""
    room = np.zeros(size + LANES, dtype=np.float32)
    start = (-room.ctypes.data // 4) % LANES
    return room[start : start + size]
