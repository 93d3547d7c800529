"""random_graph by blocks of users: messages (eq. 15, 17 to 19, 21), blocks in turns, warm starts, and scratch files."""

import tempfile
from contextlib import contextmanager

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import FitOptions
from oneclass.models.negatives.sampling import degree_histogram, histogram_power
from oneclass.models.numerics.adjacency import copy_pattern, partition_shards
from oneclass.models.numerics.logistic_bound import GaussianFactors
from oneclass.models.random_graph import blocks
from oneclass.models.random_graph.blocks import (
    BlockConfig,
    message_size,
    start_distributed_fit,
    sum_parameters,
    update_item_biases,
    update_item_factors,
)
from oneclass.models.random_graph.inference import step_sizes, sum_bias_parameters
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from tests.models.block_fits import (
    assert_begins_at_an_earlier_fit,
    assert_scores_serve_inside,
    evaluate_score,
    held_out,
    plant_traits,
    shorten_phases,
)
from tests.models.random_graph.dense_bound import (
    assert_side,
    dense_moments,
    float_sides,
    random_case,
    random_side,
    updated_biases,
    updated_factors,
)

pytestmark = pytest.mark.slow  # kernels that only blocks of users need are compiled

SHORT = {"factors": 5, "iterations": 14}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    shorten_phases(monkeypatch)


def fit_model(matrix, *, threads=1, options=None, **settings):
    model = RandomGraph(RandomGraphSettings(**{**SHORT, **settings}), seed=3, threads=threads)
    return model.fit(matrix, options or FitOptions())


@contextmanager
def by_messages(matrix, **settings):
    """A fit by blocks at its beginning, whatever their number."""
    model = RandomGraph(RandomGraphSettings(**{**SHORT, **settings}), seed=3)
    model.item_degrees = np.bincount(matrix.indices, minlength=matrix.shape[1])
    model.histogram = degree_histogram(model.item_degrees, histogram_power(model.params.r, model.item_degrees.max()))
    q = model._initial_posterior(matrix.shape, None)
    config = BlockConfig(model.settings, 3)
    with start_distributed_fit(config, q, model.histogram, matrix, FitOptions()) as posterior:
        yield posterior


def test_a_fit_by_blocks_begins_at_an_earlier_fit(long_tailed):
    assert_begins_at_an_earlier_fit(fit_model, long_tailed, 2e-5, iterations=3)


def test_in_turns_the_items_move_by_the_sum_of_the_latest_messages(long_tailed, monkeypatch):
    visits, move_factors = [], blocks.update_item_factors

    def watched(items, total, *more, **named):
        latest = sum(message.astype(float) for message in posterior.messages.values())
        visits.append(len(posterior.messages))
        np.testing.assert_allclose(total, latest, rtol=1e-12, atol=1e-12)
        move_factors(items, total, *more, **named)

    monkeypatch.setattr(blocks, "update_item_factors", watched)
    with by_messages(long_tailed, blocks=5, refreshed=2) as posterior:
        for t, step in enumerate(step_sizes(10), start=1):
            posterior.iterate(t, step)
    assert visits == [5] * (1 + 9 * 3)  # the first iteration is of all blocks, the others of three turns


@pytest.mark.parametrize("refreshed", [1, 2])
def test_in_turns_30_iterations_reach_the_s_of_one_machine_within_a_standard_error(refreshed, monkeypatch):
    shorten_phases(monkeypatch, t_tau=10, t_epsilon=10)
    train, targets = held_out(plant_traits(1500))
    one, turns = (
        fit_model(train, threads=2, iterations=30, **settings)
        for settings in ({}, {"blocks": 6, "refreshed": refreshed})
    )
    for score in ("popularity_x_odds", "like"):
        right, found = (evaluate_score(model, train, targets, score)["mean_rank"] for model in (one, turns))
        assert right.value > 0.8 and abs(found.value - right.value) < right.standard_error, score


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
        fit_model(long_tailed, blocks=2, options=FitOptions(scratch=tmp_path if given else None, on_epoch=interrupt))
    assert held[-1] == ["block-0-2.npz", "block-0-3.npz", "block-1-2.npz", "block-1-3.npz", "shared.npz"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("refreshed", [0, 1])
def test_scores_serve_inside_a_fit_by_blocks(long_tailed, refreshed):
    assert_scores_serve_inside(
        RandomGraph(RandomGraphSettings(**{**SHORT, "blocks": 3, "refreshed": refreshed}), seed=3), long_tailed
    )


BLOCKS = [slice(0, 7), slice(7, 20), slice(20, 30)]


def draw_case(factors):
    """A posterior, dense g and h, and by block of users: the packed users, and the graph by item."""
    q, _, g, h = random_case(factors)
    q.users = random_side(np.random.default_rng(1), len(g), factors)  # biases that are not clamped
    sums = []
    for rows in BLOCKS:
        table = GaussianFactors(*(array[rows] for array in q.users.arrays)).table()
        likes, negatives = (copy_pattern(csr_matrix(part[rows].T)) for part in (g, h - g))
        sums.append((table, likes, negatives, partition_shards(likes[0])))
    users, items = float_sides(q)
    return q.items, sums, (items, users, g.T, h.T, np.sqrt(dense_moments(users, items)[1]).T)


@pytest.mark.parametrize("factors", [1, 6, 15, 20])
@pytest.mark.parametrize("step", [1.0, 0.3])
def test_by_the_messages_of_blocks_items_move_by_equations_15_to_18(factors, step):
    items, of_blocks, dense = draw_case(factors)
    messages = [sum_parameters(items.arrays, *parts) for parts in of_blocks]
    for message in messages:
        assert message.dtype == np.float32 and message.shape == (len(items.mean), message_size(factors))
        assert not message[5].any()  # an item without an edge
    update_item_factors(items, sum(message.astype(float) for message in messages), 1.7, step)
    assert_side(items, updated_factors(*dense, 1.7, step))


@pytest.mark.parametrize("fixed", [0, 2, 3], ids=["all fresh", "some fresh", "none fresh"])
def test_biases_move_by_equation_19_whichever_messages_say_it(fixed):
    items, of_blocks, dense = draw_case(6)
    total = np.zeros((len(items.mean), message_size(6)))
    for parts in of_blocks[:fixed]:
        total += sum_parameters(items.arrays, *parts)
    fresh = [sum_bias_parameters(items.arrays, *parts, 0.0) for parts in of_blocks[fixed:]]
    update_item_biases(items, total, fresh, 0.6, 0.3)
    assert_side(items, updated_biases(*dense, 0.6, 0.3))
