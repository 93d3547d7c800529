"""Paired symbols by blocks of users: the sums against float64 numpy, and the fit against one machine's."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix, vstack

from models.fitting import FitOptions
from models.numerics.threads import kernel_threads
from models.paired_symbols import worker
from models.paired_symbols.blocks import begun
from models.paired_symbols.messages import numbers
from models.paired_symbols.model import PairedSymbols, PairedSymbolsSettings
from tests.models.block_fits import (
    Scales,
    assert_begins_at_an_earlier_fit,
    assert_bits_of_blocks_alone,
    assert_close,
    assert_killed_process_changes_no_bit,
    assert_same_bits,
    assert_scores_serve_inside,
    counted,
    held_out,
    metrics,
    planted,
    shelved,
)

pytestmark = pytest.mark.slow  # kernels that only blocks of users need are compiled

K = 4  # kernels are compiled for each number of factors
SHORT = {"factors": K, "iterations": 6, "tolerance": 0}
MODES = [{}, {"r": 4.0, "tau_u": 0.5, "tau_b": 2.0}, {"learn_selection": True, "alpha": 0.5}]
modes = pytest.mark.parametrize("mode", MODES, ids=["defaults", "other priors", "learned selection"])


def fitted(matrix, *, threads=1, options=None, **settings):
    model = PairedSymbols(PairedSymbolsSettings(**{**SHORT, **settings}), seed=3, threads=threads)
    return model.fit(matrix, options or FitOptions())


def by_blocks(matrix, count, options=None, **settings):
    """A fit by `count` blocks, one of them too, before its first pass."""
    model = PairedSymbols(PairedSymbolsSettings(**{**SHORT, **settings, "blocks": count}), seed=3)
    first = model._first_rows(matrix.shape, None)
    return begun(worker.Terms(model.settings, 1), *first, matrix, options or FitOptions())


def moved(posterior, learn_selection=False, passes=2):
    """After some passes, so that nothing is near where it began."""
    for _ in range(passes):
        posterior.iterate(learn_selection=learn_selection)
    return posterior


@modes
def test_a_message_is_the_blocks_part_of_p_and_z(long_tailed, mode):
    matrix = counted(long_tailed)
    with kernel_threads(1), by_blocks(matrix, 3, **mode) as posterior:
        moved(posterior, mode.get("learn_selection", False))
        items, block = posterior._items(), posterior.blocks[1]
        message, of_users = worker.update(block, posterior.blocks._states[1], items)
        rows = block.read(posterior.blocks._states[1] + 1)["rows"].astype(float)
    counts, other, width = matrix[block.first : block.end].toarray(), items.rows.astype(float), rows.shape[1] // 2
    (x, v), (spread, of_v) = (  # (u, 1) and (v, 1) without biases, and their variances
        [np.insert(one[:, at : at + K], K, fill, axis=1) for one in (rows, other)] for at, fill in ((0, 1), (width, 0))
    )
    biases, of_biases = (rows[:, at, None] + other[:, at] for at in (K, width + K))
    mean = x @ v.T - 1 + biases
    square = mean**2 + (spread + x**2) @ of_v.T + spread @ (v**2).T + of_biases
    bend, star = (np.tanh(xi / 2) / (4 * xi) for xi in (np.sqrt(square), items.xi_star))
    shares = np.outer(rows[:, width + K + 1], other[:, width + K + 1])
    w = (counts > 0) * (2 * bend * counts + 2 * items.censored * shares * (bend - star))
    P = np.einsum("ij,ik,il->jkl", w, x, x) + np.einsum("ij,ik->jk", w, spread)[:, :, None] * np.eye(K + 1)
    z = (counts / 2 - w * rows[:, K, None]).T @ x
    below = np.tril_indices(K + 1)
    right = np.column_stack([P[:, below[0], below[1]], z])
    assert message.dtype == np.float32 and message.shape == (120, numbers(K))
    np.testing.assert_allclose(message, right, rtol=0, atol=1e-5 * np.abs(right).max())
    assert not message[11].any()
    y = np.column_stack([rows[:, : K + 1], np.ones(len(rows))])
    background = (y.T * rows[:, width + K + 1]) @ y
    background[np.diag_indices(K + 1)] += rows[:, width + K + 1] @ rows[:, width : width + K + 1]
    np.testing.assert_allclose(of_users.background, background, rtol=0, atol=1e-6 * background.max())


@modes
@pytest.mark.parametrize("count", [3, 7])
def test_blocks_make_the_fit_of_one_machine(long_tailed, mode, count):
    matrix, seen = counted(long_tailed), {1: [], count: []}
    one, many = (fitted(matrix, blocks=of, options=FitOptions(on_epoch=seen[of].append), **mode) for of in (1, count))
    assert_close(one, many, 3e-6)
    for before, after in zip(seen[1], seen[count], strict=True):
        assert before.values == pytest.approx(after.values, rel=1e-7)


@modes
def test_one_block_through_messages_makes_the_fit_of_one_machine_too(long_tailed, mode):
    matrix, seen = counted(long_tailed), []
    one = fitted(matrix, options=FitOptions(on_epoch=seen.append), **mode)
    with kernel_threads(1), by_blocks(matrix, 1, **mode) as posterior:
        bounds = [posterior.iterate(learn_selection=mode.get("learn_selection", False)) for _ in range(6)]
        found = {"user_rows": posterior.blocks.gathered()["rows"], "item_rows": posterior.items.rows}
    np.testing.assert_allclose(bounds, [epoch.values["bound"] for epoch in seen], rtol=1e-7)
    for name, array in found.items():
        right = one._arrays()[name]
        np.testing.assert_allclose(array, right, rtol=0, atol=3e-6 * np.abs(right).max(), err_msg=name)


def test_the_users_shares_are_of_all_users_not_of_a_block(long_tailed):
    with kernel_threads(1), by_blocks(long_tailed, 4, learn_selection=True) as posterior:
        moved(posterior, learn_selection=True)
        shares = posterior.blocks.gathered()["rows"][:, 16 // 2 + K + 1]
    assert shares.sum() == pytest.approx(1, rel=1e-6) and len(np.unique(shares)) > 20


def test_metrics_of_both_fits_agree_to_four_digits_and_so_does_where_they_stop():
    train, targets = held_out(planted(600))
    lengths, found = [], []
    for count in (1, 4):
        epochs = []
        options = FitOptions(on_epoch=epochs.append)
        model = fitted(train, blocks=count, iterations=60, tolerance=1e-4, options=options)
        lengths.append(len(epochs))
        found.append(metrics(model, train, targets, "popularity_x_odds"))
    assert lengths[0] == lengths[1] < 60
    for name in ("mean_rank", "ndcg@100"):
        assert found[0][name].value == pytest.approx(found[1][name].value, abs=5e-5), name


def test_a_fit_by_blocks_begins_at_an_earlier_fit(long_tailed):
    assert_begins_at_an_earlier_fit(fitted, long_tailed, 3e-6, iterations=4)


@modes
def test_the_bits_depend_on_the_number_of_blocks_alone(long_tailed, mode):
    assert_bits_of_blocks_alone(fitted, counted(long_tailed), blocks=5, **mode)


def test_processes_give_the_same_bits_and_one_that_is_killed_changes_none(long_tailed, tmp_path):
    assert_killed_process_changes_no_bit(fitted, long_tailed, tmp_path / "seen by all", blocks=5, learn_selection=True)


@pytest.mark.parametrize("copies", [1, 6])
def test_items_alone_travel_however_many_users_there_are(long_tailed, tmp_path, copies):
    matrix, scales = csr_matrix(vstack([long_tailed] * copies)), Scales()
    options = FitOptions(workers=scales, rows=shelved(matrix, tmp_path))
    model = fitted(matrix, blocks=3, iterations=3, options=options)
    assert len(scales.taken) == 3 * (2 + 2 * 3)
    assert max(scales.taken) <= 120 * 4 * 2 * 8 + 8 * (K + 2) ** 2 + 2000
    assert max(scales.given) <= 120 * 4 * numbers(K) + 8 * (K + 2) ** 2 + 1000
    assert_same_bits(model, fitted(matrix, blocks=3, iterations=3))


@pytest.mark.parametrize("likes", [np.ones((6, 5)), np.eye(1), np.eye(4)[:3], np.ones((4, 1))])
@pytest.mark.parametrize("learn_selection", [False, True])
def test_awkward_data_get_finite_scores(likes, learn_selection):
    matrix, epochs = csr_matrix(likes.astype(np.float32)), []
    options = FitOptions(on_epoch=epochs.append)
    model = fitted(matrix, blocks=9, learn_selection=learn_selection, options=options)
    assert np.isfinite(model.scores(matrix, users=np.arange(len(likes)))).all()
    assert all(np.isfinite(epoch.values["bound"]) for epoch in epochs)


def test_scores_serve_inside_a_fit_by_blocks(long_tailed):
    assert_scores_serve_inside(PairedSymbols(PairedSymbolsSettings(**{**SHORT, "blocks": 3})), long_tailed)
