"""The sparse Markov random field against section 3 of its paper written down in float64, and against the dense one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass.models import item_weights
from oneclass.models.mrf import sparse, sparse_pattern
from oneclass.models.mrf.dense import MRFDense, MRFDenseSettings
from oneclass.models.mrf.sparse import MRFSparse, MRFSparseSettings
from oneclass.models.mrf.sparse_pattern import pattern_of_density
from oneclass.models.numerics.column_moments import column_moments, rescale_columns
from oneclass.models.numerics.gram import gram_rows

VARIANTS = {
    "one regression an item": {"r": 0.0},
    "blocks of a tenth": {"r": 0.1},
    "blocks of a half": {"r": 0.5},
    "whole blocks": {"r": 1.0},
    "cut columns": {"r": 0.3, "max_in_column": 9},
    "not centred, not rescaled": {"r": 0.2, "alpha": 0.0, "centred": False, "l2": 40.0},
    "weighted users": {"r": 0.1, "alpha": 0.5, "l2": 10.0, "user_weight_exponent": 0.75},
}


ROUNDING = 1e-9  # far above the rounding of a covariance in float64, far below the distance of two that differ


PAPER = {"l2": 1.0, "alpha": 0.75, "centred": True, "user_weight_exponent": 0.0, "r": 0.0}


def fit_model(interactions, *, threads=2, max_in_column=1000, **more):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "MAX_IN_COLUMN", max_in_column)
        return MRFSparse(MRFSparseSettings(**{**PAPER, **more}), threads=threads).fit(interactions)


def weights_table(model):
    return model.weights.toarray()


def rescaled_covariance(likes, alpha=0.75, centred=True, user_weight_exponent=0.0):
    """The rescaled covariance matrix in float64, and the factors that it was divided by; zero without variance."""
    weights = likes.sum(axis=1) ** -user_weight_exponent
    weights /= weights.mean()
    mean = weights @ likes / len(likes)
    gram = (likes * weights[:, None]).T @ likes
    spread = len(likes) * mean * (1 - mean)
    varies = (likes != likes[0]).any(axis=0)
    scale = np.where(varies, spread, 1) ** (alpha / 2)
    target = gram - len(likes) * np.outer(mean, mean) if centred else gram
    target = target / np.outer(scale, scale)
    if centred:
        target[~varies], target[:, ~varies] = 0, 0
    return target, scale


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


def solve_naively(target, scale, threshold, r, l2=1.0, max_in_column=1000):
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
    """The settings of `rescaled_covariance`, and those of `solve_naively`."""
    moments = {name: more[name] for name in ("alpha", "centred", "user_weight_exponent") if name in more}
    return moments, {name: value for name, value in more.items() if name not in moments}


@pytest.mark.parametrize("more", VARIANTS.values(), ids=VARIANTS.keys())
def test_weights_and_scores_agree_with_section_3(more, long_tailed):
    likes = long_tailed.toarray().astype(float)
    moments, rest = split_settings(more)
    target, scale = rescaled_covariance(likes, **moments)
    threshold = threshold_in_a_gap(target, 0.2)
    density = density_above(target, threshold, rest.get("max_in_column", 1000))
    model = fit_model(long_tailed, density=density, **more)
    expected = solve_naively(target, scale, threshold, **rest)
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
    model = fit_model(csr_matrix(likes.astype(np.float32)), density=density, r=r, max_in_column=cap)
    np.testing.assert_allclose(
        weights_table(model), solve_naively(target, scale, threshold, r, max_in_column=cap), atol=1e-5
    )


@pytest.mark.parametrize("more", [{}, {"intercept": True}, {"alpha": 0.5, "user_weight_exponent": 1.0}])
def test_weights_become_the_dense_ones_as_the_density_rises(more, long_tailed):
    shared = {name: value for name, value in {**PAPER, "l2": 2.0, **more}.items() if name != "r"}
    dense = MRFDense(MRFDenseSettings(**shared)).fit(long_tailed)
    apart = [
        np.linalg.norm(weights_table(fit_model(long_tailed, l2=2.0, density=density, **more)) - dense.weights)
        for density in (0.1, 0.3, 0.6, 1.0)
    ]
    assert (np.diff(apart) < 0).all() and apart[-1] < 1e-4 * np.linalg.norm(dense.weights)
    offsets = fit_model(long_tailed, l2=2.0, density=1.0, **more).offset
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
    whole = fit_model(long_tailed, threads=1, density=0.3, r=r)
    monkeypatch.setattr(sparse, "BATCH_ENTRIES", 5000)
    monkeypatch.setattr(item_weights, "MAX_CHUNK_ENTRIES", 700)
    cut = fit_model(long_tailed, threads=3, density=0.3, r=r)
    for name, array in whole._arrays().items():
        np.testing.assert_array_equal(array, cut._arrays()[name], err_msg=name)


def test_items_that_all_users_or_none_like_take_no_part(long_tailed):
    likes = long_tailed.toarray()
    likes[:, 3], likes[:, 8] = 1, 0
    likes = csr_matrix(likes)
    for more in VARIANTS.values():
        model = fit_model(likes, density=0.5, **more)
        constant = [3, 8] if more.get("centred", True) else [8]
        b = weights_table(model)
        assert (b[constant] == 0).all() and (b[:, constant] == 0).all()
        assert np.isfinite(model.scores(likes)).all() and (b != 0).any()


@pytest.mark.parametrize("kind", [MRFDense, MRFSparse])
def test_l2_is_left_to_the_log(kind, long_tailed):
    likes = long_tailed.toarray().astype(float)
    norms = (likes.T * likes.sum(axis=1) ** -0.5).sum(axis=1) * 300 / (likes.sum(axis=1) ** -0.5).sum()
    typical = sum(norm * norm / norm**0.5 for norm in norms) / sum(norms)
    assert kind.Settings().resolve(long_tailed).l2 == pytest.approx(6 * typical)
    assert kind.Settings(l2=3.0).resolve(long_tailed).l2 == 3.0


def test_without_a_density_there_are_two_hundred_entries_an_item(long_tailed):
    wide = csr_matrix(np.hstack([long_tailed.toarray()] * 5))
    assert MRFSparseSettings().resolve(long_tailed).density == 1.0
    assert MRFSparseSettings().resolve(wide).density == pytest.approx(200 / 600)
