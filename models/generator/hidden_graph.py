"""Random bipartite graphs with given laws of degrees (Paquet and Koenigstein 2014, section 2, after
Newman, Strogatz and Watts 2001).

Degrees of users and of items are drawn independently. While the two totals differ, or while no graph without repeated
edges has these degrees, one random user and one random item get new degrees from the same laws.

Then half-edges are paired at random, up to 200 million of them. A pair that repeats an earlier one is paired again at
once, as long as other users have free half-edges. Items with the most edges are paired first, while every user still
has half-edges; in the other order, repeats between the heaviest users and items would be left. If a repeat remains, as
in a dense graph with little choice, some graph with these degrees is constructed and then randomized by exchanges.
"""

import numpy as np
from numba import njit

from oneclass.models.degrees.distributions import Distribution
from oneclass.models.numerics.adjacency import find_largest, first_above, transpose
from oneclass.models.numerics.random_numbers import purpose, stream, uniform

USER_DEGREES, ITEM_DEGREES = purpose("hidden graph: user degrees"), purpose("hidden graph: item degrees")
REDRAW = purpose("hidden graph: redraw")
PAIR, MIX = purpose("hidden graph: pair"), purpose("hidden graph: mix")

MAX_REDRAWS = 500_000_000
MAX_CONSECUTIVE_REPEATS = 64  # after so many in a row, all users are searched for those who lack the item
EXCHANGES_PER_EDGE = 10  # random exchanges for each edge of a constructed graph
MAX_BALANCES = 100  # give up after so many equal totals, if none has a graph without repeated edges


class NotGraphical(Exception):
    """No simple graph with degrees from these laws was found."""


def draw_graph(
    users: Distribution, items: Distribution, counts: tuple[int, int], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the hidden graph H.

    Args:
        users, items: the laws of the degrees of users and of items; `users.d_max` is at most the number of items,
            and `items.d_max` at most the number of users.
        counts: numbers of users M and of items N.

    Returns:
        CSR by *item*: `starts` int64 (N + 1,) and `users` int32 (edges,), ascending inside an item.

    Raises:
        NotGraphical: no degrees were found that have equal totals and a graph without repeated edges.
    """
    user_degrees, item_degrees = draw_degrees(users, items, counts, seed)
    starts, row_items = draw_simple_graph(user_degrees, item_degrees, seed)
    return transpose(starts, row_items, counts[1])


def draw_degrees(
    users: Distribution, items: Distribution, counts: tuple[int, int], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Degrees of users (M,) and of items (N,), int64, for which a graph without repeated edges exists."""
    laws = users.cdf, items.cdf
    user_degrees = _draw_from(laws[0], users.d_min, counts[0], _key(seed, USER_DEGREES))
    item_degrees = _draw_from(laws[1], items.d_min, counts[1], _key(seed, ITEM_DEGREES))
    key, step = _key(seed, REDRAW), 0
    for _ in range(MAX_BALANCES):
        step = _balance_totals(user_degrees, item_degrees, *laws, users.d_min, items.d_min, key, step, MAX_REDRAWS)
        if step >= MAX_REDRAWS:
            break
        if is_graphical(user_degrees, item_degrees):
            return user_degrees, item_degrees
        step = _redraw_pair(user_degrees, item_degrees, *laws, users.d_min, items.d_min, key, step)
    raise NotGraphical(f"no degrees were drawn that a graph of {counts[0]} users and {counts[1]} items can have")


def is_graphical(user_degrees: np.ndarray, item_degrees: np.ndarray) -> bool:
    """Whether a bipartite graph without repeated edges has these degrees (Gale 1957, Ryser 1957)."""
    largest = np.cumsum(np.sort(user_degrees)[::-1])
    at_least = len(item_degrees) - np.cumsum(np.bincount(item_degrees, minlength=len(user_degrees) + 1))
    room = np.cumsum(at_least[: len(user_degrees)])  # sum over items of min(degree, k), k = 1 .. M
    return bool(largest[-1] == item_degrees.sum() and (largest <= room).all())


def _key(seed: int, what: np.uint64) -> np.uint64:
    return np.uint64(stream(seed, what, 0, 0))


@njit(cache=True)
def _draw_from(cumulative, d_min, count, key):
    out = np.empty(count, dtype=np.int64)
    for vertex in range(count):
        out[vertex] = d_min + first_above(cumulative, draw_uniform(key, vertex))
    return out


@njit(cache=True, nogil=True)
def _redraw_pair(user_degrees, item_degrees, user_law, item_law, user_min, item_min, key, step):
    """Draw new degrees for one random user and one random item."""
    user, item = draw_below(key, 4 * step, len(user_degrees)), draw_below(key, 4 * step + 1, len(item_degrees))
    user_degrees[user] = user_min + first_above(user_law, draw_uniform(key, 4 * step + 2))
    item_degrees[item] = item_min + first_above(item_law, draw_uniform(key, 4 * step + 3))
    return step + 1


@njit(cache=True, nogil=True)
def _balance_totals(user_degrees, item_degrees, user_law, item_law, user_min, item_min, key, step, last):
    """Redraw until the totals agree; returns the number of steps so far, or `last` if they do not agree by then."""
    surplus = user_degrees.sum() - item_degrees.sum()
    while surplus != 0 and step < last:
        user, item = draw_below(key, 4 * step, len(user_degrees)), draw_below(key, 4 * step + 1, len(item_degrees))
        surplus -= user_degrees[user] - item_degrees[item]
        _redraw_pair(user_degrees, item_degrees, user_law, item_law, user_min, item_min, key, step)
        surplus += user_degrees[user] - item_degrees[item]
        step += 1
    return step


def draw_simple_graph(user_degrees: np.ndarray, item_degrees: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw a graph without repeated edges.

    Args:
        user_degrees, item_degrees: int64 (M,) and (N,), graphical (`is_graphical`).

    Returns:
        CSR by user: `starts` int64 (M + 1,) and `items` int32 (edges,); the items of a user are in no order.
    """
    item_starts = np.concatenate([[0], np.cumsum(item_degrees)])
    order = np.argsort(-item_degrees, kind="stable")
    owners = np.repeat(np.arange(len(user_degrees), dtype=np.int32), user_degrees)
    users = _deal_half_edges(owners.copy(), user_degrees.copy(), item_starts, order, _key(seed, PAIR))
    starts, items = transpose(item_starts, users, len(user_degrees))
    if ((items[1:] == items[:-1]) & (owners[1:] == owners[:-1])).any():
        _construct_graph(starts, items, item_degrees.copy(), np.argsort(-user_degrees, kind="stable"))
        _mix_edges(starts, items, owners, _key(seed, MIX))
    return starts, items


@njit(cache=True)
def draw_uniform(key, draw):
    """Uniform in (0, 1); a function of its own, because numba would compile the inlined `uniform` again at every
    call.
    """
    return uniform(key, draw)


@njit(cache=True)
def draw_below(key, draw, n):
    """Uniform over 0 .. n - 1 without the bias that 32 bits would have for n of 10^8."""
    return min(np.int64(draw_uniform(key, draw) * n), n - 1)


@njit(cache=True, nogil=True)
def _deal_half_edges(pool, free, starts, order, key):
    """Users of every item (CSR by item): each half-edge of an item takes a random free half-edge of a user.

    `pool` has the user of each half-edge, `free` the number of free half-edges of each user; both are used up. After
    MAX_CONSECUTIVE_REPEATS repeats in a row the remaining users of the item come from a scan over all users.
    """
    out = np.empty(starts[-1], dtype=np.int32)
    owed, taken = np.zeros(len(free), dtype=np.int64), np.full(len(free), -1, dtype=np.int64)
    left, draw = len(pool), np.int64(0)  # with a bare 0, numba would compile the functions called for a second type
    for item in order:
        at, misses = starts[item], 0
        while at < starts[item + 1]:
            if misses == MAX_CONSECUTIVE_REPEATS:
                draw = _draw_by_scan(item, out[at : starts[item + 1]], free, owed, taken, key, draw)
                break
            place = draw_below(key, draw, left)
            user, settles = pool[place], draw_uniform(key, draw + 1)
            draw += 2
            # A scan may have taken half-edges of this user that are still in the pool: is this one of them?
            settled = owed[user] > 0 and settles * (owed[user] + free[user]) < owed[user]
            if taken[user] == item and not settled:
                misses += 1
                continue
            pool[place] = pool[left - 1]
            left -= 1
            if settled:
                owed[user] -= 1
                continue
            out[at], misses = user, 0
            taken[user] = item
            free[user] -= 1
            at += 1
    return out


@njit(cache=True)
def _draw_by_scan(item, out, free, owed, taken, key, draw):
    """Fill `out` with users who lack the item, drawn without replacement, in proportion to their free half-edges.

    Users with the smallest exponential times are taken (Efraimidis and Spirakis 2006). If there are too few, the rest
    is filled with users who have the item already; these repeats are exchanged later.
    """
    times, lacking = np.full(len(free), -np.inf), 0
    for user in range(len(free)):
        if free[user] > 0 and taken[user] != item:
            times[user] = np.log(draw_uniform(key, draw + user)) / free[user]
            lacking += 1
    at, user = min(lacking, len(out)), 0
    out[:at] = find_largest(times, at)
    for other in out[:at]:
        free[other] -= 1
    for place in range(at, len(out)):
        while free[user] == 0:
            user += 1
        out[place] = user
        free[user] -= 1
    for other in out:
        taken[other] = item
        owed[other] += 1
    return draw + len(free)


@njit(cache=True, nogil=True)
def _construct_graph(starts, items, wanted, order):
    """Construct a graph with the same degrees and no repeats, which exists for graphical degrees.

    Users with the most edges come first, and each takes the items with the most unpaired half-edges (Gale 1957).
    """
    for user in order:
        at = starts[user]
        for item in find_largest(wanted, starts[user + 1] - starts[user]):
            items[at] = item
            wanted[item] -= 1
            at += 1


@njit(cache=True, nogil=True)
def _mix_edges(starts, items, owners, key):
    """Try EXCHANGES_PER_EDGE random exchanges of the items of two edges for each edge, but none that makes a repeat."""
    for step in range(EXCHANGES_PER_EDGE * len(items)):
        at, other = draw_below(key, 2 * step, len(items)), draw_below(key, 2 * step + 1, len(items))
        if not (
            _has_item(starts, items, owners[at], items[other]) or _has_item(starts, items, owners[other], items[at])
        ):
            items[at], items[other] = items[other], items[at]


@njit(cache=True)
def _has_item(starts, items, user, item):
    """Whether a user has an item; without an early exit, so that the loop vectorizes."""
    times = 0
    for at in range(starts[user], starts[user + 1]):
        times += items[at] == item
    return times > 0
