"""Draw a log in which users return to items: each user is loyal to some degree, each item has gaps of its own.

After every event of a pair the user returns to the item with the probability l_u, the user's loyalty, so that a share
l_u of the user's events repeat an earlier one. The gap is lognormal with the item's own mean, g_i exp(s z - s^2 / 2)
days. Events after the last day are dropped. Repeat consumption has both traits: returns whose recency decides
(Anderson, Kumar, Tomkins and Vassilvitskii 2014, "The dynamics of repeat consumption") and gaps typical of the item
(Bhagat, Muralidharan, Lobzhanidze and Vishwanath 2018, "Buy it again").
"""

import numpy as np
from numba import njit

from oneclass.models.numerics.random_numbers import normal, normals, purpose, stream, uniform

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


@njit(cache=True, nogil=True)
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
