"""The one scale on which the scores of different models are added.

Of a user's candidates, the items that are not in the history, the hundredth best score becomes 0 and the mean of the ten
best 1: s -> (s - s[100th]) / (mean of s[1st] to s[10th] - s[100th]). So a weight says how much a model's opinion of the
head of the list counts, whatever its scores are: log odds, sums of weights or products of factors.
"""

import numpy as np
from numba import njit, prange
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
    low, spread = np.empty((2, len(best)), dtype=np.float32)
    _find_scales(best, low, spread)
    return low, spread


def add_moved(total: np.ndarray, weight: float, scores: np.ndarray, low: np.ndarray, spread: np.ndarray) -> None:
    """total += weight * `moved` scores, which stay as they are; all float32."""
    _add_moved(total, np.float32(weight), np.ascontiguousarray(scores), low, spread)


@njit(cache=True, nogil=True)
def _find_scales(best, low, spread):
    for user in range(len(best)):
        row, count, found, head = best[user], 0, 0, 0.0
        for place in range(LAST):
            if np.isfinite(row[place]):
                count += 1
                if place < HEAD:
                    found, head = found + 1, head + row[place]
        low[user] = row[count - 1] if count else 0
        above = head / max(found, 1) - low[user]
        spread[user] = above if above > 0 else 1


@njit(cache=True, nogil=True, parallel=True)
def _add_moved(total, weight, scores, low, spread):
    for user in prange(len(total)):
        of_user, row, start, unit = total[user], scores[user], low[user], spread[user]
        for item in range(len(row)):
            of_user[item] += weight * ((row[item] - start) / unit)
