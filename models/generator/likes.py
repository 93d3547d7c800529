"""The generative story of Paquet and Koenigstein (2014, section 3): which of the considered items are liked.

An edge of the hidden graph H is an item that a user considered. For each a coin is flipped (eq. 2),
p(g = 1 | h = 1) = sigma(u'v + b), b = b_n + b_0; the edges with heads are the observed graph G. The offset b_0 is
chosen so that the expected number of heads is the wanted number of likes.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from oneclass.models.numerics.random_numbers import normals, purpose, stream, uniform

USER_TRAITS, ITEM_TRAITS, ITEM_BIAS = (purpose(f"story: {what}") for what in ("u", "v", "b"))
LIKE, RATING = purpose("story: coin"), purpose("story: rating")
USER_FIRST_DAY, ITEM_FIRST_DAY = purpose("story: a user's first day"), purpose("story: an item's first day")
BLOCK_EDGES = 1 << 16


@dataclass(frozen=True)
class LikeFactors:
    """The parameters of the coins.

    Attributes:
        users: float32 (M, K), u.
        items: float32 (N, K), v.
        item_bias: float32 (N,), b_n, to which `like_probabilities` adds the common offset b_0.
    """

    users: np.ndarray
    items: np.ndarray
    item_bias: np.ndarray


def draw_like_factors(counts: tuple[int, int], traits: int, logit_sd: float, bias_sd: float, seed: int) -> LikeFactors:
    """Gaussian traits, of equal precision for users and items, with sd(u'v) = `logit_sd`; without the offset b_0."""
    scale = np.float32(np.sqrt(logit_sd / np.sqrt(traits)))  # var(u'v) = K scale^4
    return LikeFactors(
        users=normals(seed, USER_TRAITS, counts[0], traits) * scale,
        items=normals(seed, ITEM_TRAITS, counts[1], traits) * scale,
        item_bias=normals(seed, ITEM_BIAS, counts[1], 1)[:, 0] * np.float32(bias_sd),
    )


def like_probabilities(
    traits: LikeFactors, starts: np.ndarray, users: np.ndarray, likes: float
) -> tuple[LikeFactors, np.ndarray]:
    """Choose the offset b_0 so that the probabilities of all edges of H sum to `likes`.

    Args:
        starts, users: H by item, as `models.generator.hidden_graph.draw_graph` returns it.
        likes: strictly between zero and the number of edges.

    Returns:
        The traits with b_0 in the biases, and the probability of every edge, float32 (edges,).
    """
    logits = _logits(traits.users, traits.items, traits.item_bias, starts, users)
    low, high = -80.0, 80.0
    offset = 0.0
    for _ in range(60):
        total, slope = _expected_likes(logits, offset)
        if abs(total - likes) <= 1e-9 * likes:
            break
        low, high = (offset, high) if total < likes else (low, offset)
        step = offset + (likes - total) / slope if slope > 0 else high + 1
        offset = step if low < step < high else (low + high) / 2
    biased = LikeFactors(traits.users, traits.items, traits.item_bias + np.float32(offset))
    return biased, _sigma(logits, np.float32(offset))


@njit(cache=True, nogil=True)
def _logits(user_traits, item_traits, bias, starts, users):
    out = np.empty(len(users), dtype=np.float32)
    for item in range(len(starts) - 1):
        v = item_traits[item]
        for at in range(starts[item], starts[item + 1]):
            u = user_traits[users[at]]
            total = bias[item]
            for k in range(len(v)):
                total += u[k] * v[k]
            out[at] = total
    return out


@njit(cache=True, nogil=True)
def _expected_likes(logits, offset):
    """The sum of sigma(logit + offset) and its derivative; summed by blocks, which keeps rounding errors small."""
    total, slope = 0.0, 0.0
    for first in range(0, len(logits), BLOCK_EDGES):
        block_total, block_slope = 0.0, 0.0
        for at in range(first, min(first + BLOCK_EDGES, len(logits))):
            p = 1.0 / (1.0 + np.exp(-(logits[at] + offset)))
            block_total += p
            block_slope += p * (1.0 - p)
        total += block_total
        slope += block_slope
    return total, slope


@njit(cache=True, nogil=True)
def _sigma(logits, offset):
    for at in range(len(logits)):
        logits[at] = 1.0 / (1.0 + np.exp(-np.float64(logits[at] + offset)))
    return logits


@njit(cache=True, nogil=True)
def draw_likes(starts, users, probability, seed):
    """Flip one coin for each edge of H: bool (edges,), True for the edges of G. The key of a coin is (user, item)."""
    liked = np.empty(len(users), dtype=np.bool_)
    for item in range(len(starts) - 1):
        for at in range(starts[item], starts[item + 1]):
            liked[at] = uniform(stream(seed, LIKE, users[at], item), 0) < probability[at]
    return liked


@njit(cache=True, nogil=True)
def draw_ratings(users, items, liked, seed, days):
    """Stars and day of every edge of H.

    A like has 4 or 5 stars, other edges 1 to 3; the number of stars says nothing more about the probability. Users join
    at a uniform time in the first four fifths of the period. So do half of the items; the others are there from the
    first day. The day of an edge is uniform over the days on which both are there.

    Args:
        users, items, liked: user, item and coin of each edge (edges,).
        days: length of the period.

    Returns:
        stars uint8 (edges,), day int32 (edges,) from 0 to days - 1.
    """
    stars, day = np.empty(len(users), dtype=np.uint8), np.empty(len(users), dtype=np.int32)
    for at in range(len(users)):
        key = stream(seed, RATING, users[at], items[at])
        draw = uniform(key, 0)
        if liked[at]:
            stars[at] = 4 if draw < 0.6 else 5
        else:
            stars[at] = 3 if draw < 0.6 else 2 if draw < 0.85 else 1
        user_day = 0.8 * days * uniform(stream(seed, USER_FIRST_DAY, 0, users[at]), 0)
        item_day = 0.8 * days * max(0.0, 2.0 * uniform(stream(seed, ITEM_FIRST_DAY, 0, items[at]), 0) - 1.0)
        first = max(user_day, item_day)
        day[at] = min(days - 1, np.int64(first + (days - first) * uniform(key, 1)))
    return stars, day
