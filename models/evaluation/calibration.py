"""How far `like` can be believed: what it says of held-out edges, and whether its values come true.

The held-out edges alone have no class of negatives, which is latent in one-class data. Figures 4 and 5 of the
random-graph paper therefore show how `like` is spread over held-out edges, whose truth is a like, and how
many of them it would deny. With pairs of the other class beside them (`models/negatives/laws.py`) `like` can be
held against what came true.
"""

from dataclasses import dataclass

import numpy as np

from models.evaluation.metrics import ends, log_bins

ONE_BY_ONE = 40  # the largest degree that has a slice of its own, in both papers
SLICES, TENTHS = 20, 10


@dataclass(frozen=True)
class LikeBin:
    """`like` of the held-out edges of users with a training degree between `low` and `high`, both included.

    Attributes:
        error: share below one half, the classification error of Figure 4.
        histogram: how many lie in each of twenty bins of equal width; the last one includes 1.
    """

    low: int
    high: int
    edges: int
    error: float
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class CalibrationBin:
    """Pairs with a `like` from `low` to below `high`; the last bin includes 1.

    Attributes:
        mean_like: what the model says of them on average.
        observed: what the reference says, on average with the same weights.
        standard_error: of `observed`; None where all pairs of the bin agree, and nothing tells how sure that is.
    """

    low: float
    high: float
    pairs: int
    mean_like: float
    observed: float
    standard_error: float | None


def like_by_degree(like: np.ndarray, degrees: np.ndarray) -> list[LikeBin]:
    """`like` of held-out edges by the degree of their users: 0, 1, ..., 40 one by one, then 41-63, 64-127, ...

    Args:
        like: (edges,), probabilities.
        degrees: (edges,), training degree of each edge's user.

    Returns:
        the bins that hold an edge, by degree.
    """
    first_log = int(log_bins(np.array([ONE_BY_ONE + 1]))[0])
    bins = np.where(degrees <= ONE_BY_ONE, degrees, ONE_BY_ONE + 1 + log_bins(degrees) - first_log)
    found = []
    for number in np.unique(bins):
        inside = like[bins == number]
        low, high = number, number
        if number > ONE_BY_ONE:
            low, high = ends(number - ONE_BY_ONE - 1 + first_log)
            low = max(low, ONE_BY_ONE + 1)
        histogram = tuple(np.bincount(_places(inside, SLICES), minlength=SLICES).tolist())
        found.append(LikeBin(int(low), int(high), len(inside), float(np.mean(inside < 0.5)), histogram))
    return found


def calibrate(like: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> list[CalibrationBin]:
    """What the reference says of pairs in ten bins of `like` of equal width, those that hold a pair.

    Args:
        like: (pairs,), probabilities.
        truth: (pairs,), whether the pair is a like (0 or 1), or a true probability of it.
        weights: (pairs,), positive: how many pairs of the fit one of the sample stands for.

    Returns:
        the bins that hold a pair, in order. With w the weights and o the weighted mean of the truth y in a bin,
        the standard error is that of a ratio of sums, sqrt(sum w^2 (y - o)^2) / sum w.
    """
    bins = _places(like, TENTHS)
    found = []
    for number in np.unique(bins):
        inside = bins == number
        w, y = weights[inside] / weights[inside].sum(), truth[inside].astype(np.float64)
        observed, mean_like = min(float(w @ y), 1.0), min(float(w @ like[inside]), 1.0)  # but for rounding
        error = float(np.sqrt(np.sum((w * (y - observed)) ** 2))) if np.ptp(y) > 0 else None
        low, high = float(number / TENTHS), float((number + 1) / TENTHS)
        found.append(CalibrationBin(low, high, len(y), mean_like, observed, error))
    return found


def _places(like: np.ndarray, count: int) -> np.ndarray:
    """Which of `count` bins of equal width from 0 to 1 each probability lies in."""
    return np.minimum((like.astype(np.float64) * count).astype(np.int64), count - 1)
