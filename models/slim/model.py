"""SLIM: sparse non-negative item-item weights, by one elastic-net regression for each column.

Ning and Karypis, "SLIM: Sparse Linear Methods for Top-N Recommender Systems", 2011: column j of W minimizes

    |x_j - X w|^2 / 2 + l2 / 2 |w|^2 + l1 sum w    over w >= 0, w_j = 0

(eq. 2 and 4), and a user's scores are x W. Items for which that is zero rank by popularity, below the others.
Penalties that are left out are multiples of what a like meets on the diagonal of the Gram matrix, learned over seven
logs.
"""

import warnings
from itertools import pairwise
from time import perf_counter
from typing import ClassVar, Self

import numpy as np
from numba import get_num_threads
from pydantic import Field
from scipy.sparse import csr_matrix, hstack

from oneclass.models.derived_settings import RecencySettings, RelativeRange, interpolate_by_history, mean_degree
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.item_weights import ItemWeights
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.numerics.adjacency import as_read_only
from oneclass.models.numerics.column_moments import column_moments, mean_over_edges
from oneclass.models.numerics.gram import GramRows, gram_rows
from oneclass.models.settings import NumericRange, SearchSpace
from oneclass.models.slim.columns import MAX_SWEEPS, EqualItems, Gram, solve_batches
from oneclass.models.slim.kernels import count_pairs, fill_pairs

EDGE_BYTES = 40  # of an edge in the arrays of `GramRows` and while they are made
PAIR_SECONDS = (2.5e-6, 1.2e-7)  # CPU seconds of a fit for a pair of items that share a user, short and long histories
PAIR_BYTES = 16  # of a pair of items that share a user: in the Gram matrix and, for some, in the weights
BUFFER_BYTES = 24, 1 << 29  # of the candidates and rows of the longest columns, for each such pair and at most
L1, L2 = (0.015, 0.05), (15.0, 5.0)  # times `mean_over_edges`, of short and of long histories


class SLIMSettings(RecencySettings):
    """Penalties are on the scale of the rescaled Gram matrix, which with alpha = 0 is in users."""

    search_space: ClassVar[SearchSpace] = {
        "l1": RelativeRange(1 / 16, 16),
        "l2": RelativeRange(1 / 16, 16),
        "alpha": NumericRange(0.0, 0.75),
        "user_weight_exponent": NumericRange(0.0, 1.0),
    }
    initial_trials: ClassVar = (
        {"l1": 0.4, "l2": 0.45, "alpha": 0.3, "user_weight_exponent": 0.1},
        {"l1": 0.9, "l2": 10.0, "alpha": 0.35, "user_weight_exponent": 0.25},
    )

    l1: float | None = Field(
        None,
        ge=0,
        description="Penalty on the sum of the weights: with alpha = 0, items that share at most so many users get no "
        "weight. By default .05 times the mean diagonal of the Gram matrix over the edges where a mean user has 35 "
        "likes or more, .015 times where 12 or fewer, and between these between.",
    )
    l2: float | None = Field(
        None,
        ge=0,
        description="Penalty l2 / 2 on the squares of the weights. By default 5 times the same mean, 15 times for "
        "short histories.",
    )
    alpha: float = Field(
        0.5, ge=0, le=1, description="Columns are divided by their norm to this power; 0 leaves them as they are."
    )
    user_weight_exponent: float = Field(
        0.3,
        ge=0,
        le=2,
        description="Users have the weight d_m^-exponent in the Gram matrix, scaled to mean one; 0 for equal weights.",
    )

    def resolve(self, interactions: csr_matrix) -> Self:
        """Derive l1 and l2 from the data."""
        if self.l1 is not None and self.l2 is not None:
            return self
        typical = mean_over_edges(column_moments(interactions, self.user_weight_exponent), self.alpha)
        likes = mean_degree(interactions)
        l1 = interpolate_by_history(likes, *L1) * typical if self.l1 is None else self.l1
        l2 = interpolate_by_history(likes, *L2) * typical if self.l2 is None else self.l2
        return self.model_copy(update={"l1": l1, "l2": l2})


class SLIM(ItemWeights[SLIMSettings]):
    """Score by sparse, non-negative item-item weights from elastic-net regressions.

    Ning and Karypis (2011), eq. 2 and 4, by coordinate descent.

    Attributes:
        weights: float32 (items, items) CSR, W without its zeros; row i is added to the scores of a user who likes i.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import SLIM
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = SLIM().fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "slim"
    Settings = SLIMSettings
    is_deterministic = True

    @classmethod
    def estimate_cost(cls, settings: SLIMSettings, log: LogSize) -> FitCost:
        """Estimate the cost of a fit: the Gram matrix without its zeros, the weights, and the longest columns.

        A column's descent reads the Gram matrix's row of each of its weights, and short histories leave weights on most
        items that share a user.
        """
        of_pair, most = BUFFER_BYTES
        size = EDGE_BYTES * log.edges + PAIR_BYTES * log.gram_entries + min(of_pair * log.gram_entries, most)
        seconds = interpolate_by_history(log.edges / log.users, *PAIR_SECONDS) * log.gram_entries
        return FitCost(size, seconds, remedy="raise slim.l1")

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        moments = column_moments(interactions, self.params.user_weight_exponent)
        norms, equal = np.sqrt(moments.users * moments.mean), EqualItems.find(interactions)
        scale = np.where(norms > 0, norms, 1.0) ** self.params.alpha
        factor, scaled = (of_items[equal.first] for of_items in (np.sqrt(moments.unit) / scale, (norms / scale) ** 2))
        rows = gram_rows(interactions[:, equal.first], moments.weights, np.zeros(len(factor)), factor)
        diagonal, sizes = as_read_only(scaled, np.float32), as_read_only(equal.sizes, np.int64)
        parts, unconverged = [], 0
        gram, started = _compute_gram(rows), perf_counter()
        for number, of, solved, left in solve_batches(gram, diagonal, sizes, self.params):
            parts.append(solved)
            unconverged += left
            options.on_epoch(Epoch(number, of, perf_counter() - started, {"weights": solved.nnz}))
            started = perf_counter()
        if unconverged:
            warnings.warn(
                f"slim: {unconverged} of {len(sizes)} columns were still moving after {MAX_SWEEPS} passes; raise l2",
                stacklevel=3,
            )
        weights = hstack(parts, format="csr", dtype=np.float32)
        scale = scale[equal.first]
        for row, (first, end) in enumerate(pairwise(weights.indptr)):
            weights.data[first:end] *= 1 / scale[row] * scale[weights.indices[first:end]]
        self.weights = equal.expand(csr_matrix(weights))


def _compute_gram(rows: GramRows) -> Gram:
    starts = np.zeros(len(rows.factor) + 1, dtype=np.int64)
    count_pairs(rows, get_num_threads(), starts[1:])
    np.cumsum(starts, out=starts)
    gram = Gram(starts, np.empty(starts[-1], dtype=np.uint32), np.empty(starts[-1], dtype=np.float32))
    fill_pairs(rows, get_num_threads(), gram)
    return gram
