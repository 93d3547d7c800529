"""Bayesian Personalized Ranking: its samples, its steps against plain NumPy, and that nothing races."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.bpr import model as bpr
from oneclass.models.bpr.kernels import CELLS, SHARDS
from oneclass.models.bpr.model import BPRPopularity, BPRSettings, BPRUniform
from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.threads import limit_threads

both = pytest.mark.parametrize("model", [BPRUniform, BPRPopularity], ids=lambda model: model.name)


def start_training(interactions, model=BPRUniform, factors=10, degree_exponent=1.0) -> bpr.Training:
    made = model(BPRSettings(factors=factors))
    made.item_degrees = np.bincount(interactions.indices, minlength=interactions.shape[1])
    state = bpr.Training(interactions, made._negative_draws(), factors, degree_exponent)
    state.start(seed=1)
    return state


def list_cells(state):
    """The samples of the last draw, as lists by (step, shard), in the order in which they ran."""
    for step in range(CELLS):
        for shard in range(SHARDS):
            cell = step // SHARDS * SHARDS + (shard + step) % SHARDS
            first, last = state.starts[shard, cell : cell + 2]
            yield step, shard, state.samples[shard, first:last]


def list_samples(state):
    """(user, liked item, other item) of the last draw, in the items' own numbers."""
    item_at = np.full(state.rows, -1)
    item_at[state.layout[0]] = np.arange(len(state.layout[0]))
    samples = np.concatenate([part for _, _, part in list_cells(state)])
    return samples[:, 0], item_at[samples[:, 1]], item_at[samples[:, 2]]


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_samples_of_a_user_follow_the_power_of_the_degree(exponent, long_tailed):
    state = start_training(long_tailed, degree_exponent=exponent)
    state.epoch(1, 0.0, 0.0, seed=1)
    degrees = np.diff(long_tailed.indptr).astype(float)
    counts = np.bincount(list_samples(state)[0], minlength=len(degrees))
    shares = np.where(degrees > 0, np.maximum(degrees, 1) ** exponent, 0)
    assert counts.sum() == long_tailed.nnz
    assert (np.abs(counts - long_tailed.nnz * shares / shares.sum()) <= 1).all()
    assert (counts[degrees > 0] >= 1).all()


@both
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_samples_of_a_user_go_round_its_edges_with_negatives_that_it_does_not_like(model, exponent, long_tailed):
    state = start_training(long_tailed, model, degree_exponent=exponent)
    seen = np.zeros(long_tailed.shape, dtype=int)
    for epoch in range(1, 8):
        state.epoch(epoch, 0.0, 0.0, seed=1)
        users, liked, others = list_samples(state)
        np.add.at(seen, (users, liked), 1)
        assert not long_tailed.toarray()[users, others].any()
    assert not seen[long_tailed.toarray() == 0].any()
    for user in np.flatnonzero(np.diff(long_tailed.indptr)):
        of_edges = seen[user, long_tailed[user].indices]
        assert of_edges.max() - of_edges.min() <= 1


def test_cells_that_run_together_share_no_row(long_tailed):
    state = start_training(long_tailed)
    state.epoch(1, 0.1, 0.01, seed=1)
    owner = {}
    for step, shard, samples in list_cells(state):
        for user, *items in samples:
            for row in [("user", user), *(("item", item) for item in items)]:
                assert owner.setdefault((step, row), shard) == shard
    assert len({shard for shard in owner.values()}) == SHARDS


def test_an_epoch_agrees_with_plain_gradient_steps(long_tailed):
    state = start_training(long_tailed)
    state.biases[:] = np.linspace(-1, 1, state.rows)
    users, items, biases = (table.astype(float) for table in (state.users, state.items, state.biases))
    state.epoch(1, 0.05, 0.02, seed=1)
    for _, _, samples in list_cells(state):
        for u, i, j in samples:
            pull = 1 / (1 + np.exp(users[u] @ (items[i] - items[j]) + biases[i] - biases[j]))
            of_user = pull * (items[i] - items[j]) - 0.02 * users[u]
            of_liked = pull * users[u] - 0.02 * items[i]
            of_other = -pull * users[u] - 0.02 * items[j]
            users[u] += 0.05 * of_user
            items[i] += 0.05 * of_liked
            items[j] += 0.05 * of_other
            biases[[i, j]] += 0.05 * (pull * np.array([1, -1]) - 0.02 * biases[[i, j]])
    np.testing.assert_allclose(state.users, users, atol=1e-4)
    np.testing.assert_allclose(state.items, items, atol=1e-4)
    np.testing.assert_allclose(state.biases, biases, atol=1e-4)


def test_an_epoch_is_the_same_on_one_and_two_threads(long_tailed, monkeypatch):
    monkeypatch.setattr(bpr, "SAMPLES_PER_THREAD", 1)
    states = [start_training(long_tailed) for _ in range(2)]
    for threads, state in zip((1, 2), states, strict=True):
        with limit_threads(threads):
            state.epoch(1, 0.1, 0.01, seed=1)
    for one, two in zip(states[0].export_arrays(), states[1].export_arrays(), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.slow
@both
@pytest.mark.parametrize("liked", [3, 27], ids=["a light user, by rejection", "a dense user, by inversion"])
def test_negatives_follow_their_distribution(model, liked):
    likes = (np.random.default_rng(2).random((60, 30)) < np.linspace(0.1, 0.9, 30)).astype(np.float32)
    likes[4] = np.arange(30) % 10 < liked / 3
    state, counts = start_training(csr_matrix(likes), model), np.zeros(30)
    for epoch in range(300):
        state.epoch(epoch, 0.0, 0.0, seed=1)
        users, _, others = list_samples(state)
        counts += np.bincount(others[users == 4], minlength=30)
    weights = (likes.sum(axis=0) if model.popular else np.ones(30)) * (likes[4] == 0)
    expected = counts.sum() * weights / weights.sum()
    assert counts.sum() == 300 * likes[4].sum()
    assert (counts[weights == 0] == 0).all()
    assert (np.abs(counts - expected) <= 4.5 * np.sqrt(np.maximum(expected, 1))).all()


def test_a_fit_makes_the_passes_that_are_left_to_the_log(long_tailed, monkeypatch):
    monkeypatch.setattr("oneclass.models.bpr.model.TARGET_STEPS", 7 * long_tailed.nnz)
    monkeypatch.setattr("oneclass.models.bpr.model.MIN_EPOCHS", 2)
    passes = []
    model = BPRUniform(BPRSettings(factors=10)).fit(long_tailed, FitOptions(on_epoch=passes.append))
    assert len(passes) == model.params.epochs == 7 and model.settings.epochs is None


def test_factors_that_grow_without_bound_are_refused(monkeypatch):
    monkeypatch.setattr("oneclass.models.bpr.model.INITIAL_SCALE", np.float32(10))
    likes = csr_matrix((np.random.default_rng(0).random((200, 50)) < 0.3).astype(np.float32))
    settings = BPRSettings(learning_rate=1, regularization=0, epochs=300, factors=10)
    with pytest.raises(ValueError, match="lower learning_rate"):
        BPRUniform(settings).fit(likes)
