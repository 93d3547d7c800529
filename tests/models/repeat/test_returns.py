"""The held-out window and the features of a pair, against their definitions read one event at a time."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.stats import lognorm

from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages, with_recency_ranks
from oneclass.models.repeat.model import RIDGE, fit_logistic
from oneclass.models.repeat.returns import FEATURES, ReturnStatistics, derive_window, hold_out_window


def draw_log(seed, users=25, items=12, days=90):
    """A log with times, and {(user, item): ages, ascending}."""
    generator = np.random.default_rng(seed)
    likes = csr_matrix(generator.random((users, items)) < 0.4, dtype=np.float32)
    own = [
        np.sort(generator.integers(days, size=1 + generator.poisson(1.5))).astype(np.int32) for _ in range(likes.nnz)
    ]
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


def draw_features(seed, rows=400):
    generator = np.random.default_rng(seed)
    features = np.vstack([np.ones(rows), generator.normal(size=(3, rows)) * [[1], [2], [0.5]]])
    return features, np.array([-1.0, 0.8, -0.4, 0.0]) @ features, generator


def test_the_logistic_regression_maximises_the_penalised_likelihood():
    features, eta, generator = draw_features(1)
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
