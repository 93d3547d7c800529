"""The spread of `like` against an integral, and against draws of the logit."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

from oneclass.models.negatives.like_probability import (
    NODE_WEIGHTS,
    NODES,
    PAIRS_PER_BLOCK,
    like_spread,
    log_odds,
    sigmoid,
)

LOGITS = [(0.0, 0.01), (0.7, 0.5), (-3.0, 2.0), (1.0, 6.0)]


def sigma_moments(mean, variance):
    """E and sd of sigma(a), a ~ N(mean, variance)."""

    def expected(power):
        def density(a):
            return np.exp(-((a - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)

        ends = mean - 12 * np.sqrt(variance), mean + 12 * np.sqrt(variance)
        return quad(lambda a: expit(a) ** power * density(a), *ends, points=[mean], epsabs=1e-12)[0]

    return expected(1), np.sqrt(expected(2) - expected(1) ** 2)


@pytest.mark.parametrize("mean, variance", LOGITS)
def test_the_spread_is_that_of_an_integral_wherever_the_mean_is_put(mean, variance):
    means, variances = np.full(3, mean, dtype=np.float32), np.full(3, variance, dtype=np.float32)
    like = (expit(log_odds(means, variances)) + np.array([0, 0.01, -0.02])).astype(np.float32)
    found = like_spread(means, variances, like)
    np.testing.assert_allclose(found, sigma_moments(mean, variance)[1], rtol=1e-3)
    assert found.dtype == np.float32
    assert means.tolist() == [np.float32(mean)] * 3 and variances.tolist() == [np.float32(variance)] * 3


@pytest.mark.parametrize("mean, variance", LOGITS)
def test_the_log_odds_are_close_to_those_of_the_mean(mean, variance):
    """MacKay's (1992) approximation is within 0.02 of the mean of sigma."""
    odds = log_odds(np.array([mean], dtype=np.float32), np.array([variance], dtype=np.float32))
    assert expit(odds[0]) == pytest.approx(sigma_moments(mean, variance)[0], abs=0.02)
    assert odds[0] == pytest.approx(mean / np.sqrt(1 + np.pi * variance / 8), rel=1e-6)


def test_a_sure_logit_has_no_spread_and_a_missing_one_none():
    means, variances = np.array([0.3, np.nan], dtype=np.float32), np.array([0, 1], dtype=np.float32)
    like = expit(means)
    found = like_spread(means, variances, like)
    assert found[0] == 0 and np.isnan(found[1])


def test_many_pairs_have_the_bits_of_one_node_after_another():
    rng = np.random.default_rng(5)
    means, variances = (
        rng.normal(size=(3, PAIRS_PER_BLOCK)).astype(np.float32),
        rng.random((3, PAIRS_PER_BLOCK), dtype=np.float32),
    )
    like = sigmoid(log_odds(means, variances))
    first, second = np.zeros_like(means), np.zeros_like(means)
    for node, weight in zip(NODES, NODE_WEIGHTS):
        value = sigmoid(means + node * np.sqrt(variances)) - like
        first += weight * value
        second += weight * value * value
    found = like_spread(means, variances, like)
    np.testing.assert_array_equal(found, np.sqrt(np.maximum(second - first * first, 0)))
