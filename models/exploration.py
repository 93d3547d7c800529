"""Lists that explore: draws of scores from the posterior, and the probability that an item is among the k best.

A list of the best of a draw shows what may be good, as often as it may be: Thompson, W. R. (1933), "On the likelihood
that one unknown probability exceeds another in view of the evidence of two samples", Biometrika 25, 285-294.

The scores are a_i ~ N(m_i, s_i^2). Item i is among the k best if fewer than k others exceed it, so

    P(i) = int phi_i(t) P(sum_{j != i} B_j(t) < k) dt,    B_j(t) ~ Bernoulli(P(a_j > t)).

The sum is Poisson-binomial. With F_i(c) and G_i(c) the probabilities that c of the items before and behind i exceed t,
both found by one pass over the items,

    P(sum < k) = sum_{c < k} F_i(c) sum_{d < k - c} G_i(d),

which costs O(N k) a node for all items together. The nodes are equidistant, NODES_PER_DEVIATION for the smallest s_i:
for such integrands the trapezoidal rule converges faster than any power of the distance. Items whose s_i is tiny beside
the largest would want very many nodes, so `draw_scores` draws none with less than MIN_RELATIVE_DEVIATION of
it, and neither does this.
"""

import math

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.random_numbers import normal, purpose, stream

PURPOSE = purpose("thompson list")
MIN_RELATIVE_DEVIATION = 1 / 10
NODES_PER_DEVIATION = 1.5
TAIL = 8.0  # deviations from a mean beyond which nothing is counted


def place_probabilities(means: np.ndarray, deviations: np.ndarray, k: int) -> np.ndarray:
    """Return the probability of each item of a row to be among the k best of a draw.

    Args:
        means: (rows, N); NaN where there is no item.
        deviations: (rows, N), above zero where there is an item.

    Returns:
        float64 (rows, N), which sum to k in a row, or to the number of its items if that is less; 0 without an item.
    """
    found = np.zeros(means.shape)
    _fill_rows(np.ascontiguousarray(means, np.float64), np.ascontiguousarray(deviations, np.float64), k, found)
    return found


@njit(cache=True, nogil=True)
def bounded_deviations(deviations):
    """Deviations of at least MIN_RELATIVE_DEVIATION of the largest, float64."""
    return np.maximum(deviations, MIN_RELATIVE_DEVIATION * deviations.max())


@njit(cache=True, parallel=True, nogil=True)
def _fill_rows(means, deviations, k, found):
    for row in prange(len(means)):
        items = np.flatnonzero(~np.isnan(means[row]))
        if len(items) <= k:
            found[row][items] = 1.0
        elif k > 0:
            found[row][items] = _place_probabilities(means[row][items], bounded_deviations(deviations[row][items]), k)


@njit(cache=True, nogil=True)
def _place_probabilities(means, deviations, k):
    count = len(means)
    low = -np.sort(-(means - TAIL * deviations))[k]  # below it k others exceed i
    high = (means + TAIL * deviations).max()
    step = deviations.min() / NODES_PER_DEVIATION
    found = np.zeros(count)
    exceeds, density = np.empty(count), np.empty(count)
    before, behind = np.empty((count + 1, k)), np.empty((count + 1, k))
    for node in range(int((high - low) / step) + 2):
        t = low + node * step
        for item in range(count):
            z = (t - means[item]) / deviations[item]
            exceeds[item] = 0.5 * math.erfc(z / math.sqrt(2.0))
            density[item] = math.exp(-0.5 * z * z) / (math.sqrt(2.0 * math.pi) * deviations[item])
        before[0], behind[count] = 0.0, 0.0
        before[0, 0] = behind[count, 0] = 1.0
        for item in range(count):
            _count_one_more(before[item], exceeds[item], before[item + 1])
        for item in range(count - 1, -1, -1):
            _count_one_more(behind[item + 1], exceeds[item], behind[item])
        for item in range(count):
            total, at_most = 0.0, 0.0
            for others in range(k):  # of those behind, with which k - 1 - others or fewer come before
                at_most += behind[item + 1, others]
                total += before[item, k - 1 - others] * at_most
            found[item] += step * density[item] * total
    return np.minimum(found, 1.0)


@njit(cache=True, nogil=True)
def _count_one_more(counts, probability, out):
    """Fill the distribution of a count, cut at its length, when one more may be counted."""
    out[0] = counts[0] * (1.0 - probability)
    for total in range(1, len(out)):
        out[total] = counts[total] * (1.0 - probability) + counts[total - 1] * probability


def draw_scores(means: np.ndarray, deviations: np.ndarray, *, users: np.ndarray, night: int, seed: int) -> np.ndarray:
    """Draw scores a_i ~ N(m_i, s_i^2), one for each item of a row, keyed by the user and the night.

    Args:
        means, deviations: as in `place_probabilities`.
        users: non-negative integers (rows,), which tell users apart.
        night: a non-negative integer.

    Returns:
        float64 (rows, N); NaN without an item.
    """
    return _draw_rows(
        np.ascontiguousarray(means, np.float64),
        np.ascontiguousarray(deviations, np.float64),
        np.asarray(users, np.int64),
        night,
        seed,
    )


@njit(cache=True, nogil=True)
def _draw_rows(means, deviations, users, night, seed):
    drawn = np.full(means.shape, np.nan)
    for row in range(len(means)):
        items = np.flatnonzero(~np.isnan(means[row]))
        if len(items) == 0:
            continue
        spreads, key = bounded_deviations(deviations[row][items]), stream(seed, PURPOSE, night, users[row])
        for place in range(len(items)):
            drawn[row, items[place]] = means[row, items[place]] + spreads[place] * normal(key, items[place])
    return drawn
