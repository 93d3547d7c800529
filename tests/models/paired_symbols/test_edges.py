"""Batches of edges against numpy in float64, at widths that fill up lanes in each of their ways."""

import numpy as np
import pytest
from numba import njit
from numpy.testing import assert_allclose

from oneclass.models.numerics.simd import aligned_zeros, pad_width
from oneclass.models.paired_symbols.edges import (
    COLUMN_UNIT,
    EDGES_PER_BATCH,
    WeightedEdges,
    add_outer,
    fill_moments,
    fill_row_factors,
)

SLOW = pytest.mark.slow  # a width's half rows, of 8, 16 and 40 numbers, have kernels of their own


@njit
def of_batch(lanes, row, table, indices, start, count, weights, halves, means, variances, sums):
    """The moments and the sums of a batch; its parts are inlined into kernels and cannot be called from Python."""
    factors = aligned_zeros(3 * len(row) // 2)
    fill_row_factors(row, len(lanes), factors)
    fill_moments(lanes, factors, table, indices, start, count, means, variances)
    add_outer(lanes, WeightedEdges(table, indices, start, count, weights, halves), sums)


@pytest.mark.parametrize("n", [pytest.param(6, marks=SLOW), 13, pytest.param(33, marks=SLOW)])
def test_moments_and_sums_are_those_of_dense_arrays(n):
    rng, width, start, count = np.random.default_rng(n), int(pad_width(n, COLUMN_UNIT)), 2, 11
    table = aligned_zeros(2 * width * 9).reshape(9, 2 * width)
    table[:, : n - 1], table[:, n - 1] = rng.normal(size=(9, n - 1)), 1
    table[:, width : width + n] = rng.gamma(2, size=(9, n))  # the last number is the share
    row, indices = table[8], rng.integers(0, 8, 20).astype(np.int32)
    weights, halves = rng.gamma(2, size=(2, EDGES_PER_BATCH)).astype(np.float32)
    means, variances = np.zeros((2, EDGES_PER_BATCH), np.float32)
    sums = aligned_zeros((width + 2) * width)
    of_batch((0,) * n, row, table, indices, start, count, weights, halves, means, variances, sums)

    y, spread = table[indices[start : start + count], :width].astype(float), table[:, width:].astype(float)
    spread = spread[indices[start : start + count]]
    u, var_u, k = row[: n - 1].astype(float), row[width : width + n - 1].astype(float), n - 2
    expected = y[:, :k] @ u[:k] + y[:, k] + u[k]
    assert_allclose(means[:count], expected, rtol=1e-5, atol=1e-5)
    expected = spread[:, :k] @ (u[:k] ** 2 + var_u[:k]) + y[:, :k] ** 2 @ var_u[:k] + spread[:, k] + var_u[k]
    assert_allclose(variances[:count], expected, rtol=1e-5)
    found = sums.reshape(width + 2, width)
    upper = np.triu(np.ones((width, width), bool))
    outer = np.einsum("e,ek,el->kl", weights[:count], y, y)
    assert_allclose(found[:width][upper], outer[upper], rtol=1e-5, atol=1e-5)
    assert_allclose(found[width], weights[:count] @ spread, rtol=1e-5)
    assert_allclose(found[width + 1], halves[:count] @ y, rtol=1e-5, atol=1e-5)
