"""Positive and negative edges of every item in a hidden graph sampled around the observed one, for Figure 3 of
Paquet and Koenigstein (2014).
"""

import numpy as np

from oneclass.models.negatives.sampling import build_alias_table, degree_histogram, draw_negatives, histogram_power
from oneclass.models.numerics.partition import partition_shards

NEGATIVE_RATES = (1.0, 0.5)  # the two values of r (eq. 8) in the figure


def sample_item_counts(
    likes: tuple[np.ndarray, np.ndarray], items: int, r: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Positives and negatives of each item in one sample of q(H), int64 (items,) each.

    Args:
        likes: (starts, items), the observed graph by user, with at least one edge.
        r: weight of the most popular item among the negatives, as a multiple of its degree (eq. 8).
    """
    positives = np.bincount(likes[1], minlength=items)
    weights = degree_histogram(positives, histogram_power(r, int(positives.max())))
    units = np.arange(len(likes[0]) - 1, dtype=np.uint64)
    _, drawn = draw_negatives(likes, weights, build_alias_table(weights), partition_shards(likes[0]), (seed, 0), units)
    return positives, np.bincount(drawn, minlength=items)
