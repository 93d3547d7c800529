"""Weights by degree against a loop."""

import numpy as np
import pytest

from models.numerics.degree_weights import degree_weights, degree_weights_or_ones

DEGREES = np.array([3, 0, 1, 40, 7, 0, 7])


@pytest.mark.parametrize("exponent", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("weigh, without_edges", [(degree_weights, 0.0), (degree_weights_or_ones, 1.0)])
def test_they_are_powers_of_the_degree_of_mean_one(weigh, without_edges, exponent):
    powers = [float(degree) ** -exponent for degree in DEGREES if degree]
    mean = sum(powers) / len(powers)
    expected = [float(degree) ** -exponent / mean if degree else without_edges for degree in DEGREES]
    weights = weigh(DEGREES, exponent)
    assert weights.dtype == np.float64
    np.testing.assert_allclose(weights, expected, rtol=1e-14)


@pytest.mark.parametrize("weigh", [degree_weights, degree_weights_or_ones])
def test_without_an_exponent_they_are_ones_to_the_bit(weigh):
    assert (weigh(DEGREES, 0.0)[DEGREES > 0] == 1.0).all()
