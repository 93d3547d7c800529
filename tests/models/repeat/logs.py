"""Simulated logs of users who return, for the tests of `repeat` and its mixture.

After every event of a pair the user returns to the item with the probability l_u, the user's loyalty, so that a share
l_u of the user's events repeat an earlier one. The gap is lognormal with the item's own mean, g_i exp(s z - s^2 / 2)
days. Events after the last day are dropped.
"""

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix

from oneclass.models.numerics.random_numbers import normal, normals, purpose, stream, uniform
from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages

DAYS, WINDOW = 400, 40


def simulate_log(loyalty, *, users=300, items=80, gap=25.0, gap_sd=0.3, seed=1, window=WINDOW):
    """(training log with ages, what comes in the window after it) of two groups with a taste for half of the items."""
    generator = np.random.default_rng(seed)
    taste = (np.arange(users)[:, None] + np.arange(items)) % 2 == 0
    likes = generator.random((users, items)) < np.where(taste, 0.25, 0.02)
    pair_users, pair_items = np.nonzero(likes)
    first = generator.integers(DAYS, size=len(pair_users)).astype(np.int32)
    pairs, days = draw_return_events(
        pair_users,
        pair_items,
        first,
        draw_loyalty(users, loyalty, 0.7, seed),
        draw_mean_gaps(items, gap, 0.8, seed),
        gap_sd=gap_sd,
        days=DAYS,
        seed=seed,
    )
    return split_log(pair_users[pairs], pair_items[pairs], days, (users, items), DAYS - window)


def split_log(users, items, days, shape, cut):
    """(events before the cut as a log with ages, events from then on as a matrix of counts)."""
    is_before = days < cut
    later = csr_matrix((np.ones((~is_before).sum()), (users[~is_before], items[~is_before])), shape=shape)
    users, items, ages = users[is_before], items[is_before], cut - 1 - days[is_before]
    order = np.lexsort((ages, items, users))
    users, items, ages = users[order], items[order], ages[order].astype(np.int32)
    is_first = np.diff(users * shape[1] + items, prepend=-1) != 0
    starts = np.append(np.flatnonzero(is_first), len(ages))
    matrix = csr_matrix((np.diff(starts).astype(np.float32), (users[is_first], items[is_first])), shape=shape)
    matrix.sort_indices()
    return with_event_ages(matrix, EventAges(starts, ages)), later


def compute_ndcg(scores, later, k=100):
    """nDCG of each user with something in the window, over all items, the history left in."""
    gains = (later.toarray() > 0)[np.diff(later.indptr) > 0]
    order = np.argsort(-scores[np.diff(later.indptr) > 0], axis=1, kind="stable")[:, :k]
    discounts = 1 / np.log2(np.arange(2, order.shape[1] + 2))
    found = np.take_along_axis(gains, order, axis=1) @ discounts
    return found / np.cumsum(discounts)[np.minimum(gains.sum(axis=1), order.shape[1]) - 1]


LOYALTY, MEAN_GAP, RETURN, GAP = (purpose(f"returns: {what}") for what in ("loyalty", "mean gap", "return", "gap"))


def draw_loyalty(users: int, mean: float, logit_sd: float, seed: int) -> np.ndarray:
    """Draw the loyalty of each user, float64 (users,): sigma(logit(mean) + logit_sd z); all 0 if the mean is 0."""
    if mean == 0:
        return np.zeros(users)
    odds = mean / (1 - mean) * np.exp(logit_sd * normals(seed, LOYALTY, users, 1)[:, 0].astype(np.float64))
    return odds / (1 + odds)


def draw_mean_gaps(items: int, median: float, log_sd: float, seed: int) -> np.ndarray:
    """Draw the mean return gap of each item in days, float64 (items,), lognormal."""
    return median * np.exp(log_sd * normals(seed, MEAN_GAP, items, 1)[:, 0].astype(np.float64))


def draw_return_events(
    users: np.ndarray,
    items: np.ndarray,
    first_day: np.ndarray,
    loyalty: np.ndarray,
    mean_gap: np.ndarray,
    *,
    gap_sd: float,
    days: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the events of pairs; the draws of a pair depend on the seed, its user and its item alone.

    Args:
        users, items, first_day: of each pair (pairs,), the day from 0 to days - 1.
        loyalty: (users,), each below 1.
        mean_gap: (items,), in days.
        gap_sd: s, the standard deviation of a gap's logarithm.
        days: length of the period.

    Returns:
        pairs int64 (events,), the number of each event's pair, ascending; and its day, int32, ascending in a pair.
    """
    counts = np.empty(len(users), dtype=np.int64)
    shared = users, items, first_day, loyalty, mean_gap, gap_sd, days, seed
    _walk_returns(*shared, counts, np.empty(0, dtype=np.int32), False)
    event_days = np.empty(counts.sum(), dtype=np.int32)
    _walk_returns(*shared, counts, event_days, True)
    return np.repeat(np.arange(len(users)), counts), event_days


@njit
def _walk_returns(users, items, first_day, loyalty, mean_gap, gap_sd, days, seed, counts, event_days, fill):
    """Count the events of every pair, or fill in their days."""
    at = 0
    for pair in range(len(users)):
        user, item = users[pair], items[pair]
        returns, gaps = stream(seed, RETURN, user, item), stream(seed, GAP, user, item)
        # A first event comes within its day, so that gaps below a day do not all end on it.
        day, number = first_day[pair] + uniform(gaps, 0), 0
        while day < days:
            if fill:
                event_days[at] = np.int32(day)
                at += 1
            if uniform(returns, number) >= loyalty[user]:
                number += 1
                break
            number += 1
            day += mean_gap[item] * np.exp(gap_sd * normal(gaps, number) - 0.5 * gap_sd * gap_sd)
        counts[pair] = number
