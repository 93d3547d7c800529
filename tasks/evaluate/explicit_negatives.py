"""Evaluation of `like` on explicit feedback: held-out likes and held-out explicit negatives.

This is the ground truth that one-class data lack; it needs a log with explicit negatives and a run that keeps them
(`binarize.explicit_negatives`). The baseline is popularity: the share of users who liked an item among those who
considered it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import hstack

from oneclass.models.base import Model
from oneclass.models.evaluation.calibration import (
    CalibrationBin,
    Estimate,
    LikeBin,
    bin_likes_by_degree,
    calibration_curve,
    calibration_error,
    evaluate_probabilities,
    smoothed_like_rates,
)
from oneclass.models.generator.density_ratio import GroundTruth
from oneclass.tasks.stores.matrices import Part, SplitMatrices

USERS_PER_BLOCK = 1 << 10


@dataclass(frozen=True)
class ExplicitFeedbackResult:
    """The evaluation of one model's `like`, or of popularity, on the explicit feedback of a test part.

    Attributes:
        figures: estimates by metric.
        likes, dislikes: number of pairs of each kind.
        calibration: the bins of the probability.
        dislikes_by_degree: a model's dislikes by the training degree of their users; `error` is the share with a
            probability of one half or more.
    """

    model: str
    figures: dict[str, Estimate]
    likes: int
    dislikes: int
    calibration: list[CalibrationBin]
    dislikes_by_degree: list[LikeBin] = field(default_factory=list)


class ExplicitPairs(NamedTuple):
    """Liked and disliked pairs of some users, arrays (pairs,).

    Attributes:
        like: float32.
        liked: bool.
        degrees: training degrees of their users.
        coins: the true probabilities, float64; (0,) if unknown.
    """

    like: np.ndarray
    liked: np.ndarray
    degrees: np.ndarray
    coins: np.ndarray

    @classmethod
    def concatenate(cls, pairs: Sequence[Self]) -> Self:
        """Concatenate pairs in their order."""
        return cls(*map(np.concatenate, zip(*pairs, strict=True)))


def score_explicit_pairs(model: Model, part: Part, truth: GroundTruth | None) -> ExplicitPairs | None:
    """Score the liked and disliked pairs of some test users; None if the model has no `like`.

    Args:
        part: these users of the test part.
        truth: of the same users, if known.
    """
    blocks = []
    for users, items, liked in iterate_pair_blocks(part):
        rows = None if part.rows is None else part.rows[users]
        like = model.like(part.histories[users], users=rows, items=items)
        if like is None:
            return None
        exists = items >= 0
        coins = np.zeros(0)
        if truth is not None:
            coins = truth.pair_probabilities(np.broadcast_to(users[:, None], items.shape)[exists], items[exists])
        degrees = np.repeat(np.diff(part.histories.indptr)[users], exists.sum(axis=1))
        blocks.append(ExplicitPairs(like[0][exists], liked[exists], degrees, coins))
    return ExplicitPairs.concatenate(blocks)


def evaluate_explicit_feedback(model: str, pairs: ExplicitPairs) -> ExplicitFeedbackResult:
    """Evaluate a model's `like` on the pairs of all users."""
    like, liked, degrees, coins = pairs
    bins = [replace(bin_, error=1 - bin_.error) for bin_ in bin_likes_by_degree(like[~liked], degrees[~liked])]
    return replace(_evaluate_pairs(model, like, liked, coins if len(coins) else None), dislikes_by_degree=bins)


def evaluate_popularity_baseline(splits: Sequence[SplitMatrices]) -> ExplicitFeedbackResult | None:
    """Evaluate the items' smoothed like rates on the test parts; None without explicit negatives."""
    likes, dislikes = [], []
    for split in splits:
        part = split.parts["test"]
        if part.explicit_negatives is not None and split.explicit_negatives is not None and has_both_classes(part):
            shares = smoothed_like_rates(split.train, split.explicit_negatives)
            likes.append(shares[part.targets.indices])
            dislikes.append(shares[part.explicit_negatives.indices])
    if not likes:
        return None
    liked = np.arange(sum(map(len, likes + dislikes))) < sum(map(len, likes))
    return _evaluate_pairs("popularity", np.concatenate(likes + dislikes), liked, None)


def _evaluate_pairs(name: str, like: np.ndarray, liked: np.ndarray, coin: np.ndarray | None) -> ExplicitFeedbackResult:
    figures = evaluate_probabilities(like, liked)
    if coin is not None:
        figures["considered_coin_error"] = Estimate(calibration_error(like, coin), None)
    bins = calibration_curve(like, liked.astype(np.float64), np.ones(len(like)))
    return ExplicitFeedbackResult(name, figures, int(liked.sum()), int((~liked).sum()), bins)


def has_both_classes(part: Part) -> bool:
    """Whether the part has both held-out likes and held-out explicit negatives."""
    return part.explicit_negatives is not None and min(part.targets.nnz, part.explicit_negatives.nnz) > 0


def iterate_pair_blocks(part: Part) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield for blocks of users: positions in the part; each user's items, padded with -1; and which of them are
    likes.
    """
    assert part.explicit_negatives is not None
    for start in range(0, len(part.users), USERS_PER_BLOCK):
        users = np.arange(start, min(start + USERS_PER_BLOCK, len(part.users)))
        targets, negatives = part.targets[users], part.explicit_negatives[users]
        counts = np.diff(targets.indptr) + np.diff(negatives.indptr)
        both = hstack([targets, negatives], format="csr")  # a user's targets come first
        items = np.full((len(users), counts.max(initial=0)), -1, dtype=np.int32)
        exists = np.arange(items.shape[1]) < counts[:, None]
        items[exists] = both.indices % part.targets.shape[1]
        yield users, items, np.arange(items.shape[1]) < np.diff(targets.indptr)[:, None]
