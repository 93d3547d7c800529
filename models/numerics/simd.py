"""SIMD vectors as values in numba code: short vectors that a kernel loads, adds, multiplies and stores in one step.

numba cannot know that two arrays do not overlap, so a plain loop over a few dozen factors keeps no running sum in a
register, and spends more time on tests and the rest of the last vector than on arithmetic. A kernel names its vectors:

    total = total + load(table, at) * load(own, 0)

`total` has 16 float32 (64 bytes, F32_WIDTH of them). LLVM maps vectors to the processor's registers: one of AVX-512,
two of AVX2, four of SSE or NEON. Vectors of one kind add and multiply, and a number of their type multiplies all
elements. As everywhere in numba, `fastmath` of the function decides whether a product and a sum become one instruction
("contract").

A tile is a tuple of vectors, the rows of a small matrix that stay in registers while sums are added to them. Arrays are
contiguous, and positions are element numbers. Bounds are not checked: the caller makes sure that a whole vector from a
position on lies in the array.
"""

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

if TYPE_CHECKING:
    Arguments = ParamSpec("Arguments")

    # numba's own annotation leaves the typing context among the arguments of a call.
    def intrinsic(define: Callable[Concatenate[Any, Arguments], Any]) -> Callable[Arguments, Any]: ...

else:
    from numba.extending import intrinsic

VECTOR_BYTES = 64  # a cache line, and an AVX-512 register
F32_WIDTH = VECTOR_BYTES // 4  # float32
INDEX = ir.IntType(32)


class Vector(types.Type):
    """The numba type of `count` numbers of the numba type `element`."""

    def __init__(self, element: types.Float, count: int) -> None:
        self.element, self.count = element, count
        super().__init__(name=f"Lanes({element}, {count})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Vector) -> None:
        element = manager.lookup(lanes.element).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(element, lanes.count))


def splat(builder: Any, number: Any, count: int) -> Any:
    """LLVM vector whose `count` lanes are all the number."""
    empty = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    first = builder.insert_element(empty, number, INDEX(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(INDEX, count), [0] * count))


def _arithmetic(operation: Callable[[Any, Any], Any], name: str) -> None:
    infer: Any = infer_global(operation)  # numba declares what it returns for other arguments only

    @infer
    class _Rule(AbstractTemplate):
        def generic(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            left, right = arguments
            scaled = operation is operator.mul and isinstance(right, Vector) and left == right.element
            if isinstance(right, Vector) and left == right or scaled:
                return signature(right, left, right)

    @lower_builtin(operation, Vector, Vector)
    @lower_builtin(operation, types.Float, Vector)
    def _lower(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        left, right = arguments
        if call.args[0] != call.args[1]:
            left = splat(builder, left, call.args[1].count)
        return getattr(builder, name)(left, right)


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")


def element_pointer(context: Any, builder: Any, array_type: Any, array: Any, at: Any, kind: Any) -> Any:
    """LLVM pointer to a place in an array, at which a value of the LLVM type `kind` lies."""
    data = context.make_array(array_type)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [at]), kind.as_pointer())


def _loads(kind: Any) -> Callable[..., Any]:
    """Code that loads a value of the numba type `kind` from its last two arguments, an array and a place."""

    def generate(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        array, at = arguments[-2:]
        place = element_pointer(context, builder, call.args[-2], array, at, context.get_value_type(kind))
        return builder.load(place, align=call.args[-2].dtype.bitwidth // 8)

    return generate


@intrinsic
def load(typing, array, at):
    """array[at : at + F32_WIDTH] as lanes, float32."""
    lanes = Vector(array.dtype, F32_WIDTH)
    return lanes(array, types.intp), _loads(lanes)


@intrinsic
def element(typing, array, at):
    """array[at], without numba's test for a negative place."""
    return array.dtype(array, types.intp), _loads(array.dtype)


def _stores(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
    """Code that stores its last argument in an array at a place."""
    array, at, value = arguments
    place = element_pointer(context, builder, call.args[0], array, at, value.type)
    builder.store(value, place, align=call.args[0].dtype.bitwidth // 8)
    return context.get_dummy_value()


@intrinsic
def store(typing, array, at, lanes):
    """array[at : at + n] = lanes."""
    return types.void(array, types.intp, lanes), _stores


@intrinsic
def broadcast(typing, number):
    """F32_WIDTH lanes that are all the number."""
    lanes = Vector(number, F32_WIDTH)

    def generate(context, builder, call, arguments):
        return splat(builder, arguments[0], lanes.count)

    return lanes(number), generate


@intrinsic
def horizontal_sum(typing, lanes):
    """The sum of float32 lanes, by halves: the first half plus the second, and so on."""

    def generate(context, builder, call, arguments):
        (value,) = arguments
        number = value.type.element
        name, kind = f"llvm.vector.reduce.fadd.v{lanes.count}f32", ir.FunctionType(number, [number, value.type])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(function, [number(-0.0), value], fastmath=("reassoc",))

    return lanes.element(lanes), generate


@njit(cache=True, inline="always")
def pad_width(width, lanes=F32_WIDTH):
    """The next multiple of `lanes`."""
    return -(-width // lanes) * lanes


@njit(cache=True)
def aligned_zeros(size):
    """Zeros, float32 (size,), aligned so that no lanes of a padded table cross a cache line."""
    room = np.zeros(size + F32_WIDTH, dtype=np.float32)
    start = (-room.ctypes.data // 4) % F32_WIDTH
    return room[start : start + size]


ROWS = 8  # rows that are worked on side by side
ZERO = np.float32(0)
IN_ORDER: dict[str, Any] = {"cache": True, "fastmath": {"contract"}, "forceinline": True}


@njit(**IN_ORDER)
def scale(target, at, factor, source, source_at, width):
    """target[at + l] = factor source[source_at + l], l < width."""
    for lane in range(0, width, F32_WIDTH):
        store(target, at + lane, factor * load(source, source_at + lane))


@njit(**IN_ORDER)
def add_scaled(target, at, factor, source, source_at, width):
    """target[at + l] += factor source[source_at + l], l < width."""
    for lane in range(0, width, F32_WIDTH):
        store(target, at + lane, load(target, at + lane) + factor * load(source, source_at + lane))


EIGHT = (0,) * ROWS


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
