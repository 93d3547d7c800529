"""How well a probability separates liked from explicitly disliked items.

A log with explicit negatives (1 to 3 stars) gives `like` the ground truth that the footnote to Figure 5 of the
random-graph paper misses: g of pairs with h = 1.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.calibration import calibration_curve

LOG_LOSS_EPSILON = 1e-6  # probabilities are kept at least this far from 0 and 1, so that no pair's loss is infinite
PRIOR_USERS = 5.0  # pseudo-users who considered every item and liked it at the overall rate


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
