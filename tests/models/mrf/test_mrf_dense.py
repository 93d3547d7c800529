"""The Markov random field against eq. 4 written down in float64, and against its own optimality condition."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.mrf.dense import EASE, MRFDense, MRFDenseSettings
from oneclass.models.numerics import gram_inverse

VARIANTS = {
    "the paper's": {},
    "with an intercept": {"intercept": True},
    "no rescaling": {"alpha": 0.0, "l2": 40.0},
    "EASE": {"alpha": 0.0, "l2": 40.0, "centred": False},
    "weighted users": {"alpha": 0.5, "l2": 10.0, "user_weight_exponent": 0.75, "intercept": True},
    "popular items discounted": {"alpha": 0.5, "popularity_discount": 0.3, "intercept": True},
}


PAPER = {"l2": 6.0, "alpha": 0.75, "centred": True, "user_weight_exponent": 0.0}


def fit_model(interactions, threads=2, **settings):
    return MRFDense(MRFDenseSettings(**{**PAPER, **settings}), threads=threads).fit(interactions)


def solve_naively(
    likes, l2=6.0, alpha=0.75, centred=True, intercept=False, user_weight_exponent=0.0, popularity_discount=0.0
):
    """B of eq. 4 and the offset of the scores, in float64."""
    weights = likes.sum(axis=1) ** -user_weight_exponent
    weights /= weights.mean()
    mean = weights @ likes / len(likes)
    gram = (likes * weights[:, None]).T @ likes
    covariance = gram - len(likes) * np.outer(mean, mean)
    scale, discount = (np.diag(covariance) ** (exponent / 2) for exponent in (alpha, popularity_discount))
    target = (covariance if centred else gram) / np.outer(scale, scale)
    inverse = np.linalg.inv(target + l2 * np.eye(len(target)))
    b = (np.eye(len(inverse)) - inverse / np.diag(inverse)) * scale / scale[:, None] / discount
    return b, mean / discount - mean @ b if intercept else np.zeros(len(b))


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS.keys())
def test_weights_and_scores_agree_with_eq_4(settings, long_tailed):
    likes = long_tailed.toarray().astype(float)
    model = fit_model(long_tailed, **settings)
    weights, offset = solve_naively(likes, **settings)
    np.testing.assert_allclose(model.weights, weights, atol=1e-5)
    np.testing.assert_allclose(model.scores(long_tailed), likes @ weights + offset, atol=1e-4)
    assert (model.weights.diagonal() == 0).all() and (model.weights < 0).any()


def test_ease_is_the_ridge_regression_of_each_item_on_the_others(long_tailed):
    """Column by column by the normal equations; the default penalty is twice the edges' mean item degree."""
    likes = long_tailed.toarray().astype(float)
    degrees = likes.sum(axis=0)
    gram, l2 = likes.T @ likes, 2 * (degrees**2).sum() / degrees.sum()
    model = EASE().fit(long_tailed)
    assert model.params.l2 == pytest.approx(l2)
    for item in range(0, len(gram), 7):
        others = np.delete(np.arange(len(gram)), item)
        system = gram[np.ix_(others, others)] + l2 * np.eye(len(others))
        weights = np.linalg.solve(system, gram[others, item])
        np.testing.assert_allclose(model.weights[others, item], weights, atol=1e-5)


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS.keys())
def test_fewer_users_than_items_give_the_same_weights_by_an_inverse_over_the_users(settings, long_tailed, monkeypatch):
    monkeypatch.setattr(gram_inverse, "BLOCK_ROWS", 7)
    likes = long_tailed[: long_tailed.shape[1] // 2].toarray().astype(float)
    likes[3] = 0
    likes[:, likes.sum(axis=0) == 0] = np.eye(len(likes))[:, 5:6]
    likes[:, 0] = np.arange(len(likes)) == 4
    active = likes[likes.sum(axis=1) > 0]
    counted = csr_matrix(likes * np.arange(1, likes.shape[1] + 1))  # how often somebody liked an item is not read
    model, alone = fit_model(counted, **settings), fit_model(counted, threads=1, **settings)
    weights, offset = solve_naively(active, **settings)
    np.testing.assert_allclose(model.weights, weights, atol=1e-5)
    np.testing.assert_allclose(model.offset, offset, atol=1e-5)
    np.testing.assert_array_equal(alone.weights, model.weights)


def test_items_that_all_users_or_none_like_take_no_part(long_tailed):
    likes = long_tailed.toarray()
    likes[:, 3], likes[:, 8] = 1, 0
    for settings in VARIANTS.values():
        model = fit_model(csr_matrix(likes), **settings)
        constant = [3, 8] if settings.get("centred", True) else [8]
        assert (model.weights[constant] == 0).all() and (model.weights[:, constant] == 0).all()
        assert np.isfinite(model.scores(csr_matrix(likes))).all()


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS.keys())
def test_contributions_and_the_offset_make_up_the_score(settings, long_tailed):
    model = fit_model(long_tailed, **settings)
    scores = model.scores(long_tailed)
    for user, item in ((0, 0), (3, 5), (long_tailed.shape[0] - 1, long_tailed.shape[1] - 1)):
        added = model.contributions(long_tailed[user], np.array([item]))
        assert added.dtype == np.float32 and added.shape == (long_tailed[user].nnz, 1)
        np.testing.assert_allclose(added.sum() + model.offset[item], scores[user, item], atol=1e-5)


def test_the_ridge_regression_of_eq_3_is_at_its_minimum(long_tailed):
    """Off the diagonal, X'(X - X B) = l2 B: the gradient vanishes."""
    likes = long_tailed.toarray().astype(float)
    weights = fit_model(long_tailed, alpha=0.0, l2=40.0, centred=False).weights.astype(float)
    gradient = likes.T @ (likes - likes @ weights) - 40.0 * weights
    np.fill_diagonal(gradient, 0)
    assert np.abs(gradient).max() < 2e-3
