"""Normalisation of scores, so that those of different models can be added.

Of a user's candidates, the items that are not in the history, the hundredth best score becomes 0 and the mean of the
ten best 1: s -> (s - s[100th]) / (mean of s[1st] to s[10th] - s[100th]). So a weight says how much a model's opinion of
the head of the list counts, whatever its scores are: log odds, sums of weights or products of factors. Items of the
history are scored on the same scale.
"""

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.top_k import as_index_arrays, select_largest, top_n_threshold

SCALE_END_RANK, SCALE_HEAD_RANKS = 100, 10
NO_TOTAL = np.empty((0, 0), dtype=np.float32)


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
    _find_scales(*_arrays(scores, histories), low, spread, NO_TOTAL, np.float32(0))
    return low, spread


def add_normalized(total: np.ndarray, weight: float, scores: np.ndarray, histories: csr_matrix) -> np.ndarray:
    """Add weight * normalised scores to `total` in place; `scores` is unchanged; all float32.

    Returns:
        The units of the scales, as in `find_scale`.
    """
    low, spread = np.empty((2, len(scores)), dtype=np.float32)
    _find_scales(*_arrays(scores, histories), low, spread, total, np.float32(weight))
    return spread


def _arrays(scores: np.ndarray, histories: csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.ascontiguousarray(scores, dtype=np.float32), *as_index_arrays(histories.indptr, histories.indices)


@njit(cache=True, nogil=True)
def _row_scale(scores, history):
    """Where the scale begins, and its unit; `history` has columns of `scores`."""
    left = scores.copy()
    for item in history:
        left[item] = -np.inf
    best = left[
        left > top_n_threshold(left, history[:0], SCALE_END_RANK)
    ]  # few more than LAST, and none that is -inf or NaN
    count = min(SCALE_END_RANK, len(best))
    if count == 0:
        return np.float32(0), np.float32(1)
    low, first = select_largest(best, count), min(SCALE_HEAD_RANKS, count)
    select_largest(best[:count], first)
    _sort_descending(best[:first])
    head = 0.0
    for place in range(first):
        head += best[place]
    above = np.float32(head / first - low)
    return low, above if above > 0 else np.float32(1)


@njit(cache=True, nogil=True)
def _sort_descending(values):
    for end in range(1, len(values)):
        value, place = values[end], end
        while place > 0 and value > values[place - 1]:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value


@njit(cache=True, nogil=True, parallel=True)
def _find_scales(scores, indptr, indices, low, spread, total, weight):
    """Fill the scales; add the scores, on them and weighted, to `total` if it is not empty."""
    for user in prange(len(scores)):
        row = scores[user]
        low[user], spread[user] = start, unit = _row_scale(row, indices[indptr[user] : indptr[user + 1]])
        if len(total) > 0:
            of_user = total[user]
            for item in range(len(row)):
                of_user[item] += weight * ((row[item] - start) / unit)
