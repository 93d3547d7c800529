"""sansa against the dense inverse, with all entries, and its bounds with fewer."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import DEFAULT_OPTIONS, FitOptions
from oneclass.models.mrf import MRFDense
from oneclass.models.numerics.column_moments import column_moments, rescale_columns
from oneclass.models.numerics.gram import gram_rows
from oneclass.models.sansa import SANSA
from oneclass.models.sansa.factorization import factorize, invert

ALL = 1 << 20


def fit_model(likes, entries, options=DEFAULT_OPTIONS, **settings):
    """Fit with so many entries in a column of a factor at most."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.models.sansa.model.ENTRIES", entries)
        return SANSA(**settings, threads=2).fit(csr_matrix(likes), options)


@pytest.fixture(autouse=True, scope="module")
def keep_small_entries():
    """Invert without dropping small entries, so that all entries are exact."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.models.sansa.model.TOLERANCE", 0.0)
        yield


@pytest.fixture(scope="module")
def likes(long_tailed):
    dense = long_tailed.toarray().astype(np.float64)
    dense[:, [7, 50]] = 0  # items without a like
    dense[3] = 0  # and a user
    return dense


def solve_ease(likes, l2):
    """EASE's weights in closed form, float64; zeros for items without a like."""
    inverse = np.linalg.inv(likes.T @ likes + l2 * np.eye(likes.shape[1]))
    weights = -inverse / inverse.diagonal()
    np.fill_diagonal(weights, 0)
    return weights


def weights_of(model, items):
    """B from the reasons for every item, given a history of all."""
    return model.contributions(csr_matrix(np.ones((1, items))), np.arange(items))


@pytest.mark.parametrize("l2", [0.5, 20.0, 500.0])
def test_with_all_entries_it_is_ease(l2, likes):
    model = fit_model(likes, ALL, l2=l2, alpha=0, user_weight_exponent=0)
    expected = solve_ease(likes, l2)
    np.testing.assert_allclose(weights_of(model, likes.shape[1]), expected, rtol=1e-5, atol=1e-6)
    scores, sums = model.scores(csr_matrix(likes[:30])), likes[:30] @ expected
    has_like = likes.any(axis=0)
    rows = likes[:30].any(axis=1)
    np.testing.assert_allclose(scores[rows][:, has_like], sums[rows][:, has_like], rtol=1e-4, atol=1e-5)
    assert (scores[rows][:, ~has_like] < 0).all()


@pytest.mark.parametrize("chosen", [{}, {"alpha": 0.8, "user_weight_exponent": 1.0, "popularity_discount": 0.3}])
def test_with_all_entries_it_is_the_dense_field(chosen, likes):
    model = fit_model(likes, ALL, **chosen)
    dense = MRFDense(MRFDense.Settings(**chosen)).fit(csr_matrix(likes))
    assert model.params.l2 == pytest.approx(dense.params.l2)
    np.testing.assert_allclose(weights_of(model, likes.shape[1]), dense.weights, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("most", [2, 11, 47])
def test_columns_of_both_factors_keep_their_largest_entries(most, likes):
    count = int(likes.any(axis=0).sum())
    seen = []
    model = fit_model(likes, most, FitOptions(on_epoch=seen.append))
    assert model.roots.getnnz(axis=1).max() == most and model.roots.nnz <= most * count
    assert seen[0].values["entries"] <= most * count


def test_a_denser_inverse_is_closer_to_the_exact_one(likes):
    exact = weights_of(fit_model(likes, ALL), likes.shape[1])
    errors = []
    for entries in (5, 23, 70):
        found = weights_of(fit_model(likes, entries), likes.shape[1])
        errors.append(np.linalg.norm(found - exact) / np.linalg.norm(exact))
    assert errors[0] > errors[1] > errors[2] and errors[0] < 1 and errors[2] < 0.1


def test_a_pivot_that_fails_is_tried_again_with_a_larger_diagonal():
    """Of entries a few of which are dropped, the rest need not be a covariance."""
    rng = np.random.default_rng(3)
    likes = (rng.random((400, 30)) < 0.9).astype(np.float32)
    moments = column_moments(csr_matrix(likes), 0.0)
    rescaled = rescale_columns(moments, 0.0, centred=False)
    gram = gram_rows(csr_matrix(likes), moments.weights, np.zeros(30), rescaled.factor)
    order = np.argsort(likes.sum(axis=0), kind="stable")
    factor = factorize(gram, order, 1e-3, 2)
    assert factor.shift > 0 and (factor.pivots > 0).all() and (factor.counts <= 2).all()
    values, rows, starts = invert(factor, 5, 0.0)
    counts = np.diff(starts)
    assert np.isfinite(values).all() and counts.max() == 5 and (np.diff(rows[: counts[0]]) > 0).all()
    whole = factorize(gram, order, 1e-3, 30)
    assert whole.shift == 0
