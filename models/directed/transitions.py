"""Transitions: an item's score is how often it followed the items of the history, nearer ones more than distant ones.

With S'T of SLIT (Choi, Kim, Lee, Shim and Lee, "Session-aware linear item-item models for session-based
recommendation", 2021), n the steps from a like of i to a later one of j, and d the degrees of the items,

    K_ij = sum exp(-(n - 1) / 3),    weight of i to j: K_ij / (d_i^.5 d_j^.3).
"""

from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numba import get_num_threads
from scipy.sparse import csr_matrix

from oneclass.models.directed.pairs import WINDOW, find_successors, order_likes
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.item_weights import ItemWeights, collect_weights
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.numerics.adjacency import as_read_only
from oneclass.models.settings import ModelSettings

TAU, BETA = 3.0, 0.3  # steps in which the past fades; the power of a successor's popularity
MAX_SUCCESSORS = 500  # of an item, those with the largest weights
BYTES_PER_LIKE, BYTES_PER_WEIGHT = 56, 16  # of an ordered like and while it is sorted; of a weight in both copies


class TransitionsSettings(ModelSettings):
    """No settings: the constants are those that were best on two logs of purchases."""

    recency_exponent: ClassVar[float] = 1.0

    @property
    def reads_order(self) -> bool:
        """Whether the fit and scores depend on the order of likes: they do."""
        return True


class Transitions(ItemWeights[Any]):
    """Score by what followed the items of the history, in the histories of others.

    Attributes:
        weights: float32 (items, items) CSR; row i is added to the scores of a user who likes i.

    Example:
        >>> import polars as pl
        >>> from oneclass import Transitions
        >>> days = [(f"u{user}", item, day) for user in range(9) for day, item in enumerate("ABC")]
        >>> frame = pl.DataFrame(days, schema=["user_id", "item_id", "time"], orient="row")
        >>> Transitions().fit(frame).recommend([["A"]], n=1)["item_id"].to_list()
        ['B']
    """

    name = "transitions"
    Settings = TransitionsSettings
    is_deterministic = True

    @classmethod
    def estimate_cost(cls, settings: TransitionsSettings, log: LogSize) -> FitCost:
        """Estimate the cost of a fit: the likes in their order, and the weights that are kept."""
        kept = min(log.items * MAX_SUCCESSORS, log.edges * WINDOW)
        return FitCost(BYTES_PER_LIKE * log.edges + BYTES_PER_WEIGHT * kept, 1e-6 * log.edges, depends_on_items=True)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        started, items = perf_counter(), self.item_count
        likes = order_likes(interactions, self.name)
        by_distance = np.append(0.0, np.exp(-np.arange(WINDOW - 1) / TAU))
        degrees = np.maximum(self.item_degrees, 1).astype(np.float64)
        of_item, of_successor = (as_read_only(degrees**power, np.float64) for power in (0.5, BETA))
        most, pairs = min(MAX_SUCCESSORS, items), (likes, by_distance, np.ones(len(likes.items)))
        rest = of_item, of_successor, get_num_threads()
        parts = collect_weights(items, most, lambda first, *out: find_successors(*pairs, first, *rest, *out))
        self.weights = csr_matrix(parts, shape=(items, items))
        options.on_epoch(Epoch(1, 1, perf_counter() - started, {"transitions": self.weights.nnz}))
