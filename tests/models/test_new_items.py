"""New items in every model of the catalogue: their scores by attributes, and those of columns without an edge."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.attributes.new_items import fold_in_items, score_new_items
from oneclass.models.fit_options import FitOptions
from oneclass.models.popularity import Popularity
from oneclass.models.registry import MODELS
from oneclass.testing import all_scores, from_dense
from tests.models.test_contract import IMPERSONAL, every_model, make_model

COLOURS = csr_matrix(np.eye(2, dtype=np.float32)[np.arange(40) % 2])  # each item's own group
COLD = np.array([36, 37, 38, 39])


@pytest.fixture(scope="module")
def likes(checkerboard):
    """The checkerboard without the edges of its last four items."""
    return from_dense(checkerboard.toarray() * ~np.isin(np.arange(40), COLD))


@pytest.fixture(scope="module")
def fitted(likes):
    models = {}

    def get(name):
        if name not in models:
            models[name] = make_model(name).fit(likes, FitOptions(item_features=COLOURS))
        return models[name]

    return get


def new_scores(model, histories, new_items, **more):
    return np.stack([score_new_items(model, histories, new_items, score=score, **more) for score in model.score_names])


@every_model
def test_new_items_are_scored_like_columns_without_an_edge(name, fitted, likes):
    model, rows = fitted(name), np.arange(80)
    new = fold_in_items(model, COLOURS[COLD])
    for users in (None, rows):
        scores = new_scores(model, likes, new, users=users)
        assert scores.shape == (len(model.score_names), 80, 4) and scores.dtype == np.float32
        assert np.isfinite(scores).all()
        columns = all_scores(model, likes, users=users)[:, :, COLD]
        np.testing.assert_allclose(scores, columns, rtol=1e-4, atol=1e-5)


@every_model
@pytest.mark.parametrize("known", [True, False], ids=["training users", "unseen users"])
def test_new_items_of_ones_own_group_outrank_the_others(name, known, fitted, likes):
    if name in IMPERSONAL:
        pytest.skip("scores are the same for every user")
    model, rows = fitted(name), np.arange(80)
    scores = score_new_items(model, likes, fold_in_items(model, COLOURS[COLD]), users=rows if known else None)
    own = (COLD % 2)[None, :] == (rows % 2)[:, None]
    assert np.mean(scores[own].reshape(80, 2).min(axis=1) > scores[~own].reshape(80, 2).max(axis=1)) > 0.95


@every_model
def test_saved_models_know_the_attributes(name, fitted, likes, tmp_path):
    fitted(name).save(tmp_path)
    loaded = MODELS[name].load(tmp_path)
    one, two = (fold_in_items(model, COLOURS[COLD]) for model in (fitted(name), loaded))
    np.testing.assert_array_equal(one.coordinates, two.coordinates)
    np.testing.assert_array_equal(
        new_scores(fitted(name), likes[:9], one, users=np.arange(9)),
        new_scores(loaded, likes[:9], two, users=np.arange(9)),
    )
    np.testing.assert_array_equal(all_scores(fitted(name), likes[:9]), all_scores(loaded, likes[:9]))


@every_model
def test_an_empty_history_gets_the_popularity_of_items_with_such_attributes(name, fitted):
    model, nobody = fitted(name), from_dense(np.zeros((2, 40)))
    new_items = fold_in_items(model, COLOURS[COLD])
    scores = new_scores(model, nobody, new_items)
    popularity = new_items.predict(model.item_degrees.astype(np.float32))
    np.testing.assert_allclose(scores, np.broadcast_to(popularity, scores.shape), rtol=1e-5)


def test_a_model_without_attributes_says_so(likes):
    with pytest.raises(ValueError, match="fitted without attributes of items; give FitOptions"):
        fold_in_items(Popularity().fit(likes), COLOURS)


def test_popularity_of_a_new_item_is_near_that_of_its_category():
    """Forty items of two categories: it lies nine tenths of the way from the mean of all to that of its category."""
    degrees = np.where(np.arange(40) % 2, 8, 24)
    likes = csr_matrix((np.arange(30)[:, None] < degrees).astype(np.float32))
    model = Popularity().fit(likes, FitOptions(item_features=COLOURS))
    (scores,) = score_new_items(model, likes[:1], fold_in_items(model, COLOURS[:2]))
    mean = np.average(degrees, weights=degrees / (degrees + 10))
    shares = (scores - mean) / (np.array([24, 8]) - mean)
    assert ((shares > 0.9) & (shares < 1)).all()


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        (COLOURS.toarray(), TypeError, "features of items: a ndarray; give a scipy.sparse.csr_matrix"),
        (COLOURS[:7], ValueError, "features of items: 7 rows for 40 items of the matrix"),
        (COLOURS * np.float32(np.nan), ValueError, "features of items: a value is not finite"),
    ],
)
def test_features_that_do_not_go_with_the_matrix_are_refused(features, error, message, likes):
    with pytest.raises(error, match=message):
        Popularity().fit(likes, FitOptions(item_features=features))


def test_new_items_with_other_features_are_refused(fitted):
    with pytest.raises(ValueError, match="the new items have 3 features and those of the fit 2"):
        fold_in_items(fitted("popularity"), csr_matrix((1, 3)))
