"""What the base promises of every model, beside what `oneclass.testing` demands of a model's own code."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.item_knn import ItemKNN
from oneclass.models.popularity import Popularity
from oneclass.models.settings import NotFittedError
from oneclass.testing import all_scores, check_model


@dataclass(frozen=True)
class Case:
    """A model with settings that make its fits short.

    Attributes:
        is_personal: whether different users get different lists of new items.
        sums_all: whether `contributions`, if there are any, add up to the score.
    """

    model: type[Model]
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_personal: bool = True
    sums_all: bool = True

    def make(self) -> Model:
        """Return an unfitted model."""
        return self.model(self.model.Settings(**self.settings), seed=3)


class FullContract:
    """Every promise of a model in the registry; a subclass has the fixture `case`."""

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls, case: Case, checkerboard: csr_matrix) -> Model:
        """A model fitted once, for tests that do not change it."""
        return case.make().fit(checkerboard)

    def test_its_own_code_keeps_what_others_models_have_to(self, case: Case) -> None:
        check_model(case.make(), is_personal=case.is_personal)

    def test_settings_are_documented_and_strict(self, case: Case) -> None:
        settings = case.model.Settings
        assert case.model().settings == settings()
        for name, declared in settings.model_fields.items():
            assert len((declared.description or "").split()) > 2, f"{name} lacks a sentence"
        with pytest.raises(ValidationError, match="no_such_setting"):
            settings.model_validate({"no_such_setting": 1})
        with pytest.raises(ValidationError, match="frozen"):
            setattr(settings(), next(iter(settings.model_fields), "anything"), 1)

    def test_each_score_has_the_bits_of_the_score_alone(self, fitted: Model, checkerboard: csr_matrix) -> None:
        histories = csr_matrix(checkerboard[:4].toarray() * np.array([[1], [1], [0], [1]]))  # one of them empty
        for users in (None, np.array([4, 7, 9, 2])):
            each = dict(fitted.iterate_scores(histories, users=users))
            assert tuple(each) == fitted.score_names
            np.testing.assert_array_equal(np.stack([*each.values()]), all_scores(fitted, histories, users=users))

    def test_an_unknown_score_is_refused(self, fitted: Model, checkerboard: csr_matrix) -> None:
        with pytest.raises(ValueError, match="nonsense"):
            fitted.scores(checkerboard[:1], score="nonsense")

    def test_what_a_loaded_model_was_asked_before_changes_no_answer(
        self, case: Case, fitted: Model, checkerboard: csr_matrix, tmp_path: Path
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
        self, case: Case, fitted: Model, checkerboard: csr_matrix, tmp_path: Path
    ) -> None:
        fitted.save(tmp_path)
        asked, blocks = case.model.load(tmp_path), [checkerboard[first : first + 5] for first in range(0, 40, 5)] * 4
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda block: all_scores(asked, block), blocks))
        for block, scores in zip(blocks[:8], found[-8:], strict=True):
            np.testing.assert_array_equal(scores, all_scores(case.model.load(tmp_path), block))

    def test_a_folder_of_another_model_is_refused(self, case: Case, fitted: Model, tmp_path: Path) -> None:
        fitted.save(tmp_path)
        other = Popularity if case.model.name != "popularity" else ItemKNN
        with pytest.raises(ValueError, match=case.model.name):
            other.load(tmp_path)

    def test_parameters_by_keyword_are_the_settings(self, case: Case) -> None:
        settings = case.make().settings
        given = {field: getattr(settings, field) for field in settings.model_fields_set}
        model = case.model(**given, seed=5, threads=2)
        assert model.settings == settings and (model.seed, model.threads) == (5, 2)
        assert model.clone().get_params() == case.model(**model.get_params()).get_params() == model.get_params()
        assert not {"seed", "threads", "settings"} & set(type(settings).model_fields)
        with pytest.raises(TypeError, match="no parameter 'no_such_setting'"):
            case.model(no_such_setting=1)

    def test_what_needs_a_fit_says_so_without_one(self, case: Case, checkerboard: csr_matrix, tmp_path: Path) -> None:
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
        self, case: Case, columns: int, fitted: Model
    ) -> None:
        histories = csr_matrix(np.ones((2, columns), dtype=np.float32))
        for ask in (fitted.scores, lambda given: fitted.recommend(given, 3)):
            with pytest.raises(ValueError, match=f"^histories: {columns} columns, but {case.model.name} .* 40 columns"):
                ask(histories)

    def test_candidates_are_a_slice_of_all_scores(self, fitted: Model, checkerboard: csr_matrix) -> None:
        items = np.array([31, 2, 17])
        some = all_scores(fitted, checkerboard[:5], items=items)
        np.testing.assert_array_equal(some, all_scores(fitted, checkerboard[:5])[:, :, items])

    def test_unseen_items_in_a_history_are_ignored_and_said_so(self, case: Case, checkerboard: csr_matrix) -> None:
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
        self, case: Case, fitted: Model, checkerboard: csr_matrix
    ) -> None:
        parts = fitted.contributions(checkerboard[3], np.arange(40))
        if parts is None or not case.sums_all:
            pytest.skip("scores are no sums over the history")
        scores = fitted.scores(checkerboard[3])[0]
        said = parts.any(axis=0)
        np.testing.assert_allclose(parts.sum(axis=0)[said], scores[said], rtol=1e-5, atol=1e-6)
        assert said.any() and (scores[~said] <= scores[said].min()).all()

    def test_similar_items_are_of_the_same_colour(self, case: Case, fitted: Model, checkerboard: csr_matrix) -> None:
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

    def test_a_matrix_without_edges_is_refused(self, case: Case) -> None:
        with pytest.raises(ValueError, match="no edge"):
            case.make().fit(csr_matrix(np.zeros((4, 3), dtype=np.float32)))

    @pytest.mark.parametrize("value", [np.nan, -1.0, 0.0, np.inf])
    def test_a_count_that_is_no_count_is_refused_with_its_row(self, case: Case, value: float) -> None:
        counts = csr_matrix(np.ones((4, 3), dtype=np.float32))
        counts.data[7] = value
        with pytest.raises(ValueError, match=r"user 2 \(row\), item 1"):
            case.make().fit(counts)
