"""Check the promises that a model's own code has to keep: `check_model(MyModel(neighbours=5))` in a test."""

import tempfile
import warnings
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.numerics.sequential_histories import with_recency_ranks

DEGENERATE = {
    "all ones": np.ones((6, 5)),
    "one edge": np.eye(1, 1),
    "one user": np.array([[1, 0, 1, 1, 0]]),
    "one item": np.ones((5, 1)),
    "a user and an item without an edge": np.pad(np.eye(4), ((0, 1), (0, 1))),
    "a user who likes all but one item": np.vstack([np.arange(9) > 0, np.eye(9)]),
    "smaller than the factors": np.triu(np.ones((5, 4))),
}


def check_model(model: Model, *, is_personal: bool = True) -> None:
    """Check what every model promises, on likes of 80 and of 300 users.

    Args:
        model: with settings by which a fit of 300 users takes a moment; it is not fitted.
        is_personal: whether different users get different lists of new items.

    Raises:
        AssertionError: the model breaks a promise, which the message names.
    """
    likes, others = make_checkerboard(), make_long_tailed()
    fitted = model.clone().fit(likes)
    scores = _score(fitted, likes)
    own, liked = np.arange(40) % 2 == np.arange(80)[:, None] % 2, likes.toarray() > 0
    for given, (first, *_) in zip(("a history", "a training user"), scores, strict=True):
        right = [(row[of & ~seen][:, None] > row[~of]).mean() for row, of, seen in zip(first, own, liked, strict=True)]
        assert not is_personal or np.mean(right) > 0.97, f"{given}: items of others outrank those of the own group"
    assert scores.dtype == np.float32 and np.isfinite(scores).all(), "scores: return finite float32"
    np.testing.assert_allclose(
        all_scores(fitted, likes[11])[:, 0], scores[0][:, 11], 1e-5, 1e-6, err_msg="scores depend on the block of users"
    )
    _check_equal(model.clone().fit(others).fit(likes), likes, scores, "a second fit depends on the first")
    drawn = np.array_equal(_score(model.clone(seed=model.seed + 1).fit(likes), likes), scores)
    assert drawn == model.is_deterministic, "another seed: set is_deterministic if a fit draws nothing, and only then"
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(folder)
        loaded = type(model).load(folder)
        _check_equal(loaded, likes, scores, "scores change when the model is saved and loaded")
        assert loaded.get_params() == fitted.get_params(), "parameters change when the model is saved and loaded"
    on_one, on_two = (model.clone(threads=threads).fit(others) for threads in (1, 2))
    _check_equal(on_two, others, _score(on_one, others), "scores depend on the number of threads")
    for name, matrix in DEGENERATE.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            found = _score(model.clone().fit(from_dense(matrix)), from_dense(matrix))
        assert np.isfinite(found).all(), f"{name}: a score is not finite"


def _score(model: Model, likes: csr_matrix) -> np.ndarray:
    """Return every score of likes as histories, and as those of training users, (2, scores, users, items)."""
    return np.stack([all_scores(model, likes, users=users) for users in (None, np.arange(likes.shape[0]))])


def _check_equal(model: Model, likes: csr_matrix, expected: np.ndarray, broken: str) -> None:
    np.testing.assert_array_equal(_score(model, likes), expected, err_msg=broken)


def all_scores(model: Model, histories: csr_matrix, **more: Any) -> np.ndarray:
    """Return every score of a model, (scores, users, items)."""
    return np.stack([model.scores(histories, score=score, **more) for score in model.score_names])


def make_checkerboard() -> csr_matrix:
    """Return likes of 80 users x 40 items: even users like 12 of the 20 even items each, odd users 12 of the odd."""
    rng = np.random.default_rng(5)
    likes = np.zeros((80, 40))
    for user in range(80):
        own = np.arange(user % 2, 40, 2)
        likes[user, rng.choice(own, 12, replace=False)] = 1
    return from_dense(likes)


def make_long_tailed() -> csr_matrix:
    """Return about 5,000 likes of 300 users x 120 items with a long tail of popularity and two planted traits."""
    rng = np.random.default_rng(6)
    traits = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 120))
    odds = traits - 1.2 * np.log(np.arange(1, 121)) + 1.2
    likes = rng.random((300, 120)) < 1 / (1 + np.exp(-odds))
    likes[likes.sum(axis=1) == 0, 0] = True
    likes[0, likes.sum(axis=0) == 0] = True
    return from_dense(likes)


def from_dense(likes: np.ndarray) -> csr_matrix:
    """Return likes of users x items, each user's in an order of their own."""
    matrix = csr_matrix(likes.astype(np.float32))
    users = np.repeat(np.arange(len(likes)), np.diff(matrix.indptr))
    return with_recency_ranks(matrix, (53 * matrix.indices + 31 * users) % 127)
