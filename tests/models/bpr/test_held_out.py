"""The edges that BPR leaves out of training, their loss against plain loops, and when it stops a fit."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.bpr import held_out, training
from oneclass.models.bpr.held_out import NEGATIVES_PER_EDGE, PASSES, HeldOutTriples, hold_out
from oneclass.models.bpr.model import BPRSettings, BPRUniform
from oneclass.models.fit_options import FitOptions


@pytest.fixture
def small_is_large(monkeypatch):
    monkeypatch.setattr(held_out, "MIN_EDGES", 1)


def test_one_edge_of_each_chosen_user_is_left_out_and_the_others_are_not_liked(small_is_large, long_tailed):
    rest, left_out = hold_out(long_tailed, seed=1)
    whole, kept = long_tailed.toarray() > 0, rest.toarray() > 0
    assert rest.has_canonical_format and rest.nnz == len(rest.data) == long_tailed.nnz - len(left_out.users)
    gone = np.argwhere(whole & ~kept)
    assert not (kept & ~whole).any()
    assert gone.tolist() == np.stack([left_out.users, left_out.liked], axis=1).tolist()
    assert left_out.users.tolist() == np.flatnonzero(np.diff(long_tailed.indptr) >= 2).tolist()
    assert left_out.others.shape == (len(gone), NEGATIVES_PER_EDGE)
    assert not whole[left_out.users[:, None], left_out.others].any()


def test_a_small_log_keeps_all_its_edges(long_tailed):
    assert hold_out(long_tailed, seed=1) == (long_tailed, None)


def test_of_many_users_some_are_chosen_who_are_spread_evenly(small_is_large, monkeypatch, long_tailed):
    monkeypatch.setattr(held_out, "MAX_HELD_OUT", 10)
    able = np.flatnonzero(np.diff(long_tailed.indptr) >= 2)
    _, left_out = hold_out(long_tailed, seed=1)
    assert left_out.users.tolist() == [able[place * len(able) // 10] for place in range(10)]


def test_the_loss_is_the_mean_over_the_triples():
    rng = np.random.default_rng(2)
    users, items = (rng.normal(size=shape).astype(np.float32) for shape in ((4, 3), (6, 3)))
    bias = rng.normal(size=6).astype(np.float32)
    triples = HeldOutTriples(np.array([0, 3]), np.array([5, 1]), np.array([[1, 2], [0, 4]]))
    expected = []
    for user, liked, others in ((0, 5, (1, 2)), (3, 1, (0, 4))):
        for other in others:
            margin = users[user] @ items[liked] + bias[liked] - users[user] @ items[other] - bias[other]
            expected.append(-np.log(1 / (1 + np.exp(-float(margin)))))
    assert triples.add(users, items, bias) == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.parametrize(
    "losses, level",
    [
        ([1.0] * PASSES, False),
        ([1.0] * (PASSES + 1), True),
        ([1.0] + [0.98] * PASSES, False),
        ([1.0] + [0.995] * PASSES, True),
        ([1.0, 0.9] + [1.1] * (PASSES - 1), False),
        ([1.0, 0.9] + [1.1] * PASSES, True),
    ],
)
def test_it_is_level_when_ten_passes_have_gained_too_little(losses, level):
    assert HeldOutTriples(*np.zeros((3, 1), int), losses).has_converged(0.01) == level


def test_a_fit_cools_down_when_the_loss_is_level(small_is_large, monkeypatch, long_tailed):
    monkeypatch.setattr(HeldOutTriples, "has_converged", lambda self, tolerance: len(self.losses) >= 6)
    monkeypatch.setattr(training, "SHORT_EPOCH_SAMPLES", 0)  # else one thread would run all steps
    fits = {}
    for threads in (1, 2):
        epochs = []
        settings = BPRSettings(factors=10, epochs=20)
        model = BPRUniform(settings, threads=threads).fit(long_tailed, FitOptions(on_epoch=epochs.append))
        fits[threads] = model.item_factors, [epoch.values for epoch in epochs]
    assert [epoch.number for epoch in epochs] == list(range(1, 10)) and epochs[-1].of == 9
    rates = [epoch.values["rate"] for epoch in epochs]
    np.testing.assert_allclose(rates[:6], 0.1 * (1 - np.arange(6) / 20))
    np.testing.assert_allclose(rates[5:], rates[5] * (1 - np.arange(4) / 4))
    np.testing.assert_array_equal(fits[1][0], fits[2][0])
    assert fits[1][1] == fits[2][1]


def test_tolerance_zero_makes_all_passes_on_all_edges(small_is_large, monkeypatch, long_tailed):
    epochs = []
    BPRUniform(BPRSettings(factors=10, epochs=12, tolerance=0)).fit(long_tailed, FitOptions(on_epoch=epochs.append))
    assert len(epochs) == 12 and "held_out_loss" not in epochs[0].values


def test_users_with_one_edge_are_never_chosen(small_is_large):
    single = csr_matrix(np.eye(5, dtype=np.float32))
    assert hold_out(single, seed=1) == (single, None)
