"""What `like` says of the held-out edges of leave_one_out, and what came true of it.

The sample has the held-out edge of every user, and beside it one negative of the same user, drawn as the model's
fit draws them but in a hidden graph of its own. Held against it, `like` is judged as what it estimates: the ratio
of the rate of likes to that of likes and negatives together. References, in `evaluation.calibration`:

    sampled_negatives  the pair is a held-out edge (1) or a negative (0); for data whose truth nobody knows
    density_ratio      the true ratio of the rates, where the demo's generative story is known
    coin               the true probability that the user likes the item once it is considered; negatives hold
                       items that the user would like, so that no model of such negatives tends to it
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix

from models.base import Model
from models.evaluation.calibration import CalibrationBin, LikeBin, calibrate, like_by_degree
from models.generator.density_ratio import Truth
from models.negatives.laws import NegativeLaw
from models.numerics.threads import kernel_threads
from tasks.stores.matrices import Part

BLOCK = 1 << 16  # users
TRUTH_BLOCK = 512  # users, of whom every item is looked at
MOST_WITH_TRUTH = 5_000  # users whose pairs are held against the truth


@dataclass(frozen=True)
class Like:
    """`like` of one model: of held-out edges by degree, and its calibration by reference."""

    model: str
    bins: list[LikeBin]
    calibration: list[tuple[str, CalibrationBin]]


class Sample(NamedTuple):
    """One held-out edge of each of some users, and one negative; the two stand side by side, (users, 2).

    Attributes:
        like: float32 (users, 2).
        weights: float64 (users, 2), how many pairs of the fit each stands for; 0 where there is no pair.
        degrees: (users,) training degrees.
        held_against: bool (users,), those whose pairs are held against the truth.
        ratio, coin: float64 (held against, 2), the true density ratio and the true coin.
    """

    like: np.ndarray
    weights: np.ndarray
    degrees: np.ndarray
    held_against: np.ndarray
    ratio: np.ndarray
    coin: np.ndarray

    @classmethod
    def joined(cls, samples: Sequence[Self]) -> Self:
        """The sample of the users of all of them, in their order."""
        return cls(*map(np.concatenate, zip(*samples, strict=True)))


def sampled(
    model: Model, law: NegativeLaw | None, train: csr_matrix, part: Part, truth: Truth | None, held_against: np.ndarray
) -> Sample | None:
    """The sample of some test users; None where the model has no `like`.

    Args:
        law: of the model's negatives.
        part: these users of the test part.
        truth: of the same users, where it is known.
        held_against: bool (users of `part`,), whose pairs are held against it.
    """
    samples = list(_samples(model, law, train, part, truth, held_against))
    return Sample.joined(samples) if samples else None


def judged(model: str, sample: Sample) -> Like:
    """What the sample of all users says of a model's `like`."""
    bins = like_by_degree(sample.like[:, 0], sample.degrees)
    came_true = np.tile([1.0, 0.0], (len(sample.like), 1))
    calibration = _against("sampled_negatives", sample.like, sample.weights, came_true)
    some = sample.like[sample.held_against], sample.weights[sample.held_against]
    calibration += _against("density_ratio", *some, sample.ratio) + _against("coin", *some, sample.coin)
    return Like(model, bins, calibration)


def held_against_truth(first: int, users: int, of: int) -> np.ndarray:
    """Whether the pairs of the users from number `first` on, out of `of`, are held against the truth: bool (users,)."""
    return np.arange(first, first + users) % -(-of // MOST_WITH_TRUTH) == 0


def _samples(
    model: Model, law: NegativeLaw | None, train: csr_matrix, part: Part, truth: Truth | None, held_against: np.ndarray
) -> Iterator[Sample]:
    """Of block after block of the users with a held-out edge."""
    held_out = np.flatnonzero(np.diff(part.targets.indptr))
    for start in range(0, len(held_out), BLOCK):
        block = held_out[start : start + BLOCK]
        targets, users, histories = part.targets[block], part.rows[block], part.histories[block]
        items = np.stack([targets.indices, np.full(len(block), -1, dtype=np.int32)], axis=1)
        weights = np.zeros((len(block), 2))
        if law is not None:
            with kernel_threads(model.threads):
                items[:, 1] = law.draw(train, users, model.seed)
            weights = np.stack(law.weights(train, users, targets.data), axis=1) * (items >= 0)
        found = model.like(histories, users=users, items=items)
        if found is None:
            return
        degrees, against = np.diff(histories.indptr), held_against[block]
        ratio = coin = np.zeros((0, 2))
        if truth is None or law is None:
            against = np.zeros(len(block), dtype=bool)
        else:
            of_these = truth.of_users(block[against]), users[against], degrees[against], items[against]
            ratio, coin = _truths(law, train, *of_these)
        yield Sample(found[0], weights, degrees, against, ratio, coin)


def _against(
    reference: str, like: np.ndarray, weights: np.ndarray, truth: np.ndarray
) -> list[tuple[str, CalibrationBin]]:
    there = weights > 0
    return [(reference, one) for one in calibrate(like[there], truth[there], weights[there])]


def _truths(
    law: NegativeLaw, train: csr_matrix, truth: Truth, rows: np.ndarray, degrees: np.ndarray, pairs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The true density ratio and the true coin of every pair, float64 (users, 2) each.

    Args:
        truth: of these users.
        rows, degrees: (users,) their rows in `train`, and how many edges these have.
        pairs: (users, 2), two items of each.
    """
    ratios, coins = np.zeros((2, *pairs.shape))
    for start in range(0, len(rows), TRUTH_BLOCK):
        block = np.arange(start, min(start + TRUTH_BLOCK, len(rows)))
        likes = truth.like_rates(block, degrees[block])
        negatives = law.rates(train, rows[block], likes)
        at = np.arange(len(block))[:, None], pairs[block]
        ratios[block] = likes[at] / (likes[at] + negatives[at])
        coins[block] = truth.coins(block)[at]
    return ratios, coins
