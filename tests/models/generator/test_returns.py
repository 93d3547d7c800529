"""A simulated log of returns has the loyalty and the gaps that it was drawn with."""

import numpy as np
import pytest

from oneclass.models.generator.returns import draw_loyalty, draw_mean_gaps, draw_return_events

USERS, ITEMS = 600, 100
PAIRS = USERS * ITEMS


def make_returns(loyalty, mean_gap, *, gap_sd=0.5, days=100_000, seed=1):
    generator = np.random.default_rng(seed)
    users, items = np.divmod(np.arange(PAIRS), ITEMS)
    first = generator.integers(1000, size=PAIRS).astype(np.int32)
    pairs, day = draw_return_events(users, items, first, loyalty, mean_gap, gap_sd=gap_sd, days=days, seed=seed)
    return users, items, first, pairs, day


def test_a_share_of_events_as_large_as_the_loyalty_repeats():
    loyalty = draw_loyalty(USERS, 0.6, 0.8, seed=2)
    users, _, first, pairs, day = make_returns(loyalty, draw_mean_gaps(ITEMS, 10, 0.3, seed=2))
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    assert len(starts) == PAIRS and (day[starts] == first).all()
    of_users = np.bincount(users[pairs], minlength=USERS)
    repeats = 1 - np.bincount(users, minlength=USERS) / of_users
    assert np.corrcoef(repeats, loyalty)[0, 1] > 0.97
    assert np.abs(repeats - loyalty).mean() < 0.03
    assert loyalty.std() > 0.1 and np.median(loyalty) == pytest.approx(0.6, abs=0.04)


def test_gaps_have_the_mean_of_their_item_and_the_given_spread():
    mean_gap = draw_mean_gaps(ITEMS, 40, 0.5, seed=3)
    _, items, _, pairs, day = make_returns(np.full(USERS, 0.7), mean_gap, gap_sd=0.5)
    gaps, same = np.diff(day), np.diff(pairs) == 0
    assert (gaps[same] >= 0).all()
    of_item, gaps = items[pairs[1:]][same], gaps[same]
    means = np.bincount(of_item, gaps) / np.bincount(of_item)
    np.testing.assert_allclose(means, mean_gap, rtol=0.05)
    assert np.log(np.maximum(gaps, 1) / mean_gap[of_item]).std() == pytest.approx(0.5, abs=0.05)


def test_events_end_with_the_period_and_depend_on_their_pair_alone():
    loyalty, mean_gap = np.full(USERS, 0.8), np.full(ITEMS, 200.0)
    users, items, first, pairs, day = make_returns(loyalty, mean_gap, days=1200)
    assert day.max() == 1199 and len(day) < 3.5 * PAIRS  # of the 5 that the loyalty would give
    chosen = np.arange(0, PAIRS, 7)
    some = draw_return_events(
        users[chosen], items[chosen], first[chosen], loyalty, mean_gap, gap_sd=0.5, days=1200, seed=1
    )
    of_chosen = pairs % 7 == 0
    np.testing.assert_array_equal(chosen[some[0]], pairs[of_chosen])
    np.testing.assert_array_equal(some[1], day[of_chosen])
    assert not np.array_equal(make_returns(loyalty, mean_gap, days=1200, seed=4)[4], day)


def test_nobody_returns_without_loyalty():
    loyalty = draw_loyalty(USERS, 0.0, 1.0, seed=1)
    assert len(make_returns(loyalty, np.full(ITEMS, 5.0))[4]) == PAIRS
