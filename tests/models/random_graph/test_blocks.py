"""random_graph by blocks of users: blocks in turns (eq. 21), warm starts, scores within a fit, and what is left behind."""

import tempfile
from contextlib import contextmanager

import numpy as np
import pytest

from oneclass.models.fit_options import FitOptions
from oneclass.models.random_graph import blocks
from oneclass.models.random_graph.blocks import start_distributed_fit
from oneclass.models.random_graph.inference import step_sizes
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from oneclass.models.random_graph.worker import BlockConfig
from tests.models.block_fits import (
    assert_begins_at_an_earlier_fit,
    assert_scores_serve_inside,
    held_out,
    metrics,
    planted,
    shelved,
)

pytestmark = pytest.mark.slow  # kernels that only blocks of users need are compiled

SHORT = {"factors": 5, "iterations": 14, "t_tau": 4, "t_epsilon": 6, "bound_every": 3}


def fitted(matrix, *, threads=1, options=None, **settings):
    model = RandomGraph(RandomGraphSettings(**{**SHORT, **settings}), seed=3, threads=threads)
    return model.fit(matrix, options or FitOptions())


@contextmanager
def by_messages(matrix, **settings):
    """A fit by blocks at its beginning, whatever their number."""
    model = RandomGraph(RandomGraphSettings(**{**SHORT, **settings}), seed=3)
    model.item_degrees = np.bincount(matrix.indices, minlength=matrix.shape[1])
    model._negative_weights(matrix)
    q = model._initial_posterior(matrix.shape, None)
    with start_distributed_fit(BlockConfig(model.settings, 3, 1), q, model.weights, matrix, FitOptions()) as posterior:
        yield posterior


MODES = [
    {},
    {"joint_bias": True},
    {"user_biases": True},
    {"joint_bias": True, "user_biases": True},
]


def test_one_block_through_messages_makes_the_fit_of_one_machine_too(long_tailed):
    one = fitted(long_tailed).posterior
    with by_messages(long_tailed) as posterior:
        for t, step in enumerate(step_sizes(14, 6), start=1):
            posterior.iterate(t, step)
        other = posterior.gathered()
    for side in ("users", "items"):
        before, after = getattr(one, side), getattr(other, side)
        for name, array in vars(before).items():
            np.testing.assert_allclose(getattr(after, name), array, rtol=2e-5, atol=2e-5, err_msg=name)
    np.testing.assert_allclose(other.taus.rate, one.taus.rate, rtol=2e-5)


def test_metrics_of_both_fits_agree_and_so_does_where_they_stop():
    train, targets = held_out(planted(600))
    lengths, found = [], []
    for count in (1, 4):
        epochs = []
        options = FitOptions(on_epoch=epochs.append)
        model = fitted(train, blocks=count, iterations=40, bound_every=5, tolerance=0.01, options=options)
        lengths.append(len(epochs))
        found.append(metrics(model, train, targets, "popularity_x_odds"))
    assert lengths[0] == lengths[1] < 40
    for name in ("mean_rank", "ndcg@100"):
        assert found[0][name].value == pytest.approx(found[1][name].value, abs=5e-4), name


def test_a_fit_by_blocks_begins_at_an_earlier_fit(long_tailed):
    assert_begins_at_an_earlier_fit(fitted, long_tailed, 2e-5, iterations=3)


@pytest.mark.parametrize("mode", MODES, ids=[" ".join(mode) or "defaults" for mode in MODES])
def test_in_turns_the_items_move_by_the_sum_of_the_latest_messages(long_tailed, monkeypatch, mode):
    visits, move_factors = [], blocks.update_item_factors

    def watched(items, total, *more, **named):
        latest = sum(message.astype(float) for message in posterior.messages.values())
        visits.append(len(posterior.messages))
        np.testing.assert_allclose(total, latest, rtol=1e-12, atol=1e-12)
        move_factors(items, total, *more, **named)

    monkeypatch.setattr(blocks, "update_item_factors", watched)
    with by_messages(long_tailed, blocks=5, refreshed=2, **mode) as posterior:
        for t, step in enumerate(step_sizes(10, 6), start=1):
            posterior.iterate(t, step)
    assert visits == [5] * (1 + 9 * 3)  # the first iteration is of all blocks, the others of three turns


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("refreshed", [1, 2])
def test_in_turns_30_iterations_reach_the_s_of_one_machine_within_a_standard_error(joint, refreshed):
    train, targets = held_out(planted(1500))
    more = {"iterations": 30, "t_tau": 10, "t_epsilon": 10, "bound_every": 0, "joint_bias": joint}
    one, turns = (
        fitted(train, threads=2, **more, **settings) for settings in ({}, {"blocks": 6, "refreshed": refreshed})
    )
    for score in ("popularity_x_odds", "like"):
        right, found = (metrics(model, train, targets, score)["mean_rank"] for model in (one, turns))
        assert right.value > 0.8 and abs(found.value - right.value) < right.standard_error, score


def test_rows_of_another_matrix_are_refused(long_tailed, tmp_path):
    rows = shelved(long_tailed[:, :90], tmp_path)
    with pytest.raises(ValueError, match=r"rows 0 to \d+ came as a matrix of .*120 columns"):
        fitted(long_tailed, blocks=2, options=FitOptions(rows=rows))


def test_users_that_are_nowhere_are_missed_with_what_to_do(long_tailed):
    with by_messages(long_tailed, blocks=2) as posterior, pytest.raises(FileNotFoundError, match="every worker sees"):
        posterior.blocks[0].read(1)


@pytest.mark.parametrize("given", [True, False], ids=["a folder", "no folder"])
def test_a_fit_leaves_no_users_behind_even_where_it_is_interrupted(long_tailed, tmp_path, monkeypatch, given):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = []

    def interrupt(epoch):
        (folder,) = tmp_path.iterdir()
        held.append(sorted(file.name for file in folder.iterdir()))
        if epoch.number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(long_tailed, blocks=2, options=FitOptions(scratch=tmp_path if given else None, on_epoch=interrupt))
    assert held[-1] == ["block-0-2.npz", "block-0-3.npz", "block-1-2.npz", "block-1-3.npz", "shared.npz"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("refreshed", [0, 1])
def test_scores_serve_inside_a_fit_by_blocks(long_tailed, refreshed):
    assert_scores_serve_inside(
        RandomGraph(RandomGraphSettings(**{**SHORT, "blocks": 3, "refreshed": refreshed}), seed=3), long_tailed
    )
