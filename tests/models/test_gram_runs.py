"""Gram matrices summed by blocks of users and runs of items, and the two models whose columns workers solve."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix, vstack

from models import gram_runs
from models.fitting import FitOptions
from models.folder_shelf import Folder
from models.gram_runs import STARTS, ItemRun, cut_into_runs, sums
from models.mrf import sparse_runs
from models.mrf.sparse import MRFSparse, MRFSparseSettings
from models.mrf.sparse_runs import COLUMNS, SUMS, as_summed
from models.numerics import rescaled_columns
from models.numerics.rescaled_columns import columns
from models.popularity import Popularity
from models.slim.model import SLIM, SLIMSettings
from tests.models.block_fits import Backwards, Processes, Scales, assert_same_bits, shelved

MODES = {
    "slim": (SLIM, {"l1": 0.3}),
    "slim, few neighbours": (SLIM, {"l1": 1.0, "l2": 5.0, "alpha": 0.0, "user_weight_exponent": 0.0, "neighbours": 7}),
    "mrf_sparse": (MRFSparse, {"density": 0.3}),
    "mrf_sparse, centred": (MRFSparse, {"density": 0.1, "centred": True, "user_weight_exponent": 1.0, "r": 0.0}),
    "mrf_sparse, paper": (MRFSparse, {"threshold": 0.2, "variant": "paper", "r": 0.5, "intercept": True}),
}
modes = pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
models = pytest.mark.parametrize("mode", [MODES["slim"], MODES["mrf_sparse"]], ids=["slim", "mrf_sparse"])


def fitted(mode, matrix, *, threads=1, options=None, **more):
    model, settings = mode
    return model(model.Settings(**{**settings, **more}), threads=threads).fit(matrix, options or FitOptions())


@pytest.fixture(scope="module")
def odd(long_tailed):
    """A user and an item without an edge, and counts."""
    likes = long_tailed.toarray() * np.random.default_rng(1).integers(1, 5, long_tailed.shape)
    likes[7], likes[:, 11] = 0, 0
    return csr_matrix(likes.astype(np.float32))


@pytest.fixture(scope="module")
def of_one_machine(odd):
    return {id(mode): fitted(mode, odd) for mode in MODES.values()}


def begun(matrix, count, folder):
    moments, degrees = columns(matrix, 0.5), np.bincount(matrix.indices, minlength=matrix.shape[1])
    return cut_into_runs(matrix, moments.weights, degrees, count, 1, FitOptions(scratch=folder), "any")


@pytest.mark.parametrize(("count", "at_once"), [(1, 1 << 22), (7, 1 << 22), (3, 700), (3, 1)])
def test_the_rows_are_those_of_the_dense_product_whatever_is_summed_at_once(odd, count, at_once, tmp_path, monkeypatch):
    monkeypatch.setattr(gram_runs, "AT_ONCE", at_once)
    likes, weights = (odd.toarray() > 0).astype(float), columns(odd, 0.5).weights
    right = csr_matrix((likes * weights[:, None]).T @ likes)
    with begun(odd, count, tmp_path) as runs:
        assert [run.first for run in runs] == [0, *(run.end for run in runs)][:-1] and runs[-1].end == 120
        pieces = sum(len(list(sums(run, runs._blocks))) for run in runs)
        assert pieces == count if at_once > 700 else pieces > count
        runs.sum_rows(as_summed, (COLUMNS, SUMS))
        for name, array in ((STARTS, right.indptr), (COLUMNS, right.indices), (SUMS, right.data)):
            np.testing.assert_array_equal(runs[-1].read(name), array)
    assert not list(tmp_path.iterdir())


def test_runs_have_about_equal_numbers_of_edges_and_items(odd, tmp_path):
    starts = np.concatenate([[0], np.cumsum(np.bincount(odd.indices, minlength=120))])
    with begun(odd, 4, tmp_path) as runs:
        loads = [starts[run.end] - starts[run.first] + (run.end - run.first) * (odd.nnz // 120) for run in runs]
        assert max(loads) - min(loads) < 2 * np.diff(starts).max()


def test_an_array_is_written_whole_or_not_at_all(tmp_path):
    run = ItemRun(0, 0, 3, 3, Folder(tmp_path), 1)

    def pieces():
        yield {"any.int32": np.arange(2, dtype=np.int32)}
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run.write(pieces())
    with pytest.raises(FileNotFoundError, match="not there; give a `scratch` that every worker sees"):
        run.read("any.int32", own=True)
    run.write([{"any.int32": np.arange(3, dtype=np.int32)}, {"any.int32": np.zeros(0, dtype=np.int32)}])
    np.testing.assert_array_equal(run.read("any.int32", own=True), [0, 1, 2])


@modes
@pytest.mark.parametrize("count", [2, 5])
def test_blocks_have_the_bits_of_one_machine(odd, mode, count, of_one_machine):
    assert_same_bits(of_one_machine[id(mode)], fitted(mode, odd, blocks=count))


@modes
def test_neither_threads_nor_calls_in_another_order_nor_twice_change_a_bit(odd, mode, of_one_machine):
    backwards = FitOptions(workers=Backwards())
    assert_same_bits(of_one_machine[id(mode)], fitted(mode, odd, blocks=4, threads=2, options=backwards))


@pytest.mark.slow
def test_processes_give_the_same_bits_and_one_that_is_killed_changes_none(odd, tmp_path, of_one_machine):
    workers = Processes(2, 5)  # at slim's columns, and at the pattern of mrf_sparse
    options = FitOptions(workers=workers, rows=shelved(odd, tmp_path), scratch=tmp_path / "seen by all")
    for mode in (MODES["slim"], MODES["mrf_sparse"]):
        assert_same_bits(of_one_machine[id(mode)], fitted(mode, odd, blocks=4, options=options))
    counted = fitted((Popularity, {}), odd, blocks=4, options=options)
    np.testing.assert_array_equal(counted.item_degrees, fitted((Popularity, {}), odd).item_degrees)
    workers.pool.shutdown()
    assert workers.killed == 2
    assert not list((tmp_path / "seen by all").iterdir())


@models
@pytest.mark.parametrize("copies", [1, 6])
def test_items_alone_travel_however_many_users_there_are(long_tailed, tmp_path, copies, mode):
    matrix, scales = csr_matrix(vstack([long_tailed] * copies)), Scales()
    fitted(mode, matrix, blocks=3, options=FitOptions(workers=scales, rows=shelved(matrix, tmp_path)))
    assert len(scales.taken) == 3 * (2 if mode[0] is SLIM else 4)
    assert max(scales.taken) <= 8 * 120 + 1500
    assert max(scales.given) <= 8 * 120 * 120 + 500


@models
@pytest.mark.parametrize("likes", [np.ones((6, 5)), np.eye(1), np.eye(4)[:3], np.ones((4, 1))])
def test_awkward_data_have_the_bits_of_one_machine(likes, mode):
    matrix = csr_matrix(likes.astype(np.float32))
    one = fitted((mode[0], {}), matrix)
    assert_same_bits(one, fitted((mode[0], {}), matrix, blocks=9))
    assert np.isfinite(one.scores(matrix)).all()


def test_inverses_in_small_batches_have_the_same_bits(odd, of_one_machine, monkeypatch):
    monkeypatch.setattr(sparse_runs, "AT_ONCE", 5000)
    mode = MODES["mrf_sparse"]
    assert_same_bits(of_one_machine[id(mode)], fitted(mode, odd, blocks=3))


def test_a_threshold_that_leaves_no_neighbours_leaves_no_weights(odd):
    model = fitted((MRFSparse, {"threshold": 1e9}), odd, blocks=3)
    assert model.weights.nnz == 0


def test_covariances_that_are_not_positive_definite_are_refused_by_a_run_too():
    twins = csr_matrix(np.repeat(np.eye(3), [3, 4, 5], axis=0).repeat(2, axis=1).astype(np.float32))
    with pytest.raises(ValueError, match="raise l2"):
        fitted((MRFSparse, {"l2": 1e-12, "threshold": 0.0}), twins, blocks=3)


def test_a_descent_that_was_cut_short_says_so_once(odd):
    with warnings.catch_warnings(record=True, action="always") as said:
        fitted((SLIM, {"l1": 0.01, "l2": 0.0, "max_sweeps": 1, "tolerance": 1e-9}), odd, blocks=3)
    (one,) = (str(warning.message) for warning in said if "slim" in str(warning.message))
    assert "raise max_sweeps or tolerance" in one


def test_the_epoch_tells_of_the_whole_fit(odd):
    seen = {MRFSparse: [], SLIM: []}
    for model, settings in (MODES["mrf_sparse"], MODES["slim"]):
        fitted((model, settings), odd, blocks=3, options=FitOptions(on_epoch=seen[model].append))
    assert [(epoch.number, epoch.of) for epochs in seen.values() for epoch in epochs] == [(1, 1), (1, 1)]
    assert seen[MRFSparse][0].values.keys() == {"threshold", "density"} and seen[SLIM][0].values.keys() == {"weights"}


def test_blocks_are_no_less_than_one():
    for settings in (SLIMSettings, MRFSparseSettings):
        with pytest.raises(ValueError, match="blocks"):
            settings(blocks=0)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.3])
def test_moments_of_the_items_are_exact_sums_in_pieces_of_any_size(odd, exponent, monkeypatch):
    whole = columns(odd, exponent)
    monkeypatch.setattr(rescaled_columns, "AT_ONCE", 50)
    pieces = columns(odd, exponent)
    for name in ("mean", "spread"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(pieces, name))
    right = whole.weights * whole.unit @ (odd.toarray() > 0) / whole.users
    np.testing.assert_allclose(whole.mean, right, rtol=1e-12)
