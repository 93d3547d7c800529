"""Tiles and sums of products in SIMD against NumPy."""

import numpy as np
import pytest
from numba import njit
from numpy.testing import assert_allclose, assert_array_equal

from oneclass.models.numerics import simd
from oneclass.models.numerics.simd import (
    F32_WIDTH,
    ROWS,
    add_halves,
    broadcast,
    load,
    load_tile,
    plus_products,
    store,
    store_tile,
)


def draw_numbers(size: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(dtype)


WIDTH = 2 * F32_WIDTH
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def compile_kernel(kernel):
    """A function that can be called from Python; products inline themselves into kernels."""

    @njit
    def call(*arguments):
        return kernel(*arguments)

    return call


dot, dot_rows, add_rows = (compile_kernel(getattr(simd, name)) for name in ("dot", "dot_rows", "add_rows"))


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


FIVE = (0,) * 5


@njit
def gain_of_pair(target, at, stride, source, left, left_at, right, half):
    lanes = load(right, 0)
    if half:
        tile = plus_products(
            load_tile(FIVE, add_halves(lanes), source, at, stride), left, left_at, 1, add_halves(lanes)
        )
        store_tile(target, at, stride, tile)
    else:
        tile = plus_products(load_tile(FIVE, lanes, source, at, stride), left, left_at, 1, lanes)
        store_tile(target, at, stride, tile)


@njit
def add_outer(*arguments):
    simd.add_outer(*arguments)


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
    simd.add_products(*arguments)


@pytest.mark.parametrize("width", [F32_WIDTH, 3 * F32_WIDTH])
def test_the_product_of_rows_and_a_matrix_is_added(width):
    target, left = draw_numbers(ROWS * width), draw_numbers(ROWS * width, seed=1)
    right = draw_numbers(width * width, seed=2).reshape(width, width)
    expected = target.reshape(ROWS, width) + left.reshape(ROWS, width).astype(float) @ right
    by_lanes = right.reshape(width, -1, F32_WIDTH).swapaxes(0, 1).ravel()
    add_products(target, left, width, by_lanes)
    assert_allclose(target.reshape(ROWS, width), expected, rtol=1e-4, atol=1e-4)


@njit
def row_sums(out, table, places, at, factor):
    zero = broadcast(np.float32(0))
    nothing = (zero, zero, zero, zero, zero, zero, zero, zero)
    rows = simd.eight(places, 1)
    plain = simd.plus_rows(nothing, table, rows, at, load(factor, 0))
    both = simd.plus_squared_rows(plain, table, rows, at, load(factor, 0))
    store(out, 0, simd.horizontal_sums(plain))
    store(out, 8, simd.horizontal_sums(both))


def test_rows_and_their_squares_are_weighted_and_summed():
    table, factor, out = draw_numbers(600), draw_numbers(F32_WIDTH, seed=1), np.zeros(16, np.float32)
    places = np.random.default_rng(2).integers(0, 500, 10)
    row_sums(out, table, places, 5, factor)
    rows = np.stack([table[place + 5 : place + 5 + F32_WIDTH] for place in places[1:9]]).astype(float)
    assert_allclose(out[:8], rows @ factor, **CLOSE)
    assert_allclose(out[8:], rows @ factor + rows**2 @ factor, **CLOSE)
