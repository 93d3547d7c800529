"""Laws of degrees against sums written out, and the solution of eq. 1."""

import numpy as np
import pytest

from oneclass.models.degrees.distributions import FAMILIES, Distribution, power_law, power_law_with_mean

ANY_LAW = [
    Distribution("power_law", (-0.77,), 1, 300),
    Distribution("power_law", (1.5,), 3, 40),
    Distribution("power_law_cutoff", (-1.4, -1 / 70), 1, 300),
    Distribution("log_normal", (2.0, -0.5), 2, 500),
    Distribution("exponential", (-0.05,), 1, 300),
]
DENSITIES = {
    "power_law": lambda d, law: d**-law.exponent,
    "power_law_cutoff": lambda d, law: d**-law.exponent * np.exp(-d / law.cutoff),
    "log_normal": lambda d, law: np.exp(-((np.log(d) - law.exponent) ** 2) / (2 * law.cutoff**2)) / d,
    "exponential": lambda d, law: np.exp(-d / law.cutoff),
}


@pytest.mark.parametrize("law", ANY_LAW, ids=lambda law: law.family)
def test_masses_follow_the_named_parameters(law):
    degrees = np.arange(law.d_min, law.d_max + 1.0)
    weights = np.array([DENSITIES[law.family](d, law) for d in degrees])
    np.testing.assert_allclose(law.mass, weights / weights.sum(), rtol=1e-10)
    np.testing.assert_allclose(law.cdf[-1], 1)
    np.testing.assert_allclose(law.mean, (degrees * weights).sum() / weights.sum())


def test_every_family_is_tried():
    assert set(DENSITIES) == set(FAMILIES)


@pytest.mark.parametrize("draws", [150, 40_000], ids=["fewer than the support", "more than the support"])
def test_samples_have_the_laws_frequencies(draws):
    law, generator = power_law(0.77, 1, 300, 90), np.random.default_rng(1)
    count = sum(law.sample(draws, generator) for _ in range(400_000 // draws))
    expected = law.mass * count.sum()
    chi_square = ((count - expected) ** 2 / expected).sum()
    assert abs(chi_square - 299) < 5 * np.sqrt(2 * 299)


@pytest.mark.parametrize("mean", [1.001, 2.0, 20.0, 90.0])
def test_a_cutoff_meets_the_mean_and_keeps_the_exponent(mean):
    law = power_law_with_mean(mean, 0.5, 400)
    assert law.mean == pytest.approx(mean, rel=1e-9)
    assert law.exponent == 0.5
    assert law.cutoff > 0


@pytest.mark.parametrize("mean", [200.0, 260.0, 390.0])
def test_a_mean_out_of_a_cutoffs_reach_lowers_the_exponent(mean):
    assert power_law(0.5, 1, 400).mean < mean
    law = power_law_with_mean(mean, 0.5, 400)
    assert law.mean == pytest.approx(mean, rel=1e-9)
    assert law.cutoff is None
    assert law.exponent < 0.5
