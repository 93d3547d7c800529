"""Every primitive of the lanes against numpy."""

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from oneclass.models.numerics.simd import (
    F32_WIDTH,
    F64_WIDTH,
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


def numbers(size: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(dtype)


@njit
def copied(target, at, source, source_at):
    store(target, at, load(source, source_at))


@njit
def arithmetic(target, one, other, number):
    store(target, 0, load(one, 0) + load(other, 0))
    store(target, F32_WIDTH, load(one, 0) * load(other, 0))
    store(target, 2 * F32_WIDTH, number * load(one, 0))


@njit
def everywhere(target, number):
    store(target, 0, broadcast(number))


@njit
def halves(target, source):
    half = add_halves(load(source, 0))
    store(target, 0, half)
    store(target, F32_WIDTH, load_like(half, source, 1))


@njit
def totals(source):
    return horizontal_sum(load(source, 0)), horizontal_sum(add_halves(load(source, 0)))


@njit
def asked(source, at):
    prefetch(source, at)
    return element(source, at)


@njit
def mixed(one, other):
    return horizontal_sum(load(one, 0) + load(other, 0))


@pytest.mark.parametrize(("dtype", "count"), [(np.float32, F32_WIDTH), (np.float64, F64_WIDTH)])
def test_lanes_hold_one_cache_line_from_any_place(dtype, count):
    source, target = numbers(50, dtype), np.zeros(50, dtype)
    copied(target, 5, source, 3)
    expected = np.zeros(50, dtype)
    expected[5 : 5 + count] = source[3 : 3 + count]
    np.testing.assert_array_equal(target, expected)


def test_lanes_add_and_multiply_one_by_one():
    one, other, target = numbers(F32_WIDTH), numbers(F32_WIDTH, seed=1), np.zeros(3 * F32_WIDTH, np.float32)
    arithmetic(target, one, other, np.float32(1.7))
    np.testing.assert_array_equal(target.reshape(3, F32_WIDTH), [one + other, one * other, np.float32(1.7) * one])


@pytest.mark.parametrize(("dtype", "count"), [(np.float32, F32_WIDTH), (np.float64, F64_WIDTH)])
def test_a_number_is_spread_over_all_lanes(dtype, count):
    target = np.zeros(20, dtype)
    everywhere(target, dtype(2.5))
    np.testing.assert_array_equal(target, np.where(np.arange(20) < count, dtype(2.5), 0))


def test_folded_adds_the_second_half_to_the_first():
    source, target = numbers(F32_WIDTH), np.zeros(2 * F32_WIDTH, np.float32)
    halves(target, source)
    half = F32_WIDTH // 2
    np.testing.assert_array_equal(target[:half], source[:half] + source[half:])
    np.testing.assert_array_equal(target[F32_WIDTH : F32_WIDTH + half], source[1 : 1 + half])
    assert not target[half:F32_WIDTH].any() and not target[F32_WIDTH + half :].any()


def test_lanes_are_summed_by_halves():
    source = numbers(F32_WIDTH)
    expected = source
    while len(expected) > 1:
        expected = expected[: len(expected) // 2] + expected[len(expected) // 2 :]
    assert totals(source) == (expected[0], expected[0])


def test_asking_for_a_line_changes_nothing():
    source = numbers(40)
    assert [asked(source, at) for at in range(40)] == list(source)


def test_lanes_of_two_kinds_do_not_mix():
    with pytest.raises(TypingError):
        mixed(numbers(F32_WIDTH), numbers(F64_WIDTH, np.float64))


def test_padding_fills_up_to_whole_lanes():
    assert [pad_width(width) for width in (0, 1, 16, 17)] == [0, 16, 16, 32]
    assert [pad_width(width, F64_WIDTH) for width in (0, 1, 8, 9)] == [0, 8, 8, 16]


def test_zeros_begin_at_a_cache_line():
    for size in (1, 16, 1000):
        room = aligned_zeros(size)
        assert room.dtype == np.float32 and room.shape == (size,) and not room.any() and room.ctypes.data % 64 == 0
