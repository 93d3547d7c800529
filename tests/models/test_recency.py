"""The models that weigh a history by its order, against a dense formula in float64."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.blend import Blend, BlendSettings
from oneclass.models.blend.model import normalize_scores
from oneclass.models.numerics.sequential_histories import single_item_histories, with_recency_ranks
from oneclass.models.registry import MODELS

FITTED = {
    "mrf_dense": {"l2": 20.0},
    "mrf_dense, intercept": {"l2": 20.0, "intercept": True},
    "mrf_sparse": {"l2": 20.0, "density": 0.3},
    "slim": {"l1": 0.5, "l2": 5.0},
    "graph_filter": {"vectors": 6},
}


def fit_model(name, matrix, **more):
    kind = MODELS[name.partition(",")[0]]
    return kind(kind.Settings(**{**FITTED[name], **more}), seed=2, threads=2).fit(matrix)


def shuffle_histories(matrix, seed):
    """The histories with a drawn order, and the order as a dense array of places, -1 where there is no like."""
    generator = np.random.default_rng(seed)
    places = np.concatenate([generator.permutation(length) for length in np.diff(matrix.indptr)])
    dense = np.full(matrix.shape, -1)
    dense[np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)), matrix.indices] = places
    return with_recency_ranks(matrix, places), dense


def between_items(model):
    """float64 (items, items): what an item of the history adds to each score, by the scores of histories of one
    item.
    """
    if hasattr(model, "weights"):
        weights = model.weights if isinstance(model.weights, np.ndarray) else model.weights.toarray()
        return weights.astype(np.float64)
    return model.scores(single_item_histories(np.arange(model.item_count), model.item_count)).astype(np.float64)


@pytest.mark.parametrize("name", FITTED)
def test_scores_and_reasons_are_the_weighted_sums(name, long_tailed):
    histories, places = shuffle_histories(long_tailed[:40], 1)
    plain, weighing = fit_model(name, long_tailed), fit_model(name, long_tailed, recency_exponent=0.6)
    by_place = np.where(places >= 0, (1.0 + np.maximum(places, 0)) ** -0.6, 0)
    sums = by_place @ between_items(plain)
    expected, found = sums + getattr(plain, "offset", 0.0), weighing.scores(histories)
    spoken_for = sums != 0  # the others are placed by popularity
    assert spoken_for.mean() > 0.7
    np.testing.assert_allclose(found[spoken_for], expected[spoken_for], rtol=2e-4, atol=2e-5)
    assert np.abs(found - plain.scores(histories))[spoken_for].max() > 0.01
    for row in (0, 17):
        items = np.flatnonzero(spoken_for[row])[:9]
        added = weighing.contributions(histories[[row]], items)
        offset = getattr(plain, "offset", np.zeros(plain.item_count))[items]
        np.testing.assert_allclose(added.sum(axis=0) + offset, found[row, items], rtol=2e-4, atol=2e-5)
        assert found[row].tobytes() == weighing.scores(histories[[row]])[0].tobytes()


@pytest.mark.parametrize("name", FITTED)
def test_histories_without_an_order_are_refused(name, long_tailed):
    model = fit_model(name, long_tailed, recency_exponent=0.6)
    with pytest.raises(ValueError, match="recency_exponent = 0.6 weighs likes by their order"):
        model.scores(csr_matrix(long_tailed[:2]))
    with pytest.raises(ValueError, match="by their order"):
        model.contributions(csr_matrix(long_tailed[0]), np.arange(3))
    assert np.isfinite(model.similar_items(np.arange(3), 4)[1]).all()


def test_members_of_a_blend_weigh_each_by_its_own_exponent(long_tailed, tmp_path):
    components = [
        {"model": "mrf_dense", "settings": FITTED["mrf_dense"] | {"recency_exponent": 0.6}},
        {"model": "slim", "weight": 0.5, "settings": FITTED["slim"]},
    ]
    settings = BlendSettings(components=components)
    assert settings.reads_order and not BlendSettings().reads_order
    Blend(settings, seed=2).fit(long_tailed).save(tmp_path)
    model = Blend.load(tmp_path)
    histories, _ = shuffle_histories(long_tailed[:20], 4)
    other, _ = shuffle_histories(long_tailed[:20], 5)
    parts = [
        normalize_scores(fit_model(name, long_tailed, recency_exponent=exponent).scores(histories), histories)
        for name, exponent in (("mrf_dense", 0.6), ("slim", 0.0))
    ]
    found = model.scores(histories)
    np.testing.assert_allclose(found, parts[0] + 0.5 * parts[1], rtol=1e-4, atol=1e-4)
    assert np.abs(found - model.scores(other)).max() > 0.01
    # The unit of a block is kept from its scores to its reasons: another order of the same items is another block.
    reasons = [model.contributions(one[[0]], np.arange(5)) for one in (histories, other)]
    fresh = Blend.load(tmp_path)
    np.testing.assert_array_equal(reasons[1], fresh.contributions(other[[0]], np.arange(5)))
    assert np.abs(reasons[0] - reasons[1]).max() > 0
    with pytest.raises(ValueError, match="by their order"):
        model.scores(csr_matrix(long_tailed[:2]))
