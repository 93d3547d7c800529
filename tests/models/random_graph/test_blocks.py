"""random_graph by blocks of users: one machine's fit, messages (eq. 15, 17 to 19, 21), turns, scratch files."""

import tempfile
from contextlib import contextmanager

import numpy as np
import pytest
from scipy.sparse import csr_matrix, vstack

from oneclass.models.evaluation.holdout import choose_held_out_edges, split_matrix
from oneclass.models.evaluation.metrics import average_over_users, compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets
from oneclass.models.fit_options import FitOptions, Start
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
from oneclass.models.random_graph.inference import RandomGraphPosterior, step_sizes, sum_bias_parameters
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from tests.models.block_fits import Backwards, Processes, Scales, plant_traits, shorten_phases, store_rows
from tests.models.random_graph.test_random_graph import (
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
    return RandomGraph(**{**SHORT, **settings}, seed=3, threads=threads).fit(matrix, options or FitOptions())


def assert_same_bits(one, other):
    for name, array in one._arrays().items():
        assert np.array_equal(array, other._arrays()[name]), name


def assert_close(one, other, within):
    """Every fitted array within a share of its largest value."""
    for name, array in one._arrays().items():
        worst = np.abs(array - other._arrays()[name]).max()
        assert worst <= within * np.abs(array).max(), (name, worst)


def draw_counts(matrix):
    """Counts 1 to 4, a user and an item without an edge."""
    counts = matrix.toarray() * np.random.default_rng(1).integers(1, 5, matrix.shape)
    counts[7], counts[:, 11] = 0, 0
    return csr_matrix(counts.astype(np.float32))


@contextmanager
def by_messages(matrix, **settings):
    """A fit by blocks at its beginning, whatever their number."""
    model = RandomGraph(RandomGraphSettings(**{**SHORT, **settings}), seed=3)
    model.item_degrees = np.bincount(matrix.indices, minlength=matrix.shape[1])
    model.histogram = degree_histogram(model.item_degrees, histogram_power(model.params.r, model.item_degrees.max()))
    q = RandomGraphPosterior.initial(matrix.shape, model.params, 3)
    config = BlockConfig(model.settings, 3, model.histogram)
    with start_distributed_fit(config, q, matrix, FitOptions()) as posterior:
        yield posterior


def test_a_fit_by_blocks_begins_at_an_earlier_fit(long_tailed):
    """From a fit of fewer users it comes to where one machine's does."""
    first, rows = fit_model(long_tailed[:200]), np.arange(300)
    options = FitOptions(start=Start(first, np.where(rows < 190, rows, -1), np.arange(120)))
    one, many = (fit_model(long_tailed, blocks=blocks, options=options, iterations=3) for blocks in (1, 4))
    assert_close(one, many, ROUNDED)


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
    likes = plant_traits(1500)
    held_out = choose_held_out_edges(likes, np.ones(1500, dtype=np.int64), 1, *map(np.arange, likes.shape))
    train, targets = split_matrix(likes, held_out)
    one, turns = (
        fit_model(train, threads=2, iterations=30, **settings)
        for settings in ({}, {"blocks": 6, "refreshed": refreshed})
    )

    def mean_rank(model, score):
        scores = model.scores(train, users=np.arange(1500), score=score)
        return average_over_users(compute_user_metrics(rank_targets(scores, train, targets)))["mean_rank"]

    for score in ("popularity_x_odds", "like"):
        right, found = mean_rank(one, score), mean_rank(turns, score)
        assert right.value > 0.8 and abs(found.value - right.value) < right.standard_error, score


def test_users_that_are_nowhere_and_rows_of_another_matrix_are_refused_with_what_to_do(long_tailed):
    with by_messages(long_tailed, blocks=2) as posterior:
        with pytest.raises(FileNotFoundError, match="every worker sees"):
            posterior.blocks[0].read(1)
        with pytest.raises(ValueError, match=r"rows 0 to \d+ came as a matrix of .*90 columns"):
            posterior.blocks[0].matrix(90)


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
    assert held[-1] == ["block-0-2.npz", "block-0-3.npz", "block-1-2.npz", "block-1-3.npz"]
    assert not list(tmp_path.iterdir())


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


ROUNDED = 2e-5  # blocks add an item's sums in float32


@pytest.mark.parametrize("count", [3, 7])
@pytest.mark.parametrize("settings", [{}, {"learn_tau": False}], ids=str)
def test_blocks_make_the_fit_of_one_machine(long_tailed, settings, count):
    matrix = draw_counts(long_tailed)  # with a user and an item without an edge
    seen = {1: [], count: []}
    one, many = (
        fit_model(matrix, blocks=of, options=FitOptions(on_epoch=epochs.append), **settings)
        for of, epochs in seen.items()
    )
    np.testing.assert_array_equal(one.item_degrees, many.item_degrees)
    assert_close(one, many, ROUNDED)
    for before, after in zip(seen[1], seen[count], strict=True):
        assert before.values == pytest.approx(after.values, rel=1e-6)


@pytest.mark.parametrize("settings", [{}, {"refreshed": 2}], ids=str)
def test_threads_and_calls_in_another_order_or_made_twice_change_no_bit(long_tailed, settings):
    one = fit_model(long_tailed, blocks=5, **settings)
    assert_same_bits(one, fit_model(long_tailed, blocks=5, threads=2, **settings))
    workers = FitOptions(workers=Backwards())
    assert_same_bits(one, fit_model(long_tailed, blocks=5, options=workers, **settings))


def test_a_process_that_is_killed_changes_no_bit_and_leaves_nothing(long_tailed, tmp_path):
    settings = {"iterations": 8, "blocks": 5}
    workers, scratch = Processes(), tmp_path / "seen by all"
    many = fit_model(long_tailed, options=FitOptions(workers=workers, scratch=scratch), **settings)
    workers.pool.shutdown()
    assert workers.killed == 1
    assert_same_bits(many, fit_model(long_tailed, **settings))
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("copies", [1, 6])
def test_items_alone_travel_however_many_users_there_are(long_tailed, tmp_path, copies):
    matrix, scales = csr_matrix(vstack([long_tailed] * copies)), Scales()
    options = FitOptions(workers=scales, rows=store_rows(matrix, tmp_path))
    model = fit_model(matrix, blocks=3, options=options, iterations=4)
    assert max(scales.taken) <= 120 * (4 * (2 * 5 + 2) + 8) + 3000
    assert max(scales.given) <= 120 * 4 * message_size(5) + 1000
    assert_same_bits(model, fit_model(matrix, blocks=3, iterations=4))
