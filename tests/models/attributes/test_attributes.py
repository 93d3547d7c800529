"""Features of attributes as `models.attributes.encoder` states them, and scores of new items in every model."""

import math
import zlib
from functools import cache

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.attributes.encoder import MAX_VALUES, TEXT_BUCKETS, FeatureEncoder
from oneclass.models.attributes.new_items import (
    DOUBT,
    FACTORS,
    RIDGE,
    SHARE,
    SHARPNESS,
    AttributeMap,
    find_nearest_likes,
    fold_in_items,
    score_new_items,
)
from oneclass.models.fit_options import FitOptions
from oneclass.models.popularity import Popularity
from oneclass.models.registry import MODELS
from oneclass.testing import all_scores, from_dense
from tests.models.test_contract import IMPERSONAL, make_model

every_model = pytest.mark.parametrize("name", [name for name, kind in MODELS.items() if kind.extra is None])
KINDS = {"brand": "category", "tags": "categories", "price": "number", "title": "text"}


SHOP = pl.DataFrame(
    {
        "item_id": ["a", "b", "c", "d"],
        "brand": ["Acme", None, "Zeta", "Acme"],
        "tags": [["red", "large"], [], None, ["red"]],
        "price": [10.0, None, 40.0, math.nan],
        "title": ["Red boat, red SAIL", None, "été_2024", ""],
    }
)


def test_each_kind_is_encoded_as_stated():
    encoder = FeatureEncoder.fit(SHOP, KINDS)
    features = encoder.encode(SHOP)
    assert features.dtype == np.float32 and features.has_canonical_format
    assert features.shape == (4, 2 + 2 + 1 + TEXT_BUCKETS) == (4, len(encoder.feature_names))
    a, b, c, d = (dict(zip(encoder.feature_names, row, strict=True)) for row in features.toarray())
    assert a["brand=Acme"] == 1 and a["brand=Zeta"] == 0 and not any(b.values())
    assert a["tags=red"] == a["tags=large"] == pytest.approx(1 / math.sqrt(2))
    assert d["tags=red"] == 1
    assert (a["price"], c["price"]) == (-1, 1)  # 10 and 40 around 25
    buckets = {word: f"title={zlib.crc32(word.encode()) % TEXT_BUCKETS}" for word in ("red", "boat", "sail", "été")}
    assert len(set(buckets.values())) == 4
    title = [a[buckets[word]] * math.sqrt(6) for word in ("red", "boat", "sail")]
    assert title == pytest.approx([2, 1, 1]) and c[buckets["été"]] == pytest.approx(1 / math.sqrt(2))  # and 2024


def test_new_rows_are_encoded_with_the_values_of_the_fit():
    encoder = FeatureEncoder.fit(SHOP, {"brand": "category", "price": "number"})
    new = pl.DataFrame({"brand": ["Zeta", "unknown"], "price": [1e9, 25.0]})
    assert encoder.encode(new).toarray().tolist() == [[0, 1, 3], [0, 0, 0]]  # three deviations at most


def test_a_constant_number_and_an_empty_column_say_nothing():
    frame = pl.DataFrame({"same": [7, 7], "none": [None, None]})
    for kind in ("number", "category", "text"):
        assert FeatureEncoder.fit(frame, {"none": kind}).encode(frame).nnz == 0
    assert FeatureEncoder.fit(frame, {"same": "number"}).encode(frame).nnz == 0


def test_the_most_frequent_values_are_kept():
    values = [f"v{number:04}" for number in range(MAX_VALUES + 50)]
    frame = pl.DataFrame({"code": values + values[50:]})
    encoder = FeatureEncoder.fit(frame, {"code": "category"})
    assert encoder.feature_names == [f"code={value}" for value in values[50:]]


def test_a_column_that_does_not_fit_its_kind_is_refused():
    for column, kind, message in (
        ("colour", "category", "not in the table of attributes, which has item_id"),
        ("brand", "number", "of the type String, which is no number"),
        ("brand", "categories", "of the type String, which does not go with the kind categories"),
    ):
        with pytest.raises(ValueError, match=f"column {column}: {message}"):
            FeatureEncoder.fit(SHOP, {column: kind})


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
        best = [like for like in np.argsort(-cosines) if likes[row, like] and cosines[like] > 0]
        assert nearest.tolist() == (best[:3] + [-1] * 3)[:3]


COLOURS = csr_matrix(np.eye(2, dtype=np.float32)[np.arange(40) % 2])  # each item's own group
COLD = np.array([36, 37, 38, 39])


@pytest.fixture(scope="module")
def likes(checkerboard):
    """The checkerboard without the edges of its last four items."""
    return from_dense(checkerboard.toarray() * ~np.isin(np.arange(40), COLD))


@pytest.fixture(scope="module")
def fitted(likes):
    """What fits a model by its name, once."""
    return cache(lambda name: make_model(name).fit(likes, FitOptions(item_features=COLOURS)))


def new_scores(model, histories, new_items, **more):
    return np.stack([score_new_items(model, histories, new_items, score=score, **more) for score in model.score_names])


@every_model
def test_new_items_are_scored_like_columns_without_an_edge(name, fitted, likes):
    model = fitted(name)
    new = fold_in_items(model, COLOURS[COLD])
    for users in (None, np.arange(80)):
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
    before, after = (
        new_scores(model, likes[:9], fold_in_items(model, COLOURS[COLD]), users=np.arange(9))
        for model in (fitted(name), MODELS[name].load(tmp_path))
    )
    np.testing.assert_array_equal(before, after)


@every_model
def test_an_empty_history_gets_the_popularity_of_items_with_such_attributes(name, fitted):
    model, nobody = fitted(name), from_dense(np.zeros((2, 40)))
    new_items = fold_in_items(model, COLOURS[COLD])
    scores = new_scores(model, nobody, new_items)
    popularity = new_items.predict(model.item_degrees.astype(np.float32))
    np.testing.assert_allclose(scores, np.broadcast_to(popularity, scores.shape), rtol=1e-5)


def test_features_that_do_not_go_with_the_matrix_or_the_fit_are_refused(fitted, likes):
    for features, error, message in (
        (COLOURS.toarray(), TypeError, "features of items: a ndarray; give a scipy.sparse.csr_matrix"),
        (COLOURS[:7], ValueError, "features of items: 7 rows for 40 items of the matrix"),
        (COLOURS * np.float32(np.nan), ValueError, "features of items: a value is not finite"),
    ):
        with pytest.raises(error, match=message):
            Popularity().fit(likes, FitOptions(item_features=features))
    with pytest.raises(ValueError, match="the new items have 3 features and those of the fit 2"):
        fold_in_items(fitted("popularity"), csr_matrix((1, 3)))
    with pytest.raises(ValueError, match="fitted without attributes of items"):
        fold_in_items(Popularity().fit(likes), COLOURS)
