"""item_knn against dense similarities written down from their formulas."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models import item_weights
from oneclass.models.item_knn import ItemKNN, RP3beta


def dense_similarities(likes, kind, shrinkage, alpha=0.5, beta=0.2, k1=100.0, b=0.8):
    """s_ij by loops over pairs of items, float64."""
    items = likes.shape[1]
    n, d = likes.sum(axis=0), likes.sum(axis=1)
    active = np.count_nonzero(n)
    found = np.zeros((items, items))
    frequency = np.log(active / (1 + d)) ** 2
    length = k1 * (1 - b + b * n / n[n > 0].mean()) + 1
    for i in range(items):
        for j in range(items):
            both = likes[:, i] * likes[:, j] > 0
            if i == j or not both.any():
                continue
            if kind == "cosine":
                found[i, j] = both.sum() / (np.sqrt(n[i] * n[j]) + shrinkage)
            elif kind == "jaccard":
                found[i, j] = both.sum() / (np.count_nonzero(likes[:, i] + likes[:, j]) + shrinkage)
            elif kind == "tf_idf":
                norms = [np.sqrt(frequency[likes[:, item] > 0].sum()) for item in (i, j)]
                found[i, j] = frequency[both].sum() / (norms[0] * norms[1] + shrinkage)
            elif kind == "bm25":
                divisor = length[i] * length[j] / (k1 + 1) ** 2
                found[i, j] = frequency[both].sum() / (divisor + shrinkage)
            else:
                popular = n[j] ** beta if kind == "rp3beta" else 1
                found[i, j] = (d[both] ** -alpha).sum() / (n[i] ** alpha * popular + shrinkage)
    return found


def keep_largest(similarities, count):
    """The `count` largest of each column, of equal ones the upper, as float32."""
    kept = np.zeros_like(similarities, dtype=np.float32)
    for j, column in enumerate(similarities.T.astype(np.float32)):
        best = [i for i in np.argsort(-column, kind="stable")[:count] if column[i] > 0]
        kept[best, j] = column[best]
    return kept


@pytest.fixture(scope="module")
def likes(long_tailed):
    dense = long_tailed.toarray()[:120, :50].astype(np.float64)
    dense[:, 7] = 0  # an item without a like
    dense[3] = 0  # and a user
    return dense


@pytest.mark.parametrize("neighbours", [5, 1000])
@pytest.mark.parametrize("shrinkage", [0.0, 4.0])
@pytest.mark.parametrize("kind", ["cosine", "jaccard", "tf_idf", "bm25", "p3alpha", "rp3beta"])
def test_similarities_are_those_of_the_formula(kind, shrinkage, neighbours, likes):
    settings = ItemKNN.Settings(similarity=kind, shrinkage=shrinkage, neighbours=neighbours)
    model = ItemKNN(settings, threads=2).fit(csr_matrix(likes))
    expected = keep_largest(dense_similarities(likes, kind, shrinkage), neighbours)
    found = model.weights.toarray()
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=0)
    assert (model.weights.getnnz(axis=0) <= neighbours).all() and found.any()
    scores = model.scores(csr_matrix(likes[:9]))
    sums = likes[:9] @ expected
    np.testing.assert_allclose(scores[sums > 0], sums[sums > 0], rtol=1e-5)
    assert (scores[sums == 0] < 0).sum() == (sums == 0)[np.arange(9) != 3].sum()


def test_rp3beta_is_that_similarity(likes):
    settings = {"neighbours": 9, "alpha": 0.7, "beta": 0.3}
    matrix = csr_matrix(likes)
    own = RP3beta(**settings).fit(matrix)
    same = ItemKNN(similarity="rp3beta", **settings).fit(matrix)
    assert own.weights.nnz and (own.weights != same.weights).nnz == 0


def test_rows_that_are_found_in_pieces_are_the_same(likes, monkeypatch):
    whole = ItemKNN().fit(csr_matrix(likes)).weights
    monkeypatch.setattr(item_weights, "MAX_CHUNK_ENTRIES", 100)
    assert (ItemKNN().fit(csr_matrix(likes)).weights != whole).nnz == 0
