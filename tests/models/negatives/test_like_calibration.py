"""`like` on the demo's data against what it estimates: the ratio of the densities of likes and of negatives.

Negatives are drawn by popularity, independently of taste, and not from what a user considered and disliked,
so that `like` tends to this ratio and not to the coin of the generative story. A tenth of the likes is left
out of the fit; they are judged, mixed with fresh negatives of the model's own kind in the fit's proportion.
"""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.sparse import csr_matrix
from scipy.special import expit

from oneclass.models.evaluation.calibration import calibration_error
from oneclass.models.negatives.like_probability import like_spread, log_odds
from oneclass.models.negatives.sampling import build_alias_table, draw_negatives
from oneclass.models.numerics.adjacency import copy_pattern, partition_shards
from oneclass.models.paired_symbols.model import PairedSymbols, PairedSymbolsSettings
from oneclass.models.random_graph.model import RandomGraph, RandomGraphSettings
from oneclass.tasks.demo import TRAITS, DemoSettings, simulate_likes

KEPT = 0.9
DEMO = DemoSettings()


class Halves(NamedTuple):
    """The likes that are fitted on, those held out, and the true rate of the former."""

    train: csr_matrix
    held: tuple[np.ndarray, np.ndarray]
    like_rate: np.ndarray


class Judged(NamedTuple):
    """Of every judged pair: `like`, its standard deviation, true ratio, and whether it was a like."""

    like: np.ndarray
    spread: np.ndarray
    ratio: np.ndarray
    liked: np.ndarray


def solve_odds(user_degrees: np.ndarray, item_degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a (users,) and b (items,) for which the expected degrees are the given ones; both degrees have the same total.

    Vertices of equal degree have equal numbers, so that the cost depends on the distinct degrees only. Fixed-point
    steps for a and b alternate. A vertex that is joined to all of the other side gets a large finite number.
    """
    (own, own_at, own_count), (other, other_at, other_count) = (
        np.unique(degrees, return_inverse=True, return_counts=True) for degrees in (user_degrees, item_degrees)
    )
    scale = np.sqrt(own @ own_count)
    a, b = own / scale, other / scale
    for _ in range(200):
        before = a
        a = own / ((b / (1 + np.outer(a, b))) @ other_count)
        b = other / ((a / (1 + np.outer(b, a))) @ own_count)
        if np.allclose(a, before, rtol=1e-9, atol=0):
            break
    return a[own_at], b[other_at]


@pytest.fixture(scope="module")
def halves():
    story, rng = simulate_likes(DEMO, 1), np.random.default_rng(5)
    items = np.repeat(np.arange(DEMO.items), np.diff(story.starts))
    users, items = story.users[story.liked], items[story.liked]
    kept = rng.random(len(users)) < KEPT
    edges = (np.ones(kept.sum()), (users[kept], items[kept]))
    train = csr_matrix(edges, shape=(DEMO.users, DEMO.items))
    train.sort_indices()
    coin = 1 / (1 + np.exp(-(story.traits.users @ story.traits.items.T + story.traits.item_bias)))
    odds = np.outer(*solve_odds(np.bincount(story.users, minlength=DEMO.users), np.diff(story.starts)))
    return Halves(train, (users[~kept], items[~kept]), KEPT * odds / (1 + odds) * coin)


def pair_likes(model, halves, negatives, negative_rate):
    """The held-out likes and a tenth of the negatives, which come at a rate for each pair."""
    everybody = np.arange(DEMO.users)
    share = len(halves.held[0]) / halves.train.nnz
    some = np.random.default_rng(6).random(len(negatives[0])) < share
    pairs = tuple(np.concatenate([held, fresh[some]]) for held, fresh in zip(halves.held, negatives))
    mean, spread = model.like(halves.train, users=everybody)
    ratio = halves.like_rate / (halves.like_rate + negative_rate)
    liked = np.arange(len(pairs[0])) < len(halves.held[0])
    return Judged(mean[pairs], spread[pairs], ratio[pairs], liked)


def judge_random_graph(settings, halves):
    """Negatives without replacement from pi, never one of the user's likes."""
    model = RandomGraph(settings).fit(halves.train)
    likes = copy_pattern(halves.train)
    names = np.arange(DEMO.users, dtype=np.uint64)
    drawn = (build_alias_table(model.histogram), partition_shards(likes[0]), (99, 1), names)
    starts, items = draw_negatives(likes, model.histogram, *drawn)
    rate = model.negative_distribution().rates(halves.train, np.arange(DEMO.users), halves.like_rate)
    return pair_likes(model, halves, (np.repeat(np.arange(DEMO.users), np.diff(starts)), items), rate)


def judge_paired_symbols(settings, halves):
    """Censored pairs with replacement, D' = r D of them, user and item each by its share of the events."""
    model = PairedSymbols(settings).fit(halves.train)
    by_user, by_item = np.diff(halves.train.indptr), np.bincount(halves.train.indices, minlength=DEMO.items)
    rate = settings.r * np.outer(by_user, by_item) / halves.train.nnz
    times = np.random.default_rng(7).poisson(rate)
    return pair_likes(model, halves, tuple(np.repeat(side, times[times > 0]) for side in np.nonzero(times)), rate)


CASES = {  # how to judge, settings, the largest calibration error, the least cover of 95 % intervals
    "random_graph": (judge_random_graph, RandomGraphSettings(learn_tau=False), 0.05, 0.9),
    "random_graph, precisions learned": (judge_random_graph, RandomGraphSettings(), 0.08, 0.9),
    "paired_symbols": (judge_paired_symbols, PairedSymbolsSettings(factors=TRAITS, r=2), 0.05, 0.65),
    "paired_symbols, 20 factors": (judge_paired_symbols, PairedSymbolsSettings(), 0.07, 0.9),
}


FAST = "random_graph"


@pytest.fixture(scope="module", params=[pytest.param(c, marks=[pytest.mark.slow] * (c != FAST)) for c in CASES])
def judged(request, halves):
    judging, settings, *limits = CASES[request.param]
    found = judging(settings, halves)
    return found, *limits


def share_covered(judged, truth):
    """Share of the judged pairs whose truth lies within 1.96 standard deviations of `like`."""
    return np.mean(np.abs(judged.like - truth) < 1.96 * judged.spread)


def test_like_is_calibrated_and_its_intervals_cover_the_true_density_ratio(judged):
    found, largest, least = judged
    assert calibration_error(found.like, found.ratio) <= largest
    assert least < share_covered(found, found.ratio) < 0.99


LOGITS = [(0.0, 0.01), (0.7, 0.5), (-3.0, 2.0), (1.0, 6.0)]


def sigma_moments(mean, variance):
    """E and sd of sigma(a), a ~ N(mean, variance)."""

    def expected(power):
        def density(a):
            return np.exp(-((a - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)

        ends = mean - 12 * np.sqrt(variance), mean + 12 * np.sqrt(variance)
        return quad(lambda a: expit(a) ** power * density(a), *ends, points=[mean], epsabs=1e-12)[0]

    return expected(1), np.sqrt(expected(2) - expected(1) ** 2)


@pytest.mark.parametrize("mean, variance", LOGITS)
def test_the_spread_is_that_of_an_integral_wherever_the_mean_is_put(mean, variance):
    means, variances = np.full(3, mean, dtype=np.float32), np.full(3, variance, dtype=np.float32)
    like = (expit(log_odds(means[None], variances[None])[0]) + np.array([0, 0.01, -0.02])).astype(np.float32)
    found = like_spread(means, variances, like)
    np.testing.assert_allclose(found, sigma_moments(mean, variance)[1], rtol=1e-3)
    assert found.dtype == np.float32
    assert means.tolist() == [np.float32(mean)] * 3 and variances.tolist() == [np.float32(variance)] * 3


def test_a_sure_logit_has_no_spread_and_a_missing_one_none():
    means, variances = np.array([0.3, np.nan], dtype=np.float32), np.array([0, 1], dtype=np.float32)
    like = expit(means)
    found = like_spread(means, variances, like)
    assert found[0] == 0 and np.isnan(found[1])
