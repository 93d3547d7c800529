"""`like` judged by what was considered: held-out likes, and held-out items that were considered and not liked.

That is the ground truth of both kinds which one-class data lack, where a log tells it and a run keeps it
(`binarize.explicit_negatives`). Beside the models stands popularity: the share of an item's considerers who liked it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import hstack

from oneclass.models.base import Model
from oneclass.models.evaluation.calibration import CalibrationBin, LikeBin, bin_likes_by_degree, calibration_curve
from oneclass.models.evaluation.explicit_negatives import (
    Estimate,
    calibration_error,
    evaluate_probabilities,
    smoothed_like_rates,
)
from oneclass.models.generator.density_ratio import GroundTruth
from oneclass.tasks.stores.matrices import Part, SplitMatrices

USERS_PER_BLOCK = 1 << 10  # users


@dataclass(frozen=True)
class ExplicitFeedbackResult:
    """What one model's `like`, or popularity, says of the considered pairs of a test part.

    Attributes:
        figures: by metric.
        likes, dislikes: how many pairs there are of each kind.
        calibration: the bins of the probability.
        dislikes_by_degree: of a model's, the dislikes by the training degree of their users; `error` is the share with a
            probability of one half or more.
    """

    model: str
    figures: dict[str, Estimate]
    likes: int
    dislikes: int
    calibration: list[CalibrationBin]
    dislikes_by_degree: list[LikeBin] = field(default_factory=list)


class ExplicitPairs(NamedTuple):
    """Pairs that some users considered; (pairs,) each.

    Attributes:
        like: float32.
        liked: bool.
        degrees: of their users, in training.
        coins: the true probabilities, float64; (0,) where they are not known.
    """

    like: np.ndarray
    liked: np.ndarray
    degrees: np.ndarray
    coins: np.ndarray

    @classmethod
    def concatenate(cls, pairs: Sequence[Self]) -> Self:
        """The pairs of the users of all of them, in their order."""
        return cls(*map(np.concatenate, zip(*pairs, strict=True)))


def score_explicit_pairs(model: Model, part: Part, truth: GroundTruth | None) -> ExplicitPairs | None:
    """The considered pairs of some test users; None where the model has no `like`.

    Args:
        part: these users of the test part.
        truth: of the same users, where it is known.
    """
    found = []
    for users, items, liked in _iterate_pair_blocks(part):
        rows = None if part.rows is None else part.rows[users]
        like = model.like(part.histories[users], users=rows, items=items)
        if like is None:
            return None
        there = items >= 0
        coins = np.zeros(0)
        if truth is not None:
            coins = truth.pair_probabilities(np.broadcast_to(users[:, None], items.shape)[there], items[there])
        degrees = np.repeat(np.diff(part.histories.indptr)[users], there.sum(axis=1))
        found.append(ExplicitPairs(like[0][there], liked[there], degrees, coins))
    return ExplicitPairs.concatenate(found)


def evaluate_explicit_feedback(model: str, pairs: ExplicitPairs) -> ExplicitFeedbackResult:
    """What the pairs of all users say of a model's `like`."""
    like, liked, degrees, coins = pairs
    bins = [replace(one, error=1 - one.error) for one in bin_likes_by_degree(like[~liked], degrees[~liked])]
    return replace(_evaluate_pairs(model, like, liked, coins if len(coins) else None), dislikes_by_degree=bins)


def evaluate_popularity_baseline(split: SplitMatrices) -> ExplicitFeedbackResult | None:
    """Judge the shares of items' considerers who liked them; None where nothing was kept to judge by."""
    part = split.parts["test"]
    if part.negatives is None or split.negatives is None or not _has_both_classes(part):
        return None
    shares = smoothed_like_rates(split.train, split.negatives)
    likes, dislikes = (shares[one.indices] for one in (part.targets, part.negatives))
    liked = np.arange(len(likes) + len(dislikes)) < len(likes)
    return _evaluate_pairs("popularity", np.concatenate([likes, dislikes]), liked, None)


def _evaluate_pairs(name: str, like: np.ndarray, liked: np.ndarray, coin: np.ndarray | None) -> ExplicitFeedbackResult:
    figures = evaluate_probabilities(like, liked)
    if coin is not None:
        figures["considered_coin_error"] = Estimate(calibration_error(like, coin), None)
    bins = calibration_curve(like, liked.astype(np.float64), np.ones(len(like)))
    return ExplicitFeedbackResult(name, figures, int(liked.sum()), int((~liked).sum()), bins)


def _has_both_classes(part: Part) -> bool:
    """Whether some of the users have a held-out like, and some a held-out item that they considered and did not like."""
    return part.negatives is not None and min(part.targets.nnz, part.negatives.nnz) > 0


def _iterate_pair_blocks(part: Part) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Places in the part of some users; the items of each that are judged, padded with -1; and which of them are likes."""
    assert part.negatives is not None
    for start in range(0, len(part.users), USERS_PER_BLOCK):
        users = np.arange(start, min(start + USERS_PER_BLOCK, len(part.users)))
        targets, negatives = part.targets[users], part.negatives[users]
        counts = np.diff(targets.indptr) + np.diff(negatives.indptr)
        both = hstack([targets, negatives], format="csr")  # a user's targets come first
        items = np.full((len(users), counts.max(initial=0)), -1, dtype=np.int32)
        there = np.arange(items.shape[1]) < counts[:, None]
        items[there] = both.indices % part.targets.shape[1]
        yield users, items, np.arange(items.shape[1]) < np.diff(targets.indptr)[:, None]
