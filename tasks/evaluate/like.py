"""What `like` says of the held-out edges of leave_one_out, and what came true of it.

The sample has the held-out edge of every user, and beside it one negative of the same user, drawn as the model's
fit draws them but in a hidden graph of its own. Held against it, `like` is judged as what it estimates: the ratio
of the rate of likes to that of likes and negatives together. References, in `evaluation.calibration`:

    sampled_negatives  the pair is a held-out edge (1) or a negative (0); for data whose truth nobody knows
    density_ratio      the true ratio of the rates, where the demo's generative story is known
    coin               the true probability that the user likes the item once it is considered; negatives hold
                       items that the user would like, so that no model of such negatives tends to it
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from models.base import Model
from models.evaluation.calibration import CalibrationBin, LikeBin, calibrate, like_by_degree
from models.generator.density_ratio import Truth
from models.negatives.laws import NegativeLaw
from models.numerics.threads import kernel_threads
from tasks.stores.matrices import Part, SplitMatrices

BLOCK = 1 << 16  # users
TRUTH_BLOCK = 512  # users, of whom every item is looked at
MOST_WITH_TRUTH = 5_000  # users whose pairs are held against the truth


@dataclass(frozen=True)
class Like:
    """`like` of one model: of held-out edges by degree, and its calibration by reference."""

    model: str
    bins: list[LikeBin]
    calibration: list[tuple[str, CalibrationBin]]


@dataclass(frozen=True)
class _Sample:
    """One held-out edge a user, and one negative; (users,) arrays, and (users, 2) where the two stand side by side.

    Attributes:
        users: rows of the training matrix.
        items: the held-out item and the negative, -1 where there is none.
        like: of both.
        weights: how many pairs of the fit each stands for.
    """

    users: np.ndarray
    items: np.ndarray
    like: np.ndarray
    weights: np.ndarray


def of_model(model: Model, split: SplitMatrices, truth: Truth | None) -> Like | None:
    """Judge one model on leave_one_out; None where it has no `like`."""
    law, part = model.negative_law(), split.parts["test"]
    blocks = list(_blocks(model, law, split, part))
    if not blocks:
        return None
    users, items, like, weights = (np.concatenate(column) for column in zip(*blocks, strict=True))
    bins = like_by_degree(like[:, 0], np.diff(split.train.indptr)[users])
    if law is None:
        return Like(model.name, bins, [])
    sample = _Sample(users, items, like, weights)
    came_true = np.tile([1.0, 0.0], (len(users), 1))
    calibration = _against("sampled_negatives", sample, came_true)
    if truth is not None:
        some = slice(None, None, -(-len(users) // MOST_WITH_TRUTH))
        sample = _Sample(users[some], items[some], like[some], weights[some])
        ratio, coin = _truths(law, split, truth, sample)
        calibration += _against("density_ratio", sample, ratio) + _against("coin", sample, coin)
    return Like(model.name, bins, calibration)


def _blocks(
    model: Model, law: NegativeLaw | None, split: SplitMatrices, part: Part
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """The columns of a `_Sample`, for block after block of the users with a held-out edge."""
    held_out = np.flatnonzero(np.diff(part.targets.indptr))
    for start in range(0, len(held_out), BLOCK):
        block = held_out[start : start + BLOCK]
        targets, users = part.targets[block], part.rows[block]
        items = np.stack([targets.indices, np.full(len(block), -1, dtype=np.int32)], axis=1)
        weights = np.ones((len(block), 2))
        if law is not None:
            with kernel_threads(model.threads):
                items[:, 1] = law.draw(split.train, users, model.seed)
            weights = np.stack(law.weights(split.train, users, targets.data), axis=1)
        found = model.like(part.histories[block], users=users, items=items)
        if found is None:
            return
        yield users, items, found[0], weights


def _against(reference: str, sample: _Sample, truth: np.ndarray) -> list[tuple[str, CalibrationBin]]:
    there = (sample.items >= 0) & (sample.weights > 0)
    bins = calibrate(sample.like[there], truth[there], sample.weights[there])
    return [(reference, one) for one in bins]


def _truths(law: NegativeLaw, split: SplitMatrices, truth: Truth, sample: _Sample) -> tuple[np.ndarray, np.ndarray]:
    """The true density ratio and the true coin of every pair, float64 (users, 2) each."""
    ratios, coins = [], []
    degrees = np.diff(split.train.indptr)
    for start in range(0, len(sample.users), TRUTH_BLOCK):
        users, items = (column[start : start + TRUTH_BLOCK] for column in (sample.users, sample.items))
        likes = truth.like_rates(users, degrees[users])
        negatives = law.rates(split.train, users, likes)
        pairs = np.arange(len(users))[:, None], items
        ratios.append(likes[pairs] / (likes[pairs] + negatives[pairs]))
        coins.append(truth.coins(users)[pairs])
    return np.concatenate(ratios), np.concatenate(coins)
