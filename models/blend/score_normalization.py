"""Normalisation of scores, so that those of different models can be added.

Of a user's candidates, the items that are not in the history, the hundredth best score becomes 0 and the mean of the
ten best 1: s -> (s - s[100th]) / (mean of s[1st] to s[10th] - s[100th]). So a weight says how much a model's opinion of
the head of the list counts, whatever its scores are: log odds, sums of weights or products of factors. Items of the
history are scored on the same scale.
"""

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.top_k import as_index_arrays, top_n_threshold

SCALE_END_RANK, SCALE_HEAD_RANKS = 100, 10


def normalize_scores(scores: np.ndarray, histories: csr_matrix) -> np.ndarray:
    """Normalise the scores of one model to the common scale, in place.

    Args:
        scores: float32 (block, items).
        histories: (block, items) CSR, each user's known likes.

    Returns:
        `scores`.
    """
    return rescale_scores(scores, *find_scale(scores, histories))


def rescale_scores(scores: np.ndarray, low: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Shift scores, float32 (block, items), by `low` and divide them by `spread`, in place."""
    scores -= low[:, None]
    scores /= spread[:, None]
    return scores


def find_scale(scores: np.ndarray, histories: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Find the zero and the unit of each user's scale, both float32 (block,).

    If a user has fewer than SCALE_END_RANK candidates, the last one replaces the hundredth; if all of the best are
    equal, the unit is 1.
    """
    low, spread = np.empty((2, len(scores)), dtype=np.float32)
    likes = as_index_arrays(histories.indptr, histories.indices)
    _find_scales(np.ascontiguousarray(scores, dtype=np.float32), *likes, low, spread)
    return low, spread


@njit(cache=True, nogil=True, parallel=True)
def _find_scales(scores, indptr, indices, low, spread):
    for user in prange(len(scores)):
        left = scores[user].copy()
        for item in indices[indptr[user] : indptr[user + 1]]:
            left[item] = -np.inf
        # Few more than the best hundred, and none that is -inf or NaN.
        best = np.sort(left[left > top_n_threshold(left, indices[:0], SCALE_END_RANK)])[::-1]
        count = min(SCALE_END_RANK, len(best))
        low[user], spread[user] = np.float32(0), np.float32(1)
        if count > 0:
            low[user], head = best[count - 1], 0.0
            for value in best[: min(SCALE_HEAD_RANKS, count)]:
                head += value
            above = np.float32(head / min(SCALE_HEAD_RANKS, count) - low[user])
            spread[user] = above if above > 0 else np.float32(1)
