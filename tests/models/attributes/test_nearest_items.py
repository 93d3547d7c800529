"""The trained items that are nearest to new ones, against brute force."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.attributes.new_items import MAX_NEAREST, NEAREST, find_nearest, find_nearest_likes


def dense_nearest(new, trained, is_trained):
    """The weights, row by row, where no similarities are tied."""
    weights = np.zeros((len(new), len(trained)))
    for row, features in enumerate(new):
        cosines = trained @ features / (np.linalg.norm(trained, axis=1) * np.linalg.norm(features))
        best = sorted(np.flatnonzero(is_trained), key=lambda item: -cosines[item])[:NEAREST]
        best = [item for item in best if cosines[item] > 0]
        weights[row, best] = cosines[best] / cosines[best].sum()
    return weights


def test_the_nearest_are_those_of_the_highest_cosines():
    rng = np.random.default_rng(0)
    new, trained = rng.normal(size=(7, 12)), rng.normal(size=(300, 12))
    is_trained = rng.random(300) < 0.8
    found = find_nearest(csr_matrix(new), csr_matrix(trained), is_trained)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.toarray(), dense_nearest(new, trained, is_trained), atol=1e-5)


def test_items_tied_with_the_last_are_all_near():
    """A category of 120 items and one attribute: the mean over the category, not over some of its items."""
    categories = np.repeat([0, 1], [120, 300])
    trained = csr_matrix(np.eye(2)[categories])
    (weights,) = find_nearest(csr_matrix([[3.0, 0.0]]), trained, np.arange(420) != 5).toarray()
    expected = np.where((categories == 0) & (np.arange(420) != 5), 1 / 119, 0)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


def test_of_very_many_tied_items_a_fixed_choice_is_left():
    trained = csr_matrix(np.ones((3 * MAX_NEAREST, 1)))
    one, again = (find_nearest(csr_matrix([[1.0]]), trained, np.ones(3 * MAX_NEAREST, bool)) for _ in range(2))
    assert one.nnz == MAX_NEAREST and (one != again).nnz == 0
    assert one.indices.mean() == pytest.approx(1.5 * MAX_NEAREST, rel=0.1)  # not the first ones


def test_an_item_without_a_common_attribute_is_like_the_average_item():
    trained = csr_matrix(np.eye(4)[[0, 0, 1, 2, 2]])
    found = find_nearest(csr_matrix(np.eye(4)[[3]]), trained, np.array([True, True, True, False, True]))
    assert found.toarray().tolist() == [[0.25, 0.25, 0.25, 0, 0.25]]
    assert find_nearest(csr_matrix((1, 4)), trained, np.ones(5, bool)).toarray() == pytest.approx(0.2)


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
