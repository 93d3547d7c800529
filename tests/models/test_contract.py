"""What every model in the catalogue promises, checked on small data with short settings."""

import doctest
import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass import Interactions, OwnModel
from oneclass.models.attributes.encoder import FeatureEncoder
from oneclass.models.item_knn import ItemKNN
from oneclass.models.popularity import Popularity
from oneclass.models.registry import MODELS
from oneclass.models.settings import NotFittedError
from oneclass.testing import all_scores, check_model, from_dense

# Settings that make a fit short; a model that is not named here runs with its defaults.
SHORT = {
    "bpr_uniform": {"factors": 10, "epochs": 60},
    "bpr_popularity": {"factors": 10, "epochs": 60},
    "mrf_dense": {"l2": 2.0},
    "cdae": {"epochs": 20, "batch_users": 20, "learning_rate": 0.02, "hidden": 16},
    "mult_dae": {"epochs": 20, "batch_users": 20, "learning_rate": 0.02, "hidden": 16},
    "mult_vae": {"epochs": 20, "batch_users": 20, "learning_rate": 0.02, "hidden": 32, "latent": 8},
    "mrf_sparse": {"l2": 2.0, "density": 0.5, "r": 0.1},
    "wmf": {"factors": 8, "iterations": 6},
    "slim": {"l1": 1.0, "l2": 10.0},
    "blend": {
        "components": [
            {"model": "mrf_dense", "settings": {"l2": 2.0}, "weight": 2.0},
            {"model": "wmf", "settings": {"factors": 8, "iterations": 6}},
        ]
    },
    "graph_filter": {"vectors": 4},
    "repeat_mixture": {"component": "wmf"},
}
IMPERSONAL = {"popularity", "repeat"}  # the same list of new items for all
SUMS_IN_PART = {"blend"}  # contributions, of some components alone

EXTRAS = {"neural": "torch"}  # what each optional extra installs


def unless_its_extra_is_absent(name):
    extra = MODELS[name].extra
    absent = extra is not None and importlib.util.find_spec(EXTRAS[extra]) is None
    marks = [pytest.mark.skipif(absent, reason=f"the extra {extra} is not installed")]
    return pytest.param(name, marks=[*marks, *[pytest.mark.slow] * (extra is not None and name != "cdae")])


NAMES = [unless_its_extra_is_absent(name) for name in MODELS]
every_model = pytest.mark.parametrize("name", NAMES)


def test_a_models_file_is_imported_when_the_model_is_asked_for():
    code = (
        "import sys; from oneclass.models.registry import MODELS; "
        "loaded = lambda: {name.split('.')[2] for name in sys.modules if name.endswith('.model')}; "
        "assert not loaded() and 'wmf' in MODELS and not loaded(); MODELS['wmf']; assert loaded() == {'wmf'}, loaded()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {name: model.name for name, model in MODELS.items()} == {name: name for name in MODELS}


@pytest.mark.parametrize(
    "documented",
    [*(one for one in NAMES if one.values[0] not in ("ease", "rp3beta")), Interactions, OwnModel, FeatureEncoder],
)
def test_the_usage_example_in_a_docstring_runs_and_gives_what_it_shows(documented):
    kind = MODELS[documented] if isinstance(documented, str) else documented
    (example,) = doctest.DocTestFinder(recurse=False).find(kind, kind.__name__)
    failures = []
    doctest.DocTestRunner(verbose=False).run(example, out=failures.append)
    assert len(example.examples) > 2 and not failures, "".join(failures)


def make_model(name):
    """Return an unfitted model with settings that make its fits short."""
    return MODELS[name](MODELS[name].Settings(**SHORT.get(name, {})), seed=3)


@pytest.fixture(scope="module")
def fit(checkerboard):
    """A fitted model by name, fitted once; for tests that do not change it."""
    return cache(lambda name: make_model(name).fit(checkerboard))


class TestEveryModel:
    """Every promise of a model in the registry."""

    @pytest.fixture(params=NAMES)
    def name(self, request):
        return request.param

    @pytest.fixture
    def fitted(self, name, fit):
        return fit(name)

    @pytest.fixture
    def saved(self, fitted, tmp_path):
        """A function that loads the fitted model anew."""
        fitted.save(tmp_path)
        return lambda: type(fitted).load(tmp_path)

    def test_its_own_code_keeps_what_others_models_have_to(self, name):
        check_model(make_model(name), is_personal=name not in IMPERSONAL)

    def test_each_score_has_the_bits_of_the_score_alone(self, fitted, checkerboard):
        histories = from_dense(checkerboard[:4].toarray() * np.array([[1], [1], [0], [1]]))  # one of them empty
        for users in (None, np.array([4, 7, 9, 2])):
            each = dict(fitted.iterate_scores(histories, users=users))
            assert tuple(each) == fitted.score_names
            np.testing.assert_array_equal(np.stack([*each.values()]), all_scores(fitted, histories, users=users))

    def test_what_a_loaded_model_was_asked_before_changes_no_answer(self, saved, checkerboard):
        asked = saved()
        for users in ([5], [6, 7], [5], [8]):
            histories = checkerboard[users]
            np.testing.assert_array_equal(all_scores(asked, histories), all_scores(saved(), histories))
            # The caller's own array, of another history from now on.
            histories.indices[:1] = 0 if histories.indices[0] else 1
            np.testing.assert_array_equal(all_scores(asked, histories), all_scores(saved(), histories))

    def test_a_loaded_model_answers_several_threads_at_once(self, saved, checkerboard):
        asked, blocks = saved(), [checkerboard[first : first + 5] for first in range(0, 40, 5)] * 4
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda block: all_scores(asked, block), blocks))
        for block, scores in zip(blocks[:8], found[-8:], strict=True):
            np.testing.assert_array_equal(scores, all_scores(saved(), block))

    def test_a_folder_of_another_model_is_refused(self, name, fitted, tmp_path):
        fitted.save(tmp_path)
        other = Popularity if name != "popularity" else ItemKNN
        with pytest.raises(ValueError, match=name):
            other.load(tmp_path)

    def test_parameters_by_keyword_are_the_settings(self, name):
        settings = make_model(name).settings
        given = {field: getattr(settings, field) for field in settings.model_fields_set}
        model = MODELS[name](**given, seed=5, threads=2)
        assert model.settings == settings and (model.seed, model.threads) == (5, 2)
        assert model.clone().get_params() == MODELS[name](**model.get_params()).get_params() == model.get_params()
        assert not {"seed", "threads", "settings"} & set(type(settings).model_fields)

    def test_what_needs_a_fit_says_so_without_one(self, name, checkerboard, tmp_path):
        model, history = make_model(name), checkerboard[:1]
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
        if name not in IMPERSONAL:
            with pytest.raises(NotFittedError):
                model.similar_items(np.array([0]), 3)

    def test_histories_users_and_scores_that_do_not_go_with_the_fit_are_refused(self, name, fitted, checkerboard):
        with pytest.raises(ValueError, match="nonsense"):
            fitted.scores(checkerboard[:1], score="nonsense")
        with pytest.raises(ValueError, match="2 users but 3 histories"):
            fitted.scores(checkerboard[:3], users=np.array([0, 1]))
        for columns in (39, 41):
            histories = csr_matrix(np.ones((2, columns), dtype=np.float32))
            for ask in (fitted.scores, lambda given: fitted.recommend(given, 3)):
                with pytest.raises(ValueError, match=f"^histories: {columns} columns, but {name} .* 40 columns"):
                    ask(histories)

    def test_candidates_are_a_slice_of_all_scores(self, fitted, checkerboard):
        items = np.array([31, 2, 17])
        some = all_scores(fitted, checkerboard[:5], items=items)
        np.testing.assert_array_equal(some, all_scores(fitted, checkerboard[:5])[:, :, items])

    def test_unseen_items_in_a_history_are_ignored_and_said_so(self, name, checkerboard):
        likes = checkerboard.toarray()
        likes[:, 5] = 0
        model = make_model(name).fit(from_dense(likes))
        history = likes[[1]].copy()
        expected = all_scores(model, from_dense(history))
        history[0, 5] = 1
        with pytest.warns(UserWarning, match="that no training user has"):
            np.testing.assert_array_equal(all_scores(model, from_dense(history)), expected)
        assert np.isfinite(expected).all()

    def test_an_empty_history_gets_popularity(self, fitted, checkerboard):
        empty = from_dense(np.zeros((1, 40)))
        for score in fitted.score_names:
            np.testing.assert_array_equal(fitted.scores(empty, score=score)[0], fitted.item_degrees)

    def test_contributions_of_a_history_add_up_to_the_score(self, name, fitted, checkerboard):
        parts = fitted.contributions(checkerboard[3], np.arange(40))
        if parts is None or name in SUMS_IN_PART:
            pytest.skip("scores are no sums over the history")
        scores = fitted.scores(checkerboard[3])[0]
        said = parts.any(axis=0)
        np.testing.assert_allclose(parts.sum(axis=0)[said], scores[said], rtol=1e-5, atol=1e-6)
        assert said.any() and (scores[~said] <= scores[said].min()).all()

    def test_similar_items_are_of_the_same_colour(self, name, fitted):
        if name in IMPERSONAL:
            with pytest.raises(ValueError, match="publish another model"):
                fitted.similar_items(np.array([0]), 3)
            return
        ids, similarities = fitted.similar_items(np.array([6, 7]), 3)
        assert ids.shape == similarities.shape == (2, 3)
        assert (ids % 2 == [[0], [1]]).all() and not (ids == [[6], [7]]).any()
        assert (np.diff(similarities) <= 0).all()

    def test_recommendations_are_the_best_of_all_items_or_of_those_outside_the_history(self, fitted, checkerboard):
        scores = fitted.scores(checkerboard)
        for n, exclude_seen in ((28, True), (7, False)):
            allowed = np.where((checkerboard.toarray() > 0) & exclude_seen, -np.inf, scores)
            ids, values = fitted.recommend(checkerboard, n, exclude_seen=exclude_seen)
            np.testing.assert_array_equal(ids, np.argsort(-allowed, axis=1, kind="stable")[:, :n])
            np.testing.assert_array_equal(values, np.take_along_axis(scores, ids, axis=1))

    def test_a_matrix_without_edges_is_refused(self, name):
        with pytest.raises(ValueError, match="no edge"):
            make_model(name).fit(csr_matrix(np.zeros((4, 3), dtype=np.float32)))


def _copy_with(matrix, data=None, indices=None):
    """A copy of a matrix with other values or columns, not validated yet."""
    parts = [matrix.data if data is None else data, matrix.indices if indices is None else indices, matrix.indptr]
    return csr_matrix(tuple(part.copy() for part in parts), shape=matrix.shape)


def _first_two(matrix, columns):
    """The columns of a matrix with those of its first two entries, which are of one row, replaced."""
    return np.concatenate([matrix.indices[columns], matrix.indices[2:]])


NO_MATRICES = {
    "dense": (lambda m: m.toarray(), TypeError, r"a ndarray where a scipy.sparse.csr_matrix .* give csr_matrix\("),
    "complex": (lambda m: m.astype(complex), TypeError, "complex.*astype"),
    "nan": (lambda m: _copy_with(m, np.where(np.arange(m.nnz) == 1, np.nan, m.data)), ValueError, "user 0 .*count nan"),
    "negative": (lambda m: _copy_with(m, np.where(np.arange(m.nnz) == 1, -2, m.data)), ValueError, "user 0 .*count -2"),
    "zero": (lambda m: _copy_with(m, np.where(np.arange(m.nnz) == 1, 0, m.data)), ValueError, "eliminate_zeros"),
    "twice": (lambda m: _copy_with(m, indices=_first_two(m, [0, 0])), ValueError, "twice in a row; .*sum_duplicates"),
    "unsorted": (lambda m: _copy_with(m, indices=_first_two(m, [1, 0])), ValueError, "not sorted.*sum_duplicates"),
}


@pytest.mark.parametrize("kind", NO_MATRICES)
def test_what_is_no_matrix_of_counts_is_refused_with_what_to_do(kind, fit, checkerboard):
    make_bad, error, message = NO_MATRICES[kind]
    bad = make_bad(checkerboard)
    with pytest.raises(error, match=f"^interactions: .*{message}"):
        make_model("popularity").fit(bad)
    asked = fit("random_graph")
    for ask in (asked.scores, asked.fold_in, lambda given: asked.recommend(given, 3), fit("mrf_dense").scores):
        with pytest.raises(error, match=f"^histories: .*{message}"):
            ask(bad)


@pytest.mark.parametrize("name", ["popularity", "item_knn", "paired_symbols", "repeat"])
def test_recommendations_for_many_users_score_a_block_at_a_time(name, fit, checkerboard, monkeypatch):
    model, blocks = fit(name), []
    expected = [model.recommend(checkerboard, 5, users=users) for users in (None, np.arange(80))]
    complete = model._complete_scores
    monkeypatch.setattr(model, "_complete_scores", lambda of, *more: blocks.append(len(of)) or complete(of, *more))
    monkeypatch.setattr(type(model), "users_at_once", 30)
    for users, lists in zip((None, np.arange(80)), expected, strict=True):
        np.testing.assert_array_equal(model.recommend(checkerboard, 5, users=users), lists)
    assert blocks == [30, 30, 20] * 2


def test_scores_are_training_degrees_in_which_repeated_events_count_once(long_tailed):
    likes, expected = long_tailed.copy(), (long_tailed.toarray() > 0).sum(axis=0)
    likes.data[:] = 7
    np.testing.assert_array_equal(Popularity().fit(likes).scores(long_tailed[:2]), [expected, expected])
