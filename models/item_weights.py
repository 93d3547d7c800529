"""The base of models of weights between items: a score is the sum of an item's weights to those of the history."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix
from typing_extensions import TypeVar

from oneclass.models.base import Model
from oneclass.models.derived_settings import RecencySettings, RelativeRange
from oneclass.models.numerics.column_moments import column_moments, mean_over_edges
from oneclass.models.numerics.matmul import pattern_times, sparse_times
from oneclass.models.numerics.popularity_fallback import fallback_factors, fill_popularity_fallback
from oneclass.models.numerics.sequential_histories import recency_weights
from oneclass.models.settings import NumericRange, SearchSpace

MAX_CHUNK_ENTRIES = 1 << 23  # weights that are collected at a time: 64 MB
RecencyT = TypeVar("RecencyT", bound=RecencySettings, default=Any)


class RegressionSettings(RecencySettings):
    """Settings of a ridge regression of each item's column on the others, of centred or rescaled columns."""

    search_space: ClassVar[SearchSpace] = {
        "l2": RelativeRange(1 / 16, 16),
        "alpha": NumericRange(0.0, 1.0),
        "user_weight_exponent": NumericRange(0.0, 1.5),
        "popularity_discount": NumericRange(0.0, 1.0),
    }

    l2: float | None = Field(
        None,
        gt=0,
        description="Ridge penalty, on the scale of the rescaled Gram matrix. By default 6 times the mean diagonal of "
        "that matrix over the edges.",
    )
    alpha: float = Field(
        0.5, ge=0, le=1, description="Columns are divided by (n variance)^(alpha / 2); 0 leaves them as they are."
    )
    user_weight_exponent: float = Field(
        0.5,
        ge=0,
        le=2,
        description="Users have the weight d_m^-exponent in the Gram matrix, scaled to mean one; 0 for equal weights.",
    )
    popularity_discount: float = Field(
        0.0,
        ge=-1,
        le=1,
        description="An item's scores are divided by (n variance)^(this / 2), in addition to the rescaling; above 0, "
        "popular items rank lower.",
    )

    def resolve(self, interactions: csr_matrix) -> Self:
        """Derive l2 from the data."""
        return self.model_copy(update={"l2": default_l2(self, interactions, 6.0)})


def default_l2(settings: Any, interactions: csr_matrix, ratio: float) -> float:
    """Return the l2 of the settings, by default a multiple of `mean_over_edges`."""
    if settings.l2 is not None:
        return settings.l2
    return ratio * mean_over_edges(column_moments(interactions, settings.user_weight_exponent), settings.alpha)


class ItemWeights(Model[RecencyT]):
    """Score by weights between items, each times the recency weight of the history's item.

    Without an intercept, items that have none of these weights rank below the others by popularity.

    Attributes:
        weights: float32 (items, items), CSR or dense; row i is added to the scores of a user who likes i.
        offset: float32 (items,), an intercept that is added to all users' scores if `params.intercept`.
    """

    weights: Any
    offset: np.ndarray

    def _contributions(self, history: csr_matrix, items: np.ndarray) -> np.ndarray:
        """Return the weights between the items of the history and `items`, times their recency weights."""
        rows, table = history.indices, self.weights
        found = table[rows[:, None], items] if isinstance(table, np.ndarray) else table[rows][:, items].toarray()
        return recency_weights(history, self.params.recency_exponent)[:, None] * found

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        is_dense = isinstance(self.weights, np.ndarray)
        times = pattern_times if is_dense else sparse_times
        scores = times(histories, self.weights, recency_weights(histories, self.params.recency_exponent))
        if getattr(self.params, "intercept", False):
            scores += self.offset
            return scores
        below = self.compute_once("below", lambda: fallback_factors(self.item_degrees))
        return fill_popularity_fallback(scores, self.item_degrees, below)

    def _arrays(self) -> dict[str, np.ndarray]:
        table = self.weights
        arrays = {name: value for name, value in vars(self).items() if name == "offset"}
        if isinstance(table, np.ndarray):
            return {"weights": table, **arrays}
        return {"indptr": table.indptr, "indices": table.indices, "values": table.data, **arrays}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        if "offset" in arrays:
            self.offset = arrays["offset"]
        self.weights = arrays.get("weights")
        if self.weights is None:
            values = arrays["values"].astype(np.float32, copy=False)  # of fits of earlier versions, float64
            parts = values, arrays["indices"], arrays["indptr"]
            self.weights = csr_matrix(parts, shape=(self.item_count, self.item_count), copy=False)


def collect_weights(items: int, most: int, find: Callable[..., None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Collect the largest weights of each item, some items at a time.

    Args:
        most: number of weights of an item, at most.
        find: called with the first of some items and arrays to fill: int64 (n,) how many weights each has, int32 (n, k)
            the other item of each, ascending, and float32 (n, k) the weights.

    Returns:
        The values, indices and starts of a sparse matrix.
    """
    chunk = max(1, MAX_CHUNK_ENTRIES // max(1, most))
    ids = np.empty((min(chunk, items), most), dtype=np.int32)
    values = np.empty(ids.shape, dtype=np.float32)
    counts, others, weights = np.zeros(items, dtype=np.int64), [], []
    for first in range(0, items, chunk):
        some = counts[first : first + chunk]
        find(first, some, ids, values)
        filled = np.arange(most) < some[:, None]
        others.append(ids[: len(some)][filled])
        weights.append(values[: len(some)][filled])
    return np.concatenate(weights), np.concatenate(others), np.concatenate([[0], np.cumsum(counts)])
