"""The sparse Gaussian Markov random field: regression weights between neighbours only, from many small inverses.

Steck, "Markov Random Fields for Collaborative Filtering", 2019, section 3. Two items are neighbours if the covariance of
their rescaled columns, before l2 is added, is large in absolute value. `models.mrf.sparse_pattern` finds the pattern of
neighbours (section 3.1), `models.mrf.sparse_blocks` solves for the weights (section 3.2). At r = 0 every column is the
ridge regression of its item on its neighbours. As the threshold falls, the weights approach those of `mrf_dense`.

A block is an item i, its leader, together with the neighbours N of i. It estimates the columns of the set D: of i and
of the neighbours with the largest covariances. The paper and its author's notebook differ in two places; the setting
`variant` chooses between them:

    variant     items in D                                             weights outside the pattern
    notebook    ceil(r (1 + |N|)), at least i itself                   dropped
    paper       1 + round(r |N|), halves to the even number (step 2)   kept (step 3: edges that are assumed present)

In both, an entry that several blocks estimate is the average of their estimates (end of section 3.2). At r = 0 the two
are the same. In the paper's variant B has more entries than the pattern, up to the sum over blocks of |D| (1 + |N|).
"""

from time import perf_counter
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from scipy.sparse import csc_matrix, csr_matrix

from models.base import Model
from models.fitting import Epoch, FitOptions
from models.mrf.dense import MRFSettings
from models.mrf.sparse_blocks import blocks, estimates, inverses
from models.mrf.sparse_pattern import Pattern, above, of_density
from models.numerics.gram import GramRows, gram_rows
from models.numerics.no_evidence import factors_below, order_by_popularity
from models.numerics.ordered_histories import weights_by_place
from models.numerics.rescaled_columns import Columns, Rescaling, columns, rescaling
from models.numerics.sparse_products import entries_of, sparse_times
from models.numerics.threads import kernel_threads
from models.search_space import Choice, SearchSpace, Span

NEIGHBOURS = 200  # entries of the pattern for each item


class MRFSparseSettings(MRFSettings):
    """The defaults were chosen on validation users of seven logs; the paper's l2 for the Million Song Dataset is 1."""

    search_space: ClassVar[SearchSpace] = {
        **MRFSettings.search_space,
        "density": Span(0.005, 0.1, log=True, by_hand=True),
        "r": Choice((0.0, 0.1, 0.5), by_hand=True),
    }
    deprecated: ClassVar = {"blocks": "mrf_sparse is fitted whole on one worker"}

    density: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Share of the entries of the covariance matrix, with the diagonal, that are in the pattern: the "
        "largest share that does not exceed this. By default, where no threshold is given either, 200 entries an item.",
    )
    threshold: float | None = Field(
        None,
        ge=0,
        description="Entries of the rescaled Gram matrix above this in absolute value are in the pattern; given "
        "instead of a density.",
    )
    max_in_column: int = Field(
        1000,
        ge=1,
        description="Largest number of entries in a column of the pattern, with the diagonal; the largest stay.",
    )
    r: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Share of a block whose columns are estimated at once: 0 solves one block for "
        "every item, larger values fewer blocks, less exactly.",
    )
    variant: Literal["notebook", "paper"] = Field(
        "notebook",
        description="Which form of section 3.2: `notebook` estimates ceil(r size) columns of a block and drops weights "
        "outside the pattern; `paper` estimates 1 + round(r (size - 1)) columns and keeps these weights.",
    )

    @model_validator(mode="after")
    def _not_both(self) -> Self:
        if self.density is not None and self.threshold is not None:
            raise ValueError("density and threshold are both given; give one of them, or neither")
        return self

    def resolve(self, interactions: csr_matrix) -> Self:
        """The settings with l2, and the density where there is no threshold, for a (users, items) log."""
        found = super().resolve(interactions)
        if self.density is None and self.threshold is None:
            found = found.model_copy(update={"density": min(1.0, NEIGHBOURS / interactions.shape[1])})
        return found


class MRFSparse(Model):
    """Item-item regression weights between neighbours.

    Attributes:
        weights: float32 (items, items) CSR, B without its zeros; row j is added to the scores of a user who likes j.
        offset: float32 (items,), added to every user's scores; mu - mu B with an intercept, else zeros.
    """

    name = "mrf_sparse"
    Settings = MRFSparseSettings
    draws_nothing = True
    cost_is_of_items = True

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        started = perf_counter()
        moments = columns(interactions, self.params.user_weight_exponent)
        rescaled = rescaling(moments, self.params.alpha, self.params.centred, self.params.popularity_discount)
        pattern, table = self._solve(interactions, moments, rescaled)
        table.data *= np.repeat(rescaled.back, np.diff(table.indptr)) / rescaled.scale[table.indices]
        table = table.tocsr()
        table.eliminate_zeros()
        self.weights = table
        self.offset = np.zeros(self.item_count, dtype=np.float32)
        if self.params.intercept:
            self.offset[:] = moments.mean * rescaled.back / rescaled.scale - moments.mean @ table
        table.data = table.data.astype(np.float32)
        kept = len(pattern.indices) / self.item_count**2
        options.on_epoch(Epoch(1, 1, perf_counter() - started, {"threshold": pattern.threshold, "density": kept}))

    def _solve(self, interactions: csr_matrix, moments: Columns, rescaled: Rescaling) -> tuple[Pattern, csc_matrix]:
        """The pattern, and B of the rescaled columns."""
        gram = gram_rows(interactions, moments.weights, rescaled.shift, rescaled.factor)
        pattern = self._pattern(gram)
        chosen = blocks(pattern, self.params.r, self._in_paper)
        solved = inverses(gram, pattern, *chosen, self.params.l2, self.threads)
        return pattern, estimates(pattern, *chosen, solved, self.threads, self._in_paper)

    @property
    def _in_paper(self) -> bool:
        return self.params.variant == "paper"

    def contributions(self, history: csr_matrix, items: np.ndarray) -> np.ndarray:
        """The weights B_ji of the items j of the history, each times that of its place; the score is their sum plus `offset`.

        Without an intercept, an item that has none of these weights is placed below by its popularity alone.
        """
        of_places = weights_by_place(history, self.params.recency_exponent)
        return of_places[:, None] * entries_of(self.weights, history.indices, items)

    def _pattern(self, gram: GramRows) -> Pattern:
        most = self.params.max_in_column
        if self.params.density is not None:
            return of_density(gram, self.params.density, most, self.threads)
        return above(gram, self.params.threshold, most, self.threads)

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        with kernel_threads(self.threads):
            of_places = weights_by_place(histories, self.params.recency_exponent)
            scores = sparse_times(histories, self.weights, of_places)
            if self.params.intercept:
                scores += self.offset
                return scores
            below = self.kept("below", lambda: factors_below(self.item_degrees))
            return order_by_popularity(scores, self.item_degrees, below)

    def _arrays(self) -> dict[str, np.ndarray]:
        table = self.weights
        return {"indptr": table.indptr, "indices": table.indices, "values": table.data, "offset": self.offset}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        values = arrays["values"].astype(np.float32, copy=False)  # of fits of earlier versions, float64
        parts = values, arrays["indices"], arrays["indptr"]
        self.weights = csr_matrix(parts, shape=(self.item_count,) * 2, copy=False)
        self.offset = arrays["offset"]
