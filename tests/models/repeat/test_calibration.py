"""The regressions and the curve of ranks, against generic optimizers of the same likelihoods."""

import numpy as np
import pytest
from scipy.optimize import minimize

from oneclass.models.repeat.calibration import RIDGE, fit_logistic, fit_poisson, fit_rank_curve, rank_probabilities


def draw_features(seed, rows=400):
    generator = np.random.default_rng(seed)
    features = np.vstack([np.ones(rows), generator.normal(size=(3, rows)) * [[1], [2], [0.5]]])
    return features, np.array([-1.0, 0.8, -0.4, 0.0]) @ features, generator


def maximize_penalized(likelihood, features, prior):
    def loss(b):
        center = features.mean(axis=1) @ b
        return -likelihood(features.T @ b, center) + 0.5 * RIDGE * np.sum((b - prior)[1:] ** 2)

    return minimize(loss, prior, method="BFGS", options={"gtol": 1e-8})


def test_the_logistic_regression_maximises_the_penalised_likelihood():
    features, eta, generator = draw_features(1)
    happened = (generator.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float)
    prior = np.array([0.0, 1.0, 0.0, 0.0])

    def likelihood(own, center):
        rows = np.sum(happened * own - np.log1p(np.exp(own)))
        return rows + 0.5 * (center - np.log1p(np.exp(center))) - 0.5 * np.log1p(np.exp(center))

    expected = maximize_penalized(likelihood, features, prior)
    found, objective = fit_logistic(features, happened, prior, np.ones(4, dtype=bool))
    np.testing.assert_allclose(found, expected.x, atol=1e-4)
    assert objective == pytest.approx(-expected.fun, abs=1e-6)
    held, _ = fit_logistic(features, happened, prior, np.array([True, False, True, True]))
    assert held[1] == 1.0 and held[2] != found[2]


def test_the_poisson_regression_maximises_the_penalised_likelihood():
    features, eta, generator = draw_features(2)
    counts = generator.poisson(np.exp(eta)).astype(float)

    def likelihood(own, center):
        return np.sum(counts * own - np.exp(own)) + 0.5 * (center - np.exp(center)) - 0.5 * np.exp(center)

    np.testing.assert_allclose(
        fit_poisson(features, counts), maximize_penalized(likelihood, features, np.zeros(4)).x, atol=1e-4
    )


def test_a_window_without_events_gives_finite_small_probabilities():
    features, eta, _ = draw_features(3)
    found, _ = fit_logistic(features, np.zeros(len(eta)), np.array([0.0, 1, 0, 0]), np.ones(4, dtype=bool))
    assert np.isfinite(found).all() and (1 / (1 + np.exp(-found @ features))).mean() < 0.01
    assert np.exp(fit_poisson(features, np.zeros(len(eta))) @ features).mean() < 0.01


def test_the_curve_is_the_distribution_of_the_ranks():
    generator, items = np.random.default_rng(4), 500
    true = (np.arange(items) + 1 + 8.0) ** -1.6
    ranks = generator.choice(items, size=20_000, p=true / true.sum())
    curve = fit_rank_curve(ranks, items)
    found = rank_probabilities(curve, np.arange(items))
    assert found.sum() == pytest.approx(1) and (np.diff(found) < 0).all()
    assert curve[0] == 8 and curve[1] == pytest.approx(1.6, abs=0.1)
    np.testing.assert_allclose(found[:50], (true / true.sum())[:50], rtol=0.1)
    none = rank_probabilities(fit_rank_curve(np.empty(0, dtype=int), items), np.arange(items))
    assert none.sum() == pytest.approx(1) and (np.diff(none) < 0).all()
