"""What every model in the catalogue promises, checked on small data with short settings."""

import doctest
import importlib.util
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.sparse import csr_array, csr_matrix

from oneclass.models.estimator import NotFittedError
from oneclass.models.fit_options import FitOptions
from oneclass.models.registry import MODELS, load_model

# Settings that make a fit short; a model that is not named here runs with its defaults.
SHORT = {
    "bpr_uniform": {"factors": 10, "epochs": 60},
    "bpr_popularity": {"factors": 10, "epochs": 60},
    "mrf_dense": {"l2": 2.0},
    "cdae": {"epochs": 20, "batch_users": 20, "learning_rate": 0.02, "hidden": 16},
    "mult_dae": {"epochs": 20, "batch_users": 20, "learning_rate": 0.02, "hidden": 16},
    "mult_vae": {"epochs": 20, "batch_users": 20, "learning_rate": 0.02, "hidden": 16, "latent": 8},
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
    "repeat_mixture": {"component": "wmf", "component_settings": {"factors": 8, "iterations": 6}},
}
IMPERSONAL = {"popularity", "repeat"}  # the same list of new items for all
SUMS_IN_PART = {"blend"}  # of some components alone

EXTRAS = {"neural": "torch"}  # what each optional extra installs


def _unless_its_extra_is_absent(name):
    extra = MODELS[name].extra
    absent = extra is not None and importlib.util.find_spec(EXTRAS[extra]) is None
    return pytest.param(name, marks=pytest.mark.skipif(absent, reason=f"the extra {extra} is not installed"))


every_model = pytest.mark.parametrize("name", [_unless_its_extra_is_absent(name) for name in MODELS])


def test_a_models_file_is_imported_when_the_model_is_asked_for():
    code = (
        "import sys; from oneclass.models.registry import MODELS; "
        "loaded = lambda: {name.split('.')[2] for name in sys.modules if name.endswith('.model')}; "
        "assert not loaded() and 'wmf' in MODELS and not loaded(); MODELS['wmf']; assert loaded() == {'wmf'}, loaded()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {name: model.name for name, model in MODELS.items()} == {name: name for name in MODELS}


@every_model
def test_the_usage_example_of_an_estimator_runs_and_gives_what_it_shows(name):
    estimator = MODELS[name]
    (example,) = doctest.DocTestFinder(recurse=False).find(estimator, estimator.__name__)
    assert 4 <= len(example.examples) <= 8
    failures = []
    doctest.DocTestRunner(verbose=False).run(example, out=failures.append)
    assert not failures, "".join(failures)


def make(name, *, seed=3, threads=1):
    model = MODELS[name]
    return model(model.Settings(**SHORT.get(name, {})), seed=seed, threads=threads)


@pytest.fixture(scope="module")
def fitted(checkerboard):
    """A fitted model by name, fitted once; for tests that do not change it."""
    models = {}

    def get(name):
        if name not in models:
            models[name] = make(name).fit(checkerboard)
        return models[name]

    return get


def all_scores(model, histories, **more):
    return np.stack([model.scores(histories, score=score, **more) for score in model.score_names])


@every_model
def test_scores_are_finite_float32_of_the_blocks_shape(name, fitted, checkerboard):
    users = np.array([4, 7, 9])
    for score in fitted(name).score_names:
        for given in (None, users):
            scores = fitted(name).scores(checkerboard[users], users=given, score=score)
            assert scores.shape == (3, 40) and scores.dtype == np.float32
            assert np.isfinite(scores).all()


@every_model
def test_each_score_has_the_bits_of_the_score_alone(name, fitted, checkerboard):
    histories = csr_matrix(checkerboard[:4].toarray() * np.array([[1], [1], [0], [1]]))  # one of them empty
    for users in (None, np.array([4, 7, 9, 2])):
        each = dict(fitted(name).iterate_scores(histories, users=users))
        assert tuple(each) == fitted(name).score_names
        np.testing.assert_array_equal(np.stack([*each.values()]), all_scores(fitted(name), histories, users=users))


@every_model
def test_an_unknown_score_is_refused(name, fitted, checkerboard):
    with pytest.raises(ValueError, match="nonsense"):
        fitted(name).scores(checkerboard[:1], score="nonsense")


@every_model
def test_fitting_again_forgets_the_first_data(name, checkerboard, long_tailed):
    twice = make(name).fit(long_tailed).fit(checkerboard)
    once = make(name).fit(checkerboard)
    assert twice.item_count == 40
    np.testing.assert_array_equal(all_scores(twice, checkerboard), all_scores(once, checkerboard))


@every_model
def test_saving_and_loading_change_nothing(name, fitted, checkerboard, tmp_path):
    fitted(name).save(tmp_path)
    loaded = load_model(name, tmp_path)
    assert loaded.settings == fitted(name).settings and loaded.seed == fitted(name).seed
    rows = np.arange(checkerboard.shape[0])
    for users in (None, rows):
        np.testing.assert_array_equal(
            all_scores(loaded, checkerboard, users=users), all_scores(fitted(name), checkerboard, users=users)
        )
    assert {file.suffix for file in tmp_path.iterdir()} == {".npy", ".json"}
    for file in tmp_path.glob("*.npy"):
        assert np.isfinite(np.load(file)).all(), file.stem


@every_model
def test_what_a_loaded_model_was_asked_before_changes_no_answer(name, fitted, checkerboard, tmp_path):
    fitted(name).save(tmp_path)
    asked = load_model(name, tmp_path)
    for users in ([5], [6, 7], [5], [8]):
        histories = checkerboard[users]
        np.testing.assert_array_equal(all_scores(asked, histories), all_scores(load_model(name, tmp_path), histories))
        histories.indices[:1] = (
            0 if histories.indices[0] else 1
        )  # the caller's own array, of another history from now on
        np.testing.assert_array_equal(all_scores(asked, histories), all_scores(load_model(name, tmp_path), histories))


@every_model
def test_a_loaded_model_answers_several_threads_at_once(name, fitted, checkerboard, tmp_path):
    fitted(name).save(tmp_path)
    asked, blocks = load_model(name, tmp_path), [checkerboard[first : first + 5] for first in range(0, 40, 5)] * 4
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda block: all_scores(asked, block), blocks))
    for block, scores in zip(blocks[:8], found[-8:], strict=True):
        np.testing.assert_array_equal(scores, all_scores(load_model(name, tmp_path), block))


@pytest.mark.parametrize("name", ["random_graph", "paired_symbols"])
def test_the_scores_and_like_of_a_block_fold_it_in_once(name, fitted, checkerboard, tmp_path, monkeypatch):
    fitted(name).save(tmp_path)
    asked, folds = load_model(name, tmp_path), []
    fold_in = type(asked).fold_in
    monkeypatch.setattr(type(asked), "fold_in", lambda model, block: folds.append(block) or fold_in(model, block))
    all_scores(asked, checkerboard[:3])
    asked.like(checkerboard[:3])
    assert len(folds) == 1


@every_model
def test_a_folder_of_another_model_is_refused(name, fitted, tmp_path):
    fitted(name).save(tmp_path)
    other = next(model for model in MODELS.values() if model.name != name)
    with pytest.raises(ValueError, match=name):
        other.load(tmp_path)


@every_model
def test_settings_are_documented_strict_and_survive_json(name):
    settings = MODELS[name].Settings
    assert MODELS[name]().settings == settings()
    assert settings.model_validate_json(settings().model_dump_json()) == settings()
    for field, declared in settings.model_fields.items():
        assert len((declared.description or "").split()) > 2, f"{field} lacks a sentence"
    with pytest.raises(ValidationError, match="no_such_setting"):
        settings(no_such_setting=1)
    with pytest.raises(ValidationError, match="frozen"):
        setattr(settings(), next(iter(settings.model_fields), "anything"), 1)


@every_model
def test_parameters_by_keyword_are_the_settings(name):
    settings = make(name).settings
    given = {field: getattr(settings, field) for field in settings.model_fields_set}
    model = MODELS[name](**given, seed=5, threads=2)
    assert model.settings == settings and (model.seed, model.threads) == (5, 2)
    assert model.clone().get_params() == MODELS[name](**model.get_params()).get_params() == model.get_params()
    assert not {"seed", "threads", "settings"} & set(type(settings).model_fields)
    with pytest.raises(TypeError, match="no parameter 'no_such_setting'"):
        MODELS[name](no_such_setting=1)


@every_model
def test_what_needs_a_fit_says_so_without_one(name, checkerboard, tmp_path):
    model, history = make(name), checkerboard[:1]
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


@every_model
@pytest.mark.parametrize("columns", [39, 41])
def test_histories_of_another_width_are_refused_with_both_widths(name, columns, fitted):
    histories = csr_matrix(np.ones((2, columns), dtype=np.float32))
    for ask in (fitted(name).scores, lambda given: fitted(name).recommend(given, 3)):
        with pytest.raises(ValueError, match=f"^histories: {columns} columns, but {name} .* 40 columns"):
            ask(histories)


@every_model
def test_same_seed_same_bits_on_one_thread_and_on_two(name, long_tailed):
    rows = np.arange(long_tailed.shape[0])
    one, two = (make(name, threads=threads).fit(long_tailed) for threads in (1, 2))
    for users in (None, rows):
        np.testing.assert_array_equal(
            all_scores(one, long_tailed, users=users), all_scores(two, long_tailed, users=users)
        )


@every_model
def test_another_seed_gives_another_fit_where_the_model_draws(name, checkerboard, fitted):
    same = np.array_equal(
        all_scores(make(name, seed=4).fit(checkerboard), checkerboard), all_scores(fitted(name), checkerboard)
    )
    assert same == MODELS[name].is_deterministic


@every_model
def test_a_users_scores_do_not_depend_on_the_block(name, fitted, checkerboard):
    whole = all_scores(fitted(name), checkerboard)
    alone = all_scores(fitted(name), checkerboard[11])
    np.testing.assert_allclose(alone[:, 0], whole[:, 11], rtol=1e-5, atol=1e-6)


@every_model
def test_candidates_are_a_slice_of_all_scores(name, fitted, checkerboard):
    items = np.array([31, 2, 17])
    some = all_scores(fitted(name), checkerboard[:5], items=items)
    np.testing.assert_array_equal(some, all_scores(fitted(name), checkerboard[:5])[:, :, items])


@every_model
@pytest.mark.parametrize("known", [True, False], ids=["training users", "unseen users"])
def test_items_of_ones_own_group_outrank_the_others(name, known, fitted, checkerboard):
    if name in IMPERSONAL:
        pytest.skip("scores are the same for every user")
    rows = np.arange(checkerboard.shape[0])
    scores = fitted(name).scores(checkerboard, users=rows if known else None)
    liked = checkerboard.toarray() > 0
    right = []
    for user in rows:
        own = np.arange(40) % 2 == user % 2
        held_out = scores[user, own & ~liked[user]]
        right.append((held_out[:, None] > scores[user, ~own]).mean())
    assert np.mean(right) > 0.97


@every_model
def test_unseen_items_in_a_history_are_ignored_and_said_so(name, checkerboard):
    likes = checkerboard.toarray()
    likes[:, 5] = 0
    model = make(name).fit(csr_matrix(likes))
    history = likes[[1]].copy()
    expected = all_scores(model, csr_matrix(history))
    history[0, 5] = 1
    with pytest.warns(UserWarning, match="that no training user has"):
        np.testing.assert_array_equal(all_scores(model, csr_matrix(history)), expected)
    assert np.isfinite(expected).all()


@every_model
def test_an_empty_history_gets_popularity(name, fitted, checkerboard):
    empty = csr_matrix((1, 40), dtype=np.float32)
    for score in fitted(name).score_names:
        np.testing.assert_array_equal(fitted(name).scores(empty, score=score)[0], fitted(name).item_degrees)


@every_model
def test_contributions_of_a_history_add_up_to_the_score(name, fitted, checkerboard):
    parts = fitted(name).contributions(checkerboard[3], np.arange(40))
    if parts is None or name in SUMS_IN_PART:
        pytest.skip("scores are no sums over the history")
    scores = fitted(name).scores(checkerboard[3])[0]
    said = parts.any(axis=0)
    np.testing.assert_allclose(parts.sum(axis=0)[said], scores[said], rtol=1e-5, atol=1e-6)
    assert said.any() and (scores[~said] <= scores[said].min()).all()


@every_model
def test_similar_items_are_of_the_same_colour(name, fitted, checkerboard):
    if name in IMPERSONAL:
        with pytest.raises(ValueError, match="publish another model"):
            fitted(name).similar_items(np.array([0]), 3)
        return
    ids, similarities = fitted(name).similar_items(np.array([6, 7]), 3)
    assert ids.shape == similarities.shape == (2, 3)
    assert (ids % 2 == [[0], [1]]).all() and not (ids == [[6], [7]]).any()
    assert (np.diff(similarities) <= 0).all()


@every_model
def test_recommendations_leave_the_history_out(name, fitted, checkerboard):
    ids, scores = fitted(name).recommend(checkerboard, 28)
    assert ids.shape == scores.shape == (80, 28)
    for user in range(80):
        assert not set(ids[user]) & set(checkerboard[user].indices)
        assert (ids[user] >= 0).all() and (np.diff(scores[user]) <= 0).all()


@every_model
def test_recommendations_with_seen_items_are_the_best_of_all(name, fitted, checkerboard):
    ids, values = fitted(name).recommend(checkerboard, 7, exclude_seen=False)
    scores = fitted(name).scores(checkerboard)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(scores, expected, axis=1))


def _with(matrix, data=None, indices=None):
    """A copy of a matrix with other values or columns, not validated yet."""
    parts = [matrix.data if data is None else data, matrix.indices if indices is None else indices, matrix.indptr]
    return csr_matrix(tuple(part.copy() for part in parts), shape=matrix.shape)


def _first_two(matrix, columns):
    """The columns of a matrix with those of its first two entries, which are of one row, replaced."""
    return np.concatenate([matrix.indices[columns], matrix.indices[2:]])


NO_MATRICES = {
    "dense": (lambda m: m.toarray(), TypeError, r"a ndarray where a scipy.sparse.csr_matrix .* give csr_matrix\("),
    "coo": (lambda m: m.tocoo(), TypeError, r"a coo_matrix where .* give csr_matrix\("),
    "csr array": (lambda m: csr_array(m), TypeError, r"a csr_array where .* give csr_matrix\("),
    "complex": (lambda m: m.astype(complex), TypeError, "complex.*astype"),
    "nan": (lambda m: _with(m, np.where(np.arange(m.nnz) == 1, np.nan, m.data)), ValueError, "user 0 .*count nan"),
    "negative": (lambda m: _with(m, np.where(np.arange(m.nnz) == 1, -2, m.data)), ValueError, "user 0 .*count -2"),
    "zero": (lambda m: _with(m, np.where(np.arange(m.nnz) == 1, 0, m.data)), ValueError, "eliminate_zeros"),
    "twice": (lambda m: _with(m, indices=_first_two(m, [0, 0])), ValueError, "twice in a row; call .*sum_duplicates"),
    "unsorted": (lambda m: _with(m, indices=_first_two(m, [1, 0])), ValueError, "not sorted.*sum_duplicates"),
}


@pytest.mark.parametrize("kind", NO_MATRICES)
def test_what_is_no_matrix_of_counts_is_refused_with_what_to_do(kind, fitted, checkerboard):
    make_bad, error, message = NO_MATRICES[kind]
    bad = make_bad(checkerboard)
    with pytest.raises(error, match=f"^interactions: .*{message}"):
        make("popularity").fit(bad)
    for name in ("popularity", "mrf_dense", "wmf", "random_graph"):
        with pytest.raises(error, match=f"^histories: .*{message}"):
            fitted(name).scores(bad)
        with pytest.raises(error, match=f"^histories: .*{message}"):
            fitted(name).recommend(bad, 3)
    with pytest.raises(error, match=f"^histories: .*{message}"):
        fitted("random_graph").fold_in(bad)


@every_model
def test_users_and_histories_of_different_numbers_are_refused(name, fitted, checkerboard):
    with pytest.raises(ValueError, match="2 users but 3 histories"):
        fitted(name).scores(checkerboard[:3], users=np.array([0, 1]))


@every_model
def test_a_matrix_without_edges_is_refused(name):
    with pytest.raises(ValueError, match="no edge"):
        make(name).fit(csr_matrix((4, 3), dtype=np.float32))


@every_model
@pytest.mark.parametrize("value", [np.nan, -1.0, 0.0, np.inf])
def test_a_count_that_is_no_count_is_refused_with_its_row(name, value):
    counts = csr_matrix(np.ones((4, 3), dtype=np.float32))
    counts.data[7] = value
    with pytest.raises(ValueError, match=r"user 2 \(row\), item 1"):
        make(name).fit(counts)


DEGENERATE = {
    "all ones": np.ones((6, 5)),
    "one edge": np.eye(1, 1),
    "one user": np.array([[1, 0, 1, 1, 0]]),
    "one item": np.ones((5, 1)),
    "a user and an item without an edge": np.pad(np.eye(4), ((0, 1), (0, 1))),
    "a user who likes all but one item": np.vstack([np.arange(9) > 0, np.eye(9)]),
    "smaller than the factors": np.triu(np.ones((5, 4))),
}


@every_model
@pytest.mark.parametrize("likes", DEGENERATE.values(), ids=DEGENERATE.keys())
def test_degenerate_data_get_finite_scores(name, likes):
    matrix = csr_matrix(likes.astype(np.float32))
    model = make(name).fit(matrix)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert np.isfinite(all_scores(model, matrix)).all()
        assert np.isfinite(all_scores(model, matrix, users=np.arange(len(likes)))).all()


@pytest.mark.parametrize(
    "name", [_unless_its_extra_is_absent(name) for name in MODELS if MODELS[name].scores_each_epoch]
)
def test_scores_serve_inside_a_fit_and_change_nothing_of_it(name, fitted, checkerboard):
    model, seen = make(name), []

    def look(epoch):
        seen.append([all_scores(model, checkerboard[:9], users=users) for users in (None, np.arange(9))])

    model.fit(checkerboard, FitOptions(on_epoch=look))
    assert len(seen) > 2 and np.isfinite(seen).all() and not np.array_equal(seen[0], seen[-1])
    final = seen[model.best_epoch - 1 if model.stops_early else -1]
    for users, last in zip((None, np.arange(9)), final, strict=True):
        np.testing.assert_array_equal(last, all_scores(model, checkerboard[:9], users=users))
        np.testing.assert_array_equal(last, all_scores(fitted(name), checkerboard[:9], users=users))
