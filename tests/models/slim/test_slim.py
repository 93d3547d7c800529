"""SLIM against coordinate descent written down in float64, and against the conditions of its minimum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.gram import gram_rows
from oneclass.models.slim import columns
from oneclass.models.slim import kernels as slim_kernels
from oneclass.models.slim.model import SLIM, SLIMSettings

VARIANTS = {
    "elastic net": {"l1": 3.0, "l2": 20.0},
    "hardly any penalty": {"l1": 0.01, "l2": 1.0},
    "rescaled, users weighted": {"l1": 0.3, "l2": 2.0, "alpha": 0.5, "user_weight_exponent": 0.5},
    "users weighted": {"l1": 0.5, "l2": 5.0, "user_weight_exponent": 0.5},
}


PLAIN = {"alpha": 0.0, "user_weight_exponent": 0.0}


@pytest.fixture(autouse=True, scope="module")
def near_the_minimum():
    """Descend closer to the minimum, with which the tests compare."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.models.slim.columns.TOLERANCE", 1e-6)
        yield


def fit_model(interactions, **chosen):
    return SLIM(SLIMSettings(**{**PLAIN, **chosen}), threads=2).fit(interactions)


def weighted_problem(likes, alpha=0.0, user_weight_exponent=0.0):
    """The Gram matrix of weighted users and rescaled items, and the scale of the items, in float64."""
    degrees = likes.sum(axis=1)
    weights = np.where(degrees > 0, np.maximum(degrees, 1) ** -user_weight_exponent, 0)
    gram = (likes * (weights / weights[degrees > 0].mean())[:, None]).T @ likes
    scale = np.where(gram.diagonal() > 0, gram.diagonal(), 1) ** (alpha / 2)
    return gram / np.outer(scale, scale), scale


def descend_naively(likes, l1, l2, sweeps=2000, **chosen):
    """Cyclic coordinate descent over all items, one column after the other."""
    gram, scale = weighted_problem(likes, **chosen)
    weights = np.zeros_like(gram)
    for column in range(len(gram)):
        others = np.flatnonzero((np.arange(len(gram)) != column) & (gram.diagonal() > 0))
        others = others[np.argsort(-gram[others, column] / np.sqrt(gram.diagonal()[others]))]  # which converges sooner
        w = weights[:, column]
        for _ in range(sweeps):
            before = w.copy()
            for item in others:
                pull = gram[item, column] - gram[item] @ w + gram[item, item] * w[item]
                w[item] = max(0.0, (pull - l1) / (gram[item, item] + l2))
            if np.abs(w - before).max() < 1e-9:
                break
    return weights * scale / scale[:, None]


@pytest.mark.parametrize("chosen", VARIANTS.values(), ids=VARIANTS.keys())
def test_agrees_with_naive_coordinate_descent(chosen, long_tailed):
    likes = long_tailed.toarray()[:, :60].astype(float)
    weights = fit_model(csr_matrix(likes), **chosen).weights
    np.testing.assert_allclose(weights.toarray(), descend_naively(likes, **chosen), atol=2e-5)
    assert 0 < weights.nnz < 60 * 59


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.floats(0, 4), st.floats(0.5, 30), st.sampled_from([0.0, 0.5]), st.floats(0.05, 0.6)
)
def test_no_weight_can_lower_the_loss(seed, l1, l2, alpha, share):
    """At the minimum the slope of the loss is zero at a positive weight, and not negative at a zero (KKT)."""
    likes = (np.random.default_rng(seed).random((40, 25)) < share).astype(float)
    likes[0, 0] = 1
    found = fit_model(csr_matrix(likes), l1=l1, l2=l2, alpha=alpha).weights.toarray().astype(float)
    gram, scale = weighted_problem(likes, alpha=alpha)
    weights = found * scale[:, None] / scale
    slope = gram @ weights - gram + l2 * weights + l1
    np.fill_diagonal(slope, 0)
    steps = slope / (gram.diagonal() + l2)[:, None]
    assert (found >= 0).all() and (found.diagonal() == 0).all()
    assert (steps > -5e-6).all() and np.abs(steps[found > 0]).max(initial=0) < 5e-6


def test_rows_kept_whole_or_sparse_and_batches_of_any_size_give_the_same_bits(long_tailed, monkeypatch):
    expected = fit_model(long_tailed, l1=1.0, l2=10.0).weights
    monkeypatch.setattr(columns, "BATCH_ENTRIES", 50)
    epochs = []
    found = SLIM(SLIMSettings(l1=1.0, l2=10.0, **PLAIN)).fit(long_tailed, FitOptions(on_epoch=epochs.append)).weights
    assert (found != expected).nnz == 0
    assert len(epochs) > 5 and epochs[-1].number == epochs[-1].of == len(epochs)
    kept = np.zeros(120, dtype=np.int64)
    ones = np.ones(max(long_tailed.shape))
    slim_kernels.count_pairs(gram_rows(long_tailed, ones, ones[:120], ones[:120]), 1, kept)
    assert (kept == 120).any() and (kept < 120).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["elastic net", "hardly any penalty", "rescaled, users weighted"])
def test_items_that_the_same_users_like_are_solved_as_if_apart(name, long_tailed):
    likes = long_tailed.toarray()[:, :30].astype(float)
    likes = np.concatenate([likes, likes[:, :6], likes[:, 2:4], np.zeros((len(likes), 3))], axis=1)
    likes[5, -3:] = 1
    weights = fit_model(csr_matrix(likes), **VARIANTS[name]).weights
    np.testing.assert_allclose(weights.toarray(), descend_naively(likes, **VARIANTS[name]), atol=2e-5)
    assert weights.has_sorted_indices and (weights.diagonal() == 0).all() and weights[30, 0] > 0


def test_a_log_of_one_user_has_the_weights_of_its_equation():
    for items in range(2, 60):
        weights = fit_model(csr_matrix(np.ones((1, items))), l1=0.015, l2=15.0).weights.toarray()
        expected = np.where(np.eye(items), 0, (1 - 0.015) / (items - 1 + 15.0))
        np.testing.assert_allclose(weights, expected, atol=2e-5)


def test_penalties_left_to_the_log_are_numbers_and_given_ones_stay(long_tailed):
    resolved = SLIMSettings().resolve(long_tailed)
    by_rule, by_number = (SLIM(settings).fit(long_tailed).weights for settings in (SLIMSettings(), resolved))
    assert (by_rule != by_number).nnz == 0
    given = SLIMSettings(l1=2.0).resolve(long_tailed)
    assert given.l1 == 2.0 and given.l2 == resolved.l2


def test_a_descent_that_was_cut_short_says_so(long_tailed, monkeypatch):
    monkeypatch.setattr("oneclass.models.slim.columns.MAX_SWEEPS", 1)
    with pytest.warns(UserWarning, match="raise l2"):
        fit_model(long_tailed, l1=0.1, l2=1.0)
