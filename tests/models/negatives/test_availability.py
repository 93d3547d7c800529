"""Availability windows against all pairs, written out one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from oneclass.models.negatives.availability import (
    EVERYTHING,
    UNDECLARED,
    count_available,
    find_availability,
    is_available,
    item_spans,
    scale_to_exposure,
    user_spans,
)
from oneclass.models.negatives.distributions import CensoredPairs, WithoutReplacement
from oneclass.models.negatives.sampling import build_alias_table, draw_negatives, negative_starts
from oneclass.models.numerics.adjacency import copy_pattern
from oneclass.models.numerics.partition import partition_shards
from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages


def draw_timed_likes(likes: np.ndarray, seed: int = 0, days: int = 20) -> csr_matrix:
    """Likes with one to three events each, all of a user's within a fifth of the days."""
    rng, matrix = np.random.default_rng(seed), csr_matrix(likes.astype(np.float32))
    counts, of_users = rng.integers(1, 4, matrix.nnz), rng.integers(0, days, likes.shape[0])
    starts, rows = np.append(0, np.cumsum(counts)), np.repeat(np.arange(likes.shape[0]), np.diff(matrix.indptr))
    ages = [np.sort(of_users[user] + rng.integers(0, days // 5, n)) for user, n in zip(rows, counts)]
    return with_event_ages(matrix, EventAges(starts, np.concatenate([*ages, []]).astype(np.int32)))


def list_events(matrix: csr_matrix) -> list[tuple[int, int, int]]:
    """User, item and age of each event."""
    ages, rows = matrix.event_ages, np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return [
        (int(rows[entry]), int(matrix.indices[entry]), int(age))
        for entry in range(matrix.nnz)
        for age in ages.days[ages.starts[entry] : ages.starts[entry + 1]]
    ]


@settings(deadline=None)  # the kernel is compiled first
@given(st.integers(0, 10**6), st.booleans())
def test_a_pair_is_available_if_a_day_is_in_both_spans(seed: int, declares: bool) -> None:
    rng = np.random.default_rng(seed)
    likes = rng.random((9, 7)) < rng.uniform(0, 0.7)
    matrix, declared = draw_timed_likes(likes, seed), None
    if declares:
        declared = np.sort(rng.integers(-3, 25, (2, 7)), axis=0)[::-1].astype(np.int32)
        declared[:, rng.random(7) < 0.3] = UNDECLARED
    items = item_spans(matrix, declared)
    availability = find_availability(matrix, np.stack(items))
    all_events, weights = list_events(matrix), (rng.random(7) < 0.8).astype(np.float64)
    for item in range(7):
        own = {age for _, there, age in all_events if there == item}
        window = set(range(min(own, default=0), max(own, default=-1) + 1))
        if declares and declared is not None and declared[0, item] != UNDECLARED:
            days = {*window, *range(declared[1, item], declared[0, item] + 1)}
            window = set(range(min(days), max(days) + 1))
        elif own:
            window = set(range(max(own) + 1))  # to the end of training
        for user in range(9):
            there = [age for who, _, age in all_events if who == user]
            expected = not there or bool(window & set(range(min(there), max(there) + 1)))
            assert availability.mask()[user, item] == expected
            assert bool(is_available(availability, user, item)) == expected
    assert count_available(availability, weights).tolist() == (availability.mask() @ weights).tolist()
    assert availability.mask()[likes].all()
    if not likes.any():
        return
    shares = np.array([likes[mask].sum() for mask in availability.mask().T]) / likes.sum()
    degrees, scaled = likes.sum(axis=0), scale_to_exposure(likes.sum(axis=0), availability, likes.sum(axis=1))
    assert (scaled * shares).tolist() == pytest.approx(degrees.tolist())


def test_without_ages_a_user_was_there_at_all_times_and_a_fit_is_refused() -> None:
    plain = csr_matrix(np.eye(3, dtype=np.float32))
    windows = np.array([[9, 4, 2], [8, 0, 1]], dtype=np.int32)
    assert find_availability(plain, windows).mask().all()
    assert find_availability(plain, None) is EVERYTHING
    assert count_available(EVERYTHING, np.array([0.5, 0, 0.5])) == 2
    assert user_spans(csr_matrix((2, 3)))[0].tolist() == [np.iinfo(np.int32).max] * 2
    with pytest.raises(ValueError, match="needs the times of events"):
        item_spans(plain)
    with pytest.raises(ValueError, match=r"\(2, 4\) beside 3 items"):
        item_spans(draw_timed_likes(np.eye(3)), np.zeros((2, 4), dtype=np.int32))


@pytest.mark.parametrize("heavy", [0, 6, 10**6])  # all by rejection, as it is, all by keys
def test_negatives_are_of_available_items_by_what_is_left_of_the_histogram(heavy: int) -> None:
    rng = np.random.default_rng(1)
    likes = rng.random((30, 12)) < 0.25
    likes[0] = False
    likes[0, :2] = True
    matrix = draw_timed_likes(likes)
    windows = np.stack(item_spans(matrix))
    windows[:, 5] = -1, -1  # an item that nobody could consider, unless it is liked
    availability, weights = find_availability(matrix, windows), rng.uniform(0.2, 1, 12)
    weights[3] = 0
    graph, free = copy_pattern(matrix), availability.mask() & ~likes & (weights > 0)
    starts = negative_starts(graph, weights, availability)
    assert np.diff(starts).tolist() == np.minimum(likes.sum(axis=1), free.sum(axis=1)).tolist()
    drawn, naive = np.zeros((30, 12)), np.zeros(12)
    for number in range(1500):
        _, items = draw_negatives(
            graph,
            weights,
            build_alias_table(weights),
            partition_shards(graph[0]),
            (3, number),
            np.arange(30, dtype=np.uint64),
            heavy,
            availability,
        )
        np.add.at(drawn, (np.repeat(np.arange(30), np.diff(starts)), items), 1)
    assert drawn.sum() and not drawn[~free].any() and drawn.max() <= 1500
    spare = free.sum(axis=1) - likes.sum(axis=1)
    user = int(np.flatnonzero((spare > 1) & (likes.sum(axis=1) > 1))[0])
    left = np.flatnonzero(free[user])
    for _ in range(3000):
        p = weights[left] / weights[left].sum()
        naive[rng.choice(left, likes[user].sum(), replace=False, p=p)] += 1 / 3000
    assert drawn[user] / 1500 == pytest.approx(naive, abs=0.06)  # over three standard errors


def test_distributions_of_negatives_know_the_windows() -> None:
    rng = np.random.default_rng(2)
    likes = rng.random((12, 8)) < 0.3
    likes[:, 0] = True
    matrix, users = draw_timed_likes(likes, 4), np.arange(12)
    windows, shares = np.stack(item_spans(matrix)), rng.dirichlet(np.ones(8))
    available = find_availability(matrix, windows).mask()
    assert not available.all()

    def frequencies(law: WithoutReplacement | CensoredPairs) -> np.ndarray:
        found = np.array([law.draw(matrix, users, seed) for seed in range(3000)])
        return np.stack([(found == item).mean(axis=0) for item in range(8)], axis=1)

    censored = CensoredPairs(likes.sum(axis=1) / likes.sum(), shares, 2.0, windows)
    expected = shares * available / (shares * available).sum(axis=1, keepdims=True)
    assert frequencies(censored) == pytest.approx(expected, abs=0.04)
    rates = censored.rates(matrix, users, np.zeros((12, 8)))
    assert rates == pytest.approx(2 * likes.sum(axis=1, keepdims=True) * expected)
    without = WithoutReplacement(shares, windows)
    assert not frequencies(without)[likes | ~available].any()
    counts = np.minimum(likes.sum(axis=1), (available & ~likes).sum(axis=1))
    assert without.weights(matrix, users, np.ones(12))[1] == pytest.approx(counts / likes.sum(axis=1))
    rates = without.rates(matrix, users, likes.astype(float))
    assert rates.sum(axis=1) == pytest.approx(counts, rel=0.02) and not rates[likes | ~available].any()
