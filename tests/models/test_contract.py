"""What every model in the catalogue promises, checked on small data with short settings."""

import doctest
import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics import validation
from oneclass.models.numerics.validation import count_item_degrees
from oneclass.models.popularity import Popularity
from oneclass.models.registry import MODELS, load_model
from oneclass.testing import all_scores
from tests.models.model_contract import Case, FullContract

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
SUMS_IN_PART = {"blend"}  # of some components alone

EXTRAS = {"neural": "torch"}  # what each optional extra installs


def _unless_its_extra_is_absent(name):
    extra = MODELS[name].extra
    absent = extra is not None and importlib.util.find_spec(EXTRAS[extra]) is None
    return pytest.param(name, marks=pytest.mark.skipif(absent, reason=f"the extra {extra} is not installed"))


NAMES = [_unless_its_extra_is_absent(name) for name in MODELS]
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
    "name", [_unless_its_extra_is_absent(name) for name in MODELS if name not in ("ease", "rp3beta")]
)
def test_the_usage_example_of_an_estimator_runs_and_gives_what_it_shows(name):
    estimator = MODELS[name]
    (example,) = doctest.DocTestFinder(recurse=False).find(estimator, estimator.__name__)
    assert 4 <= len(example.examples) <= 8
    failures = []
    doctest.DocTestRunner(verbose=False).run(example, out=failures.append)
    assert not failures, "".join(failures)


def make_case(name):
    return Case(MODELS[name], SHORT.get(name, {}), name not in IMPERSONAL, name not in SUMS_IN_PART)


def make_model(name):
    return make_case(name).make()


class TestEveryModel(FullContract):
    @pytest.fixture(scope="class", params=NAMES)
    @classmethod
    def case(cls, request):
        return make_case(request.param)


@pytest.fixture(scope="module")
def fitted(checkerboard):
    """A fitted model by name, fitted once; for tests that do not change it."""
    models = {}

    def get(name):
        if name not in models:
            models[name] = make_model(name).fit(checkerboard)
        return models[name]

    return get


@pytest.mark.parametrize("name", ["random_graph", "paired_symbols"])
def test_the_scores_and_like_of_a_block_fold_it_in_once(name, fitted, checkerboard, tmp_path, monkeypatch):
    fitted(name).save(tmp_path)
    asked, folds = load_model(name, tmp_path), []
    fold_in = type(asked)._fold_in
    monkeypatch.setattr(type(asked), "_fold_in", lambda model, block: folds.append(block) or fold_in(model, block))
    all_scores(asked, checkerboard[:3])
    asked.like(checkerboard[:3])
    assert len(folds) == 1


def _copy_with(matrix, data=None, indices=None):
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
    "nan": (lambda m: _copy_with(m, np.where(np.arange(m.nnz) == 1, np.nan, m.data)), ValueError, "user 0 .*count nan"),
    "negative": (lambda m: _copy_with(m, np.where(np.arange(m.nnz) == 1, -2, m.data)), ValueError, "user 0 .*count -2"),
    "zero": (lambda m: _copy_with(m, np.where(np.arange(m.nnz) == 1, 0, m.data)), ValueError, "eliminate_zeros"),
    "twice": (
        lambda m: _copy_with(m, indices=_first_two(m, [0, 0])),
        ValueError,
        "twice in a row; call .*sum_duplicates",
    ),
    "unsorted": (lambda m: _copy_with(m, indices=_first_two(m, [1, 0])), ValueError, "not sorted.*sum_duplicates"),
}


@pytest.mark.parametrize("kind", NO_MATRICES)
def test_what_is_no_matrix_of_counts_is_refused_with_what_to_do(kind, fitted, checkerboard):
    make_bad, error, message = NO_MATRICES[kind]
    bad = make_bad(checkerboard)
    with pytest.raises(error, match=f"^interactions: .*{message}"):
        make_model("popularity").fit(bad)
    for name in ("popularity", "mrf_dense", "wmf", "random_graph"):
        with pytest.raises(error, match=f"^histories: .*{message}"):
            fitted(name).scores(bad)
        with pytest.raises(error, match=f"^histories: .*{message}"):
            fitted(name).recommend(bad, 3)
    with pytest.raises(error, match=f"^histories: .*{message}"):
        fitted("random_graph").fold_in(bad)


@pytest.mark.parametrize("name", [_unless_its_extra_is_absent(name) for name in MODELS if MODELS[name].is_iterative])
def test_scores_serve_inside_a_fit_and_change_nothing_of_it(name, fitted, checkerboard):
    model, seen = make_model(name), []

    def look(epoch):
        seen.append([all_scores(model, checkerboard[:9], users=users) for users in (None, np.arange(9))])

    model.fit(checkerboard, FitOptions(on_epoch=look))
    assert len(seen) > 2 and np.isfinite(seen).all() and not np.array_equal(seen[0], seen[-1])
    final = seen[getattr(model, "best_epoch", 0) - 1]  # the last, if no epoch is chosen
    for users, last in zip((None, np.arange(9)), final, strict=True):
        np.testing.assert_array_equal(last, all_scores(model, checkerboard[:9], users=users))
        np.testing.assert_array_equal(last, all_scores(fitted(name), checkerboard[:9], users=users))


@pytest.mark.parametrize("name", ["popularity", "item_knn", "paired_symbols", "repeat"])
def test_recommendations_for_many_users_score_a_block_at_a_time(name, fitted, checkerboard, monkeypatch):
    model, blocks = fitted(name), []
    expected = [model.recommend(checkerboard, 5, users=users) for users in (None, np.arange(80))]
    complete = model._complete_scores
    monkeypatch.setattr(model, "_complete_scores", lambda of, *more: blocks.append(len(of)) or complete(of, *more))
    monkeypatch.setattr(type(model), "users_at_once", 30)
    for users, lists in zip((None, np.arange(80)), expected, strict=True):
        np.testing.assert_array_equal(model.recommend(checkerboard, 5, users=users), lists)
    assert blocks == [30, 30, 20] * 2


def test_scores_are_training_degrees(long_tailed):
    model = Popularity().fit(long_tailed)
    expected = (long_tailed.toarray() > 0).sum(axis=0)
    np.testing.assert_array_equal(model.scores(long_tailed[:2]), [expected, expected])


def test_repeated_events_count_once(long_tailed):
    likes = long_tailed.copy()
    likes.data[:] = 7
    np.testing.assert_array_equal(Popularity().fit(likes).item_degrees, Popularity().fit(long_tailed).item_degrees)


def test_what_is_no_matrix_of_counts_is_refused(long_tailed):
    def refused(matrix, error, message):
        with pytest.raises(error, match=message):
            Popularity().fit(matrix)

    wrong = long_tailed.copy()
    wrong.data[wrong.indptr[250]] = np.nan
    refused(wrong, ValueError, f"user 250 .row., item {wrong.indices[wrong.indptr[250]]}: the count nan")
    refused(long_tailed.tocsc(), TypeError, "a csc_matrix where")
    refused(csr_matrix((3, 4), dtype=np.float32), ValueError, "has no edge")


def test_degrees_are_counted_some_entries_at_a_time(long_tailed, monkeypatch):
    expected = count_item_degrees(long_tailed)
    monkeypatch.setattr(validation, "ENTRIES_PER_CHUNK", 100)
    np.testing.assert_array_equal(count_item_degrees(long_tailed), expected)
    np.testing.assert_array_equal(expected, (long_tailed.toarray() > 0).sum(axis=0))
