"""Calibration of `like` on the held-out edges of leave_one_out.

The sample has the held-out edge of every user and one negative of the same user, drawn as the model's fit draws them
but in a separate hidden graph. `like` is compared with its estimand, the rate of likes over the rate of likes and
negatives. References, in `evaluation.calibration`:

    sampled_negatives  the pair is a held-out edge (1) or a negative (0); for data without a known truth
    density_ratio      the true ratio of the rates, known for the demo's generative model
    coin               the true probability that the user likes the item once it is considered; negatives include
                       items that the user would like, so no model of such negatives converges to it
"""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import duckdb
import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.evaluation.calibration import CalibrationBin, LikeBin, bin_likes_by_degree, calibration_curve
from oneclass.models.generator.density_ratio import GroundTruth, solve_odds
from oneclass.models.negatives.distributions import NegativeDistribution
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, escape_path
from oneclass.tasks.stores.matrices import Part, SplitMatrices

logger = logging.getLogger(__name__)


def load_truth(home: Home, split: SplitMatrices) -> GroundTruth | None:
    """Load the truth behind a split of the demo; None for other data, or if its likes differ from the split's.

    They differ if `binarize` has other settings than the demo's own.
    """
    edges = home.truth / "edges.parquet"
    if not edges.is_file():
        return None
    demo_settings = json.loads((home.truth / "settings.json").read_text(encoding="utf-8"))["settings"]
    with warehouse.open_warehouse(home, read_only=True) as connection:
        differing = warehouse.select(connection, "evaluate/not_in_truth", edges=escape_path(edges)).row(0)
        if any(differing):
            logger.info(
                "calibration: %d edges are not likes of the demo's truth and %d of its likes are not edges; "
                "`like` is not compared with it",
                *differing,
            )
            return None
        ids = [
            _truth_rows(connection, side)[indices] for side, indices in (("user", split.users), ("item", split.items))
        ]
        counts = (demo_settings["users"], demo_settings["items"])
        degrees = [_hidden_degrees(connection, edges, *one) for one in zip(("user", "item"), counts)]
    odds = solve_odds(*degrees)
    users, items, item_bias = (np.load(home.truth / f"{name}.npy") for name in ("users", "items", "item_bias"))
    return GroundTruth(users[ids[0]], items[ids[1]], item_bias[ids[1]], odds[0][ids[0]], odds[1][ids[1]])


def _truth_rows(connection: duckdb.DuckDBPyConnection, side: str) -> np.ndarray:
    """Return the row in the truth of each curated index: the number in the demo's log, from 0."""
    rows = f"select {side}_id::bigint - 1 as id from indexed.{side}s order by {side}_index"
    return warehouse.query(connection, rows)["id"].to_numpy()


def _hidden_degrees(connection: duckdb.DuckDBPyConnection, edges: Path, side: str, count: int) -> np.ndarray:
    """Return the degrees in the hidden graph, int64 (count,)."""
    # one row per user (item) of the demo's hidden graph: its number in the truth, from 0, and its degree
    text = f'select "{side}" - 1 as id, count(*) as degree from read_parquet($edges) group by id'
    rows = warehouse.query(connection, text, edges=escape_path(edges))
    degrees = np.zeros(count, dtype=np.int64)
    degrees[rows["id"].to_numpy()] = rows["degree"].to_numpy()
    return degrees


USERS_PER_BLOCK = 1 << 16
USERS_PER_TRUTH_BLOCK = 512  # a block has the true probabilities of all items
MAX_TRUTH_USERS = 5_000  # users whose pairs are compared with the truth


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
        has_truth: bool (users,), whether the user's pairs are compared with the truth.
        ratio, coin: float64 (users with truth, 2), the true density ratio and the true like probability.
    """

    like: np.ndarray
    weights: np.ndarray
    degrees: np.ndarray
    has_truth: np.ndarray
    ratio: np.ndarray
    coin: np.ndarray

    @classmethod
    def concatenate(cls, samples: Sequence[Self]) -> Self:
        """Concatenate samples in their order."""
        return cls(*map(np.concatenate, zip(*samples, strict=True)))


def sample_likes(
    model: Model,
    negative_distribution: NegativeDistribution | None,
    train: csr_matrix,
    part: Part,
    truth: GroundTruth | None,
    has_truth: np.ndarray,
) -> CalibrationSample | None:
    """Sample pairs of some test users; None if the model has no `like`.

    Args:
        negative_distribution: of the model's sampled negatives, if it has any.
        part: these users of the test part.
        truth: of the same users, if known.
        has_truth: bool (users of `part`,), whether to compare their pairs with the truth.
    """
    samples = list(_iterate_samples(model, negative_distribution, train, part, truth, has_truth))
    return CalibrationSample.concatenate(samples) if samples else None


def evaluate_like(model: str, sample: CalibrationSample) -> LikeCalibration:
    """Evaluate a model's `like` on the sample of all users."""
    bins = bin_likes_by_degree(sample.like[:, 0], sample.degrees)
    is_like = np.tile([1.0, 0.0], (len(sample.like), 1))
    calibration = _calibrate_against("sampled_negatives", sample.like, sample.weights, is_like)
    some = sample.like[sample.has_truth], sample.weights[sample.has_truth]
    calibration += _calibrate_against("density_ratio", *some, sample.ratio) + _calibrate_against(
        "coin", *some, sample.coin
    )
    return LikeCalibration(model, bins, calibration)


def select_truth_users(first: int, users: int, num_users: int) -> np.ndarray:
    """Select the users to compare with the truth, among `users` users from number `first` on: bool (users,)."""
    return np.arange(first, first + users) % -(-num_users // MAX_TRUTH_USERS) == 0


def _iterate_samples(
    model: Model,
    negative_distribution: NegativeDistribution | None,
    train: csr_matrix,
    part: Part,
    truth: GroundTruth | None,
    has_truth: np.ndarray,
) -> Iterator[CalibrationSample]:
    """Yield the samples of blocks of users with a held-out edge."""
    assert part.rows is not None  # these users are trained on
    held_out = np.flatnonzero(np.diff(part.targets.indptr))
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
            return
        degrees, selected = np.diff(histories.indptr), has_truth[block]
        ratio = coin = np.zeros((0, 2))
        if truth is None or negative_distribution is None:
            selected = np.zeros(len(block), dtype=bool)
        else:
            pairs = truth.of_users(block[selected]), users[selected], degrees[selected], items[selected]
            ratio, coin = true_probabilities(negative_distribution, train, *pairs)
        yield CalibrationSample(like[0], weights, degrees, selected, ratio, coin)


def _calibrate_against(
    reference: str, like: np.ndarray, weights: np.ndarray, truth: np.ndarray
) -> list[tuple[str, CalibrationBin]]:
    exists = weights > 0
    return [(reference, bin_) for bin_ in calibration_curve(like[exists], truth[exists], weights[exists])]


def true_probabilities(
    negative_distribution: NegativeDistribution,
    train: csr_matrix,
    truth: GroundTruth,
    rows: np.ndarray,
    degrees: np.ndarray,
    pairs: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the true density ratio and the true like probability of every pair, float64 (users, 2) each.

    Args:
        truth: of these users.
        rows, degrees: (users,) their rows in `train`, and the number of edges in these.
        pairs: (users, 2), two items of each.
    """
    ratios, coins = np.zeros(pairs.shape), np.zeros(pairs.shape)
    for start in range(0, len(rows), USERS_PER_TRUTH_BLOCK):
        block = np.arange(start, min(start + USERS_PER_TRUTH_BLOCK, len(rows)))
        likes = truth.training_like_probabilities(block, degrees[block])
        negatives = negative_distribution.rates(train, rows[block], likes)
        index = np.arange(len(block))[:, None], pairs[block]
        ratios[block] = likes[index] / (likes[index] + negatives[index])
        coins[block] = truth.coins(block)[index]
    return ratios, coins
