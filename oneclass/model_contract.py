"""The contract of every model as a pytest suite, which `oneclass.testing` offers to authors of models."""

import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.estimator import NotFittedError
from oneclass.models.item_knn import ItemKNN
from oneclass.models.popularity import Popularity

DEGENERATE = {
    "all ones": np.ones((6, 5)),
    "one edge": np.eye(1, 1),
    "one user": np.array([[1, 0, 1, 1, 0]]),
    "one item": np.ones((5, 1)),
    "a user and an item without an edge": np.pad(np.eye(4), ((0, 1), (0, 1))),
    "a user who likes all but one item": np.vstack([np.arange(9) > 0, np.eye(9)]),
    "smaller than the factors": np.triu(np.ones((5, 4))),
}


@dataclass(frozen=True)
class ModelCase:
    """A model under test.

    Attributes:
        settings: short ones, so that a fit of 80 users takes a moment.
        is_personal: whether different users get different lists of new items.
        sums_all: whether `contributions`, if there are any, add up to the score.
    """

    model: type[Model]
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_personal: bool = True
    sums_all: bool = True

    def make(self, *, seed: int = 3, threads: int = 1) -> Model:
        """Return an unfitted model."""
        return self.model(self.model.Settings(**self.settings), seed=seed, threads=threads)


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
        model: the class of the estimator.
        settings, is_personal, sums_all: as in `ModelCase`.
    """

    model: ClassVar[type[Model]]
    settings: ClassVar[Mapping[str, Any]] = {}
    is_personal: ClassVar[bool] = True
    sums_all: ClassVar[bool] = True

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> ModelCase:
        return ModelCase(cls.model, cls.settings, cls.is_personal, cls.sums_all)

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
    def fitted(cls, case: ModelCase, checkerboard: csr_matrix) -> Model:
        """A model fitted once, for tests that do not change it."""
        return case.make().fit(checkerboard)

    def test_scores_are_finite_float32_of_the_blocks_shape(self, fitted: Model, checkerboard: csr_matrix) -> None:
        users = np.array([4, 7, 9])
        for score in fitted.score_names:
            for given in (None, users):
                scores = fitted.scores(checkerboard[users], users=given, score=score)
                assert scores.shape == (3, 40) and scores.dtype == np.float32
                assert np.isfinite(scores).all()

    def test_each_score_has_the_bits_of_the_score_alone(self, fitted: Model, checkerboard: csr_matrix) -> None:
        histories = csr_matrix(checkerboard[:4].toarray() * np.array([[1], [1], [0], [1]]))  # one of them empty
        for users in (None, np.array([4, 7, 9, 2])):
            each = dict(fitted.iterate_scores(histories, users=users))
            assert tuple(each) == fitted.score_names
            np.testing.assert_array_equal(np.stack([*each.values()]), all_scores(fitted, histories, users=users))

    def test_an_unknown_score_is_refused(self, fitted: Model, checkerboard: csr_matrix) -> None:
        with pytest.raises(ValueError, match="nonsense"):
            fitted.scores(checkerboard[:1], score="nonsense")

    def test_fitting_again_forgets_the_first_data(
        self, case: ModelCase, checkerboard: csr_matrix, long_tailed: csr_matrix
    ) -> None:
        twice = case.make().fit(long_tailed).fit(checkerboard)
        once = case.make().fit(checkerboard)
        assert twice.item_count == 40
        np.testing.assert_array_equal(all_scores(twice, checkerboard), all_scores(once, checkerboard))

    def test_saving_and_loading_change_nothing(
        self, case: ModelCase, fitted: Model, checkerboard: csr_matrix, tmp_path: Path
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

    def test_what_a_loaded_model_was_asked_before_changes_no_answer(
        self, case: ModelCase, fitted: Model, checkerboard: csr_matrix, tmp_path: Path
    ) -> None:
        fitted.save(tmp_path)
        asked = case.model.load(tmp_path)
        for users in ([5], [6, 7], [5], [8]):
            histories = checkerboard[users]
            np.testing.assert_array_equal(
                all_scores(asked, histories), all_scores(case.model.load(tmp_path), histories)
            )
            histories.indices[:1] = (
                0 if histories.indices[0] else 1
            )  # the caller's own array, of another history from now on
            np.testing.assert_array_equal(
                all_scores(asked, histories), all_scores(case.model.load(tmp_path), histories)
            )

    def test_a_loaded_model_answers_several_threads_at_once(
        self, case: ModelCase, fitted: Model, checkerboard: csr_matrix, tmp_path: Path
    ) -> None:
        fitted.save(tmp_path)
        asked, blocks = case.model.load(tmp_path), [checkerboard[first : first + 5] for first in range(0, 40, 5)] * 4
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda block: all_scores(asked, block), blocks))
        for block, scores in zip(blocks[:8], found[-8:], strict=True):
            np.testing.assert_array_equal(scores, all_scores(case.model.load(tmp_path), block))

    def test_a_folder_of_another_model_is_refused(self, case: ModelCase, fitted: Model, tmp_path: Path) -> None:
        fitted.save(tmp_path)
        other = Popularity if case.model.name != "popularity" else ItemKNN
        with pytest.raises(ValueError, match=case.model.name):
            other.load(tmp_path)

    def test_settings_are_documented_strict_and_survive_json(self, case: ModelCase) -> None:
        settings = case.model.Settings
        assert case.model().settings == settings()
        assert settings.model_validate_json(settings().model_dump_json()) == settings()
        for name, declared in settings.model_fields.items():
            assert len((declared.description or "").split()) > 2, f"{name} lacks a sentence"
        with pytest.raises(ValidationError, match="no_such_setting"):
            settings.model_validate({"no_such_setting": 1})
        with pytest.raises(ValidationError, match="frozen"):
            setattr(settings(), next(iter(settings.model_fields), "anything"), 1)

    def test_parameters_by_keyword_are_the_settings(self, case: ModelCase) -> None:
        settings = case.make().settings
        given = {field: getattr(settings, field) for field in settings.model_fields_set}
        model = case.model(**given, seed=5, threads=2)
        assert model.settings == settings and (model.seed, model.threads) == (5, 2)
        assert model.clone().get_params() == case.model(**model.get_params()).get_params() == model.get_params()
        assert not {"seed", "threads", "settings"} & set(type(settings).model_fields)
        with pytest.raises(TypeError, match="no parameter 'no_such_setting'"):
            case.model(no_such_setting=1)

    def test_what_needs_a_fit_says_so_without_one(
        self, case: ModelCase, checkerboard: csr_matrix, tmp_path: Path
    ) -> None:
        model, history = case.make(), checkerboard[:1]
        for ask in (
            lambda: model.scores(history),
            lambda: model.recommend(history, 3),
            lambda: [*model.iterate_scores(history)],
            lambda: model.item_count,
            lambda: model.save(tmp_path / "model"),
        ):
            with pytest.raises(NotFittedError, match=r"not fitted.* call fit\("):
                ask()
        assert not (tmp_path / "model").exists()
        if case.is_personal:
            with pytest.raises(NotFittedError):
                model.similar_items(np.array([0]), 3)

    @pytest.mark.parametrize("columns", [39, 41])
    def test_histories_of_another_width_are_refused_with_both_widths(
        self, case: ModelCase, columns: int, fitted: Model
    ) -> None:
        histories = csr_matrix(np.ones((2, columns), dtype=np.float32))
        for ask in (fitted.scores, lambda given: fitted.recommend(given, 3)):
            with pytest.raises(ValueError, match=f"^histories: {columns} columns, but {case.model.name} .* 40 columns"):
                ask(histories)

    def test_same_seed_same_bits_on_one_thread_and_on_two(self, case: ModelCase, long_tailed: csr_matrix) -> None:
        rows = np.arange(long_tailed.shape[0])
        one, two = (case.make(threads=threads).fit(long_tailed) for threads in (1, 2))
        for users in (None, rows):
            np.testing.assert_array_equal(
                all_scores(one, long_tailed, users=users), all_scores(two, long_tailed, users=users)
            )

    def test_another_seed_gives_another_fit_where_the_model_draws(
        self, case: ModelCase, checkerboard: csr_matrix, fitted: Model
    ) -> None:
        same = np.array_equal(
            all_scores(case.make(seed=4).fit(checkerboard), checkerboard), all_scores(fitted, checkerboard)
        )
        assert same == case.model.is_deterministic

    def test_a_users_scores_do_not_depend_on_the_block(self, fitted: Model, checkerboard: csr_matrix) -> None:
        whole = all_scores(fitted, checkerboard)
        alone = all_scores(fitted, checkerboard[11])
        np.testing.assert_allclose(alone[:, 0], whole[:, 11], rtol=1e-5, atol=1e-6)

    def test_candidates_are_a_slice_of_all_scores(self, fitted: Model, checkerboard: csr_matrix) -> None:
        items = np.array([31, 2, 17])
        some = all_scores(fitted, checkerboard[:5], items=items)
        np.testing.assert_array_equal(some, all_scores(fitted, checkerboard[:5])[:, :, items])

    @pytest.mark.parametrize("known", [True, False], ids=["training users", "unseen users"])
    def test_items_of_ones_own_group_outrank_the_others(
        self, case: ModelCase, known: bool, fitted: Model, checkerboard: csr_matrix
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

    def test_unseen_items_in_a_history_are_ignored_and_said_so(self, case: ModelCase, checkerboard: csr_matrix) -> None:
        likes = checkerboard.toarray()
        likes[:, 5] = 0
        model = case.make().fit(csr_matrix(likes))
        history = likes[[1]].copy()
        expected = all_scores(model, csr_matrix(history))
        history[0, 5] = 1
        with pytest.warns(UserWarning, match="that no training user has"):
            np.testing.assert_array_equal(all_scores(model, csr_matrix(history)), expected)
        assert np.isfinite(expected).all()

    def test_an_empty_history_gets_popularity(self, fitted: Model, checkerboard: csr_matrix) -> None:
        empty = csr_matrix(np.zeros((1, 40), dtype=np.float32))
        for score in fitted.score_names:
            np.testing.assert_array_equal(fitted.scores(empty, score=score)[0], fitted.item_degrees)

    def test_contributions_of_a_history_add_up_to_the_score(
        self, case: ModelCase, fitted: Model, checkerboard: csr_matrix
    ) -> None:
        parts = fitted.contributions(checkerboard[3], np.arange(40))
        if parts is None or not case.sums_all:
            pytest.skip("scores are no sums over the history")
        scores = fitted.scores(checkerboard[3])[0]
        said = parts.any(axis=0)
        np.testing.assert_allclose(parts.sum(axis=0)[said], scores[said], rtol=1e-5, atol=1e-6)
        assert said.any() and (scores[~said] <= scores[said].min()).all()

    def test_reasons_are_the_largest_contributions_of_each_user(self, fitted: Model, checkerboard: csr_matrix) -> None:
        histories, items = checkerboard[:3], np.array([[0, 7, 31], [2, 39, -1], [5, 6, 8]], dtype=np.int32)
        reasons = fitted.find_reasons(histories, items, 2)
        for row, of_items in enumerate(items):
            if (parts := fitted.contributions(histories[[row]], np.maximum(of_items, 0))) is None:
                assert reasons is None
                return
            for place, of_entries in enumerate(parts.T):
                best = np.argsort(-of_entries, kind="stable")[:2]
                expected = np.where(of_entries[best] > 0, histories[[row]].indices[best], -1)
                assert reasons is not None and reasons[row, place].tolist() == expected.tolist()

    def test_similar_items_are_of_the_same_colour(
        self, case: ModelCase, fitted: Model, checkerboard: csr_matrix
    ) -> None:
        if not case.is_personal:
            with pytest.raises(ValueError, match="publish another model"):
                fitted.similar_items(np.array([0]), 3)
            return
        ids, similarities = fitted.similar_items(np.array([6, 7]), 3)
        assert ids.shape == similarities.shape == (2, 3)
        assert (ids % 2 == [[0], [1]]).all() and not (ids == [[6], [7]]).any()
        assert (np.diff(similarities) <= 0).all()

    def test_recommendations_leave_the_history_out(self, fitted: Model, checkerboard: csr_matrix) -> None:
        ids, scores = fitted.recommend(checkerboard, 28)
        assert ids.shape == scores.shape == (80, 28)
        for user in range(80):
            assert not set(ids[user]) & set(checkerboard[user].indices)
            assert (ids[user] >= 0).all() and (np.diff(scores[user]) <= 0).all()

    def test_recommendations_with_seen_items_are_the_best_of_all(self, fitted: Model, checkerboard: csr_matrix) -> None:
        ids, values = fitted.recommend(checkerboard, 7, exclude_seen=False)
        scores = fitted.scores(checkerboard)
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :7]
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_array_equal(values, np.take_along_axis(scores, expected, axis=1))

    def test_users_and_histories_of_different_numbers_are_refused(
        self, fitted: Model, checkerboard: csr_matrix
    ) -> None:
        with pytest.raises(ValueError, match="2 users but 3 histories"):
            fitted.scores(checkerboard[:3], users=np.array([0, 1]))

    def test_a_matrix_without_edges_is_refused(self, case: ModelCase) -> None:
        with pytest.raises(ValueError, match="no edge"):
            case.make().fit(csr_matrix(np.zeros((4, 3), dtype=np.float32)))

    @pytest.mark.parametrize("value", [np.nan, -1.0, 0.0, np.inf])
    def test_a_count_that_is_no_count_is_refused_with_its_row(self, case: ModelCase, value: float) -> None:
        counts = csr_matrix(np.ones((4, 3), dtype=np.float32))
        counts.data[7] = value
        with pytest.raises(ValueError, match=r"user 2 \(row\), item 1"):
            case.make().fit(counts)

    @pytest.mark.parametrize("likes", DEGENERATE.values(), ids=DEGENERATE.keys())
    def test_degenerate_data_get_finite_scores(self, case: ModelCase, likes: np.ndarray) -> None:
        matrix = csr_matrix(likes.astype(np.float32))
        model = case.make().fit(matrix)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            assert np.isfinite(all_scores(model, matrix)).all()
            assert np.isfinite(all_scores(model, matrix, users=np.arange(len(likes)))).all()
