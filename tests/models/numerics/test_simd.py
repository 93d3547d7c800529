"""Every SIMD primitive, tiles and sums of products against NumPy."""

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError
from numpy.testing import assert_allclose, assert_array_equal

from oneclass.models.numerics import simd, simd_tiles
from oneclass.models.numerics.simd import (
    F32_WIDTH,
    F64_WIDTH,
    ROWS,
    UNROLLED,
    add_halves,
    aligned_zeros,
    broadcast,
    element,
    horizontal_sum,
    load,
    load_like,
    pad_width,
    prefetch,
    store,
)
from oneclass.models.numerics.simd_tiles import load_tile, plus_outer, store_tile


def draw_numbers(size: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(dtype)


@njit
def copy_vector(target, at, source, source_at):
    store(target, at, load(source, source_at))


@njit
def combine_vectors(target, one, other, number):
    store(target, 0, load(one, 0) + load(other, 0))
    store(target, F32_WIDTH, load(one, 0) * load(other, 0))
    store(target, 2 * F32_WIDTH, number * load(one, 0))


@njit
def broadcast_number(target, number):
    store(target, 0, broadcast(number))


@njit
def halve_vector(target, source):
    half = add_halves(load(source, 0))
    store(target, 0, half)
    store(target, F32_WIDTH, load_like(half, source, 1))


@njit
def sum_vector(source):
    return horizontal_sum(load(source, 0)), horizontal_sum(add_halves(load(source, 0)))


@njit
def prefetch_element(source, at):
    prefetch(source, at)
    return element(source, at)


@njit
def mix_types(one, other):
    return horizontal_sum(load(one, 0) + load(other, 0))


@pytest.mark.parametrize(("dtype", "count"), [(np.float32, F32_WIDTH), (np.float64, F64_WIDTH)])
def test_lanes_hold_one_cache_line_from_any_place(dtype, count):
    source, target = draw_numbers(50, dtype), np.zeros(50, dtype)
    copy_vector(target, 5, source, 3)
    expected = np.zeros(50, dtype)
    expected[5 : 5 + count] = source[3 : 3 + count]
    np.testing.assert_array_equal(target, expected)


def test_lanes_add_and_multiply_one_by_one():
    one, other, target = draw_numbers(F32_WIDTH), draw_numbers(F32_WIDTH, seed=1), np.zeros(3 * F32_WIDTH, np.float32)
    combine_vectors(target, one, other, np.float32(1.7))
    np.testing.assert_array_equal(target.reshape(3, F32_WIDTH), [one + other, one * other, np.float32(1.7) * one])


@pytest.mark.parametrize(("dtype", "count"), [(np.float32, F32_WIDTH), (np.float64, F64_WIDTH)])
def test_a_number_is_spread_over_all_lanes(dtype, count):
    target = np.zeros(20, dtype)
    broadcast_number(target, dtype(2.5))
    np.testing.assert_array_equal(target, np.where(np.arange(20) < count, dtype(2.5), 0))


def test_folded_adds_the_second_half_to_the_first():
    source, target = draw_numbers(F32_WIDTH), np.zeros(2 * F32_WIDTH, np.float32)
    halve_vector(target, source)
    half = F32_WIDTH // 2
    np.testing.assert_array_equal(target[:half], source[:half] + source[half:])
    np.testing.assert_array_equal(target[F32_WIDTH : F32_WIDTH + half], source[1 : 1 + half])
    assert not target[half:F32_WIDTH].any() and not target[F32_WIDTH + half :].any()


def test_lanes_are_summed_by_halves():
    source = draw_numbers(F32_WIDTH)
    expected = source
    while len(expected) > 1:
        expected = expected[: len(expected) // 2] + expected[len(expected) // 2 :]
    assert sum_vector(source) == (expected[0], expected[0])


def test_asking_for_a_line_changes_nothing():
    source = draw_numbers(40)
    assert [prefetch_element(source, at) for at in range(40)] == list(source)


def test_lanes_of_two_kinds_do_not_mix():
    with pytest.raises(TypingError):
        mix_types(draw_numbers(F32_WIDTH), draw_numbers(F64_WIDTH, np.float64))


def test_padding_fills_up_to_whole_lanes():
    assert [pad_width(width) for width in (0, 1, 16, 17)] == [0, 16, 16, 32]
    assert [pad_width(width, F64_WIDTH) for width in (0, 1, 8, 9)] == [0, 8, 8, 16]


def test_zeros_begin_at_a_cache_line():
    for size in (1, 16, 1000):
        room = aligned_zeros(size)
        assert room.dtype == np.float32 and room.shape == (size,) and not room.any() and room.ctypes.data % 64 == 0


WIDTH = 2 * F32_WIDTH
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def compile_kernel(kernel):
    """A function that can be called from Python; products inline themselves into kernels."""

    @njit
    def call(*arguments):
        return kernel(*arguments)

    return call


copy, scale, add_scaled, add_weighted, dot, dot_rows, add_rows, prefetch_row = (
    compile_kernel(getattr(simd, name))
    for name in (
        "copy",
        "scale",
        "add_scaled",
        "add_weighted",
        "dot",
        "dot_rows",
        "add_rows",
        "prefetch_row",
    )
)


def test_copy_and_scale_write_a_run():
    source = draw_numbers(60)
    for target, factor in ((np.zeros(60, np.float32), np.float32(1)), (np.zeros(60, np.float32), np.float32(-2.5))):
        if factor == 1:
            copy(target, 3, source, 5, WIDTH)
        else:
            scale(target, 3, factor, source, 5, WIDTH)
        expected = np.zeros(60, np.float32)
        expected[3 : 3 + WIDTH] = factor * source[5 : 5 + WIDTH]
        assert_array_equal(target, expected)


def test_scaled_lanes_are_added():
    source, target = draw_numbers(60), draw_numbers(60, seed=1)
    expected = target.astype(float)
    expected[3 : 3 + WIDTH] += 1.5 * source[5 : 5 + WIDTH]
    add_scaled(target, 3, np.float32(1.5), source, 5, WIDTH)
    assert_allclose(target, expected, **CLOSE)


@pytest.mark.parametrize("count", [0, UNROLLED, 3 * UNROLLED])
def test_weighted_lanes_are_added(count):
    target, weights, source = draw_numbers(40), draw_numbers(30, seed=1), draw_numbers(400, seed=2)
    expected = target.astype(float)
    for c in range(count):
        expected[2 : 2 + F32_WIDTH] += float(weights[4 + c]) * source[3 + 19 * c : 3 + 19 * c + F32_WIDTH]
    add_weighted(target, 2, weights, 4, source, 3, 19, count)
    assert_allclose(target, expected, **CLOSE)


def test_dot_is_the_inner_product():
    one, other = draw_numbers(60), draw_numbers(60, seed=1)
    expected = one[3 : 3 + WIDTH].astype(float) @ other[5 : 5 + WIDTH]
    assert dot(one, 3, other, 5, WIDTH) == pytest.approx(expected, rel=1e-5)
    assert dot(one, 3, other, 5, 0) == 0


def test_rows_are_multiplied_with_a_vector_and_added_up():
    table, places = draw_numbers(600), np.random.default_rng(1).integers(0, 500, ROWS + 2)
    vector, weights = draw_numbers(40, seed=2), draw_numbers(ROWS + 3, seed=3)
    rows = np.stack([table[place + 4 : place + 4 + WIDTH] for place in places[2:]]).astype(float)
    out = np.full(ROWS + 2, 7, np.float32)
    dot_rows(out, 1, table, places, 2, 4, WIDTH, vector, 3)
    assert_allclose(out, [7, *(rows @ vector[3 : 3 + WIDTH]), 7], **CLOSE)
    target = draw_numbers(40, seed=4)
    expected = target.astype(float)
    expected[5 : 5 + WIDTH] += weights[3:] @ rows
    add_rows(target, 5, weights, 3, table, places, 2, 4, WIDTH)
    assert_allclose(target, expected, **CLOSE)


def test_asking_for_a_row_changes_nothing():
    source = draw_numbers(60)
    prefetch_row(source, 3, WIDTH)
    assert_array_equal(source, draw_numbers(60))


FIVE = (0,) * 5


@njit
def gain_of_pair(target, at, stride, source, left, left_at, right, half):
    lanes = load(right, 0)
    if half:
        tile = plus_outer(load_tile(FIVE, add_halves(lanes), source, at, stride), left, left_at, add_halves(lanes))
        store_tile(target, at, stride, tile)
    else:
        tile = plus_outer(load_tile(FIVE, lanes, source, at, stride), left, left_at, lanes)
        store_tile(target, at, stride, tile)


@njit
def add_outer(*arguments):
    simd_tiles.add_outer(*arguments)


@pytest.mark.parametrize("half", [False, True])
def test_a_tile_gains_an_outer_product(half):
    source, left, right = draw_numbers(200), draw_numbers(9, seed=1), draw_numbers(F32_WIDTH, seed=2)
    target = np.zeros_like(source)
    gain_of_pair(target, 2, 23, source, left, 3, right, half)
    right = right[: F32_WIDTH // 2] + right[F32_WIDTH // 2 :] if half else right
    expected, places = np.zeros_like(source), 2 + 23 * np.arange(len(FIVE))[:, None] + np.arange(len(right))
    expected[places] = source[places] + left[3 : 3 + len(FIVE), None] * right
    assert_array_equal(target, expected)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_outer_products_are_added_to_a_tile(count):
    target, left, right, stride = draw_numbers(300), draw_numbers(200, seed=1), draw_numbers(400, seed=2), 20
    expected = target.astype(float)
    for c in range(count):
        for row in range(ROWS):
            at = 4 + stride * row
            expected[at : at + F32_WIDTH] += float(left[3 + 9 * c + row]) * right[5 + 17 * c : 5 + 17 * c + F32_WIDTH]
    add_outer(target, 4, stride, left, 3, 9, right, 5, 17, count)
    assert_allclose(target, expected, rtol=1e-5, atol=1e-5)


@njit
def add_products(*arguments):
    simd_tiles.add_products(*arguments)


@pytest.mark.parametrize("width", [F32_WIDTH, 3 * F32_WIDTH])
def test_the_product_of_rows_and_a_matrix_is_added(width):
    target, left = draw_numbers(ROWS * width), draw_numbers(ROWS * width, seed=1)
    right = draw_numbers(width * width, seed=2).reshape(width, width)
    expected = target.reshape(ROWS, width) + left.reshape(ROWS, width).astype(float) @ right
    by_lanes = right.reshape(width, -1, F32_WIDTH).swapaxes(0, 1).ravel()
    add_products(target, left, width, by_lanes)
    assert_allclose(target.reshape(ROWS, width), expected, rtol=1e-4, atol=1e-4)


EIGHT, SIXTEEN = (0,) * 8, (0,) * 16


@njit
def row_sums(out, table, places, at, factor):
    zero = broadcast(np.float32(0))
    nothing = (zero, zero, zero, zero, zero, zero, zero, zero)
    rows = simd.eight(places, 1)
    plain = simd_tiles.plus_rows(nothing, table, rows, at, load(factor, 0))
    both = simd_tiles.plus_squared_rows(plain, table, rows, at, load(factor, 0))
    store(out, 0, simd.horizontal_sums(plain))
    store(out, 8, simd.horizontal_sums(both))


def test_rows_and_their_squares_are_weighted_and_summed():
    table, factor, out = draw_numbers(600), draw_numbers(F32_WIDTH, seed=1), np.zeros(16, np.float32)
    places = np.random.default_rng(2).integers(0, 500, 10)
    row_sums(out, table, places, 5, factor)
    rows = np.stack([table[place + 5 : place + 5 + F32_WIDTH] for place in places[1:9]]).astype(float)
    assert_allclose(out[:8], rows @ factor, **CLOSE)
    assert_allclose(out[8:], rows @ factor + rows**2 @ factor, **CLOSE)


@njit
def transpose_rows(target, source, rows, number, stride):
    tile = simd_tiles.load_tile(rows, broadcast(number), source, 3, stride)
    store_tile(target, 0, len(rows), simd_tiles.transpose_tile(tile))


@pytest.mark.parametrize(("dtype", "rows"), [(np.float32, SIXTEEN), (np.float64, EIGHT)])
def test_a_square_tile_is_transposed(dtype, rows):
    count = len(rows)
    source, target = draw_numbers(23 * count, dtype), np.zeros((count, count), dtype)
    transpose_rows(target, source, rows, dtype(0), 21)
    places = 3 + 21 * np.arange(count)[:, None] + np.arange(count)
    assert_array_equal(target, source[places].T)


@njit
def lane_by_lane(out, source, least):
    half, other = add_halves(load(source, 0)), load_like(add_halves(load(source, 0)), source, 3)
    store(out, 0, simd.join_halves(half, other))
    store(out, 16, simd.reciprocal(simd.at_least(load(source, 0), least)))
    store(out, 32, load(source, 0) - load(source, 1))
    simd.put(out, 48, least)


def test_lanes_are_joined_inverted_and_subtracted():
    source, out, least = draw_numbers(30), np.zeros(49, np.float32), np.float32(0.3)
    lane_by_lane(out, source, least)
    assert_array_equal(out[:16], np.append(source[:8] + source[8:16], source[3:11]))
    assert_allclose(out[16:32], 1 / np.maximum(source[:16], least), rtol=1e-6)
    assert_array_equal(out[32:48], source[:16] - source[1:17])
    assert out[48] == least


@njit
def choose_elements(conditions, ones, others, out):
    for at in range(len(out)):
        out[at] = simd.choose(conditions[at], ones[at], others[at])


def test_a_choice_without_a_branch():
    conditions, (ones, others) = np.random.default_rng(1).random(50) < 0.5, np.arange(100).reshape(2, 50)
    out = np.empty(50, dtype=np.int64)
    choose_elements(conditions, ones, others, out)
    assert_array_equal(out, np.where(conditions, ones, others))
