"""The parts of the logistic bound, small positive definite systems and the tiled inverse, against float64."""

import numpy as np
import pytest
from numba import njit
from scipy.special import log_expit

from oneclass.models.mrf.sparse_kernels import factorize, invert_last_columns
from oneclass.models.numerics.gram_inverse import invert_lower
from oneclass.models.numerics.logistic_bound import (
    FAST,
    best_bound_of_square,
    best_square,
    exp_of_minus,
    lambda_of_square,
    solve_in_rows,
)
from oneclass.models.numerics.simd import F32_WIDTH, pad_width
from oneclass.models.paired_symbols.posterior import lambda_of_xi

XI = np.concatenate([[0.0, 1e-20], np.geomspace(1e-6, 300, 4000), np.linspace(0.2, 0.3, 1000)])
SQUARES = (XI**2).astype(np.float32)


def exact_lambda(xi: np.ndarray) -> np.ndarray:
    """lambda(xi) in float64; lambda(0) = 1/8."""
    return np.divide(np.tanh(xi / 2), 4 * xi, out=np.full(len(xi), 0.125), where=xi > 0)


@njit(fastmath=FAST)
def expected_squares(means, variances, out):
    for place in range(len(out)):
        out[place] = best_square(means[place], variances[place])


def test_the_best_square_is_rounded_twice_even_in_a_kernel_that_may_fuse():
    means, variances = np.random.default_rng(1).normal(size=(2, 1000)).astype(np.float32)
    out = np.empty_like(means)
    expected_squares(means, variances, out)
    np.testing.assert_array_equal(out, means * means + variances)


def test_the_line_lies_below_the_logistic_function_and_touches_it():
    a = np.linspace(-30, 30, 601)
    for xi in (1e-3, 0.2, 1.0, 7.0, 40.0):
        below = log_expit(xi) + (a - xi) / 2 - lambda_of_xi(xi) * (a**2 - xi**2)
        assert (below <= log_expit(a) + 1e-12).all()
        for touching in (xi, -xi):
            assert log_expit(xi) + (touching - xi) / 2 == pytest.approx(log_expit(touching), rel=1e-12)


@pytest.mark.parametrize(
    ("approximate", "exact", "error"),
    [
        (lambda_of_square, exact_lambda, 3e-7),
        (best_bound_of_square, lambda xi: log_expit(xi) - xi / 2, 3e-7),
    ],
)
def test_functions_of_the_square_are_those_of_xi(approximate, exact, error):
    got = np.array([approximate(square) for square in SQUARES])
    assert got == pytest.approx(exact(np.sqrt(SQUARES.astype(float))), rel=error)


def test_the_exponential_of_minus_x():
    x = np.linspace(0, 80, 5001).astype(np.float32)
    got = np.array([exp_of_minus(number) for number in x])
    assert got == pytest.approx(np.exp(-x.astype(float)), rel=1e-7)


def positive_definite(size):
    factor = np.random.default_rng(size).normal(size=(size, size + 3))
    return factor @ factor.T / size + np.eye(size)


@pytest.mark.parametrize("size, columns", [(1, 1), (6, 1), (9, 4), (42, 7), (42, 42), (80, 33)])
def test_the_last_columns_are_those_of_the_inverse(size, columns):
    whole, width = positive_definite(size), int(pad_width(size))
    padded = np.eye(width)
    padded[:size, :size] = whole
    matrix, work = laid_out(-padded, width), np.full(width * pad_width(columns), np.nan, dtype=np.float32)
    inverse = np.empty((columns, size), dtype=np.float32)
    assert factorize(matrix, width)
    invert_last_columns(matrix, width, work, inverse)
    np.testing.assert_allclose(inverse, np.linalg.inv(whole)[size - columns :], atol=2e-5)


@pytest.mark.parametrize("size, tile", [(1, 4), (4, 4), (5, 4), (37, 8), (120, 16), (120, 500)])
def test_the_lower_triangle_becomes_that_of_the_inverse(size, tile):
    whole = positive_definite(size)
    matrix = np.where(np.tri(size, dtype=bool), whole, 99).astype(np.float32)
    invert_lower(matrix, tile=tile)
    np.testing.assert_allclose(np.tril(matrix), np.tril(np.linalg.inv(whole)), atol=2e-5)


@pytest.mark.parametrize("at", [2, 9])
def test_an_indefinite_matrix_is_refused(at):
    matrix = np.eye(12, dtype=np.float32)
    matrix[at, at] = -1
    with pytest.raises(ValueError, match="raise l2"):
        invert_lower(matrix, tile=4)


def laid_out(matrix, width, dtype=np.float32):
    """Flat rows, `width` long, and room for the lanes that reach behind the last."""
    rows = np.zeros((len(matrix), width), dtype=dtype)
    rows[:, : matrix.shape[1]] = matrix
    return np.append(rows, np.zeros(F32_WIDTH, dtype=dtype))


@pytest.mark.parametrize("at", [0, 5, 17, 31])
def test_a_matrix_that_is_not_definite_is_noticed(at):
    matrix = np.eye(32)
    matrix[at, at] = -1
    assert not factorize(laid_out(-matrix, 32), 32)


def test_a_pivot_of_float32_below_the_least_eigenvalue_is_lifted_to_it():
    matrix, vector = laid_out(np.array([[1.0 - 1e-12, 0.0], [2.0, 4.0]]), 16), np.array([5.0, 8.0], dtype=np.float32)
    solve_in_rows(matrix, 16, 2, vector, np.float32(0.5))  # the pivot of the first row is 0 in float32
    np.testing.assert_allclose(vector, [2.0, 1.0], rtol=1e-6)
