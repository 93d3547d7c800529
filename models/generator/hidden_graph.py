"""Random bipartite graphs with given laws of degrees (Paquet and Koenigstein 2014, section 2, after
Newman, Strogatz and Watts 2001).

Degrees of users and of items are drawn independently. While the two totals differ, or while no graph without repeated
edges has these degrees, one random user and one random item get new degrees from the same laws. Then half-edges are
paired at random (`models.generator.configuration_model`).
"""

import numpy as np
from numba import njit

from oneclass.models.degrees.distributions import Distribution
from oneclass.models.generator.configuration_model import draw_below, draw_simple_graph, draw_uniform
from oneclass.models.numerics.adjacency import transpose
from oneclass.models.numerics.random_numbers import purpose, stream
from oneclass.models.numerics.top_k import first_above

USER_DEGREES, ITEM_DEGREES = purpose("hidden graph: user degrees"), purpose("hidden graph: item degrees")
REDRAW = purpose("hidden graph: redraw")

MAX_REDRAWS = 500_000_000
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
        NoSuchGraph: no degrees were found that have equal totals and a graph without repeated edges.
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
