"""What `like` says of the held-out edges of leave_one_out, and what came true of it.

The sample has the held-out edge of every user, and beside it one negative of the same user, drawn as the model's
fit draws them but in a hidden graph of its own. Held against it, `like` is judged as what it estimates: the ratio
of the rate of likes to that of likes and negatives together. References, in `evaluation.calibration`:

    sampled_negatives  the pair is a held-out edge (1) or a negative (0); for data whose truth nobody knows
    density_ratio      the true ratio of the rates, where the demo's generative story is known
    coin               the true probability that the user likes the item once it is considered; negatives hold
                       items that the user would like, so that no model of such negatives tends to it
"""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import duckdb
import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.evaluation.calibration import CalibrationBin, LikeBin, bin_likes_by_degree, calibration_curve
from oneclass.models.generator.density_ratio import GroundTruth, solve_odds
from oneclass.models.negatives.distributions import NegativeDistribution
from oneclass.models.numerics.threads import kernel_threads
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import Part, SplitMatrices

logger = logging.getLogger(__name__)


def load_truth(home: Home, split: SplitMatrices) -> GroundTruth | None:
    """The truth behind a split of the demo; None for other data, or where it tells of other likes than the split's.

    They differ when `binarize` was given other settings than the demo's own.
    """
    edges = home.truth / "edges.parquet"
    if not edges.is_file():
        return None
    made = json.loads((home.truth / "settings.json").read_text(encoding="utf-8"))["settings"]
    with warehouse.open_warehouse(home, read_only=True) as connection:
        differing = warehouse.select(connection, "evaluate/not_in_truth", edges=str(edges)).row(0)
        if any(differing):
            logger.info(
                "calibration: %d edges are not likes of the demo's truth and %d of its likes are not edges; "
                "`like` is not held against it",
                *differing,
            )
            return None
        ids = [
            _truth_rows(connection, side)[indices] for side, indices in (("user", split.users), ("item", split.items))
        ]
        counts = (made["users"], made["items"])
        degrees = [
            _hidden_degrees(connection, str(edges), side, count) for side, count in zip(("user", "item"), counts)
        ]
    odds = solve_odds(*degrees)
    users, items, item_bias = (np.load(home.truth / f"{name}.npy") for name in ("users", "items", "item_bias"))
    return GroundTruth(users[ids[0]], items[ids[1]], item_bias[ids[1]], odds[0][ids[0]], odds[1][ids[1]])


def _truth_rows(connection: duckdb.DuckDBPyConnection, side: str) -> np.ndarray:
    """The row in the truth of each curated index: the number that the demo's log gave it, from 0."""
    rows = f"select {side}_id::bigint - 1 as id from indexed.{side}s order by {side}_index"
    return warehouse.query(connection, rows)["id"].to_numpy()


def _hidden_degrees(connection: duckdb.DuckDBPyConnection, edges: str, side: str, count: int) -> np.ndarray:
    """Degrees in the hidden graph, int64 (count,)."""
    # one row per user (item) of the demo's hidden graph: its number in the truth, from 0, and its degree
    text = f'select "{side}" - 1 as id, count(*) as degree from read_parquet($edges) group by id'
    found = warehouse.query(connection, text, edges=edges)
    degrees = np.zeros(count, dtype=np.int64)
    degrees[found["id"].to_numpy()] = found["degree"].to_numpy()
    return degrees


PAIRS_PER_BLOCK = 1 << 16  # users
USERS_PER_TRUTH_BLOCK = 512  # users, of whom every item is looked at
MAX_TRUTH_USERS = 5_000  # users whose pairs are held against the truth


@dataclass(frozen=True)
class LikeCalibration:
    """`like` of one model: of held-out edges by degree, and its calibration by reference."""

    model: str
    bins: list[LikeBin]
    calibration: list[tuple[str, CalibrationBin]]


class CalibrationSample(NamedTuple):
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
    has_truth: np.ndarray
    ratio: np.ndarray
    coin: np.ndarray

    @classmethod
    def concatenate(cls, samples: Sequence[Self]) -> Self:
        """The sample of the users of all of them, in their order."""
        return cls(*map(np.concatenate, zip(*samples, strict=True)))


def sample_likes(
    model: Model,
    negative_distribution: NegativeDistribution | None,
    train: csr_matrix,
    part: Part,
    truth: GroundTruth | None,
    has_truth: np.ndarray,
) -> CalibrationSample | None:
    """The sample of some test users; None where the model has no `like`.

    Args:
        law: of the model's negatives.
        part: these users of the test part.
        truth: of the same users, where it is known.
        held_against: bool (users of `part`,), whose pairs are held against it.
    """
    samples = list(_iterate_samples(model, negative_distribution, train, part, truth, has_truth))
    return CalibrationSample.concatenate(samples) if samples else None


def evaluate_like(model: str, sample: CalibrationSample) -> LikeCalibration:
    """What the sample of all users says of a model's `like`."""
    bins = bin_likes_by_degree(sample.like[:, 0], sample.degrees)
    came_true = np.tile([1.0, 0.0], (len(sample.like), 1))
    calibration = _calibrate_against("sampled_negatives", sample.like, sample.weights, came_true)
    some = sample.like[sample.has_truth], sample.weights[sample.has_truth]
    calibration += _calibrate_against("density_ratio", *some, sample.ratio) + _calibrate_against(
        "coin", *some, sample.coin
    )
    return LikeCalibration(model, bins, calibration)


def select_truth_users(first: int, users: int, num_users: int) -> np.ndarray:
    """Whether the pairs of the users from number `first` on, out of `of`, are held against the truth: bool (users,)."""
    return np.arange(first, first + users) % -(-num_users // MAX_TRUTH_USERS) == 0


def _iterate_samples(
    model: Model,
    law: NegativeDistribution | None,
    train: csr_matrix,
    part: Part,
    truth: GroundTruth | None,
    held_against: np.ndarray,
) -> Iterator[CalibrationSample]:
    """Of block after block of the users with a held-out edge."""
    assert part.rows is not None  # these users are trained on
    held_out = np.flatnonzero(np.diff(part.targets.indptr))
    for start in range(0, len(held_out), PAIRS_PER_BLOCK):
        block = held_out[start : start + PAIRS_PER_BLOCK]
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
            ratio, coin = _true_probabilities(law, train, *of_these)
        yield CalibrationSample(found[0], weights, degrees, against, ratio, coin)


def _calibrate_against(
    reference: str, like: np.ndarray, weights: np.ndarray, truth: np.ndarray
) -> list[tuple[str, CalibrationBin]]:
    there = weights > 0
    return [(reference, one) for one in calibration_curve(like[there], truth[there], weights[there])]


def _true_probabilities(
    law: NegativeDistribution,
    train: csr_matrix,
    truth: GroundTruth,
    rows: np.ndarray,
    degrees: np.ndarray,
    pairs: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The true density ratio and the true coin of every pair, float64 (users, 2) each.

    Args:
        truth: of these users.
        rows, degrees: (users,) their rows in `train`, and how many edges these have.
        pairs: (users, 2), two items of each.
    """
    ratios, coins = np.zeros(pairs.shape), np.zeros(pairs.shape)
    for start in range(0, len(rows), USERS_PER_TRUTH_BLOCK):
        block = np.arange(start, min(start + USERS_PER_TRUTH_BLOCK, len(rows)))
        likes = truth.training_like_probabilities(block, degrees[block])
        negatives = law.rates(train, rows[block], likes)
        at = np.arange(len(block))[:, None], pairs[block]
        ratios[block] = likes[at] / (likes[at] + negatives[at])
        coins[block] = truth.coins(block)[at]
    return ratios, coins
