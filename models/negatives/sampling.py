"""The unseen part of the hidden graph: items that users considered and did not like (Paquet and Koenigstein
2014, section 4).

A user of degree d_m gets d_m negatives from the histogram pi without replacement, never an item that the user likes
(section 4.1). For a user with few likes, items are drawn from an alias table, and items that are taken are rejected.
For a user with many likes, or if rejection takes too long, the negatives are the items with the smallest keys
-log(u) / pi_n (Efraimidis and Spirakis 2006). Both methods draw one item after another from what is left of pi, so the
second can continue where the first stopped. If fewer than d_m items are left, the user gets them all.
"""

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.adjacency import Adjacency, find_largest
from oneclass.models.numerics.random_numbers import bits, purpose, stream, uniform
from oneclass.models.numerics.validation import row_sums

ALIAS_DRAWS, KEY_DRAWS = purpose("negatives: alias draws"), purpose("negatives: exponential keys")
# Users who like more than a sixth of the items get their negatives by keys; there both cost the same.
HEAVY_USER_RATIO = np.int64(6)
MAX_TRIES_PER_NEGATIVE = 16  # rejection may take so many tries for each negative on average; then keys draw the rest


def histogram_power(r: float, largest_degree: int) -> float:
    """Eq. 9: the gamma for which the weight of the most popular item is r times its degree."""
    return 1.0 if largest_degree <= 1 else 1.0 + np.log(r) / np.log(largest_degree)


def degree_histogram(degrees: np.ndarray, gamma: float) -> np.ndarray:
    """Eq. 7: pi_n = d_n^gamma, scaled to sum to one, float64 (items,); 0 for an item without an edge."""
    weights = np.zeros(len(degrees))
    some = degrees > 0
    weights[some] = np.exp(gamma * (np.log(degrees[some]) - np.log(degrees.max())))
    return weights / weights.sum()


@njit(cache=True, nogil=True)
def build_alias_table(weights):
    """Walker's alias table of float64 weights (items,), built as Vose (1991) does.

    Returns:
        (limits, aliases): uint64 and int64, (items,): column c gives item c if 32 random bits are below
        limits[c], else aliases[c].
    """
    count = len(weights)
    scaled = weights / weights.sum() * count
    limits, aliases = np.empty(count, dtype=np.uint64), np.arange(count)
    small, large = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    smalls = larges = 0
    for item in range(count):
        if scaled[item] < 1.0:
            small[smalls] = item
            smalls += 1
        else:
            large[larges] = item
            larges += 1
    while smalls and larges:
        smalls -= 1
        item, giver = small[smalls], large[larges - 1]
        limits[item], aliases[item] = np.uint64(scaled[item] * 4294967296.0), giver
        scaled[giver] -= 1.0 - scaled[item]
        if scaled[giver] < 1.0:
            larges -= 1
            small[smalls] = giver
            smalls += 1
    for at in range(larges):
        limits[large[at]] = np.uint64(4294967296)
    giver = np.argmax(weights)
    for at in range(smalls):  # left over by rounding; an item of weight 0 must still never be drawn
        full = weights[small[at]] > 0.0
        limits[small[at]], aliases[small[at]] = np.uint64(4294967296 if full else 0), giver
    return limits, aliases


def negative_starts(likes: Adjacency, weights: np.ndarray, wanted: np.ndarray | None = None) -> np.ndarray:
    """Where each user's negatives begin, int64 (users + 1,): as many as wanted, or as many as items are left.

    Args:
        likes: (starts, items), the observed graph, or another one whose items are not to be drawn.
        weights: as in `draw_negatives`.
        wanted: int64 (users,); by default as many as likes.
    """
    wanted = np.diff(likes[0]) if wanted is None else wanted
    drawable = weights > 0
    left = np.count_nonzero(drawable) - row_sums(likes[0], drawable[likes[1]]).astype(np.int64)
    return np.concatenate([[0], np.cumsum(np.clip(wanted, 0, np.maximum(left, 0)))])


def draw_negatives(
    likes: Adjacency,
    weights: np.ndarray,
    table: tuple[np.ndarray, np.ndarray],
    bounds: np.ndarray,
    key: tuple[int, int],
    units: np.ndarray,
    starts: np.ndarray | None = None,
    heavy: np.int64 = HEAVY_USER_RATIO,
) -> Adjacency:
    """One draw of the negatives of all users.

    Args:
        likes: (starts, items), the observed graph; every item in it has a positive weight.
        weights: float64 (items,), pi.
        table: `build_alias_table(weights)`.
        bounds: shards of users.
        key: (seed, iteration).
        units: uint64 (users,), the unit of each user's stream in `models.numerics.random_numbers`.
        starts: the result of `negative_starts`, by default that of these likes.
        heavy: users who like more than one `heavy`-th of the items get all negatives by keys.

    Returns:
        (starts, items), int64 (users + 1,) and int32, in the order in which they were drawn.
    """
    starts = negative_starts(likes, weights) if starts is None else starts
    items = np.empty(starts[-1], dtype=np.int32)
    _fill_negatives(likes, starts, items, weights, table, bounds, key, units, heavy)
    return starts, items


@njit(cache=True, parallel=True, nogil=True)
def _fill_negatives(likes, starts, items, weights, table, bounds, key, units, heavy):
    """Fill `items`, int32 (starts[-1],); `starts` is from `negative_starts`, and the rest as in `draw_negatives`."""
    for shard in prange(len(bounds) - 1):
        scratch = allocate_draw_scratch(len(weights))
        for user in range(bounds[shard], bounds[shard + 1]):
            mark = user + 1
            draw_user_negatives(likes, starts, items, weights, table, user, mark, key, units, heavy, scratch)


@njit(cache=True, nogil=True)
def allocate_draw_scratch(items):
    """The last mark of each item, int64 zeros, and room for keys and their order, of `draw_user_negatives`."""
    return np.zeros(items, dtype=np.int64), np.empty(items), np.empty(items, dtype=np.int32)


@njit(cache=True, nogil=True)
def draw_user_negatives(likes, starts, items, weights, table, user, mark, key, units, heavy, scratch):
    """Fill one user's part of `items`, as in `draw_negatives`.

    Args:
        mark: above 0, and another one for each call with this `scratch`; it marks the user's items and negatives.
    """
    taken, keys, order = scratch
    for at in range(likes[0][user], likes[0][user + 1]):
        taken[likes[1][at]] = mark
    first, last = starts[user], starts[user + 1]
    if (likes[0][user + 1] - likes[0][user]) * heavy <= len(weights):
        name = stream(key[0], ALIAS_DRAWS, key[1], units[user])
        first = _draw_by_rejection(items, first, last, taken, mark, table, name)
    if first < last:
        name = stream(key[0], KEY_DRAWS, key[1], units[user])
        _draw_by_keys(items, first, last, taken, mark, weights, keys, order, name)


@njit(cache=True, inline="always")
def _draw_by_rejection(items, first, last, taken, mark, table, name):
    """Fill items[first:last]; returns the first place that is not filled, in case the tries ran out."""
    limits, aliases = table
    count, tries = np.uint64(len(limits)), MAX_TRIES_PER_NEGATIVE * (last - first)
    draw = 0
    while first < last and draw < tries:
        word = bits(name, draw)
        draw += 1
        column = np.int64(((word >> np.uint64(32)) * count) >> np.uint64(32))
        item = column if (word & np.uint64(0xFFFFFFFF)) < limits[column] else aliases[column]
        accepted = taken[item] != mark
        taken[item] = mark
        items[first] = item  # a rejected one is overwritten by the next
        first += accepted
    return first


@njit(cache=True)
def _draw_by_keys(items, first, last, taken, mark, weights, keys, order, name):
    """Fill items[first:last] with the items, out of those that are left, that have the largest keys."""
    left = 0
    for item in range(len(weights)):
        if taken[item] != mark and weights[item] > 0.0:
            keys[left], order[left] = np.log(uniform(name, item)) / weights[item], item
            left += 1
    for place in find_largest(keys[:left], last - first):
        items[first] = order[place]
        first += 1
