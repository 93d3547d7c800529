"""random_graph by blocks of users: messages (eq. 15, 17 to 19, 21), blocks in turns, warm starts, and scratch files."""

import tempfile
from contextlib import contextmanager

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.adjacency import (
    copy_pattern,
    partition_shards,
)
from oneclass.models.random_graph import blocks
from oneclass.models.random_graph.blocks import (
    BlockConfig,
    message_size,
    start_distributed_fit,
    sum_parameters,
    update_item_biases,
    update_item_factors,
)
from oneclass.models.random_graph.inference import VertexPosterior, step_sizes
from oneclass.models.random_graph.kernels import sum_bias_parameters
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from tests.models.block_fits import (
    assert_begins_at_an_earlier_fit,
    assert_scores_serve_inside,
    evaluate_score,
    held_out,
    plant_traits,
    shorten_phases,
)
from tests.models.random_graph.dense_bound import random_side

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
    model._set_histogram()
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


USERS, ITEMS = 40, 17


def draw_case(factors):
    """q of both sides, and a hidden graph as dense g and h, (USERS, ITEMS); item 5 has no edge."""
    rng = np.random.default_rng(factors)
    g = rng.random((USERS, ITEMS)) < 0.3
    h = g | (rng.random((USERS, ITEMS)) < 0.4)
    g[:, 5] = h[:, 5] = False
    return random_side(rng, USERS, factors), random_side(rng, ITEMS, factors), g, h


def by_item(g, h, rows):
    likes, negatives = (copy_pattern(csr_matrix(part[rows].T)) for part in (g, h & ~g))
    return likes, negatives, partition_shards(likes[0])


def table_of(users, rows):
    return VertexPosterior(*(array[rows] for array in users.arrays)).table()


def message_of(users, items, g, h, rows=slice(None)):
    return sum_parameters(items.arrays, table_of(users, rows), *by_item(g, h, rows))


def bias_message_of(users, items, g, h, rows=slice(None)):
    return sum_bias_parameters(items.arrays, table_of(users, rows), *by_item(g, h, rows), 0.0)


def pair_weights(users, items):
    """2 lambda(xi) of every pair with xi by eq. 16, and E[u'v] + E[b_m]."""
    u, v = users.mean.astype(float), items.mean.astype(float)
    rest = u @ v.T + users.bias_mean[:, None]
    variance = (u**2 + 1 / users.precision) @ (v**2 + 1 / items.precision).T - u**2 @ (v**2).T
    variance += 1 / users.bias_precision[:, None] + 1 / items.bias_precision
    xi = np.sqrt((rest + items.bias_mean) ** 2 + variance)
    return (1 / (1 + np.exp(-xi)) - 0.5) / xi, rest


def item_parameters(users, items, g, h):
    """P and z of every item without the prior: (ITEMS, K + 1, K + 1) and (ITEMS, K + 1)."""
    w = h * pair_weights(users, items)[0]
    x = np.column_stack([users.mean, np.ones(USERS)]).astype(float)
    second = x[:, :, None] * x[:, None, :]
    second[:, range(x.shape[1] - 1), range(x.shape[1] - 1)] += 1 / users.precision
    z = (h * (g - 0.5) - w * users.bias_mean[:, None]).T @ x
    return np.einsum("mn,mij->nij", w, second), z


def flatten_message(P, z):
    """As a message lays them out."""
    size = z.shape[1]
    return np.concatenate([P[:, row, : row + 1] for row in range(size)] + [z], axis=1)


@pytest.mark.parametrize("factors", [1, 6, 15, 20])
def test_a_message_is_the_natural_parameters_of_equations_15_and_21(factors):
    users, items, g, h = draw_case(factors)
    message = message_of(users, items, g, h)
    assert message.dtype == np.float32 and message.shape == (ITEMS, message_size(factors))
    assert message_size(factors) == (factors + 1) * (factors + 2) // 2 + factors + 1
    np.testing.assert_allclose(message, flatten_message(*item_parameters(users, items, g, h)), rtol=2e-5, atol=2e-5)
    assert not message[5].any()


def test_messages_of_blocks_add_up_to_that_of_all_users():
    users, items, g, h = draw_case(6)
    blocks = [slice(0, 7), slice(7, 30), slice(30, 40)]
    for make, within in ((message_of, 1e-5), (bias_message_of, 1e-9)):
        total = sum(make(users, items, g, h, rows).astype(float) for rows in blocks)
        np.testing.assert_allclose(total, make(users, items, g, h), rtol=within, atol=within)


def test_a_message_for_biases_is_the_sums_of_equation_19():
    users, items, g, h = draw_case(6)
    w, rest = pair_weights(users, items)
    message = bias_message_of(users, items, g, h)
    np.testing.assert_allclose(message[:, 0], (h * w).sum(0), rtol=2e-5)
    np.testing.assert_allclose(message[:, 1], (h * (g - 0.5 - w * rest)).sum(0), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("step", [1.0, 0.3])
def test_items_move_by_equations_17_and_18(step):
    users, items, g, h = draw_case(6)
    P, z = item_parameters(users, items, g, h)
    total = flatten_message(P, z)
    z = (z - P[:, :, -1] * items.bias_mean[:, None])[:, :6]
    omega, eta = items.precision.astype(float), items.mean.copy()
    P = step * (P[:, :6, :6] + 1.7 * np.eye(6)) + (1 - step) * np.stack([np.diag(one) for one in omega])
    mean = np.linalg.solve(P, (step * z + (1 - step) * omega * eta)[..., None])[..., 0]
    held = items.bias_mean.copy(), items.bias_precision.copy()
    update_item_factors(items, total, 1.7, step)
    np.testing.assert_allclose(items.mean, mean, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(items.precision, np.diagonal(P, axis1=1, axis2=2), rtol=2e-5)
    for got, right in zip((items.bias_mean, items.bias_precision), held, strict=True):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("fixed_rows", [0, 25, USERS], ids=["all fresh", "some fresh", "none fresh"])
def test_biases_move_by_equation_19_whichever_messages_say_it(fixed_rows):
    users, items, g, h = draw_case(6)
    w, rest = pair_weights(users, items)
    old = items.bias_precision.astype(float)
    precision = 0.3 * ((h * w).sum(0) + 0.6) + 0.7 * old
    mean = (0.3 * (h * (g - 0.5 - w * rest)).sum(0) + 0.7 * old * items.bias_mean) / precision
    fixed = message_of(users, items, g, h, slice(0, fixed_rows)).astype(float)
    fresh = [bias_message_of(users, items, g, h, slice(fixed_rows, USERS))]
    update_item_biases(items, fixed, fresh, 0.6, 0.3)
    np.testing.assert_allclose(items.bias_precision, precision, rtol=2e-5)
    np.testing.assert_allclose(items.bias_mean, mean, rtol=2e-5, atol=2e-5)
