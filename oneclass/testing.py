"""Tests for authors of models: the promises that a model's own code has to keep, as a class for pytest.

from my_package.models import MyModel
from oneclass.testing import ModelContract


class TestMyModel(ModelContract):
    model = MyModel
    settings = {"neighbours": 5}
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.sparse import csr_matrix

from oneclass.models.base import Model

DEGENERATE = {
    "all ones": np.ones((6, 5)),
    "one edge": np.eye(1, 1),
    "one user": np.array([[1, 0, 1, 1, 0]]),
    "one item": np.ones((5, 1)),
    "a user and an item without an edge": np.pad(np.eye(4), ((0, 1), (0, 1))),
    "a user who likes all but one item": np.vstack([np.arange(9) > 0, np.eye(9)]),
    "smaller than the factors": np.triu(np.ones((5, 4))),
}


def make_checkerboard() -> csr_matrix:
    """Return likes of 80 users x 40 items: even users like 12 of the 20 even items each, odd users 12 of the odd."""
    rng = np.random.default_rng(5)
    likes = np.zeros((80, 40))
    for user in range(80):
        own = np.arange(user % 2, 40, 2)
        likes[user, rng.choice(own, 12, replace=False)] = 1
    return _from_dense(likes)


def make_long_tailed() -> csr_matrix:
    """Return about 5,000 likes of 300 users x 120 items with a long tail of popularity and two planted traits."""
    rng = np.random.default_rng(6)
    traits = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 120))
    odds = traits - 1.2 * np.log(np.arange(1, 121)) + 1.2
    likes = rng.random((300, 120)) < 1 / (1 + np.exp(-odds))
    likes[likes.sum(axis=1) == 0, 0] = True
    likes[0, likes.sum(axis=0) == 0] = True
    return _from_dense(likes)


def _from_dense(likes: np.ndarray) -> csr_matrix:
    matrix = csr_matrix(likes.astype(np.float32))
    matrix.sort_indices()
    return matrix


def all_scores(model: Model, histories: csr_matrix, **more: Any) -> np.ndarray:
    """Return every score of a model, (scores, users, items)."""
    return np.stack([model.scores(histories, score=score, **more) for score in model.score_names])


class ModelContract:
    """What every model promises: a subclass of it, with `model` set, is a test class.

    Attributes:
        settings: short ones, so that a fit of 80 users takes a moment.
        is_personal: whether different users get different lists of new items.
        sums_all: whether `contributions`, if there are any, add up to the score.
    """

    model: ClassVar[type[Model]]
    settings: ClassVar[Mapping[str, Any]] = {}
    is_personal: ClassVar[bool] = True
    sums_all: ClassVar[bool] = True

    @classmethod
    def make(cls, *, seed: int = 3, threads: int = 1) -> Model:
        """Return an unfitted model."""
        return cls.model(cls.model.Settings(**cls.settings), seed=seed, threads=threads)

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> "type[ModelContract]":
        return cls

    @pytest.fixture(scope="class")
    @classmethod
    def checkerboard(cls) -> csr_matrix:
        return make_checkerboard()

    @pytest.fixture(scope="class")
    @classmethod
    def long_tailed(cls) -> csr_matrix:
        return make_long_tailed()

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls, case: "type[ModelContract]", checkerboard: csr_matrix) -> Model:
        """A model fitted once, for tests that do not change it."""
        return case.make().fit(checkerboard)

    def test_scores_are_finite_float32_of_the_blocks_shape(self, fitted: Model, checkerboard: csr_matrix) -> None:
        users = np.array([4, 7, 9])
        for score in fitted.score_names:
            for given in (None, users):
                scores = fitted.scores(checkerboard[users], users=given, score=score)
                assert scores.shape == (3, 40) and scores.dtype == np.float32
                assert np.isfinite(scores).all()

    def test_fitting_again_forgets_the_first_data(
        self, case: "type[ModelContract]", checkerboard: csr_matrix, long_tailed: csr_matrix
    ) -> None:
        twice = case.make().fit(long_tailed).fit(checkerboard)
        once = case.make().fit(checkerboard)
        assert twice.item_count == 40
        np.testing.assert_array_equal(all_scores(twice, checkerboard), all_scores(once, checkerboard))

    def test_saving_and_loading_change_nothing(
        self, case: "type[ModelContract]", fitted: Model, checkerboard: csr_matrix, tmp_path: Path
    ) -> None:
        fitted.save(tmp_path)
        loaded = case.model.load(tmp_path)
        assert loaded.settings == fitted.settings and loaded.seed == fitted.seed
        rows = np.arange(checkerboard.shape[0])
        for users in (None, rows):
            np.testing.assert_array_equal(
                all_scores(loaded, checkerboard, users=users), all_scores(fitted, checkerboard, users=users)
            )
        assert {file.suffix for file in tmp_path.iterdir()} == {".npy", ".json"}
        for file in tmp_path.glob("*.npy"):
            assert np.isfinite(np.load(file)).all(), file.stem

    def test_settings_are_documented_strict_and_survive_json(self, case: "type[ModelContract]") -> None:
        settings = case.model.Settings
        assert case.model().settings == settings()
        assert settings.model_validate_json(settings().model_dump_json()) == settings()
        for name, declared in settings.model_fields.items():
            assert len((declared.description or "").split()) > 2, f"{name} lacks a sentence"
        with pytest.raises(ValidationError, match="no_such_setting"):
            settings.model_validate({"no_such_setting": 1})
        with pytest.raises(ValidationError, match="frozen"):
            setattr(settings(), next(iter(settings.model_fields), "anything"), 1)

    def test_same_seed_same_bits_on_one_thread_and_on_two(
        self, case: "type[ModelContract]", long_tailed: csr_matrix
    ) -> None:
        rows = np.arange(long_tailed.shape[0])
        one, two = (case.make(threads=threads).fit(long_tailed) for threads in (1, 2))
        for users in (None, rows):
            np.testing.assert_array_equal(
                all_scores(one, long_tailed, users=users), all_scores(two, long_tailed, users=users)
            )

    def test_another_seed_gives_another_fit_where_the_model_draws(
        self, case: "type[ModelContract]", checkerboard: csr_matrix, fitted: Model
    ) -> None:
        same = np.array_equal(
            all_scores(case.make(seed=4).fit(checkerboard), checkerboard), all_scores(fitted, checkerboard)
        )
        assert same == case.model.is_deterministic

    def test_a_users_scores_do_not_depend_on_the_block(self, fitted: Model, checkerboard: csr_matrix) -> None:
        whole = all_scores(fitted, checkerboard)
        alone = all_scores(fitted, checkerboard[11])
        np.testing.assert_allclose(alone[:, 0], whole[:, 11], rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("known", [True, False], ids=["training users", "unseen users"])
    def test_items_of_ones_own_group_outrank_the_others(
        self, case: "type[ModelContract]", known: bool, fitted: Model, checkerboard: csr_matrix
    ) -> None:
        if not case.is_personal:
            pytest.skip("scores are the same for every user")
        rows = np.arange(checkerboard.shape[0])
        scores = fitted.scores(checkerboard, users=rows if known else None)
        liked = checkerboard.toarray() > 0
        right = []
        for user in rows:
            own = np.arange(40) % 2 == user % 2
            held_out = scores[user, own & ~liked[user]]
            right.append((held_out[:, None] > scores[user, ~own]).mean())
        assert np.mean(right) > 0.97

    @pytest.mark.parametrize("likes", DEGENERATE.values(), ids=DEGENERATE.keys())
    def test_degenerate_data_get_finite_scores(self, case: "type[ModelContract]", likes: np.ndarray) -> None:
        matrix = csr_matrix(likes.astype(np.float32))
        model = case.make().fit(matrix)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            assert np.isfinite(all_scores(model, matrix)).all()
            assert np.isfinite(all_scores(model, matrix, users=np.arange(len(likes)))).all()
