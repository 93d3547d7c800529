"""Random pairing of half-edges into a bipartite graph without repeated edges, with up to 200 million edges.

Half-edges are paired at random. A pair that repeats an earlier one is paired again at once, as long as other users have
free half-edges; the repeats that remain are removed by exchanging partners with random other edges. Items with the most
edges are paired first, while every user still has half-edges; in the other order, repeats between the heaviest users
and items would be left for the exchanges. If the exchanges make too little progress, as in a dense graph with little
choice, some graph with these degrees is constructed and then randomized by exchanges.
"""

import numpy as np
from numba import njit

from oneclass.models.numerics.adjacency import transpose
from oneclass.models.numerics.random_numbers import purpose, stream, uniform
from oneclass.models.numerics.top_k import find_largest

PAIR, REPAIR = purpose("hidden graph: pair"), purpose("hidden graph: repair")

MAX_CONSECUTIVE_REPEATS = 64  # after so many repeats in a row, all users are searched for those who lack the item
MAX_REPAIR_TRIES = 1_024  # random partners tried for a repeated edge in one round
MAX_REMAINING_REPEATS = 0.7  # exchanges are given up if a round leaves more than this share of the repeats
EXCHANGES_PER_EDGE = 10  # random exchanges for each edge of a constructed graph


def draw_simple_graph(user_degrees: np.ndarray, item_degrees: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw a graph without repeated edges.

    Args:
        user_degrees, item_degrees: int64 (M,) and (N,), graphical (`models.generator.hidden_graph.is_graphical`).

    Returns:
        CSR by user: `starts` int64 (M + 1,) and `items` int32 (edges,); the items of a user are in no order.
    """
    item_starts = np.concatenate([[0], np.cumsum(item_degrees)])
    order = np.argsort(-item_degrees, kind="stable")
    owners = np.repeat(np.arange(len(user_degrees), dtype=np.int32), user_degrees)
    users = _deal_half_edges(
        owners.copy(), user_degrees.copy(), item_starts, order, np.uint64(stream(seed, PAIR, 0, 0))
    )
    starts, items = transpose(item_starts, users, len(user_degrees))
    key, draw, before = np.uint64(stream(seed, REPAIR, 0, 0)), 0, 2 * len(items)
    while len(repeated := _find_repeats(starts, items, len(item_degrees))) < MAX_REMAINING_REPEATS * before:
        draw, before = _repair_repeats(starts, items, owners, repeated, key, draw), len(repeated)
    if len(repeated):
        _construct_graph(starts, items, item_degrees.copy(), np.argsort(-user_degrees, kind="stable"))
        for _ in range(EXCHANGES_PER_EDGE):
            draw = _mix_edges(starts, items, owners, key, draw)
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
    PATIENCE repeats in a row the remaining users of the item come from a scan over all users.
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
    chosen = find_largest(times, min(lacking, len(out)))
    for at in range(len(chosen)):
        _connect(chosen[at], item, out, at, free, owed, taken)
    at, user = len(chosen), 0
    while at < len(out):
        if free[user] > 0:
            _connect(user, item, out, at, free, owed, taken)
            at += 1
        else:
            user += 1
    return draw + len(free)


@njit(cache=True)
def _connect(user, item, out, at, free, owed, taken):
    out[at] = user
    taken[user] = item
    free[user] -= 1
    owed[user] += 1


@njit(cache=True)
def _find_repeats(starts, items, width):
    """Positions of edges that repeat an earlier edge of the same user."""
    seen = np.full(width, -1, dtype=np.int64)
    found = []
    for user in range(len(starts) - 1):
        for at in range(starts[user], starts[user + 1]):
            if seen[items[at]] == user:
                found.append(at)
            seen[items[at]] = user
    return np.array(found, dtype=np.int64) if found else np.empty(0, dtype=np.int64)


@njit(cache=True)
def _count_item(items, first, last, item):
    """How often an item occurs in items[first:last]; without an early exit, so that the loop vectorizes."""
    times = 0
    for at in range(first, last):
        times += items[at] == item
    return times


@njit(cache=True)
def _repeat_change(starts, items, owners, at, other):
    """How the number of repeats would change if two edges, of different users and items, exchanged their items."""
    user, partner = owners[at], owners[other]
    first, last, partner_first, partner_last = (
        starts[user],
        starts[user + 1],
        starts[partner],
        starts[partner + 1],
    )
    made = (_count_item(items, first, last, items[other]) > 0) + (
        _count_item(items, partner_first, partner_last, items[at]) > 0
    )
    mended = (_count_item(items, first, last, items[at]) > 1) + (
        _count_item(items, partner_first, partner_last, items[other]) > 1
    )
    return made - mended


@njit(cache=True, nogil=True)
def _repair_repeats(starts, items, owners, repeated, key, draw):
    """Exchange every repeated edge with a random other edge; returns the number of draws so far.

    An exchange that removes this repeat but makes another one is accepted too, and the new repeat is exchanged next. So
    a repeat can move until an exchange removes it, even where no single exchange would. Partners are edges drawn
    uniformly, and later edges of users drawn uniformly, because users with few edges lack the heaviest items.
    """
    for at in repeated:
        for attempt in range(MAX_REPAIR_TRIES):
            user = owners[at]
            if _count_item(items, starts[user], starts[user + 1], items[at]) < 2:
                break
            if attempt < MAX_REPAIR_TRIES // 4 or attempt % 2:
                other = draw_below(key, draw, len(items))
            else:
                partner = draw_below(key, draw, len(starts) - 1)
                other = starts[partner] + draw_below(key, draw + 1, starts[partner + 1] - starts[partner])
            draw += 2
            if owners[other] == user or items[other] == items[at]:
                continue
            change = _repeat_change(starts, items, owners, at, other)
            if change > 0 or (change == 0 and attempt < MAX_REPAIR_TRIES // 8):
                continue
            items[at], items[other] = items[other], items[at]
            partner = owners[other]
            if _count_item(items, starts[partner], starts[partner + 1], items[other]) > 1:
                at = other
    return draw


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
def _mix_edges(starts, items, owners, key, draw):
    """Try as many random exchanges as there are edges, but none that would make a repeat; returns the draws so far."""
    for _ in range(len(items)):
        at, other = draw_below(key, draw, len(items)), draw_below(key, draw + 1, len(items))
        draw += 2
        if owners[at] == owners[other] or items[at] == items[other]:
            continue
        if _repeat_change(starts, items, owners, at, other) == 0:
            items[at], items[other] = items[other], items[at]
    return draw
