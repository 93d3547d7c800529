"""The regression of scores on attributes, against its normal equations with the whole kernel."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.attributes.new_items import (
    DOUBT,
    FACTORS,
    RIDGE,
    SHARE,
    SHARPNESS,
    AttributeMap,
    find_nearest_likes,
)


def compute_kernel(one, other):
    lengths = np.outer(np.linalg.norm(one, axis=1), np.linalg.norm(other, axis=1))
    cosines = one @ other.T / lengths
    return cosines + SHARE * np.exp(SHARPNESS * (cosines - 1))


def predict_naively(features, degrees, scores, new):
    """Kernel ridge regression: (K + RIDGE / weights) a + b = scores, sum(a) = 0."""
    trained = degrees > 0
    known, size = features[trained], int(trained.sum())
    system = np.zeros((size + 1, size + 1))
    system[:size, :size] = compute_kernel(known, known) + RIDGE * np.diag(1 + DOUBT / degrees[trained])
    system[size, :size] = system[:size, size] = 1
    solution = np.linalg.solve(system, np.vstack([scores[:, trained].T, np.zeros(len(scores))]))
    return (compute_kernel(new, known) @ solution[:size] + solution[size]).T


def draw_items(items, features, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(items, features)), rng.integers(0, 9, items), rng.normal(size=(7, items)), rng


@pytest.mark.parametrize("items", [5, 90])
def test_scores_of_new_items_are_those_of_kernel_ridge_regression(items):
    features, degrees, scores, rng = draw_items(items, 6)
    new = rng.normal(size=(11, 6))
    assert np.count_nonzero(degrees) < FACTORS  # all eigenvectors of the kernel are taken
    found = AttributeMap.fit(csr_matrix(features), degrees).represent(csr_matrix(new)).predict(np.float32(scores))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, predict_naively(features, degrees, scores, new), rtol=1e-3, atol=1e-4)


def test_leading_eigenvectors_of_many_items_come_close():
    """Scores that follow three attributes, on 3,000 items, of which only some are landmarks."""
    features, degrees, _, rng = draw_items(3000, 3)
    new, slopes = rng.normal(size=(50, 3)), rng.normal(size=(4, 3))
    scores = slopes @ (features / np.linalg.norm(features, axis=1)[:, None]).T
    found = AttributeMap.fit(csr_matrix(features), degrees).represent(csr_matrix(new)).predict(np.float32(scores))
    np.testing.assert_allclose(found, slopes @ (new / np.linalg.norm(new, axis=1)[:, None]).T, atol=0.02)


def test_an_item_without_a_known_attribute_is_like_the_average_item():
    """The constant of an item whose cosine with every other is 0; the average weighs an item by its users."""
    degrees = np.array([10, 10, 30, 0, 30])
    scores = np.float32([[1, 1, 2, 9, 2]])
    of = AttributeMap.fit(csr_matrix(np.eye(4)[[0, 0, 1, 2, 1]]), degrees)
    known, none = of.represent(csr_matrix(np.eye(4)[[1, 3]])).predict(scores)[0]
    assert 1.4 < none < known < 2


def test_a_new_item_resembles_the_likes_of_the_highest_cosines():
    rng = np.random.default_rng(3)
    features, likes = rng.normal(size=(40, 6)), rng.random((9, 40)) < 0.2
    rows, items = np.repeat(np.arange(9), 2), np.tile([38, 39], 9)
    found = find_nearest_likes(csr_matrix(features), csr_matrix(likes.astype(np.float32)), rows, items, 3)
    for row, item, nearest in zip(rows, items, found, strict=True):
        cosines = features @ features[item] / (np.linalg.norm(features, axis=1) * np.linalg.norm(features[item]))
        best = sorted(
            (like for like in np.flatnonzero(likes[row]) if cosines[like] > 0), key=lambda like: -cosines[like]
        )
        assert nearest.tolist() == (best[:3] + [-1] * 3)[:3]
