"""Say of listed items how sure a like is, and why they are listed, whichever model ranked them.

A companion is a model with a like probability (`Model.like`), fitted on the edges of the model that ranks, or that
model itself. It gives the probabilities, calibrated, and the reasons of items for which the ranking model names none.
Its `like` is calibrated by a monotone map to the share of likes that is observed among held-out pairs.

Let x be `like` and s its standard deviation, y whether a pair is a like, and w its weight.

- The mean becomes m(x): the weighted share of likes in bins of x, made monotone by isotonic regression, and linear
  between the bins' means and to (0, 0) and (1, 1).
- Sampled pairs are met by 1 / (1 - p), so that their share of likes is about m + s^2 / (1 - m) if p has mean m. If
  likes confirm s (`confirm_like`), m is solved for and s scaled by CONFIRMED_WIDTH; else s is not published. Nor is m
  where likes of lists are more off its shares among popular items than among others.
- Explicit pairs: since E(y - x)^2 - E(y - m)^2 = E(p - x)^2 - E(p - m)^2 for the unknown probabilities p, the left side
  says how much nearer to p the map brings the mean. The posterior claims E(p - x)^2 = E s^2, so s is scaled by one
  factor to E s^2 less that gain, and by POSTERIOR_WIDTH.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models import registry
from oneclass.models.base import Model
from oneclass.models.numerics.matmul import normalize_columns
from oneclass.models.numerics.top_k import find_top_contributions
from oneclass.tasks.recommend.new_items import MAX_REASONS, find_attribute_reasons

MIN_PAIRS = 400
PAIRS_PER_BIN, MAX_BINS = 100, 20
MIN_SPREAD, POSTERIOR_WIDTH, CONFIRMED_WIDTH = 0.5, 0.85, 0.9
MIN_LIKE_SD = 1e-6  # of a posterior so sharp that float32 leaves nothing
MEAN_BINS, MIN_EVIDENCE, MAX_OFF = 50, 8.0, 0.1  # by these, intervals hold in most simulated logs
MAX_UNEVEN = 0.17  # and by this one means
DIGITS = 6

LIKE_MEANING = (
    "share of likes among held-out likes and the negatives that the model's fit draws (mostly items by popularity), of "
    "pairs like this one; calibrated on validation users; not the share of those who would like the item once they "
    "consider it; null where likes of validation users contradict it"
)

LIKE_SD_MEANING = (
    "its posterior standard deviation, with which a Beta distribution gives intervals; null unless likes of validation "
    "users confirm it"
)

EXPLICIT_LIKE_MEANING = (
    "share of likes among held-out likes and explicit negatives, of pairs like this one; calibrated on validation "
    "users; only if the log has enough explicit negatives"
)

Like = tuple[np.ndarray, np.ndarray]
LikePairs = tuple[Like, np.ndarray, np.ndarray]  # `like`, likes and weights of pairs


def confirm_like(listed: LikePairs, shares: np.ndarray) -> tuple[bool, bool]:
    """Whether likes of lists confirm the shares, and whether they confirm the standard deviation too.

    The shares must hold of quarters of the pairs by the weights, here a pair's expected negatives, or be off alike. The
    odds p / (1 - p) are convex, so of pairs with equal means those whose p varies more have more likes for each
    negative; p must vary more where the standard deviation is larger.
    """
    mean, deviation, likes, rates = (of.astype(np.float64) for of in (*listed[0], *listed[1:]))
    expected = rates * shares / np.maximum(1 - shares, MIN_LIKE_SD)
    width = deviation / np.maximum(mean * (1 - mean), MIN_LIKE_SD)  # of the logit, nearly
    ranks = (np.argsort(np.argsort(of, kind="stable")) for of in (rates, mean))
    quarters, bins = (of * count // len(mean) for of, count in zip(ranks, (4, MEAN_BINS), strict=True))
    negatives, found, foreseen = (np.bincount(quarters, of) for of in (rates, likes, expected))
    weight, typical, odds = (np.bincount(bins, of)[bins] for of in (rates, rates * width, likes))
    excess = (width - typical / weight) * (likes - rates * odds / weight)
    off = found / (found + negatives) - foreseen / (foreseen + negatives)
    holds, varies = np.ptp(off) <= MAX_UNEVEN, excess.sum() > MIN_EVIDENCE * np.sqrt(excess @ excess)
    return bool(holds), bool(holds and varies and np.abs(off).max() <= MAX_OFF)


class LikeCalibration(NamedTuple):
    """A fitted calibration, as plain numbers.

    Attributes:
        knots, shares: `like`, rising from 0 to 1, and the share of likes there.
        spread: the factor of the standard deviation; None if the latter is not to be published.
        pairs: the number of pairs that it was fitted on.
        holds: whether the mean is to be published.
    """

    knots: tuple[float, ...] = (0.0, 1.0)
    shares: tuple[float, ...] = (0.0, 1.0)
    spread: float | None = 1.0
    pairs: int = 0
    holds: bool = True

    @classmethod
    def fit(cls, like: Like, is_like: np.ndarray, weights: np.ndarray, listed: LikePairs | None = None) -> Self | None:
        """Fit on pairs; None if they are too few.

        Args:
            like: mean and standard deviation, (pairs,) each.
            is_like: 0 or 1, (pairs,).
            weights: positive, (pairs,).
            listed: of sampled pairs, what `confirm_like` takes.
        """
        from scipy.optimize import isotonic_regression  # takes a tenth of a second, and a fit alone needs it

        if len(weights) < MIN_PAIRS or len(np.unique(is_like)) < 2:
            return None
        order = np.argsort(like[0], kind="stable")
        mean, deviation, y, w = (array[order].astype(np.float64) for array in (*like, is_like, weights))
        count = min(MAX_BINS, len(w) // PAIRS_PER_BIN)
        bins = np.minimum((np.cumsum(w) / w.sum() * count).astype(np.int64), count - 1)
        mass, *sums = (np.bincount(bins, of, minlength=count) for of in (w, w * mean, w * y, w * deviation**2))
        filled = mass > 0
        knots, shares, variances = (total[filled] / mass[filled] for total in sums)
        shares = isotonic_regression(shares, weights=mass[filled]).x
        holds, confirmed = confirm_like(listed, np.interp(listed[0][0], knots, shares)) if listed else (True, False)
        if confirmed:
            shares = np.maximum.accumulate(np.maximum(1 + shares - np.sqrt((1 - shares) ** 2 + 4 * variances), 0)) / 2
        knots, first = np.unique(np.round(knots, DIGITS), return_index=True)
        calibration = cls(
            (0.0, *knots[(knots > 0) & (knots < 1)].tolist(), 1.0),
            (0.0, *np.round(shares[first], DIGITS)[(knots > 0) & (knots < 1)].tolist(), 1.0),
            spread=CONFIRMED_WIDTH if confirmed else None,
            pairs=len(w),
            holds=holds,
        )
        if listed is not None:
            return calibration
        gain = w @ ((y - mean) ** 2 - (y - calibration.map_means(mean)) ** 2) / (w @ deviation**2)
        left = np.sqrt(np.clip(1 - gain, MIN_SPREAD**2, 1))
        return calibration._replace(spread=round(float(POSTERIOR_WIDTH * left), DIGITS))

    def map_means(self, mean: np.ndarray) -> np.ndarray:
        """Return the calibrated means."""
        return np.interp(mean, self.knots, self.shares)

    def apply(self, like: Like) -> Like:
        """Return the calibrated mean and standard deviation, float32; that of a coin with the mean bounds the latter.

        NaN stays NaN. A deviation that is not to be published is the posterior's.
        """
        mean = self.map_means(like[0]).astype(np.float32)
        of_coin = np.sqrt(mean * (1 - mean.astype(np.float64)))
        # Rounded down: contracts compare with the coin, and a Beta distribution needs less than its deviation.
        bound = np.nextafter(of_coin.astype(np.float32), np.float32(0))
        deviation = np.minimum(np.float32(self.spread or 1) * like[1], bound)
        return mean, np.maximum(deviation, np.float32(MIN_LIKE_SD))


IDENTITY = LikeCalibration()


class Calibrations(NamedTuple):
    """The calibrations of one model's `like`.

    Attributes:
        sampled: against the negatives that the model's fit draws.
        explicit: against explicit negatives; None where the log has too few.
    """

    sampled: LikeCalibration = IDENTITY
    explicit: LikeCalibration | None = None

    @classmethod
    def load(cls, facts: Mapping[str, Any]) -> Self:
        """Load what `dump` returned."""
        return cls(**{name: values and LikeCalibration(**values) for name, values in facts.items()})

    def dump(self) -> dict[str, Any]:
        """Return plain data."""
        return {name: of and of._asdict() for name, of in self._asdict().items()}


UNCALIBRATED = Calibrations()
UNVERIFIED = Calibrations(IDENTITY._replace(spread=None))


@dataclass(frozen=True)
class Companion:
    """A fitted model with a like probability, and the calibrations of it."""

    model: Model
    calibrations: Calibrations = UNCALIBRATED


class ItemDescriptions(NamedTuple):
    """How sure a like of listed items is, and why they are listed.

    Attributes:
        like: mean and standard deviation, NaN if it is not to be published, float32 (block, n); None if neither is.
        explicit_like: the same, calibrated against explicit negatives; None without these.
        because: int32 (block, n, MAX_REASONS), columns of the history, padded with -1; None without reasons.
    """

    like: Like | None
    explicit_like: Like | None
    because: np.ndarray | None


def has_like(model: str) -> bool:
    """Whether a model has a like probability."""
    return registry.MODELS[model]._like is not Model._like  # pyright: ignore[reportPrivateUsage] (what models override)


def describe_items(
    model: Model,
    companion: Companion | None,
    histories: csr_matrix,
    users: np.ndarray | None,
    items: np.ndarray,
    *,
    explain: bool = True,
) -> ItemDescriptions:
    """Return the like probabilities of listed items, and the likes of the user that speak for each.

    Args:
        model: the one that ranked.
        companion: of the model, which may be the model itself; None if no model of the run has a like probability.
        users: as in `Model.scores`, of both models.
        items: int32 (block, n), padded with -1.
        explain: whether to ask the model what contributed; else its items are explained as those of no such sum.

    Returns:
        Reasons of an item are the likes that contributed most to its score; if the score is no sum over the history,
        those nearest to the item by the companion's factors; and of a new item, those that resemble it by attributes.
    """
    like = explicit = None
    because = find_top_contributions(histories, items, model.contributions, MAX_REASONS) if explain else None
    if companion is not None and (raw := companion.model.like(histories, users=users, items=items)) is not None:
        sampled = companion.calibrations.sampled
        mean, deviation = sampled.apply(raw)
        like = (mean, np.full_like(mean, np.nan) if sampled.spread is None else deviation) if sampled.holds else None
        explicit = companion.calibrations.explicit and companion.calibrations.explicit.apply(raw)
        because = _add_nearest(companion.model, histories, items, because)
    if (of_new := find_attribute_reasons(model, histories, items)) is not None:
        because = of_new if because is None else np.where(of_new[..., :1] >= 0, of_new, because)
    return ItemDescriptions(like, explicit, because)


def _add_nearest(
    companion: Model, histories: csr_matrix, items: np.ndarray, because: np.ndarray | None
) -> np.ndarray | None:
    """Fill the reasons of items without any by the likes of the highest cosine above zero of the model's factors."""
    if (vectors := companion.item_vectors()) is None:
        return because
    units = companion.compute_once("unit vectors", lambda: normalize_columns(vectors))

    def contribute(history: csr_matrix, row_items: np.ndarray) -> np.ndarray:
        cosines = units[:, history.indices].T @ units[:, row_items]
        cosines[history.indices[:, None] == row_items] = 0  # an item is no reason for itself
        return cosines

    if because is None:
        because = np.full((*items.shape, MAX_REASONS), -1, dtype=np.int32)
    lacking = (items >= 0) & (because[..., 0] < 0)
    if not (rows := np.flatnonzero(lacking.any(axis=1))).size:
        return because
    of_rows = histories if len(rows) == len(items) else histories[rows]
    nearest = find_top_contributions(of_rows, items[rows], contribute, MAX_REASONS)
    assert nearest is not None
    because[rows] = np.where(lacking[rows][..., None], nearest, because[rows])
    return because
