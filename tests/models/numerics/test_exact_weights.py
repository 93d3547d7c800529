"""Weights by degree against a loop."""

import numpy as np
import pytest

from oneclass.models.numerics.exact_weights import degree_weights_or_ones, exact_degree_weights, weight_quantum

DEGREES = np.array([3, 0, 1, 40, 7, 0, 7])
EXPONENTS = pytest.mark.parametrize("exponent", [0.0, 0.3, 1.0, 2.0])


@EXPONENTS
def test_they_are_powers_of_the_degree_of_mean_one(exponent):
    powers = [float(degree) ** -exponent for degree in DEGREES if degree]
    mean = sum(powers) / len(powers)
    expected = [float(degree) ** -exponent / mean if degree else 1.0 for degree in DEGREES]
    weights = degree_weights_or_ones(DEGREES, exponent)
    assert weights.dtype == np.float64
    np.testing.assert_allclose(weights, expected, rtol=1e-14)


@EXPONENTS
def test_exact_ones_are_powers_of_the_degree_rounded_to_multiples_of_a_power_of_two(exponent):
    expected = [float(degree) ** -exponent if degree else 0.0 for degree in DEGREES]
    weights, step = exact_degree_weights(DEGREES, exponent), weight_quantum(DEGREES, exponent)
    assert weights.dtype == np.float64 and np.frexp(step)[0] == 0.5
    assert (weights / step == np.rint(weights / step)).all() and (weights[DEGREES > 0] >= step).all()
    assert 2**51 <= weights.sum() / step <= 2**52 + len(DEGREES)
    np.testing.assert_allclose(weights, expected, rtol=0, atol=step / 2)


@pytest.mark.parametrize(("weigh", "without_edges"), [(exact_degree_weights, 0.0), (degree_weights_or_ones, 1.0)])
def test_without_an_exponent_they_are_ones_to_the_bit(weigh, without_edges):
    assert weigh(DEGREES, 0.0).tolist() == [1.0 if degree else without_edges for degree in DEGREES]
