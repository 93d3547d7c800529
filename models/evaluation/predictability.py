"""How well a user's list will be, told without labels: from the scores of what the user already likes."""

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

LEAST_VARIANCE = 1e-12  # of the mean square; below, all scores are one but for rounding
SAMPLED_ITEMS = 8192


def sample_items(item_degrees: np.ndarray) -> np.ndarray:
    """Draw columns whose scores stand for those of a large catalogue: every so many-th by popularity, int32, sorted."""
    order = np.argsort(-item_degrees, kind="stable")
    places = np.linspace(0, len(order) - 1, min(SAMPLED_ITEMS, len(order))).astype(np.int64)
    return np.sort(order[places]).astype(np.int32)


def predictability(scores: np.ndarray, histories: csr_matrix, sampled: np.ndarray | None = None) -> np.ndarray:
    """Test whether a model scores the items of a user's history above the others.

    The statistic is sqrt(n) (m - mean) / sd, where m is the mean score of the n items of the history, and mean and sd
    are those of the user's scores of all items. Users with a larger one get better lists. It has no scale, so that
    models can be compared by it.

    Args:
        scores: float32 (block, items), of every item, seen or not; or of those sampled and those of the histories.
        histories: (block, items) CSR.
        sampled: columns whose mean and sd are taken, by default all.

    Returns:
        float64 (block,); 0 for a user without a history, or to whom all items have one score.
    """
    lengths = np.diff(histories.indptr)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    own = np.bincount(rows, scores[rows, histories.indices], minlength=len(lengths))
    mean, square = _average_rows(scores if sampled is None else np.take(scores, sampled, axis=1))
    variance = square - mean**2
    scale = np.sqrt(np.maximum(variance, 0) * lengths)
    known = (variance > LEAST_VARIANCE * square) & (lengths > 0)
    return np.divide(own - lengths * mean, scale, out=np.zeros(len(lengths)), where=known)


@njit(cache=True, fastmath={"reassoc", "contract"}, parallel=True, nogil=True)
def _average_rows(scores):
    """The mean and the mean square of each row, float64 (block,) each."""
    mean, square = np.empty(len(scores)), np.empty(len(scores))
    for row in prange(len(scores)):
        total = squares = 0.0
        for item in range(scores.shape[1]):
            value = np.float64(scores[row, item])
            total += value
            squares += value * value
        mean[row], square[row] = total / scores.shape[1], squares / scores.shape[1]
    return mean, square
