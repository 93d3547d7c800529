"""The binary matrix by blocks of users: draws, sums against float64 numpy, and the fit against one machine's."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.sparse import csr_matrix, vstack

from models.binary_matrix import worker
from models.binary_matrix.block_sampling import Whole, draw_own, sampler_of_rows
from models.binary_matrix.blocks import begun
from models.binary_matrix.inference import BinaryMatrixPosterior, float32_pair
from models.binary_matrix.messages import move_items, numbers
from models.binary_matrix.minibatch import Moving
from models.binary_matrix.model import BinaryMatrix
from models.binary_matrix.sampling import EntrySampler
from models.binary_matrix.settings import BinaryMatrixSettings
from models.fitting import FitOptions
from models.numerics.threads import kernel_threads
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

K = 5
SHORT = {"factors": K, "passes": 4}
MODES = [{}, {"sampling": "uniform", "user_variance": 0.5}, {"least_batch": 1, "most_batch": 4000, "t0": 10.0}]
modes = pytest.mark.parametrize("mode", MODES, ids=["balanced", "uniform", "small minibatches"])


def fitted(matrix, *, threads=1, options=None, **settings):
    model = BinaryMatrix(BinaryMatrixSettings(**{**SHORT, **settings}), seed=3, threads=threads)
    return model.fit(matrix, options or FitOptions())


def by_blocks(matrix, count, **settings):
    """The minibatches of a fit by `count` blocks, one of them too."""
    settings = BinaryMatrixSettings(**{**SHORT, **settings, "blocks": count})
    q = BinaryMatrixPosterior.start(matrix, settings, 3)
    return begun(worker.Terms(settings, matrix.shape[0], 3, 1), q, matrix, FitOptions())


@pytest.mark.parametrize("strategy", ["uniform", "balanced"])
def test_blocks_draw_the_minibatch_of_one_machine_between_them(long_tailed, strategy):
    matrix = csr_matrix(counted(long_tailed))
    column_ones, found = np.bincount(matrix.indices, minlength=120), []
    with kernel_threads(1):
        right = EntrySampler.of(matrix, strategy).draw(3, 1, 2000)
        for first, end in ((0, 7), (7, 8), (8, 190), (190, 300)):
            whole = Whole(300, column_ones, first, int(matrix.indptr[first]))
            places, drawn = draw_own(sampler_of_rows(matrix[first:end], strategy, whole), 3, 1, 2000)
            found.append((places, drawn[0] + first, *drawn[1:3], drawn[3].T))
    order = np.argsort(np.concatenate([places for places, *_ in found]))
    assert len(order) == 2000
    for ours, theirs in zip(range(1, 5), (*right[:3], right[3].T), strict=True):
        np.testing.assert_array_equal(np.concatenate([one[ours] for one in found])[order], theirs)


def test_a_message_is_the_sums_of_the_blocks_maximizers(long_tailed):
    size = 3000
    with kernel_threads(1), by_blocks(long_tailed, 3) as steps:
        for _ in range(3):
            steps.minibatch(2000)
        block, state = steps.blocks[1], steps.blocks._states[1]
        batch, items = int(steps.q.progress[0]), worker.Items(steps.q.items, float32_pair(steps.q.z))
        message, _ = worker.move(block, state, batch, size, items)
        u, v = (one.astype(float) for one in (block.read(state)["users"], items.table))
        drawn = EntrySampler.of(long_tailed, "balanced").draw(3, batch, size)
    rows, columns, ones, weights = drawn
    own = (rows >= block.first) & (rows < block.end)
    rows, columns, ones, c = rows[own] - block.first, columns[own], ones[own], weights[1, own].astype(float)
    u, v, width = u[rows], v[columns], u.shape[1] // 2
    (u, su), (v, sv) = ((one[:, :K], one[:, width : width + K]) for one in (u, v))
    mean = (u * v).sum(axis=1) + items.z[0]
    xi = np.sqrt(mean**2 + ((su + u**2) * sv + su * v**2).sum(axis=1) + items.z[1])
    twice_lambda = np.tanh(xi / 2) / (2 * xi)
    a = (c * twice_lambda)[:, None] * (u**2 + su)
    b = c[:, None] * ((ones - 0.5)[:, None] * u - twice_lambda[:, None] * u * (mean[:, None] - u * v))
    each = np.column_stack([a, b])
    watched = (np.flatnonzero(own) % 8 == 0)[:, None]
    square = (each**2).sum(axis=1, keepdims=True)
    per_entry = np.column_stack([each, watched * each, watched * square, np.ones(len(a)), watched])
    right = np.zeros((120, numbers(K)))
    np.add.at(right, columns, per_entry)
    assert message.dtype == np.float32
    np.testing.assert_allclose(message, right, rtol=2e-4, atol=2e-5 * np.abs(right[:, :-3]).max())
    np.testing.assert_array_equal(message[:, -2:], right[:, -2:])


def test_items_move_to_the_mean_maximizer_and_the_noise_is_the_distance_from_there():
    rng, prior, items, factors = np.random.default_rng(0), 5.0, 30, 3
    counts, p = rng.integers(0, 9, items), rng.uniform(0.01, 0.1, items)
    table = np.zeros((items, 16), np.float32)
    table[:, :factors], table[:, 8 : 8 + factors] = rng.normal(size=(items, factors)), 0.3
    old, updates, noise, watched = table.astype(float), rng.integers(0, 5, items), 0.0, 0
    total, right, before = np.zeros((items, numbers(factors))), old.copy(), updates.copy()
    for item, count in enumerate(counts):
        a, b = rng.uniform(0, 9, (count, factors)), rng.normal(size=(count, factors))
        some = slice(0, None, 3)
        squares = (a[some] ** 2 + b[some] ** 2).sum()
        sums = [one.sum(axis=0) for one in (a, b, a[some], b[some])]
        total[item] = [*np.concatenate(sums), squares, count, len(a[some])]
        if not count:
            continue
        rho = (2.0 + updates[item]) ** -0.7
        precision = (1 - rho) / old[item, 8 : 8 + factors] + rho * (prior + a.mean(axis=0))
        mean = old[item, :factors]
        natural = (1 - rho) * mean / old[item, 8 : 8 + factors] + rho * b.mean(axis=0)
        right[item, :factors], right[item, 8 : 8 + factors] = natural / precision, 1 / precision
        far = (precision - prior - a[some]) ** 2 + (natural - b[some]) ** 2
        noise += far.sum() / (precision**2 + natural**2).sum() / p[item]
        watched += len(a[some])
    with kernel_threads(1):
        sums = move_items(Moving(table, table, prior, p, updates), total, factors, (2.0, 0.7)).sum(axis=0)
    np.testing.assert_allclose(table, right, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(updates, before + (counts > 0))
    assert sums[3] == pytest.approx(noise, rel=1e-4) and sums[4] == watched


@modes
@pytest.mark.parametrize("count", [3, 7])
def test_blocks_make_the_fit_of_one_machine(long_tailed, mode, count):
    matrix = counted(long_tailed)
    one, many = (fitted(matrix, blocks=of, **mode) for of in (1, count))
    assert_close(one, many, 3e-6)
    np.testing.assert_allclose(one.bounds, many.bounds, rtol=1e-6)
    np.testing.assert_array_equal(one.minibatches, many.minibatches)
    if mode.get("least_batch"):
        assert len(set(one.minibatches)) > 2  # the noise decides


@modes
def test_one_block_through_messages_makes_the_fit_of_one_machine_too(long_tailed, mode):
    one = fitted(long_tailed, **mode)
    with kernel_threads(1), by_blocks(long_tailed, 1, **mode) as steps:
        bounds = [steps.pass_over(2 * long_tailed.nnz)["bound"] for _ in range(4)]
        users = steps.blocks.gathered()["users"]
    np.testing.assert_allclose(bounds, one.bounds, rtol=1e-6)
    np.testing.assert_allclose(users, one.q.users, rtol=0, atol=3e-6 * np.abs(one.q.users).max())


def test_metrics_of_both_fits_agree_to_four_digits():
    train, targets = held_out(planted(300))
    one, many = (metrics(fitted(train, blocks=count, passes=12), train, targets) for count in (1, 4))
    for name in ("mean_rank", "ndcg@100"):
        assert one[name].value == pytest.approx(many[name].value, abs=5e-5), name


def test_a_fit_by_blocks_begins_at_an_earlier_fit(long_tailed):
    assert_begins_at_an_earlier_fit(fitted, long_tailed, 3e-6)


@modes
def test_the_bits_depend_on_the_number_of_blocks_alone(long_tailed, mode):
    assert_bits_of_blocks_alone(fitted, counted(long_tailed), blocks=5, **mode)


def test_processes_give_the_same_bits_and_one_that_is_killed_changes_none(long_tailed, tmp_path):
    assert_killed_process_changes_no_bit(fitted, long_tailed, tmp_path / "seen by all", blocks=5)


@pytest.mark.parametrize("copies", [1, 6])
def test_items_alone_travel_however_many_users_there_are(long_tailed, tmp_path, copies):
    matrix, scales = csr_matrix(vstack([long_tailed] * copies)), Scales()
    options = FitOptions(workers=scales, rows=shelved(matrix, tmp_path))
    most = {"passes": 2, "least_batch": 5000, "most_batch": 5000}
    model = fitted(matrix, blocks=3, options=options, **most)
    assert len(scales.taken) == 3 * (1 + int(model.q.progress[0]) + 2)
    assert max(scales.taken) <= 120 * 4 * 2 * 8 + 2500
    assert max(scales.given) <= 120 * 4 * numbers(K) + 1000
    assert_same_bits(model, fitted(matrix, blocks=3, **most))


@pytest.mark.parametrize("likes", [np.ones((6, 5)), np.eye(1), np.eye(4)[:3], np.ones((4, 1))])
@pytest.mark.parametrize("sampling", ["uniform", "balanced"])
def test_awkward_data_get_finite_scores(likes, sampling):
    matrix = csr_matrix(likes.astype(np.float32))
    model = fitted(matrix, blocks=9, sampling=sampling)
    assert np.isfinite(model.scores(matrix, users=np.arange(len(likes)))).all() and np.isfinite(model.bounds).all()


def test_columns_of_any_edge_cannot_be_drawn_by_blocks():
    with pytest.raises(ValidationError, match="sampling = biased takes the column of a zero from any edge"):
        BinaryMatrixSettings(sampling="biased", blocks=2)


def test_scores_serve_inside_a_fit_by_blocks(long_tailed):
    assert_scores_serve_inside(BinaryMatrix(BinaryMatrixSettings(**{**SHORT, "blocks": 3})), long_tailed)
