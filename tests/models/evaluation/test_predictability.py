"""The figure that tells how good a user's list will be."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.stats import spearmanr

from oneclass.models.evaluation.predictability import predictability
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
