"""Draws of scores from the posterior: a list of the best of a draw shows what may be good, as often as it may be.

Thompson, W. R. (1933): On the likelihood that one unknown probability exceeds another in view of the evidence of two
samples. Biometrika 25, 285-294.
"""

import numpy as np
from numba import njit

from oneclass.models.exploration.propensities import bounded_deviations
from oneclass.models.numerics.random_numbers import normal, purpose, stream

PURPOSE = purpose("thompson list")


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
        PURPOSE,
    )


@njit(cache=True, nogil=True)
def _draw_rows(means, deviations, users, night, seed, purpose):
    drawn = np.full(means.shape, np.nan)
    for row in range(len(means)):
        items = np.flatnonzero(~np.isnan(means[row]))
        if len(items) == 0:
            continue
        spreads, key = bounded_deviations(deviations[row][items]), stream(seed, purpose, night, users[row])
        for place in range(len(items)):
            drawn[row, items[place]] = means[row, items[place]] + spreads[place] * normal(key, items[place])
    return drawn
