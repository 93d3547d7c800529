"""How well a probability tells, of items that users considered, those that they liked.

Where a log tells what was considered and not liked (1 to 3 stars), `like` has the ground truth that the footnote to
Figure 5 of the random-graph paper misses: g of pairs with h = 1.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.calibration import calibration_curve

LOG_LOSS_EPSILON = 1e-6  # probabilities are kept at least this far from 0 and 1, so that no pair's loss is infinite
PRIOR_USERS = 5.0  # imagined ones, who considered every item and liked it as often as all items are liked


@dataclass(frozen=True)
class Estimate:
    """A figure over pairs; `standard_error` None where it has none."""

    value: float
    standard_error: float | None


def evaluate_probabilities(probability: np.ndarray, liked: np.ndarray) -> dict[str, Estimate]:
    """The figures of pairs that were considered; pairs are taken for independent.

    Args:
        probability: float (pairs,), that the pair is a like.
        liked: bool (pairs,), whether it is; both kinds are there.

    Returns:
        considered_auc: the chance that a like has a higher probability than a dislike, ties a half; its standard error by
            DeLong et al. 1988.
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
    """The area under the ROC curve."""
    likes, dislikes = scores[liked], scores[~liked]
    above = _rank_shares(likes, dislikes)  # of dislikes, for each like
    below = 1 - _rank_shares(dislikes, likes)
    few = min(len(likes), len(dislikes)) < 2
    error = None if few else float(np.sqrt(above.var(ddof=1) / len(likes) + below.var(ddof=1) / len(dislikes)))
    return Estimate(float(above.mean()), error)


def _rank_shares(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The share of `others` below each score, ties a half, float64 (scores,)."""
    ordered = np.sort(others)
    below, at_most = (np.searchsorted(ordered, scores, side=side) for side in ("left", "right"))
    return (below + at_most) / (2 * len(others))


def calibration_error(probability: np.ndarray, truth: np.ndarray) -> float:
    """The expected calibration error, in ten equal bins; `truth` (pairs,) may be a probability too."""
    bins = calibration_curve(probability, truth.astype(np.float64), np.ones(len(probability)))
    return float(sum(one.pairs * abs(one.mean_like - one.observed) for one in bins) / len(probability))


def smoothed_like_rates(likes: csr_matrix, dislikes: csr_matrix) -> np.ndarray:
    """What popularity can say: of the users who considered an item, the share who liked it, float64 (items,).

    Shrunk towards the share over all items, as if USERS_OF_PRIOR more had considered each.
    """
    liked, not_liked = (np.bincount(one.indices, minlength=one.shape[1]) for one in (likes, dislikes))
    share = liked.sum() / (liked.sum() + not_liked.sum())
    return (liked + PRIOR_USERS * share) / (liked + not_liked + PRIOR_USERS)
