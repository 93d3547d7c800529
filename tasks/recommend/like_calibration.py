"""Calibrate a model's `like`: a monotone map to the share of likes that is observed among held-out pairs.

Let x be `like` and s its standard deviation, y whether a pair is a like, and w its weight.

- The mean becomes m(x): the weighted share of likes in bins of x, made monotone by isotonic regression, and linear
  between the bins' means and to (0, 0) and (1, 1).
- Since E(y - x)^2 - E(y - m)^2 = E(p - x)^2 - E(p - m)^2 for the unknown probabilities p, the left side says how much
  nearer to p the map brings the mean. The posterior claims E(p - x)^2 = E s^2, so s is scaled by one factor to
  E s^2 less that gain, and by POSTERIOR_WIDTH, by which the intervals cover p best in simulated logs, where p is
  known.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

MIN_PAIRS = 400
PAIRS_PER_BIN, MAX_BINS = 100, 20
MIN_SPREAD, POSTERIOR_WIDTH = 0.5, 0.85
MIN_LIKE_SD = 1e-6  # of a posterior so sharp that float32 leaves nothing
DIGITS = 6

LIKE_MEANING = (
    "share of likes among held-out likes and the negatives that the model's fit draws (mostly items by popularity), of "
    "pairs like this one; calibrated on validation users; not the share of those who would like the item once they "
    "consider it"
)

EXPLICIT_LIKE_MEANING = (
    "share of likes among held-out likes and explicit negatives, of pairs like this one; calibrated on validation "
    "users; only if the log has enough explicit negatives"
)

Like = tuple[np.ndarray, np.ndarray]


class LikeCalibration(NamedTuple):
    """A fitted calibration, as plain numbers.

    Attributes:
        knots, shares: `like`, rising from 0 to 1, and the share of likes there.
        spread: the factor of the standard deviation.
        pairs: the number of pairs that it was fitted on.
    """

    knots: tuple[float, ...] = (0.0, 1.0)
    shares: tuple[float, ...] = (0.0, 1.0)
    spread: float = 1.0
    pairs: int = 0

    @classmethod
    def fit(cls, like: Like, is_like: np.ndarray, weights: np.ndarray) -> Self | None:
        """Fit on pairs; None if they are too few.

        Args:
            like: mean and standard deviation, (pairs,) each.
            is_like: 0 or 1, (pairs,).
            weights: positive, (pairs,).
        """
        from scipy.optimize import isotonic_regression  # takes a tenth of a second, and a fit alone needs it

        if len(weights) < MIN_PAIRS or len(np.unique(is_like)) < 2:
            return None
        order = np.argsort(like[0], kind="stable")
        mean, deviation, y, w = (array[order].astype(np.float64) for array in (*like, is_like, weights))
        count = min(MAX_BINS, len(w) // PAIRS_PER_BIN)
        bins = np.minimum((np.cumsum(w) / w.sum() * count).astype(np.int64), count - 1)
        mass, *sums = (np.bincount(bins, values, minlength=count) for values in (w, w * mean, w * y))
        filled = mass > 0
        knots, shares = (total[filled] / mass[filled] for total in sums)
        shares = isotonic_regression(shares, weights=mass[filled]).x
        knots, first = np.unique(np.round(knots, DIGITS), return_index=True)
        calibration = cls(
            (0.0, *knots[(knots > 0) & (knots < 1)].tolist(), 1.0),
            (0.0, *np.round(shares[first], DIGITS)[(knots > 0) & (knots < 1)].tolist(), 1.0),
            pairs=len(w),
        )
        gain = w @ ((y - mean) ** 2 - (y - calibration.map_means(mean)) ** 2) / (w @ deviation**2)
        left = np.sqrt(np.clip(1 - gain, MIN_SPREAD**2, 1))
        return calibration._replace(spread=round(float(POSTERIOR_WIDTH * left), DIGITS))

    def map_means(self, mean: np.ndarray) -> np.ndarray:
        """Return the calibrated means."""
        return np.interp(mean, self.knots, self.shares)

    def apply(self, like: Like) -> Like:
        """Return the calibrated mean and standard deviation, float32; that of a coin with the mean bounds the latter.

        NaN stays NaN.
        """
        mean = self.map_means(like[0]).astype(np.float32)
        of_coin = np.sqrt(mean * (1 - mean.astype(np.float64)))
        # Rounded down: contracts compare with the coin, and a Beta distribution needs less than its deviation.
        bound = np.nextafter(of_coin.astype(np.float32), np.float32(0))
        deviation = np.minimum(np.float32(self.spread) * like[1], bound)
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
