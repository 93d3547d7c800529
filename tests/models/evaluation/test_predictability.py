"""The figure that tells how good a user's list will be."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.stats import spearmanr

from oneclass.models.evaluation.predictability import predictability, sample_items
from oneclass.models.mrf.dense import MRFDense


def test_it_is_the_statistic_of_its_definition_whatever_the_scale():
    rng = np.random.default_rng(0)
    scores, likes = rng.normal(size=(6, 20)).astype(np.float32), rng.random((6, 20)) < 0.3
    likes[2], scores[3] = False, 1.5
    found = predictability(scores, csr_matrix(likes, dtype=np.float32))
    for user in (0, 1, 4, 5):
        own, everything = scores[user, likes[user]].astype(float), scores[user].astype(float)
        expected = np.sqrt(len(own)) * (own.mean() - everything.mean()) / everything.std()
        assert found[user] == pytest.approx(expected, rel=1e-5)
    assert found[[2, 3]].tolist() == [0, 0]
    assert predictability(3 * scores + 7, csr_matrix(likes)) == pytest.approx(found, rel=1e-4, abs=1e-6)


def test_it_tells_users_of_the_crowd_from_those_of_no_taste():
    rng = np.random.default_rng(1)
    group, strays = rng.integers(4, size=400), np.arange(400) >= 200  # half of the users like what they like by chance
    chance = np.where((np.arange(60) % 4 == group[:, None]) & ~strays[:, None], 0.6, 0.15)
    likes = csr_matrix(rng.random(chance.shape) < chance, dtype=np.float32)
    model = MRFDense().fit(likes[::2])
    scores, tested = model.scores(likes[1::2]), np.arange(1, 400, 2)
    found = predictability(scores, likes[1::2])
    assert spearmanr(found, ~strays[tested])[0] > 0.6


def test_a_sample_of_a_large_catalogue_stands_for_it(monkeypatch):
    """Scores that fall with popularity: items drawn by chance would miss the few popular ones."""
    monkeypatch.setattr("oneclass.models.evaluation.predictability.SAMPLED_ITEMS", 500)
    rng, users, items = np.random.default_rng(2), 30, 20_000
    degrees = rng.permutation(1 + 20_000 // np.arange(1, items + 1))
    scores = (np.log(degrees) + rng.normal(size=(users, items))).astype(np.float32)
    likes = csr_matrix(
        rng.random((users, items)) < 1e-3 * (1 + np.arange(users))[:, None] / users * np.log(degrees + 1)
    )
    sampled = sample_items(degrees)
    assert len(np.unique(sampled)) == 500 and (np.diff(sampled) > 0).all()
    assert np.log(degrees[sampled]).mean() == pytest.approx(np.log(degrees).mean(), rel=0.01)
    scored = np.union1d(sampled, likes.indices)
    found = predictability(scores[:, scored], likes[:, scored], np.searchsorted(scored, sampled))
    expected, standard_error = predictability(scores, likes), np.sqrt(np.diff(likes.indptr) / 500)
    assert (np.abs(found - expected) < 4 * standard_error).all()
