"""Propensities of Thompson lists, against enumeration, closed forms and a million draws."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from oneclass.models.exploration import draw_scores, place_probabilities


def integrate_by_enumeration(means, deviations, k):
    """P(i) by scipy's adaptive quadrature, with the sum over all sets of fewer than k others."""
    found = []
    for i, (mean, deviation) in enumerate(zip(means, deviations, strict=True)):
        others = [j for j in range(len(means)) if j != i]

        def integrand(t, i=i, others=others, mean=mean, deviation=deviation):
            above = {j: stats.norm.sf(t, means[j], deviations[j]) for j in others}
            chance = sum(
                math.prod(above[j] if j in chosen else 1 - above[j] for j in others)
                for size in range(k)
                for chosen in itertools.combinations(others, size)
            )
            return stats.norm.pdf(t, mean, deviation) * chance

        found.append(integrate.quad(integrand, mean - 9 * deviation, mean + 9 * deviation, epsabs=1e-9)[0])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_probabilities_are_the_integral_over_all_sets(k):
    random = np.random.default_rng(k)
    means, deviations = random.normal(0, 0.2, (2, 5)), random.uniform(0.05, 0.4, (2, 5))
    found = place_probabilities(means, deviations, k)
    for row in range(2):
        assert found[row] == pytest.approx(integrate_by_enumeration(means[row], deviations[row], k), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "spread"), [(1, 0.1), (5, 0.02), (8, 0.3)])
def test_probabilities_are_the_shares_of_a_million_draws(k, spread):
    random = np.random.default_rng(7)
    means = random.beta(2, 5, 60)
    deviations = spread * random.uniform(0.1, 1, 60)
    found = place_probabilities(means[None], deviations[None], k)[0]
    assert found.sum() == pytest.approx(k, abs=1e-6)
    shares = np.zeros(60)
    for part in range(10):
        rows = np.arange(100_000 * part, 100_000 * (part + 1))
        wide = np.broadcast_to(means, (len(rows), 60)), np.broadcast_to(deviations, (len(rows), 60))
        drawn = draw_scores(*wide, users=rows, night=3, seed=1)
        shares += np.bincount(np.argpartition(-drawn, k, axis=1)[:, :k].ravel(), minlength=60)
    assert np.abs(found - shares / 1_000_000).max() < 1e-3


def test_an_item_that_is_nearly_certain_and_places_without_items():
    means = np.array([[0.9, 0.1, np.nan, 0.2], [0.5, np.nan, np.nan, np.nan]])
    deviations = np.array([[1e-7, 0.05, np.nan, 0.05], [0.1, np.nan, np.nan, np.nan]])
    found = place_probabilities(means, deviations, 1)
    assert found[0] == pytest.approx([1, 0, 0, 0], abs=1e-6)
    assert found[1].tolist() == [1, 0, 0, 0]
    assert place_probabilities(means, deviations, 0).tolist() == [[0] * 4] * 2
    assert place_probabilities(means, deviations, 4).tolist() == [[1, 1, 0, 1], [1, 0, 0, 0]]


def test_draws_belong_to_a_user_and_a_night():
    means, deviations = np.full((3, 4), 0.5), np.full((3, 4), 0.1)
    drawn = draw_scores(means, deviations, users=np.array([4, 9, 4]), night=1, seed=0)
    assert (drawn[0] == drawn[2]).all() and (drawn[0] != drawn[1]).all()
    assert (drawn != draw_scores(means, deviations, users=np.array([4, 9, 4]), night=2, seed=0)).all()
    assert (drawn != draw_scores(means, deviations, users=np.array([4, 9, 4]), night=1, seed=1)).all()
