"""The Markov random fields in float64: the dense one against eq. 4 and its optimality condition, the sparse one against
section 3 of its paper and the dense one.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass.models import item_weights
from oneclass.models.mrf import sparse, sparse_pattern
from oneclass.models.mrf.dense import EASE, MRFDense, MRFDenseSettings
from oneclass.models.mrf.sparse import MRFSparse, MRFSparseSettings
from oneclass.models.mrf.sparse_pattern import pattern_of_density
from oneclass.models.numerics import gram_inverse
from oneclass.models.numerics.column_moments import column_moments, rescale_columns
from oneclass.models.numerics.gram import gram_rows

DENSE = {
    "the paper's": {},
    "with an intercept": {"intercept": True},
    "no rescaling": {"alpha": 0.0, "l2": 40.0},
    "EASE": {"alpha": 0.0, "l2": 40.0, "centred": False},
    "weighted users": {"alpha": 0.5, "l2": 10.0, "user_weight_exponent": 0.75, "intercept": True},
    "popular items discounted": {"alpha": 0.5, "popularity_discount": 0.3, "intercept": True},
}
SPARSE = {
    "one regression an item": {"r": 0.0},
    "blocks of a tenth": {"r": 0.1},
    "blocks of a half": {"r": 0.5},
    "whole blocks": {"r": 1.0},
    "cut columns": {"r": 0.3, "max_in_column": 9},
    "not centred, not rescaled": {"r": 0.2, "alpha": 0.0, "centred": False, "l2": 40.0},
    "weighted users": {"r": 0.1, "alpha": 0.5, "l2": 10.0, "user_weight_exponent": 0.75},
}
PAPER = {"alpha": 0.75, "centred": True, "user_weight_exponent": 0.0}
ROUNDING = 1e-9  # far above the rounding of a covariance in float64, far below the distance of two that differ


def fit_dense(interactions, threads=2, **more):
    return MRFDense(MRFDenseSettings(**{"l2": 6.0, **PAPER, **more}), threads=threads).fit(interactions)


def fit_sparse(interactions, *, threads=2, max_in_column=1000, **more):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "MAX_IN_COLUMN", max_in_column)
        return MRFSparse(MRFSparseSettings(**{"l2": 1.0, "r": 0.0, **PAPER, **more}), threads=threads).fit(interactions)


def weights_table(model):
    return model.weights.toarray()


def weigh_users(likes, exponent):
    """The weights of the users and the weighted mean of each item, in float64."""
    weights = likes.sum(axis=1) ** -exponent
    weights /= weights.mean()
    return weights, weights @ likes / len(likes)


def rescaled_covariance(likes, alpha=0.75, centred=True, user_weight_exponent=0.0):
    """The rescaled covariance matrix in float64, and the factors that it was divided by; zero without variance."""
    weights, mean = weigh_users(likes, user_weight_exponent)
    gram = (likes * weights[:, None]).T @ likes
    spread = len(likes) * mean * (1 - mean)
    varies = (likes != likes[0]).any(axis=0)
    scale = np.where(varies, spread, 1) ** (alpha / 2)
    target = gram - len(likes) * np.outer(mean, mean) if centred else gram
    target = target / np.outer(scale, scale)
    if centred:
        target[~varies], target[:, ~varies] = 0, 0
    return target, scale


def solve_eq_4(likes, l2=6.0, intercept=False, popularity_discount=0.0, **moments):
    """B of eq. 4 and the offset of the scores, in float64, for items of which all vary."""
    target, scale = rescaled_covariance(likes, **moments)
    _, mean = weigh_users(likes, moments.get("user_weight_exponent", 0.0))
    discount = (len(likes) * mean * (1 - mean)) ** (popularity_discount / 2)
    inverse = np.linalg.inv(target + l2 * np.eye(len(target)))
    b = (np.eye(len(inverse)) - inverse / np.diag(inverse)) * scale / scale[:, None] / discount
    return b, mean / discount - mean @ b if intercept else np.zeros(len(b))


def threshold_in_a_gap(target, share):
    """A threshold that keeps about a share of the entries, with no entry near it, so that rounding decides nothing.

    Covariances that are zero but for rounding are zero here: a threshold between two of them would tell nothing apart.
    """
    values = np.abs(target[~np.eye(len(target), dtype=bool)]).astype(np.float32).astype(float)
    values = np.unique(np.where(values < ROUNDING, 0, values))
    place = np.clip(np.searchsorted(values, np.quantile(np.abs(target), 1 - share)), 1, len(values) - 1)
    width = max(1, len(values) // 100)
    near = np.arange(max(1, place - width), min(len(values), place + width))
    at = near[np.argmax(values[near] - values[near - 1])]
    assert values[at] - values[at - 1] > 2 * ROUNDING
    return float((values[at] + values[at - 1]) / 2)


def solve_section_3(target, scale, threshold, r, l2=1.0, max_in_column=1000):
    """Section 3, step by step, in float64; covariances that are equal in float32 count as ties."""
    items = len(target)
    size = np.abs(target).astype(np.float32)
    np.fill_diagonal(size, 0)
    largest_first = np.argsort(-size, axis=0, kind="stable")
    neighbours = [
        [i, *[j for j in largest_first[: max_in_column - 1, i] if size[j, i] > threshold]] for i in range(items)
    ]
    todo = sorted(range(items), key=lambda i: (-len(neighbours[i]), -target[i, i], i))
    total, count = np.zeros((items, items)), np.zeros((items, items))
    regularized = target + l2 * np.eye(items)
    done = set()
    for leader in todo:
        if leader in done:
            continue
        block = neighbours[leader]
        chosen = block[: max(1, int(np.ceil(r * len(block))))]
        inverse = np.linalg.inv(regularized[np.ix_(block, block)])
        for place, i in enumerate(chosen):
            total[block, i] -= inverse[:, place] / inverse[place, place]
            count[block, i] += 1
        done.update(chosen)
    inside = np.zeros((items, items), dtype=bool)
    for i, column in enumerate(neighbours):
        inside[column, i] = True
    b = np.where(inside, total / np.maximum(count, 1), 0) * scale / scale[:, None]
    np.fill_diagonal(b, 0)
    return b


def density_above(target, threshold, max_in_column=1000):
    """Section 3.1: the share of entries above the threshold, at most so many of a column, the diagonal among them."""
    size = np.abs(target).astype(np.float32)
    np.fill_diagonal(size, np.inf)
    a = size > threshold
    for i in range(len(a)):
        a[np.argsort(-size[:, i], kind="stable")[max_in_column:], i] = False
    return min(1.0, (a.sum() + 0.5) / a.size)  # half an entry more, so that rounding loses none


def small_matrix(seed):
    """About 30 users x 6 to 14 items in which rounding decides no tie.

    Of items that c and n - c of n users like, the variances are equal but for rounding: of such a pair one is left out.
    """
    rng = np.random.default_rng(seed)
    likes = rng.random((30, 14)) < rng.uniform(0.05, 0.95, size=14)
    likes[0] = ~likes[0]
    while True:
        likes = likes[likes.any(axis=1)]
        counts = likes.sum(axis=0)
        mirrored = [item for item, count in enumerate(counts) if len(likes) - count in counts[:item]]
        if not mirrored:
            return likes.astype(float)
        likes = np.delete(likes, mirrored, axis=1)


def split_settings(more):
    """The settings of `rescaled_covariance`, and those of `solve_section_3`."""
    moments = {name: more[name] for name in ("alpha", "centred", "user_weight_exponent") if name in more}
    return moments, {name: value for name, value in more.items() if name not in moments}


@pytest.mark.parametrize("more", SPARSE.values(), ids=SPARSE.keys())
def test_weights_and_scores_agree_with_section_3(more, long_tailed):
    likes = long_tailed.toarray().astype(float)
    moments, rest = split_settings(more)
    target, scale = rescaled_covariance(likes, **moments)
    threshold = threshold_in_a_gap(target, 0.2)
    density = density_above(target, threshold, rest.get("max_in_column", 1000))
    model = fit_sparse(long_tailed, density=density, **more)
    expected = solve_section_3(target, scale, threshold, **rest)
    np.testing.assert_allclose(weights_table(model), expected, atol=1e-5)
    scores, sums = model.scores(long_tailed), likes @ expected
    said = sums != 0
    np.testing.assert_allclose(scores[said], sums[said], atol=1e-4)
    lowest = np.where(said, scores, np.inf).min(axis=1, keepdims=True)
    assert (said | (scores < lowest)).all()
    assert 0.03 < (expected != 0).mean() < 0.3


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), r=st.floats(0, 1), share=st.floats(0.02, 0.9), cap=st.integers(1, 40))
def test_any_small_matrix_agrees_with_section_3(seed, r, share, cap):
    likes = small_matrix(seed)
    target, scale = rescaled_covariance(likes)
    threshold = threshold_in_a_gap(target, share)
    density = density_above(target, threshold, cap)
    model = fit_sparse(csr_matrix(likes.astype(np.float32)), density=density, r=r, max_in_column=cap)
    np.testing.assert_allclose(
        weights_table(model), solve_section_3(target, scale, threshold, r, max_in_column=cap), atol=1e-5
    )


@pytest.mark.parametrize("more", [{}, {"intercept": True}, {"alpha": 0.5, "user_weight_exponent": 1.0}])
def test_weights_become_the_dense_ones_as_the_density_rises(more, long_tailed):
    dense = fit_dense(long_tailed, l2=2.0, **more)
    apart = [
        np.linalg.norm(weights_table(fit_sparse(long_tailed, l2=2.0, density=density, **more)) - dense.weights)
        for density in (0.1, 0.3, 0.6, 1.0)
    ]
    assert (np.diff(apart) < 0).all() and apart[-1] < 1e-4 * np.linalg.norm(dense.weights)
    offsets = fit_sparse(long_tailed, l2=2.0, density=1.0, **more).offset
    np.testing.assert_allclose(offsets, dense.offset, atol=1e-5)


@pytest.mark.parametrize("density", [0.005, 0.02, 0.1, 0.4, 1.0])
@pytest.mark.parametrize("cap", [1000, 20])
def test_a_density_is_the_lowest_threshold_that_keeps_no_more(density, cap, long_tailed, monkeypatch):
    monkeypatch.setattr(sparse_pattern, "SAMPLE_ROWS", 10)
    target = np.abs(rescaled_covariance(long_tailed.toarray().astype(float))[0])
    np.fill_diagonal(target, -1)
    moments = column_moments(long_tailed, 0.0)
    rescaled = rescale_columns(moments, 0.75, True)
    gram = gram_rows(long_tailed, moments.weights, rescaled.shift, rescaled.factor)
    pattern = pattern_of_density(gram, density, cap)
    kept = np.sort(target, axis=0)[::-1][: cap - 1]
    kept = np.sort(kept[kept >= 0])[::-1]
    room = max(0, int(density * target.size) - len(target))
    if room < len(kept):
        assert len(pattern.indices) - len(target) == (kept > pattern.threshold * (1 + 1e-6)).sum() <= room
        assert pattern.threshold == pytest.approx(kept[room], rel=1e-6)
    else:
        assert pattern.threshold == 0


@pytest.mark.parametrize("r", [0.0, 0.3])
def test_batches_and_threads_do_not_change_a_bit(r, long_tailed, monkeypatch):
    whole = fit_sparse(long_tailed, threads=1, density=0.3, r=r)
    monkeypatch.setattr(sparse, "BATCH_ENTRIES", 5000)
    monkeypatch.setattr(item_weights, "MAX_CHUNK_ENTRIES", 700)
    cut = fit_sparse(long_tailed, threads=3, density=0.3, r=r)
    for name, array in whole._arrays().items():
        np.testing.assert_array_equal(array, cut._arrays()[name], err_msg=name)


def test_items_that_all_users_or_none_like_take_no_part(long_tailed):
    likes = long_tailed.toarray()
    likes[:, 3], likes[:, 8] = 1, 0
    likes = csr_matrix(likes)
    fits = [(fit_dense(likes, **more), more) for more in DENSE.values()]
    for model, more in [*fits, *((fit_sparse(likes, density=0.5, **more), more) for more in SPARSE.values())]:
        constant = [3, 8] if more.get("centred", True) else [8]
        b = weights_table(model) if isinstance(model, MRFSparse) else model.weights
        assert (b[constant] == 0).all() and (b[:, constant] == 0).all() and (b != 0).any()
        assert np.isfinite(model.scores(likes)).all()


def test_without_a_density_there_are_two_hundred_entries_an_item(long_tailed):
    wide = csr_matrix(np.hstack([long_tailed.toarray()] * 5))
    assert MRFSparseSettings().resolve(long_tailed).density == 1.0
    assert MRFSparseSettings().resolve(wide).density == pytest.approx(200 / 600)


@pytest.mark.parametrize("settings", DENSE.values(), ids=DENSE.keys())
def test_weights_and_scores_agree_with_eq_4(settings, long_tailed):
    likes = long_tailed.toarray().astype(float)
    model = fit_dense(long_tailed, **settings)
    weights, offset = solve_eq_4(likes, **settings)
    np.testing.assert_allclose(model.weights, weights, atol=1e-5)
    np.testing.assert_allclose(model.scores(long_tailed), likes @ weights + offset, atol=1e-4)
    assert (model.weights.diagonal() == 0).all() and (model.weights < 0).any()


def test_ease_is_the_ridge_regression_of_each_item_on_the_others(long_tailed):
    """Column by column by the normal equations; the default penalty is twice the edges' mean item degree."""
    likes, degrees = long_tailed.toarray().astype(float), long_tailed.getnnz(axis=0)
    gram, l2 = likes.T @ likes, 2 * (degrees**2).sum() / degrees.sum()
    model = EASE().fit(long_tailed)
    for item in range(0, len(gram), 7):
        others = np.delete(np.arange(len(gram)), item)
        system = gram[np.ix_(others, others)] + l2 * np.eye(len(others))
        np.testing.assert_allclose(model.weights[others, item], np.linalg.solve(system, gram[others, item]), atol=1e-5)


@pytest.mark.parametrize("settings", DENSE.values(), ids=DENSE.keys())
def test_fewer_users_than_items_give_the_same_weights_by_an_inverse_over_the_users(settings, long_tailed, monkeypatch):
    monkeypatch.setattr(gram_inverse, "BLOCK_ROWS", 7)
    likes = long_tailed[: long_tailed.shape[1] // 2].toarray().astype(float)
    likes[3] = 0
    likes[:, likes.sum(axis=0) == 0] = np.eye(len(likes))[:, 5:6]
    likes[:, 0] = np.arange(len(likes)) == 4
    active = likes[likes.sum(axis=1) > 0]
    counted = csr_matrix(likes * np.arange(1, likes.shape[1] + 1))  # how often somebody liked an item is not read
    model, alone = fit_dense(counted, **settings), fit_dense(counted, threads=1, **settings)
    weights, offset = solve_eq_4(active, **settings)
    np.testing.assert_allclose(model.weights, weights, atol=1e-5)
    np.testing.assert_allclose(model.offset, offset, atol=1e-5)
    np.testing.assert_array_equal(alone.weights, model.weights)


@pytest.mark.parametrize("settings", DENSE.values(), ids=DENSE.keys())
def test_contributions_and_the_offset_make_up_the_score(settings, long_tailed):
    model = fit_dense(long_tailed, **settings)
    scores = model.scores(long_tailed)
    for user, item in ((0, 0), (3, 5), (long_tailed.shape[0] - 1, long_tailed.shape[1] - 1)):
        added = model.contributions(long_tailed[user], np.array([item]))
        assert added.dtype == np.float32 and added.shape == (long_tailed[user].nnz, 1)
        np.testing.assert_allclose(added.sum() + model.offset[item], scores[user, item], atol=1e-5)
