"""Sums of products by lanes against numpy in float64, and what lies around their targets untouched."""

import numpy as np
import pytest
from numba import njit
from numpy.testing import assert_allclose, assert_array_equal

from oneclass.models.numerics import simd
from oneclass.models.numerics.simd import F32_WIDTH, ROWS, UNROLLED

WIDTH = 2 * F32_WIDTH
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def compiled(kernel):
    """A function that can be called from Python; products inline themselves into kernels."""

    @njit
    def call(*arguments):
        return kernel(*arguments)

    return call


copy, scale, add_scaled, add_weighted, dot, dot_rows, add_rows, prefetch_row = (
    compiled(getattr(simd, name))
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


def numbers(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


def test_copy_and_scale_write_a_run():
    source = numbers(60)
    for target, factor in ((np.zeros(60, np.float32), np.float32(1)), (np.zeros(60, np.float32), np.float32(-2.5))):
        if factor == 1:
            copy(target, 3, source, 5, WIDTH)
        else:
            scale(target, 3, factor, source, 5, WIDTH)
        expected = np.zeros(60, np.float32)
        expected[3 : 3 + WIDTH] = factor * source[5 : 5 + WIDTH]
        assert_array_equal(target, expected)


def test_scaled_lanes_are_added():
    source, target = numbers(60), numbers(60, 1)
    expected = target.astype(float)
    expected[3 : 3 + WIDTH] += 1.5 * source[5 : 5 + WIDTH]
    add_scaled(target, 3, np.float32(1.5), source, 5, WIDTH)
    assert_allclose(target, expected, **CLOSE)


@pytest.mark.parametrize("count", [0, UNROLLED, 3 * UNROLLED])
def test_weighted_lanes_are_added(count):
    target, weights, source = numbers(40), numbers(30, 1), numbers(400, 2)
    expected = target.astype(float)
    for c in range(count):
        expected[2 : 2 + F32_WIDTH] += float(weights[4 + c]) * source[3 + 19 * c : 3 + 19 * c + F32_WIDTH]
    add_weighted(target, 2, weights, 4, source, 3, 19, count)
    assert_allclose(target, expected, **CLOSE)


def test_dot_is_the_inner_product():
    one, other = numbers(60), numbers(60, 1)
    expected = one[3 : 3 + WIDTH].astype(float) @ other[5 : 5 + WIDTH]
    assert dot(one, 3, other, 5, WIDTH) == pytest.approx(expected, rel=1e-5)
    assert dot(one, 3, other, 5, 0) == 0


def test_rows_are_multiplied_with_a_vector_and_added_up():
    table, places = numbers(600), np.random.default_rng(1).integers(0, 500, ROWS + 2)
    vector, weights = numbers(40, 2), numbers(ROWS + 3, 3)
    rows = np.stack([table[place + 4 : place + 4 + WIDTH] for place in places[2:]]).astype(float)
    out = np.full(ROWS + 2, 7, np.float32)
    dot_rows(out, 1, table, places, 2, 4, WIDTH, vector, 3)
    assert_allclose(out, [7, *(rows @ vector[3 : 3 + WIDTH]), 7], **CLOSE)
    target = numbers(40, 4)
    expected = target.astype(float)
    expected[5 : 5 + WIDTH] += weights[3:] @ rows
    add_rows(target, 5, weights, 3, table, places, 2, 4, WIDTH)
    assert_allclose(target, expected, **CLOSE)


def test_asking_for_a_row_changes_nothing():
    source = numbers(60)
    prefetch_row(source, 3, WIDTH)
    assert_array_equal(source, numbers(60))
