"""`repeat` and its mixture: features, scores and held-out windows by hand, and what they learn from simulated logs."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.stats import lognorm

from oneclass.models.fit_options import FitOptions
from oneclass.models.mrf.dense import MRFDense
from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages, with_recency_ranks
from oneclass.models.repeat.mixture import RepeatMixture, RepeatMixtureSettings
from oneclass.models.repeat.model import RIDGE, Repeat, fit_logistic
from oneclass.models.repeat.returns import FEATURES, ReturnStatistics, derive_window, hold_out_window

DAYS, HELD_DAYS = 400, 40


def simulate_log(loyalty, *, gap=25.0, gap_sd=0.3, seed=1):
    """(training log with ages, what comes in the window after it) of two groups with a taste for half of the items.

    After every event of a pair the user returns with the probability l_u, the user's loyalty, after a lognormal gap of
    g_i days on average, the item's own mean. Events after the last day are dropped.
    """
    generator, users, items = np.random.default_rng(seed), 300, 80
    taste = (np.arange(users)[:, None] + np.arange(items)) % 2 == 0
    likes = generator.random((users, items)) < np.where(taste, 0.25, 0.02)
    odds = loyalty / (1 - loyalty) * np.exp(0.7 * generator.normal(size=users))
    mean_gap = gap * np.exp(0.8 * generator.normal(size=items))
    events = []
    for user, item in zip(*np.nonzero(likes), strict=True):
        day = DAYS * generator.random()
        while day < DAYS:
            events.append((user, item, int(day)))
            if generator.random() >= odds[user] / (1 + odds[user]):
                break
            day += mean_gap[item] * np.exp(gap_sd * generator.normal() - 0.5 * gap_sd**2)
    return split_log(np.array(events), (users, items), DAYS - HELD_DAYS)


def split_log(events, shape, cut):
    """(events before the cut as a log with ages, events from then on as a matrix of counts)."""
    before, after = events[events[:, 2] < cut], events[events[:, 2] >= cut]
    later = csr_matrix((np.ones(len(after)), (after[:, 0], after[:, 1])), shape=shape)
    users, items, days = before[np.lexsort((-before[:, 2], before[:, 1], before[:, 0]))].T
    is_first = np.diff(users * shape[1] + items, prepend=-1) != 0
    starts = np.append(np.flatnonzero(is_first), len(days))
    matrix = csr_matrix((np.diff(starts).astype(np.float32), (users[is_first], items[is_first])), shape=shape)
    return with_event_ages(matrix, EventAges(starts, (cut - 1 - days).astype(np.int32))), later


def compute_ndcg(scores, later):
    """nDCG of each user with something in the window, over all items, the history left in."""
    gains = (later.toarray() > 0)[np.diff(later.indptr) > 0]
    order = np.argsort(-scores[np.diff(later.indptr) > 0], axis=1, kind="stable")[:, :100]
    discounts = 1 / np.log2(np.arange(2, order.shape[1] + 2))
    found = np.take_along_axis(gains, order, axis=1) @ discounts
    return found / np.cumsum(discounts)[np.minimum(gains.sum(axis=1), order.shape[1]) - 1]


def draw_log(seed):
    """A log with times, and {(user, item): ages, ascending}."""
    generator = np.random.default_rng(seed)
    likes = csr_matrix(generator.random((25, 12)) < 0.4, dtype=np.float32)
    own = [np.sort(generator.integers(90, size=1 + generator.poisson(1.5))).astype(np.int32) for _ in range(likes.nnz)]
    counts = np.array([len(ages) for ages in own])
    likes.data[:] = counts
    ages = EventAges(np.concatenate([[0], np.cumsum(counts)]), np.concatenate(own))
    pairs = zip(*likes.nonzero(), strict=True)
    return with_event_ages(likes, ages), {pair: days.tolist() for pair, days in zip(pairs, own, strict=True)}


def by_pair(histories):
    ages = histories.event_ages
    return {
        pair: ages.days[ages.starts[entry] : ages.starts[entry + 1]].tolist()
        for entry, pair in enumerate(zip(*histories.nonzero(), strict=True))
    }


def fit_repeat(log, window=HELD_DAYS):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.models.repeat.model.derive_window", lambda _: window)
        return Repeat().fit(log)


@pytest.fixture(scope="module")
def returning():
    return simulate_log(0.6)


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
    assert fitted.parameters["half_life"] in [multiple * HELD_DAYS for multiple in (0.25, 1, 4, 16, 64)]
    assert Repeat().fit(log).parameters["window"] is not None
    monkeypatch.setattr("oneclass.models.repeat.model.HALF_LIVES", (fitted.parameters["half_life"] / HELD_DAYS,))
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


def test_the_window_has_the_last_days_and_the_rest_is_aged_as_of_its_start():
    log, pairs = draw_log(1)
    earlier, later = hold_out_window(log, 20)
    before = {pair: [age - 20 for age in ages if age >= 20] for pair, ages in pairs.items()}
    assert by_pair(earlier) == {pair: ages for pair, ages in before.items() if ages}
    counts = {pair: float(sum(age < 20 for age in ages)) for pair, ages in pairs.items()}
    assert dict(later.todok().items()) == {pair: count for pair, count in counts.items() if count}
    assert dict(earlier.todok().items()) == {pair: float(len(ages)) for pair, ages in before.items() if ages}


def test_the_default_window_has_a_tenth_of_the_events():
    log, pairs = draw_log(2)
    ages = sorted(age for own in pairs.values() for age in own)
    window = derive_window(log)
    assert sum(age < window for age in ages) >= 0.1 * len(ages) > sum(age < window - 1 for age in ages)
    assert derive_window(csr_matrix(log)) is None


def test_without_times_a_fifth_of_the_events_is_drawn_the_same_each_time():
    counts = csr_matrix(np.random.default_rng(3).poisson(4.0, size=(60, 50)).astype(np.float32))
    ranked = with_recency_ranks(counts, np.arange(counts.nnz))
    earlier, later = hold_out_window(ranked, None)
    np.testing.assert_array_equal((earlier + later).toarray(), counts.toarray())
    assert later.sum() / counts.sum() == pytest.approx(0.2, abs=0.01)
    np.testing.assert_array_equal(earlier.data, np.round(earlier.data))
    np.testing.assert_array_equal(hold_out_window(counts, None)[1].toarray(), later.toarray())
    ranks = csr_matrix((np.arange(counts.nnz) + 1, counts.indices, counts.indptr), counts.shape).toarray()
    np.testing.assert_array_equal(earlier.recency_ranks + 1, ranks[earlier.nonzero()])


HALF_LIFE, SMOOTHING, WINDOW = 12.0, 4.0, 15


def features_by_hand(pairs, items):
    """{(user, item): features}, each from the equations of `models.repeat.returns`."""
    repeats, sizes, gaps = defaultdict(int), defaultdict(int), defaultdict(list)
    for (user, item), ages in pairs.items():
        for side in (("user", user), ("item", item), ("all",)):
            repeats[side] += len(ages) - 1
            sizes[side] += len(ages)
        gaps[item] += [np.log(older - newer) for newer, older in pairwise(ages) if older > newer]
    overall = repeats[("all",)] / sizes[("all",)]
    every_gap = [gap for own in gaps.values() for gap in own]
    mean = {
        item: (sum(gaps[item]) + SMOOTHING * np.mean(every_gap)) / (len(gaps[item]) + SMOOTHING)
        for item in range(items)
    }
    spread = np.sqrt(np.mean([(gap - mean[item]) ** 2 for item, own in gaps.items() for gap in own]))

    def odds(side):
        share = (repeats[side] + SMOOTHING * overall) / (sizes[side] + SMOOTHING)
        return np.log(share / (1 - share))

    found = {}
    for (user, item), ages in pairs.items():
        gap = lognorm(spread, scale=np.exp(mean[item]))
        left = gap.sf(ages[0] + 0.5)
        hazard = (left - gap.sf(ages[0] + 0.5 + WINDOW)) / left
        found[user, item] = [
            1,
            np.log(len(ages)),
            np.log(0.01 + sum(0.5 ** (age / HALF_LIFE) for age in ages)),
            np.log(1 + ages[0]),
            odds(("item", item)),
            np.log(max(hazard, 1e-6)),
            odds(("user", user)),
            np.log(sum(pair[0] == user for pair in pairs)),
            np.log(1 + sum(0.5 ** (age / HALF_LIFE) for pair in pairs if pair[1] == item for age in pairs[pair])),
        ]
    return found


def test_features_are_those_of_the_equations():
    log, pairs = draw_log(4)
    statistics = ReturnStatistics.learn(log, half_life=HALF_LIFE, smoothing=SMOOTHING)
    found = statistics.features(log, half_life=HALF_LIFE, smoothing=SMOOTHING, window=WINDOW)
    expected = features_by_hand(pairs, log.shape[1])
    by_hand = np.array([expected[pair] for pair in zip(*log.nonzero(), strict=True)]).T
    for name, own, right in zip(FEATURES, found, by_hand, strict=True):
        np.testing.assert_allclose(own, right, rtol=1e-9, atol=1e-9, err_msg=name)


def test_the_logistic_regression_maximises_the_penalised_likelihood():
    generator = np.random.default_rng(1)
    features = np.vstack([np.ones(400), generator.normal(size=(3, 400)) * [[1], [2], [0.5]]])
    eta = np.array([-1.0, 0.8, -0.4, 0.0]) @ features
    happened = (generator.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float)
    prior = np.array([0.0, 1.0, 0.0, 0.0])

    def loss(b):
        own, center = features.T @ b, features.mean(axis=1) @ b
        likelihood = np.sum(happened * own - np.log1p(np.exp(own))) + 0.5 * center - np.log1p(np.exp(center))
        return -likelihood + 0.5 * RIDGE * np.sum((b - prior)[1:] ** 2)

    expected = minimize(loss, prior, method="BFGS", options={"gtol": 1e-8})
    found, objective = fit_logistic(features, happened, prior)
    np.testing.assert_allclose(found, expected.x, atol=1e-4)
    assert objective == pytest.approx(-expected.fun, abs=1e-6)


COMPONENT = {"component": "mrf_dense"}


def make_mixture(log, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oneclass.models.repeat.model.derive_window", lambda _: HELD_DAYS)
        return RepeatMixture(RepeatMixtureSettings(**COMPONENT)).fit(log, FitOptions(**options))


@pytest.fixture(scope="module")
def mixture(returning):
    return make_mixture(returning[0])


@pytest.fixture(scope="module")
def component(returning):
    return MRFDense().fit(returning[0])


def mask_scores(scores, log):
    return np.where(log.toarray() > 0, -np.inf, scores)


def test_scores_are_the_probabilities_of_both_parts(returning, fitted, mixture, component):
    log, again = returning[0], fitted
    *b, slope = mixture.coefficients
    alone, scores = component.scores(log[:30]), mixture.scores(log[:30])
    of_component, of_history = mask_scores(alone, log[:30]), again.scores(log[:30])
    smoothing, overall = again.parameters["smoothing"], again.statistics.overall[0]
    for row in range(30):
        own = log[row]
        share = ((own.data - 1).sum() + smoothing * overall) / (own.data.sum() + smoothing)
        for item in range(80):
            rank = (of_component[row] > alone[row, item]).sum()
            odds = np.dot(b, [1, np.log(share / (1 - share)), np.log1p(own.nnz)]) + slope * np.log1p(rank)
            expected = of_history[row, item] if item in own.indices else 1 / (1 + np.exp(-odds))
            assert scores[row, item] == pytest.approx(expected, rel=1e-4)


def test_the_mixture_ranks_better_than_either_part(returning, mixture, component):
    log, later = returning
    mixed = compute_ndcg(mixture.scores(log), later)
    for other in (mixture.components[0].scores(log), component.scores(log), mask_scores(component.scores(log), log)):
        gain = mixed - compute_ndcg(other, later)
        assert gain.mean() > 2 * gain.std() / np.sqrt(len(gain))


def test_new_items_are_expected_as_often_as_they_are_taken(returning, mixture):
    log, later = returning
    active, is_new = np.diff(later.indptr) > 0, log.toarray() == 0
    expected = (mixture.scores(log) * is_new).sum(axis=1)[active]
    taken = ((later.toarray() > 0) & is_new).sum(axis=1)[active]
    assert expected.mean() == pytest.approx(taken.mean(), rel=0.25)


def test_where_nobody_returns_the_list_is_the_components():
    log, _ = simulate_log(0.0)
    mixed, alone = (mask_scores(model.scores(log), log) for model in (make_mixture(log), MRFDense().fit(log)))
    np.testing.assert_array_equal(*(np.argsort(-scores, axis=1, kind="stable") for scores in (mixed, alone)))


@pytest.mark.parametrize("given", [{"component": "x"}, {"component": "repeat_mixture"}])
def test_a_component_that_ranks_no_new_items_is_refused(given):
    with pytest.raises(ValueError, match=r"component: \w+ is no model"):
        RepeatMixtureSettings(**given)
