"""The parts of the logistic bound against float64."""

import numpy as np
import pytest
from numba import njit
from scipy.special import log_expit

from oneclass.models.numerics.logistic_bound import (
    FAST,
    best_bound_of_square,
    best_square,
    exp_of_minus,
    lambda_of_square,
    lambda_of_xi,
)

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
