"""The order of candidates without evidence, by itself and in the models between items."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.mrf.dense import MRFDense, MRFDenseSettings
from oneclass.models.mrf.sparse import MRFSparse, MRFSparseSettings
from oneclass.models.numerics.popularity_fallback import fill_popularity_fallback
from oneclass.models.slim.model import SLIM, SLIMSettings

MODELS = {
    "slim": (SLIM, SLIMSettings(l1=1.0, l2=5.0)),
    "mrf_sparse": (MRFSparse, MRFSparseSettings(l2=2.0, density=0.05, centred=True)),
    "mrf_sparse, not centred": (MRFSparse, MRFSparseSettings(l2=2.0, density=0.05)),
    "mrf_dense": (MRFDense, MRFDenseSettings(l2=2.0, centred=True)),
}


@pytest.fixture(scope="module")
def sparse_log():
    """200 users x 150 items, most pairs of which share no user; item 7 is liked by all, item 8 by no user."""
    rng = np.random.default_rng(9)
    likes = rng.random((200, 150)) < 0.15 / np.sqrt(np.arange(1, 151))
    likes[:, 7], likes[:, 8] = True, False
    return csr_matrix(likes.astype(np.float32))


def naive_order(evidence, degrees):
    """Items best first: those with evidence by it, then those without by degree; of equal ones the lower id."""

    def place(item):
        known = evidence[item]
        return (known == 0, -known if known != 0 else -int(degrees[item]), item)

    return sorted(range(len(evidence)), key=place)


def rank_items(scores):
    return np.argsort(-scores, kind="stable").tolist()


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20])
@pytest.mark.parametrize("least", [-1.0, -0.5, -np.nextafter(np.float32(2), np.float32(0)), 0.0])
def test_candidates_without_evidence_follow_by_popularity(least, scale):
    rng = np.random.default_rng(3)
    evidence = (rng.normal(size=(20, 6000)) * (rng.random((20, 6000)) < 0.3)).astype(np.float32)
    evidence = np.maximum(evidence, np.float32(least)) * np.float32(scale)
    evidence[0, :3] = 1e-30, 0.0, 0.0
    degrees = np.concatenate([[10**6, 10**6 - 1, 0, 1, 1], rng.permutation(5995) // 2])
    scores = fill_popularity_fallback(evidence.copy(), degrees)
    for user in range(20):
        assert rank_items(scores[user]) == naive_order(evidence[user], degrees)
    np.testing.assert_array_equal(scores[evidence != 0], evidence[evidence != 0])
    assert scores.dtype == np.float32 and np.isfinite(scores).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_ranks_by_evidence_then_by_popularity(name, sparse_log):
    kind, settings = MODELS[name]
    model = kind(settings).fit(sparse_log)
    weights = model.weights if isinstance(model.weights, np.ndarray) else model.weights.toarray()
    users = [user for user in range(40) if sparse_log[user].nnz > 1]
    scores = model.scores(sparse_log[users])
    unsaid = 0
    for row, user in enumerate(users):
        evidence = np.zeros(150, dtype=np.float32)
        for item in sparse_log[user].indices:
            evidence += weights[item]
        assert rank_items(scores[row]) == naive_order(np.where(evidence == 0, 0, scores[row]), model.item_degrees)
        unsaid += np.count_nonzero(evidence == 0)
    assert unsaid > 0 and (name == "mrf_dense" or unsaid > 200)
