"""`repeat`: its scores by hand, what it learns from simulated returns, and what it does without times."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from oneclass.models.repeat.model import Repeat
from oneclass.models.repeat.returns import FEATURES, ReturnStatistics
from tests.models.repeat.logs import WINDOW, compute_ndcg, simulate_log
from tests.models.repeat.test_returns import by_pair, features_by_hand


def fit_repeat(log, window=WINDOW):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.models.repeat.model.derive_window", lambda _: window)
        return Repeat().fit(log)


@pytest.fixture(scope="module")
def returning():
    return simulate_log(0.7)


@pytest.fixture(scope="module")
def fitted(returning):
    return fit_repeat(returning[0])


def test_scores_are_the_probabilities_of_the_equations(returning, monkeypatch):
    log = returning[0]
    monkeypatch.setattr("oneclass.models.repeat.model.HALF_LIVES", (12.0 / 15,))
    monkeypatch.setattr("oneclass.models.repeat.model.SMOOTHINGS", (4.0,))
    model = fit_repeat(log, 15)
    scores, features = model.scores(log), features_by_hand(by_pair(log), log.shape[1])
    for pair, own in features.items():
        assert scores[pair] == pytest.approx(1 / (1 + np.exp(-model.coefficients @ own)), rel=1e-5)
    outside = scores[0][np.asarray(log[0].todense())[0] == 0]
    degrees = log.getnnz(axis=0)[np.asarray(log[0].todense())[0] == 0]
    assert (outside < 0).all() and (np.argsort(outside, kind="stable") == np.argsort(degrees, kind="stable")).all()


def test_the_gap_term_pays_where_gaps_are_regular(monkeypatch):
    log, later = simulate_log(0.85, gap=60.0, gap_sd=0.15, seed=3)
    with_gaps = fit_repeat(log)
    scores = with_gaps.scores(log)
    monkeypatch.setattr(ReturnStatistics, "log_hazard", lambda self, items, age, window: np.zeros(len(items)))
    without = fit_repeat(log)
    assert with_gaps.coefficients[FEATURES.index("gap")] > 0.1 and without.coefficients[FEATURES.index("gap")] == 0
    gain = compute_ndcg(scores, later) - compute_ndcg(without.scores(log), later)
    assert gain.mean() > 2 * gain.std() / np.sqrt(len(gain))


def test_probabilities_are_calibrated_on_the_next_window(returning, fitted):
    log, later = returning
    came_back = np.diff(later.indptr) > 0
    happened = (later.toarray() > 0)[log.nonzero()]
    active = came_back[log.nonzero()[0]]
    p, happened = fitted.again_probabilities(log)[active], happened[active]
    for chosen in np.array_split(np.argsort(p), 4):
        assert p[chosen].mean() == pytest.approx(happened[chosen].mean(), abs=0.06)


def test_the_half_life_and_the_smoothing_are_those_of_the_highest_likelihood(returning, fitted, monkeypatch):
    log = returning[0]
    assert fitted.parameters["half_life"] in [multiple * WINDOW for multiple in (0.25, 1, 4, 16, 64)]
    assert Repeat().fit(log).parameters["window"] is not None
    monkeypatch.setattr("oneclass.models.repeat.model.HALF_LIVES", (fitted.parameters["half_life"] / WINDOW,))
    monkeypatch.setattr("oneclass.models.repeat.model.SMOOTHINGS", (fitted.parameters["smoothing"],))
    alone = fit_repeat(log)
    np.testing.assert_array_equal(alone.coefficients, fitted.coefficients)


def test_without_times_own_counts_decide_and_then_popularity():
    generator = np.random.default_rng(1)
    taste = np.outer(generator.gamma(1.0, size=200), generator.gamma(1.0, size=40))
    plays = csr_matrix(generator.poisson(3 * taste * generator.gamma(0.5, size=taste.shape)).astype(np.float32))
    scores = Repeat().fit(plays).scores(plays)
    pairs, agree = 0, 0
    for row in np.flatnonzero(np.diff(plays.indptr)):
        own = plays[row]
        p = scores[row, own.indices]
        larger = own.data[:, None] > 3 * own.data[None, :]
        pairs, agree = pairs + larger.sum(), agree + ((p[:, None] > p[None, :]) & larger).sum()
        assert (scores[row] > 0).sum() == own.nnz
    assert agree > 0.97 * pairs > 200


def test_a_history_without_times_counts_as_of_today(returning, fitted):
    log = returning[0]
    today = log[:20]
    today.event_ages.days[:] = 0
    np.testing.assert_array_equal(fitted.scores(csr_matrix(log[:20])), fitted.scores(today))
    assert not np.array_equal(fitted.scores(today), fitted.scores(log[:20]))
