"""The one scale on which the scores of different models are added.

Of a user's candidates, the items that are not in the history, the hundredth best score becomes 0 and the mean of the ten
best 1: s -> (s - s[100th]) / (mean of s[1st] to s[10th] - s[100th]). So a weight says how much a model's opinion of the
head of the list counts, whatever its scores are: log odds, sums of weights or products of factors.
"""

import numpy as np
from scipy.sparse import csr_matrix

from models.numerics.top_items import top_items

LAST, HEAD = 100, 10


def brought_to_scale(scores: np.ndarray, histories: csr_matrix) -> np.ndarray:
    """The scores of one model on the common scale, in place.

    Args:
        scores: float32 (block, items).
        histories: (block, items) CSR, what each user is known to like.

    Returns:
        `scores`.
    """
    return moved(scores, *scale_of(scores, histories))


def moved(scores: np.ndarray, low: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Scores, float32 (block, items), moved in place to the scale that begins at `low` and has the unit `spread`."""
    scores -= low[:, None]
    scores /= spread[:, None]
    return scores


def scale_of(scores: np.ndarray, histories: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Where the scale of each user begins and how long its unit is, both float32 (block,).

    Where a user has fewer than LAST candidates, the last one takes the place of the hundredth; where all of the best are
    equal, the unit stays 1.
    """
    _, best = top_items(scores, histories.indptr, histories.indices, LAST)
    there = np.isfinite(best)
    if there.all():  # as it mostly is; the rest below gives the same, but takes three times as long
        low, head = best[:, -1], best[:, :HEAD].sum(axis=1) / np.float64(HEAD)
    else:
        counts = there.sum(axis=1)
        last = best[np.arange(len(best)), np.maximum(counts - 1, 0)]
        low = np.where(counts > 0, last, np.float32(0))
        head = np.where(there[:, :HEAD], best[:, :HEAD], 0).sum(axis=1) / np.clip(counts, 1, HEAD)
    spread = np.where(head > low, head - low, np.float32(1))
    return low, spread.astype(np.float32)
