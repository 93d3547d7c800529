"""The unseen part of the hidden graph: items that users considered and did not like (Paquet and Koenigstein
2014, section 4).

A user of degree d_m gets d_m negatives from the histogram pi without replacement, never an item of the user's
own (section 4.1). A light user's are drawn from an alias table, items taken already being rejected. A heavy
user's, and those of a user with whom rejection takes too long, are the items with the smallest keys -log(u) /
pi_n (Efraimidis and Spirakis 2006). Both have the law of drawing one item after another from what is left of
pi, so that one may go on where the other stopped. A user with fewer than d_m items left gets them all.
"""

import numpy as np
from numba import njit, prange

from models.numerics.random_numbers import bits, purpose, stream, uniform
from models.numerics.selection import smallest_first

ALIAS, KEYS = purpose("negatives: alias draws"), purpose("negatives: exponential keys")
HEAVY = 6  # where rejection and keys cost about the same
PATIENCE = 16  # tries for each negative, on average, before the keys finish the rest


def histogram_power(r: float, largest_degree: int) -> float:
    """Eq. 9: gamma such that the most popular item's weight is r times its degree."""
    return 1.0 if largest_degree <= 1 else 1.0 + np.log(r) / np.log(largest_degree)


def histogram(degrees: np.ndarray, gamma: float) -> np.ndarray:
    """Eq. 7: pi_n = d_n^gamma, scaled to sum to one; an item without an edge has none. float64 (items,)."""
    weights = np.zeros(len(degrees))
    some = degrees > 0
    weights[some] = np.exp(gamma * (np.log(degrees[some]) - np.log(degrees.max())))
    return weights / weights.sum()


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's alias table, built as Vose (1991) does.

    Returns:
        (limits, aliases): uint64 and int64, (items,): column c gives item c when 32 random bits are below
        limits[c], else aliases[c].
    """
    return _alias_table(np.asarray(weights, dtype=np.float64))


@njit(cache=True)
def _alias_table(weights):
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
    for at in range(smalls):  # what rounding left; an item of no weight must still give way
        full = weights[small[at]] > 0.0
        limits[small[at]], aliases[small[at]] = np.uint64(4294967296 if full else 0), giver
    return limits, aliases


def room(starts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Starts int64 (users + 1,) of the negatives: as many as likes, or all that are left.

    Every item that a user likes has a positive weight.
    """
    degrees = np.diff(starts)
    counts = np.minimum(degrees, np.count_nonzero(weights) - degrees)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def draw_negatives(
    likes: tuple[np.ndarray, np.ndarray],
    weights: np.ndarray,
    table: tuple[np.ndarray, np.ndarray],
    bounds: np.ndarray,
    key: tuple[int, int],
    units: np.ndarray,
    heavy: int = HEAVY,
) -> tuple[np.ndarray, np.ndarray]:
    """One draw of the negatives of all users.

    Args:
        likes: (starts, items), the observed graph; every item in it has a positive weight.
        weights: float64 (items,), pi.
        table: `alias_table(weights)`.
        bounds: shards of users.
        key: (seed, iteration).
        units: uint64 (users,), the name of each user's stream of random numbers.
        heavy: users with more than one `heavy`-th of the items go to the keys straight away.

    Returns:
        (starts, items), int64 (users + 1,) and int32, in the order in which they were drawn.
    """
    starts = room(likes[0], weights)
    items = np.empty(starts[-1], dtype=np.int32)
    _draw(likes, starts, items, weights, table, bounds, key, units, heavy)
    return starts, items


@njit(cache=True, parallel=True)
def _draw(likes, starts, items, weights, table, bounds, key, units, heavy):
    for shard in prange(len(bounds) - 1):
        taken = np.zeros(len(weights), dtype=np.int64)  # by the user before the one numbered so
        keys, order = np.empty(len(weights)), np.empty(len(weights), dtype=np.int32)
        for user in range(bounds[shard], bounds[shard + 1]):
            for at in range(likes[0][user], likes[0][user + 1]):
                taken[likes[1][at]] = user + 1
            first, last = starts[user], starts[user + 1]
            if (likes[0][user + 1] - likes[0][user]) * heavy <= len(weights):
                name = stream(key[0], ALIAS, key[1], units[user])
                first = _by_rejection(items, first, last, taken, user + 1, table, name)
            if first < last:
                name = stream(key[0], KEYS, key[1], units[user])
                _by_keys(items, first, last, taken, user + 1, weights, keys, order, name)


@njit(cache=True, inline="always")
def _by_rejection(items, first, last, taken, mark, table, name):
    """Fill items[first:last]; where it got to, when patience ran out."""
    limits, aliases = table
    count, tries = np.uint64(len(limits)), PATIENCE * (last - first)
    draw = 0
    while first < last and draw < tries:
        word = bits(name, draw)
        draw += 1
        column = np.int64(((word >> np.uint64(32)) * count) >> np.uint64(32))
        item = column if (word & np.uint64(0xFFFFFFFF)) < limits[column] else aliases[column]
        if taken[item] != mark:
            taken[item] = mark
            items[first] = item
            first += 1
    return first


@njit(cache=True)
def _by_keys(items, first, last, taken, mark, weights, keys, order, name):
    """Fill items[first:last] with the smallest of the keys of the items that are left."""
    left = 0
    for item in range(len(weights)):
        if taken[item] != mark and weights[item] > 0.0:
            keys[left], order[left] = -np.log(uniform(name, item)) / weights[item], item
            left += 1
    smallest_first(keys, order, left, last - first)
    for at in range(first, last):
        items[at] = order[at - first]
