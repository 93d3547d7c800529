"""Calibration of `like`: its values on held-out edges, and the share of likes among pairs of equal values.

One-class data has no negatives. So Figures 4 and 5 of the random-graph paper show the values of `like` on held-out
edges, which are all likes, and the share of them that `like` gets wrong. With negatives drawn from the model's own
distribution (`models.negatives.distributions`), `like` can also be compared with the share of likes. A log with
explicit negatives (1 to 3 stars) gives it the ground truth that the footnote to Figure 5 misses: g of pairs with h = 1.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.metrics import bin_bounds, log_bins

MAX_SINGLE_DEGREE = 40  # the largest degree that has a bin of its own, in both papers
HISTOGRAM_BINS, CALIBRATION_BINS = 20, 10
LOG_LOSS_EPSILON = 1e-6  # probabilities are kept at least this far from 0 and 1, so that no pair's loss is infinite
PRIOR_USERS = 5.0  # pseudo-users who considered every item and liked it at the overall rate


@dataclass(frozen=True)
class LikeBin:
    """`like` of the held-out edges of users with a training degree from `low` to `high`, both included.

    Attributes:
        error: share of the edges with `like` below one half, the classification error of Figure 4.
        histogram: the number of edges in each of twenty equal bins of `like`; the last one includes 1.
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
        mean_like: the weighted mean of `like`.
        observed: the weighted mean of the truth.
        standard_error: of `observed`; None if the truth of all pairs in the bin is the same, so that it is unknown.
    """

    low: float
    high: float
    pairs: int
    mean_like: float
    observed: float
    standard_error: float | None


def bin_likes_by_degree(like: np.ndarray, degrees: np.ndarray) -> list[LikeBin]:
    """Group `like` of held-out edges by the degree of their users: 0, 1, ..., 40 one by one, then 41-63, 64-127, ...

    Args:
        like: (edges,), probabilities.
        degrees: (edges,), training degree of each edge's user.

    Returns:
        the bins with an edge, by degree.
    """
    first_log = int(log_bins(np.array([MAX_SINGLE_DEGREE + 1]))[0])
    bins = np.where(degrees <= MAX_SINGLE_DEGREE, degrees, MAX_SINGLE_DEGREE + 1 + log_bins(degrees) - first_log)
    found = []
    for number in np.unique(bins):
        inside = like[bins == number]
        low, high = number, number
        if number > MAX_SINGLE_DEGREE:
            low, high = bin_bounds(number - MAX_SINGLE_DEGREE - 1 + first_log)
            low = max(low, MAX_SINGLE_DEGREE + 1)
        histogram = tuple(np.bincount(_bin_indices(inside, HISTOGRAM_BINS), minlength=HISTOGRAM_BINS).tolist())
        found.append(LikeBin(int(low), int(high), len(inside), float(np.mean(inside < 0.5)), histogram))
    return found


def calibration_curve(like: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> list[CalibrationBin]:
    """Compare `like` with the truth, in ten equal bins of `like`.

    Args:
        like: (pairs,), probabilities.
        truth: (pairs,), whether the pair is a like (0 or 1), or the true probability that it is.
        weights: (pairs,), positive: how many pairs of the fit a pair of the sample stands for.

    Returns:
        the bins with a pair, in order. With w the weights and o the weighted mean of the truth y in a bin, the
        standard error is that of a ratio of sums, sqrt(sum w^2 (y - o)^2) / sum w.
    """
    bins = _bin_indices(like, CALIBRATION_BINS)
    found = []
    for number in np.unique(bins):
        inside = bins == number
        w, y = weights[inside] / weights[inside].sum(), truth[inside].astype(np.float64)
        observed, mean_like = min(float(w @ y), 1.0), min(float(w @ like[inside]), 1.0)  # rounding may exceed 1
        error = float(np.sqrt(np.sum((w * (y - observed)) ** 2))) if np.ptp(y) > 0 else None
        low, high = float(number / CALIBRATION_BINS), float((number + 1) / CALIBRATION_BINS)
        found.append(CalibrationBin(low, high, len(y), mean_like, observed, error))
    return found


def _bin_indices(like: np.ndarray, count: int) -> np.ndarray:
    """Return the bin of each probability, out of `count` equal bins from 0 to 1."""
    return np.minimum((like.astype(np.float64) * count).astype(np.int64), count - 1)


@dataclass(frozen=True)
class Estimate:
    """A metric over pairs; `standard_error` is None if it is not defined."""

    value: float
    standard_error: float | None


def evaluate_probabilities(probability: np.ndarray, liked: np.ndarray) -> dict[str, Estimate]:
    """Compute the metrics of liked and disliked pairs, taking pairs as independent.

    Args:
        probability: float (pairs,), that the pair is a like.
        liked: bool (pairs,), whether it is; both kinds must occur.

    Returns:
        considered_auc: the chance that a like has a higher probability than a dislike, ties a half; its standard error
            by DeLong et al. 1988.
        considered_log_loss: in nats.
        considered_calibration_error: the mean over ten equal bins of |mean probability - share of likes|, weighted by
            their pairs.
    """
    certain = np.clip(probability.astype(np.float64), LOG_LOSS_EPSILON, 1 - LOG_LOSS_EPSILON)
    losses = -np.log(np.where(liked, certain, 1 - certain))
    loss = Estimate(float(losses.mean()), float(losses.std(ddof=1) / np.sqrt(len(losses))))
    return {
        "considered_auc": auc(probability, liked),
        "considered_log_loss": loss,
        "considered_calibration_error": Estimate(calibration_error(probability, liked), None),
    }


def auc(scores: np.ndarray, liked: np.ndarray) -> Estimate:
    """Return the area under the ROC curve."""
    likes, dislikes = scores[liked], scores[~liked]
    above = _rank_shares(likes, dislikes)  # of dislikes, for each like
    below = 1 - _rank_shares(dislikes, likes)
    few = min(len(likes), len(dislikes)) < 2
    error = None if few else float(np.sqrt(above.var(ddof=1) / len(likes) + below.var(ddof=1) / len(dislikes)))
    return Estimate(float(above.mean()), error)


def _rank_shares(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the share of `others` below each score, ties a half, float64 (scores,)."""
    ordered = np.sort(others)
    below, at_most = (np.searchsorted(ordered, scores, side=side) for side in ("left", "right"))
    return (below + at_most) / (2 * len(others))


def calibration_error(probability: np.ndarray, truth: np.ndarray) -> float:
    """Return the expected calibration error, in ten equal bins; `truth` (pairs,) may be a probability too."""
    bins = calibration_curve(probability, truth.astype(np.float64), np.ones(len(probability)))
    return float(sum(bin_.pairs * abs(bin_.mean_like - bin_.observed) for bin_ in bins) / len(probability))


def smoothed_like_rates(likes: csr_matrix, dislikes: csr_matrix) -> np.ndarray:
    """Return the share of users who liked an item among those who considered it, float64 (items,).

    Shrunk towards the share over all items, as if PRIOR_USERS more users had considered each.
    """
    liked, not_liked = (np.bincount(pairs.indices, minlength=pairs.shape[1]) for pairs in (likes, dislikes))
    share = liked.sum() / (liked.sum() + not_liked.sum())
    return (liked + PRIOR_USERS * share) / (liked + not_liked + PRIOR_USERS)
