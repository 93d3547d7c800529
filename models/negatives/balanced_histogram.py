"""The adjustment of the histogram pi that the caption of Figure 3 of Paquet and Koenigstein (2014) asks for.

A popular item that is drawn for one of its own users is discarded and another drawn, so that the items at the
head get fewer negatives than pi says. This "can be overcome with another adjustment of pi".

A draw of d items without replacement takes item n with probability close to 1 - exp(-pi_n t), where t is such
that these sum to d over the items that the user may be given (Hajek 1964). So expected numbers of negatives
cost one pass over the observed graph, and not one over all pairs of a user and an item.
"""

import numpy as np
from numba import njit, prange

from models.negatives.draws import room

GRID = 512  # points of the grid on which t is found; neighbours differ by about a twentieth
FEASIBLE = 0.95  # at most this share of the users who do not like an item can have it as a negative


def balanced(
    likes: tuple[np.ndarray, np.ndarray],
    likes_by_item: tuple[np.ndarray, np.ndarray],
    weights: np.ndarray,
    rounds: int = 12,
) -> np.ndarray:
    """pi adjusted so that the items' expected numbers of negatives are proportional to the pi given.

    Each round multiplies pi by what is wanted over what is expected. An item that is wanted for more users
    than there are without it gets as many as can be, and the others make up for it.

    Args:
        likes, likes_by_item: (starts int64, neighbours int32), the observed graph by user and by item.
        weights: float64 (items,), pi, zero where an item has no edge.

    Returns:
        float64 (items,), sums to one.
    """
    negatives = room(likes[0], weights)
    wanted = np.diff(negatives).astype(np.float64)
    without = len(wanted) - np.diff(likes_by_item[0])
    targets = capped(weights, FEASIBLE * without, wanted.sum())
    for _ in range(rounds):
        some = weights > 0
        expected = expected_negatives(likes, likes_by_item, weights, wanted)
        factor = targets[some] / np.maximum(expected[some], 1e-12)
        weights = weights.copy()
        weights[some] *= np.clip(factor, 0.25, 4.0)
        weights /= weights.sum()
    return weights


def capped(shares: np.ndarray, most: np.ndarray, total: float) -> np.ndarray:
    """`shares` scaled so that they sum to `total` (or to all there is), none above `most`."""
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
    """Each item's expected number of negatives, user m being given `wanted[m]`. float64 (items,)."""
    grid = np.geomspace(0.5, 40.0 / weights[weights > 0].min(), GRID)
    taken = np.array([-np.expm1(-weights * t).sum() for t in grid])
    places = _places(likes, weights, wanted, grid, taken)
    lower = places.astype(np.int64)
    mass = np.bincount(lower, 1 - (places - lower), GRID) + np.bincount(lower + 1, places - lower, GRID)
    everyone = np.zeros(len(weights))
    for t, users in zip(grid, mass):
        everyone -= users * np.expm1(-weights * t)
    return everyone - _own(likes_by_item, weights, places, grid)


@njit(cache=True, parallel=True)
def _places(likes, weights, wanted, grid, taken):
    """Where on the grid each user's t lies: index plus fraction. `taken` is the sum over all items."""
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


@njit(cache=True, parallel=True)
def _own(likes_by_item, weights, places, grid):
    """What the items' own users would add, were they not excepted."""
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
