"""The adjustment of the histogram pi that the caption of Figure 3 of Paquet and Koenigstein (2014) asks for.

If an item is drawn for a user who likes it, it is discarded and another is drawn. So the most popular items get fewer
negatives than pi says. This "can be overcome with another adjustment of pi".

A draw of d items without replacement takes item n with a probability close to 1 - exp(-pi_n t), where t is chosen so
that these probabilities sum to d over the items that the user does not like (Hajek 1964). So the expected numbers of
negatives need one pass over the observed graph, not one over all pairs of a user and an item.
"""

import numpy as np
from numba import njit, prange

from oneclass.models.negatives.sampling import negative_starts

GRID_SIZE = 512  # points of the grid for t; each is about a twentieth larger than the one before
MAX_FILL = 0.95  # at most this share of the users who do not like an item can have it as a negative


def balance_histogram(
    likes: tuple[np.ndarray, np.ndarray],
    likes_by_item: tuple[np.ndarray, np.ndarray],
    weights: np.ndarray,
    rounds: int = 12,
) -> np.ndarray:
    """Adjust pi so that the items' expected numbers of negatives are proportional to the given pi.

    Each round multiplies pi by the wanted number of negatives over the expected one. An item cannot be a negative of
    more users than there are who do not like it; then it gets nearly that many, and the other items get more.

    Args:
        likes, likes_by_item: (starts int64, neighbours int32), the observed graph by user and by item.
        weights: float64 (items,), pi, zero where an item has no edge.

    Returns:
        float64 (items,), sums to one.
    """
    negatives = negative_starts(likes, weights)
    wanted = np.diff(negatives).astype(np.float64)
    without = len(wanted) - np.diff(likes_by_item[0])
    targets = cap_shares(weights, MAX_FILL * without, wanted.sum())
    for _ in range(rounds):
        some = weights > 0
        expected = expected_negatives(likes, likes_by_item, weights, wanted)
        factor = targets[some] / np.maximum(expected[some], 1e-12)
        weights = weights.copy()
        weights[some] *= np.clip(factor, 0.25, 4.0)
        weights /= weights.sum()
    return weights


def cap_shares(shares: np.ndarray, most: np.ndarray, total: float) -> np.ndarray:
    """`shares` scaled so that they sum to `total`, but each at most `most`; if `most` sums to less, to that."""
    full = np.zeros(len(shares), dtype=bool)
    while True:
        scale = max(total - most[full].sum(), 0.0) / max(shares[~full].sum(), 1e-300)
        values = np.where(full, most, scale * shares)
        over = (values > most) & ~full
        if not over.any():
            return values
        full |= over


def expected_negatives(
    likes: tuple[np.ndarray, np.ndarray],
    likes_by_item: tuple[np.ndarray, np.ndarray],
    weights: np.ndarray,
    wanted: np.ndarray,
) -> np.ndarray:
    """Each item's expected number of negatives, float64 (items,), if user m gets `wanted[m]`."""
    grid = np.geomspace(0.5, 40.0 / weights[weights > 0].min(), GRID_SIZE)
    taken = np.array([-np.expm1(-weights * t).sum() for t in grid])
    places = _grid_positions(likes, weights, wanted, grid, taken)
    lower = places.astype(np.int64)
    mass = np.bincount(lower, 1 - (places - lower), GRID_SIZE) + np.bincount(lower + 1, places - lower, GRID_SIZE)
    everyone = np.zeros(len(weights))
    for t, users in zip(grid, mass):
        everyone -= users * np.expm1(-weights * t)
    return everyone - _own_users_share(likes_by_item, weights, places, grid)


@njit(cache=True, parallel=True, nogil=True)
def _grid_positions(likes, weights, wanted, grid, taken):
    """Where each user's t lies on the grid: index plus fraction. `taken` is the sum over all items at each point."""
    starts, items = likes
    places = np.empty(len(wanted))
    for user in prange(len(wanted)):
        low, high = 0, len(grid) - 1
        at_low, at_high = 0.0, taken[high] - (starts[user + 1] - starts[user])
        while high - low > 1:
            middle = (low + high) // 2
            here = taken[middle]
            for at in range(starts[user], starts[user + 1]):
                here += np.expm1(-weights[items[at]] * grid[middle])
            if here <= wanted[user]:
                low, at_low = middle, here
            else:
                high, at_high = middle, here
        fraction = (wanted[user] - at_low) / max(at_high - at_low, 1e-12)
        places[user] = low + min(max(fraction, 0.0), 0.999999)
    return places


@njit(cache=True, parallel=True, nogil=True)
def _own_users_share(likes_by_item, weights, places, grid):
    """The expected negatives that the users of each item would add; they have to be subtracted."""
    starts, users = likes_by_item
    own = np.zeros(len(weights))
    for item in prange(len(weights)):
        total = 0.0
        for at in range(starts[item], starts[item + 1]):
            lower = int(places[users[at]])
            fraction = places[users[at]] - lower
            total -= (1 - fraction) * np.expm1(-weights[item] * grid[lower])
            total -= fraction * np.expm1(-weights[item] * grid[lower + 1])
        own[item] = total
    return own
