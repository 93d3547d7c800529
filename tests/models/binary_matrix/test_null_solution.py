"""Where all factors of the binary-matrix model vanish, against singular values and against fits."""

import itertools
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.binary_matrix.inference import (
    BinaryMatrixPosterior,
    BinaryMatrixSettings,
    Inference,
    factors_vanish,
    find_null_solution,
)
from oneclass.models.binary_matrix.model import BinaryMatrix
from oneclass.models.binary_matrix.sampling import EntrySampler
from oneclass.models.fit_options import FitOptions, Start
from oneclass.models.popularity import Popularity
from tests.models.binary_matrix.test_binary_matrix import Dense, draw_matrix

SETTINGS = BinaryMatrixSettings(factors=3, user_variance=0.7, item_variance=0.4)


def sparse_log(users: int = 500, items: int = 400, likes: int = 2) -> csr_matrix:
    """Every user likes so few random items that all factors vanish."""
    draw = np.random.default_rng(1)
    x = np.zeros((users, items))
    for row in x:
        row[draw.choice(items, likes, replace=False)] = 1
    return csr_matrix(x)


def test_factors_vanish_where_the_largest_singular_value_is_small():
    verdicts = []
    logs = (
        draw_matrix(30, 20),
        draw_matrix(60, 40),
        sparse_log(80, 90),
        csr_matrix(np.eye(3)),
        csr_matrix(np.ones((5, 4))),
    )
    for x, prior in itertools.product(logs, (0.01, 0.05, 0.1, 0.2, 0.7, 3.0)):
        settings = SETTINGS.model_copy(update={"user_variance": prior, "item_variance": prior})
        null = z, user, item = find_null_solution(x, settings)
        xi = np.sqrt(z**2 + 3 * user * item)
        assert 1 / user == pytest.approx(1 / prior + x.shape[1] * np.tanh(xi / 2) / (2 * xi) * item)
        sigma = np.linalg.svd(x.toarray() - x.mean(), compute_uv=False)[0]
        verdicts.append(factors_vanish(x, null, 0))
        assert verdicts[-1] == (sigma**2 * user * item <= 1)
    assert min(verdicts.count(True), verdicts.count(False)) > 5


@pytest.mark.parametrize(
    ("x", "is_stable"), [(sparse_log(), True), (draw_matrix(60, 40), False)], ids=["sparse", "dense"]
)
def test_passes_shrink_the_factors_where_it_is_stable_and_else_grow_them(x, is_stable, monkeypatch):
    monkeypatch.setattr("oneclass.models.binary_matrix.inference.LEAST_BATCH", 500)
    settings = SETTINGS.model_copy(update={"user_variance": 0.2, "item_variance": 0.2})
    assert factors_vanish(x, find_null_solution(x, settings), 0) == is_stable
    steps = Inference(BinaryMatrixPosterior.start(x, settings, 3), EntrySampler.of(x, "balanced"), settings, 3)
    before = np.abs(Dense(steps.q, settings).u).mean()
    for _ in range(80):
        steps.run_pass(4 * x.nnz)
    ratio = np.abs(Dense(steps.q, settings).u).mean() / before
    assert ratio < 0.5 if is_stable else ratio > 2


def test_a_fit_whose_factors_vanish_ends_at_once_and_ranks_by_popularity(tmp_path):
    x = sparse_log()
    epochs = []
    with pytest.warns(UserWarning, match=r"1,000 likes by 500 users of 400 items .* all factors vanish"):
        BinaryMatrix().fit(x, FitOptions(on_epoch=epochs.append)).save(tmp_path)
    model = BinaryMatrix.load(tmp_path)
    assert not epochs and len(model.bounds) == 0
    expected = Popularity().fit(x).scores(x[:7])
    np.testing.assert_array_equal(model.scores(x[:7]), expected)
    np.testing.assert_array_equal(model.scores(x[:7], users=np.arange(7)), expected)
    np.testing.assert_array_equal(model.fold_in(x[:7]), model.q.users[:7])
    mean, sd = model.like(x[:7])
    assert mean == pytest.approx(np.full(mean.shape, x.nnz / np.prod(x.shape)), rel=0.25) and (sd > 0).all()


def test_a_warm_start_at_vanished_factors_is_a_fit_from_scratch():
    x, grown = sparse_log(60, 40), draw_matrix(60, 40)
    with pytest.warns(UserWarning, match="vanish"):
        vanished = BinaryMatrix(passes=4).fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BinaryMatrix(passes=4).fit(grown, FitOptions(start=Start(vanished, np.arange(60), np.arange(40))))
    np.testing.assert_array_equal(model.q.items, BinaryMatrix(passes=4).fit(grown).q.items)
