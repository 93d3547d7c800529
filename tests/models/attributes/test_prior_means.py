"""The ridge regression of vectors on features, against NumPy's least squares."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.attributes.prior_means import NEW_ROWS, PriorMeans


@pytest.mark.parametrize("ridge", [0.3, 20.0])
def test_the_map_is_the_least_squares_solution(ridge):
    rng = np.random.default_rng(0)
    features, vectors = rng.random((40, 6)) * (rng.random((40, 6)) < 0.5), rng.normal(size=(40, 3))
    used, weights = rng.random(40) < 0.8, rng.uniform(0.5, 4, 40)
    prior = PriorMeans(csr_matrix(features.astype(np.float32)), used, weights, ridge, 3)
    assert not prior.means.any() and prior.penalty() == 0
    prior.fit(vectors)
    roots = np.sqrt(weights * used)[:, None]
    rows = np.vstack([roots * features, np.sqrt(ridge) * np.eye(6)])
    expected = np.linalg.lstsq(rows, np.vstack([roots * vectors, np.zeros((6, 3))]), rcond=None)[0]
    np.testing.assert_allclose(prior.coefficients, expected, atol=1e-6)
    np.testing.assert_allclose(prior.means, used[:, None] * (features @ expected), atol=1e-6)
    assert prior.penalty() == pytest.approx(ridge * (expected**2).sum(), rel=1e-5)
    rows = np.vstack([used[:, None] * features, np.sqrt(NEW_ROWS) * np.eye(6)])
    of_new = np.linalg.lstsq(rows, np.vstack([used[:, None] * vectors, np.zeros((6, 3))]), rcond=None)[0]
    np.testing.assert_allclose(prior.map_new_rows(vectors), of_new, atol=1e-5)
