"""Scores by the log odds of a like, of a block of users for some items, with bounds for tiles of items.

The log odds are x = m / sqrt(1 + pi s / 8), where the mean m and the variance s of the logit are sums of products of
the user's and the item's numbers (`models.negatives.like_probability`). m has a bound by the ball around a tile's
factors, and s, whose terms are not negative, by the least and the largest number in each place.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from oneclass.models.negatives.like_probability import LOG_ODDS_SCORES, MACKAY, compute_scores, put_log_odds, sigmoid
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.numerics.tiled_ranking import ROUNDING, Balls, ItemTiles, TiledScores, find_ball


class LogitColumns(NamedTuple):
    """What the logits need of some items.

    Attributes:
        means: float32 (W, n), multiplied with the users' rows of means.
        variances: float32 (W', n), not negative, with their rows of variances.
        bias, bias_variance: float32 (n,), added.
    """

    means: np.ndarray
    variances: np.ndarray
    bias: np.ndarray
    bias_variance: np.ndarray


class LogitRows(NamedTuple):
    """The users' part, as in `LogitColumns`: float32 (block, W), (block, W'), (block,) and (block,)."""

    means: np.ndarray
    variances: np.ndarray
    bias: np.ndarray
    bias_variance: np.ndarray


@dataclass(frozen=True)
class LogitBounds:
    """What bounds the logits of each tile.

    Attributes:
        balls: around the columns of means.
        bias, bias_size: float32 (tiles,), the largest bias and the largest absolute one.
        least, most: the least and the largest numbers of the columns of variances, float32 (W', tiles).
        least_bias_variance, most_bias_variance: float32 (tiles,).
        popularity, log_popularity: float32 (tiles,), the largest.
    """

    balls: Balls
    bias: np.ndarray
    bias_size: np.ndarray
    least: np.ndarray
    most: np.ndarray
    least_bias_variance: np.ndarray
    most_bias_variance: np.ndarray
    popularity: np.ndarray
    log_popularity: np.ndarray

    @classmethod
    def of(
        cls,
        tiles: ItemTiles,
        columns_of: Callable[[np.ndarray], LogitColumns],
        popularity: tuple[np.ndarray, np.ndarray],
    ) -> Self:
        """Find those of all tiles; the arguments are those of `LogOddsScores`."""

        def bound_tile(items: np.ndarray) -> tuple[Any, ...]:
            of = columns_of(items)
            biases = of.bias.max(), np.abs(of.bias).max()
            variances = of.variances.min(axis=1), of.variances.max(axis=1)
            of_bias = of.bias_variance.min(), of.bias_variance.max()
            return find_ball(of.means), *biases, *variances, *of_bias, *(part[items].max() for part in popularity)

        balls, *bounds = zip(*map(bound_tile, tiles), strict=True)
        return cls(Balls.of(balls), *(np.stack(of_tiles, axis=-1) for of_tiles in bounds))


@dataclass(frozen=True)
class LogOddsScores(TiledScores):
    """One score of a model with a like probability.

    Attributes:
        columns_of: returns the columns of some items.
        name: of the score, as `compute_scores` has it.
        rows: of the users.
        popularity: pi and a log pi, float32 (items,) each, as in `compute_scores`.
        make_bounds: returns those of the tiles.
        threads: for the passes over whole arrays.
    """

    tiles: ItemTiles
    columns_of: Callable[[np.ndarray], LogitColumns]
    name: str
    rows: LogitRows
    popularity: tuple[np.ndarray, np.ndarray]
    make_bounds: Callable[[], LogitBounds]
    threads: int

    def bound(self) -> np.ndarray:
        """As `TiledScores.bound`."""
        of, rows = self.make_bounds(), self.rows
        mean = of.balls.bound(rows.means) + rows.bias[:, None] + of.bias
        mean += np.float32(2 * ROUNDING) * (np.abs(rows.bias)[:, None] + of.bias_size + np.abs(mean))
        margin = np.float32((len(of.least) + 8) * ROUNDING)
        least = dense_times(rows.variances, of.least) + rows.bias_variance[:, None] + of.least_bias_variance
        most = dense_times(rows.variances, of.most) + rows.bias_variance[:, None] + of.most_bias_variance
        variance = np.where(mean > 0, least * (1 - margin), most * (1 + margin))
        x = mean / np.sqrt(1 + MACKAY * variance)
        x += np.float32(8 * ROUNDING) * np.abs(x)
        if self.name == "popularity_x_odds":
            return x + of.log_popularity + np.float32(ROUNDING) * (np.abs(x) + np.abs(of.log_popularity))
        like = sigmoid(x) * np.float32(1 + 32 * ROUNDING)
        return like if self.name == "like" else like * of.popularity

    def score(self, users: np.ndarray | slice, items: np.ndarray) -> np.ndarray:
        """As `TiledScores.score`."""
        return next(self._scores(users, items, (self.name,)))

    def score_all(self, items: np.ndarray) -> list[np.ndarray]:
        """As `TiledScores.score_all`, in the order of LOG_ODDS_SCORES."""
        return list(self._scores(slice(None), items, LOG_ODDS_SCORES))

    def _scores(self, users: np.ndarray | slice, items: np.ndarray, names: tuple[str, ...]) -> Iterator[np.ndarray]:
        columns, rows = self.columns_of(items), LogitRows(*(part[users] for part in self.rows))
        means, variances = dense_times(rows.means, columns.means), dense_times(rows.variances, columns.variances)
        logits = put_log_odds(means, variances, rows[2:], columns[2:])
        popularity, weighted = (of_items[items] for of_items in self.popularity)
        return compute_scores(logits, names, popularity, weighted, self.threads)
