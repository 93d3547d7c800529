"""Calibration of `like` on the held-out edges of leave_one_out, and its evaluation on explicit feedback.

The sample has the held-out edge of every user and one negative of the same user, drawn as the model's fit draws them
but in a separate hidden graph. `like` is compared with its estimand, the rate of likes over the rate of likes and
negatives: in `evaluation.calibration` the reference `sampled_negatives`, 1 for a held-out edge and 0 for a negative.

On explicit feedback `like` is judged by held-out likes and held-out explicit negatives, the ground truth that one-class
data lack; it needs a log with explicit negatives and a run that keeps them (`binarize.explicit_negatives`). The
baseline is popularity: the share of users who liked an item among those who considered it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_matrix, hstack

from oneclass.models.base import Model
from oneclass.models.evaluation.calibration import (
    CalibrationBin,
    Estimate,
    LikeBin,
    bin_likes_by_degree,
    calibration_curve,
    evaluate_probabilities,
    smoothed_like_rates,
)
from oneclass.models.negatives.distributions import NegativeDistribution
from oneclass.tasks.stores.matrices import Part, SplitMatrices

USERS_PER_BLOCK, USERS_PER_PAIR_BLOCK = 1 << 16, 1 << 10


@dataclass(frozen=True)
class LikeCalibration:
    """`like` of one model on held-out edges by degree, and its calibration by reference."""

    model: str
    bins: list[LikeBin]
    calibration: list[tuple[str, CalibrationBin]]


class CalibrationSample(NamedTuple):
    """One held-out edge and one negative of each of some users, in the columns of (users, 2) arrays.

    Attributes:
        like: float32 (users, 2).
        weights: float64 (users, 2), the number of pairs of the fit that each represents; 0 for a missing pair.
        degrees: (users,) training degrees.
    """

    like: np.ndarray
    weights: np.ndarray
    degrees: np.ndarray


SampleT = TypeVar("SampleT", CalibrationSample, "ExplicitPairs")


def concatenate(parts: Sequence[SampleT]) -> SampleT:
    """Join samples or pairs of users column by column, in their order."""
    return type(parts[0])(*map(np.concatenate, zip(*parts, strict=True)))


def sample_likes(
    model: Model, negative_distribution: NegativeDistribution | None, train: csr_matrix, part: Part
) -> CalibrationSample | None:
    """Sample pairs of some test users; None if the model has no `like`.

    Args:
        negative_distribution: of the model's sampled negatives, if it has any.
        part: these users of the test part.
    """
    assert part.rows is not None  # these users are trained on
    held_out, samples = np.flatnonzero(np.diff(part.targets.indptr)), list[CalibrationSample]()
    for start in range(0, len(held_out), USERS_PER_BLOCK):
        block = held_out[start : start + USERS_PER_BLOCK]
        targets, users, histories = part.targets[block], part.rows[block], part.histories[block]
        items = np.stack([targets.indices, np.full(len(block), -1, dtype=np.int32)], axis=1)
        weights = np.zeros((len(block), 2))
        if negative_distribution is not None:
            items[:, 1] = negative_distribution.draw(train, users, model.seed)
            weights = np.stack(negative_distribution.weights(train, users, targets.data), axis=1) * (items >= 0)
        like = model.like(histories, users=users, items=items)
        if like is None:
            return None
        samples.append(CalibrationSample(like[0], weights, np.diff(histories.indptr)))
    return concatenate(samples) if samples else None


def evaluate_like(model: str, sample: CalibrationSample) -> LikeCalibration:
    """Evaluate a model's `like` on the sample of all users."""
    is_like, exists = np.tile([1.0, 0.0], (len(sample.like), 1)), sample.weights > 0
    curve = calibration_curve(sample.like[exists], is_like[exists], sample.weights[exists])
    bins = bin_likes_by_degree(sample.like[:, 0], sample.degrees)
    return LikeCalibration(model, bins, [("sampled_negatives", bin_) for bin_ in curve])


@dataclass(frozen=True)
class ExplicitFeedbackResult:
    """The evaluation of one model's `like`, or of popularity, on the explicit feedback of a test part.

    Attributes:
        figures: estimates by metric.
        likes, dislikes: number of pairs of each kind.
        calibration: the bins of the probability.
    """

    model: str
    figures: dict[str, Estimate]
    likes: int
    dislikes: int
    calibration: list[CalibrationBin]


class ExplicitPairs(NamedTuple):
    """The `like`, float32 (pairs,), of pairs of some users, and whether each is liked, bool (pairs,)."""

    like: np.ndarray
    liked: np.ndarray


def score_explicit_pairs(model: Model, part: Part) -> ExplicitPairs | None:
    """Score the liked and disliked pairs of these users of the test part; None if the model has no `like`."""
    blocks = []
    for users, items, liked in iterate_pair_blocks(part):
        rows = None if part.rows is None else part.rows[users]
        like = model.like(part.histories[users], users=rows, items=items)
        if like is None:
            return None
        exists = items >= 0
        blocks.append(ExplicitPairs(like[0][exists], liked[exists]))
    return concatenate(blocks)


def evaluate_explicit_feedback(model: str, pairs: ExplicitPairs) -> ExplicitFeedbackResult:
    """Evaluate a model's `like` on the pairs of all users."""
    like, liked = pairs
    bins = calibration_curve(like, liked.astype(np.float64), np.ones(len(like)))
    figures = evaluate_probabilities(like, liked)
    return ExplicitFeedbackResult(model, figures, int(liked.sum()), int((~liked).sum()), bins)


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
    return evaluate_explicit_feedback("popularity", ExplicitPairs(np.concatenate(likes + dislikes), liked))


def has_both_classes(part: Part) -> bool:
    """Whether the part has both held-out likes and held-out explicit negatives."""
    return part.explicit_negatives is not None and min(part.targets.nnz, part.explicit_negatives.nnz) > 0


def iterate_pair_blocks(part: Part) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, by blocks of users, positions in the part, each user's items padded with -1, and which are likes."""
    assert part.explicit_negatives is not None
    for start in range(0, len(part.users), USERS_PER_PAIR_BLOCK):
        users = np.arange(start, min(start + USERS_PER_PAIR_BLOCK, len(part.users)))
        targets, negatives = part.targets[users], part.explicit_negatives[users]
        counts = np.diff(targets.indptr) + np.diff(negatives.indptr)
        both = hstack([targets, negatives], format="csr")  # a user's targets come first
        items = np.full((len(users), counts.max(initial=0)), -1, dtype=np.int32)
        exists = np.arange(items.shape[1]) < counts[:, None]
        items[exists] = both.indices % part.targets.shape[1]
        yield users, items, np.arange(items.shape[1]) < np.diff(targets.indptr)[:, None]
