"""The base of models of weights between items: a score is the sum of an item's weights to those of the history."""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from typing_extensions import TypeVar

from oneclass.models.base import Model
from oneclass.models.numerics.matmul import (
    pattern_times,
    sparse_times,
)
from oneclass.models.numerics.popularity_fallback import fallback_factors, fill_popularity_fallback
from oneclass.models.numerics.sequential_histories import recency_weights
from oneclass.models.settings import RecencySettings

RecencyT = TypeVar("RecencyT", bound=RecencySettings, default=Any)


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
