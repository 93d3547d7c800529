"""SLIST: one regression weight for every ordered pair of items, by what histories hold and by what came next in them.

Choi, Kim, Lee, Shim and Lee, "Session-aware linear item-item models for session-based recommendation", 2021. X are the
histories; T has a row e_j for each like but those of a history's first step; and the row of S weighs the items before
it, exp(-n / tau) for one that is n steps before the last of them. Minimizes

    a |X - X B|^2 + (1 - a) |T - S B|^2 + l2 |B|^2    under diag(B) = 0,

    B = G^-1 (H - diag(g)),    G = a X'X + (1 - a) S'S + l2 I,    H = a X'X + (1 - a) S'T,

with g_j = (G^-1 H)_jj / (G^-1)_jj. At a = 1 it is EASE, at a = 0 SLIT. S'S and S'T are sums over pairs of likes: with
R_q of the later one, at step q, the sum of decay^(2 (j - 1 - q)) over the later likes of the history, at steps j, a
pair of likes at steps p <= q adds decay^(q - p) R_q to S'S, where decay = exp(-1 / tau).
"""

from time import perf_counter
from typing import ClassVar, Self

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.derived_settings import RecencySettings, RelativeRange
from oneclass.models.directed.pairs import WINDOW, order_likes, sum_later_targets, sum_pairs
from oneclass.models.directed.transitions import BYTES_PER_LIKE
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.item_weights import ItemWeights
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.numerics.gram import lower_gram
from oneclass.models.numerics.gram_inverse import invert_lower, mirror_lower, multiply_dense, work_bytes
from oneclass.models.numerics.validation import count_item_degrees
from oneclass.models.settings import Choice, SearchSpace

PAIR_SECONDS = 3e-11  # of an inverse and a product, for each pair of items and an item


class SLISTSettings(RecencySettings):
    """The defaults are those that were best on two logs of purchases."""

    search_space: ClassVar[SearchSpace] = {
        "l2": RelativeRange(1 / 16, 16),
        "mixing": Choice((0.0, 0.2, 0.5, 0.8, 0.95, 1.0)),
        "tau": Choice((1.0, 3.0, 10.0)),
    }
    initial_trials: ClassVar = ({"mixing": 0.95}, {"mixing": 0.5, "tau": 1.0})

    tau: float = Field(3.0, gt=0, description="An item n steps before the latest one weighs exp(-n / tau) in S.")
    recency_exponent: float = Field(
        1.0, ge=0, le=4, description="p: an item of the history with n newer ones weighs (1 + n)^-p in the scores."
    )
    l2: float | None = Field(
        None, gt=0, description="Ridge penalty. By default the mean number of likes of the edges' items."
    )
    mixing: float = Field(
        0.2, ge=0, le=1, description="a: the weight of whole histories, 1 for EASE; the rest is that of what came next."
    )

    @property
    def reads_order(self) -> bool:
        """Whether the fit and scores depend on the order of likes: they do."""
        return True

    def resolve(self, interactions: csr_matrix) -> Self:
        """Derive l2 from the data."""
        degrees = count_item_degrees(interactions).astype(float)
        return self.model_copy(update={"l2": self.l2 or float(degrees @ degrees / degrees.sum())})


class SLIST(ItemWeights[SLISTSettings]):
    """Score by regression weights, in closed form, of an item on those that came before it.

    Attributes:
        weights: float32 (items, items), B, with a zero diagonal; row i is added to the scores of a user who likes i.

    Example:
        >>> import polars as pl
        >>> from oneclass import SLIST
        >>> days = [(f"u{user}", item, day) for user in range(9) for day, item in enumerate("ABC")]
        >>> frame = pl.DataFrame(days, schema=["user_id", "item_id", "time"], orient="row")
        >>> SLIST().fit(frame).recommend([["A"]], n=1)["item_id"].to_list()
        ['B']
    """

    name = "slist"
    Settings = SLISTSettings
    is_deterministic = True

    @classmethod
    def estimate_cost(cls, settings: SLISTSettings, log: LogSize) -> FitCost:
        """Estimate the cost of a fit: of four matrices of all pairs, an inverse and a product."""
        return FitCost(
            BYTES_PER_LIKE * log.edges + 16 * log.items**2 + work_bytes(log.items),
            PAIR_SECONDS * log.items**3,
            depends_on_items=True,
            remedy="take transitions in its place",
            reads_table=True,
        )

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        started, mixing, l2, ones = perf_counter(), self.params.mixing, self.params.l2, np.ones(self.item_count)
        assert l2 is not None  # by `resolve`
        likes = order_likes(interactions, self.name)
        fading = np.exp(-np.arange(WINDOW) / self.params.tau)
        gram = sum_pairs(likes, fading, (1 - mixing) * sum_later_targets(likes, fading[1]))
        gram += gram.T.copy()
        gram.flat[:: len(gram) + 1] /= 2  # a like is a pair with itself once
        together = lower_gram(interactions, np.full(interactions.shape[0], mixing), 0 * ones, ones)
        mirror_lower(together)
        gram += together
        gram.flat[:: len(gram) + 1] += np.float32(l2)
        invert_lower(gram)
        mirror_lower(gram)
        together += sum_pairs(likes, np.append(0.0, fading[:-1]), np.full(len(likes.items), 1 - mixing))
        self.weights = multiply_dense(gram, together)
        self.weights -= gram * (self.weights.diagonal() / gram.diagonal())
        np.fill_diagonal(self.weights, 0.0)
        options.on_epoch(Epoch(1, 1, perf_counter() - started))
