"""Calibration of `like` on the held-out edges of leave_one_out, and its evaluation on explicit feedback.

The sample has the held-out edge of every user and one negative of the same user, drawn as the model's fit draws them
but in a separate hidden graph. `like` is compared with its estimand, the rate of likes over the rate of likes and
negatives. References, in `evaluation.calibration`:

    sampled_negatives  the pair is a held-out edge (1) or a negative (0); for data without a known truth
    density_ratio      the true ratio of the rates, known for the demo's generative model
    coin               the true probability that the user likes the item once it is considered; negatives include
                       items that the user would like, so no model of such negatives converges to it

On explicit feedback `like` is judged by held-out likes and held-out explicit negatives, the ground truth that one-class
data lack; it needs a log with explicit negatives and a run that keeps them (`binarize.explicit_negatives`). The
baseline is popularity: the share of users who liked an item among those who considered it.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import duckdb
import numpy as np
from scipy.sparse import csr_matrix, hstack

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


SampleT = TypeVar("SampleT", CalibrationSample, "ExplicitPairs")


def concatenate(parts: Sequence[SampleT]) -> SampleT:
    """Join samples or pairs of users column by column, in their order."""
    return type(parts[0])(*map(np.concatenate, zip(*parts, strict=True)))


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
    return concatenate(samples) if samples else None


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


USERS_PER_PAIR_BLOCK = 1 << 10


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
    return concatenate(blocks)


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
    for start in range(0, len(part.users), USERS_PER_PAIR_BLOCK):
        users = np.arange(start, min(start + USERS_PER_PAIR_BLOCK, len(part.users)))
        targets, negatives = part.targets[users], part.explicit_negatives[users]
        counts = np.diff(targets.indptr) + np.diff(negatives.indptr)
        both = hstack([targets, negatives], format="csr")  # a user's targets come first
        items = np.full((len(users), counts.max(initial=0)), -1, dtype=np.int32)
        exists = np.arange(items.shape[1]) < counts[:, None]
        items[exists] = both.indices % part.targets.shape[1]
        yield users, items, np.arange(items.shape[1]) < np.diff(targets.indptr)[:, None]
