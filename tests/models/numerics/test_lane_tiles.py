"""Tiles of lanes against numpy."""

import numpy as np
import pytest
from numba import njit
from numpy.testing import assert_allclose, assert_array_equal

from oneclass.models.numerics import simd
from oneclass.models.numerics.simd import F32_WIDTH, ROWS, add_halves, load, load_tile, plus_outer, store_tile

FIVE = (0,) * 5


def numbers(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@njit
def gain(target, at, stride, source, left, left_at, right, half):
    lanes = load(right, 0)
    if half:
        tile = plus_outer(load_tile(FIVE, add_halves(lanes), source, at, stride), left, left_at, add_halves(lanes))
        store_tile(target, at, stride, tile)
    else:
        tile = plus_outer(load_tile(FIVE, lanes, source, at, stride), left, left_at, lanes)
        store_tile(target, at, stride, tile)


@njit
def add_outer(*arguments):
    simd.add_outer(*arguments)


@pytest.mark.parametrize("half", [False, True])
def test_a_tile_gains_an_outer_product(half):
    source, left, right = numbers(200), numbers(9, seed=1), numbers(F32_WIDTH, seed=2)
    target = np.zeros_like(source)
    gain(target, 2, 23, source, left, 3, right, half)
    right = right[: F32_WIDTH // 2] + right[F32_WIDTH // 2 :] if half else right
    expected, places = np.zeros_like(source), 2 + 23 * np.arange(len(FIVE))[:, None] + np.arange(len(right))
    expected[places] = source[places] + left[3 : 3 + len(FIVE), None] * right
    assert_array_equal(target, expected)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_outer_products_are_added_to_a_tile(count):
    target, left, right, stride = numbers(300), numbers(200, 1), numbers(400, 2), 20
    expected = target.astype(float)
    for c in range(count):
        for row in range(ROWS):
            at = 4 + stride * row
            expected[at : at + F32_WIDTH] += float(left[3 + 9 * c + row]) * right[5 + 17 * c : 5 + 17 * c + F32_WIDTH]
    add_outer(target, 4, stride, left, 3, 9, right, 5, 17, count)
    assert_allclose(target, expected, rtol=1e-5, atol=1e-5)
