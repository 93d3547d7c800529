"""SANSA: item-item regression weights from a sparse approximate inverse of the items' Gram matrix.

Spišák, Bartyzal, Hoskovec, Peška and Tůma, "Scalable approximate non-symmetric autoencoder for collaborative
filtering", 2023. The regression is that of EASE: with Y the weighted and rescaled users x items matrix and
P = (Y'Y + l2 I)^-1, its weights are B = I - P diag(1 / diag P). P is never formed. Y'Y + l2 I is decomposed into
L D L' with at most ENTRIES in a column, L is inverted into K with as many, and P = K' D^-1 K, so that a history x
has the scores (x K') (D^-1 K), divided by diag P. K comes from forward substitution, where the authors' code begins at
2 I - L and takes minimal-residual steps; with all entries and TOLERANCE 0 the weights are exact. Items without a
like are left out of the decomposition.
"""

from time import perf_counter

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.item_weights import RegressionSettings
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.numerics.adjacency import as_read_only
from oneclass.models.numerics.column_moments import column_moments, rescale_columns
from oneclass.models.numerics.gram import gram_rows
from oneclass.models.numerics.matmul import sparse_table
from oneclass.models.numerics.popularity_fallback import fallback_factors, fill_popularity_fallback
from oneclass.models.numerics.sequential_histories import recency_weights
from oneclass.models.sansa.factorization import factorize, invert

ENTRIES = 50  # of a column of each factor, at most
TOLERANCE = 5e-3  # entries of the inverse factor up to this size are dropped before others are computed from them
GRAM_BYTES = 40  # of an edge in the arrays of `GramRows` and while they are made
ENTRY_BYTES = 44  # of an entry of a column: of L, and of K as found, joined and by rows


class SANSASettings(RegressionSettings):
    """The regression's settings are those of `mrf_dense`; the paper's are alpha 0 and users alike."""


class SANSA(Model[SANSASettings]):
    """Score by the regression weights of EASE, from a sparse approximate inverse of the Gram matrix.

    Spišák et al. (2023), for catalogues whose dense inverse fits no memory.

    Attributes:
        roots: float32 (items, items) CSR, K' D^(-1/2): P is the product of this and its transpose. Row i is empty for
            an item without a like.
        before: float32 (items,), the weight of an item of a history.
        after: float32 (items,), what multiplies an item's scores.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import SANSA
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = SANSA().fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "sansa"
    Settings = SANSASettings
    is_deterministic = True

    @classmethod
    def estimate_cost(cls, settings: SANSASettings, log: LogSize) -> FitCost:
        """Estimate the cost of a fit: the log by user and by item, and the two factors."""
        size = GRAM_BYTES * log.edges + (ENTRY_BYTES * (ENTRIES + 1) + 120) * log.items
        return FitCost(size, 1e-5 * log.edges, depends_on_items=True)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        started, chosen, items = perf_counter(), self.params, self.item_count
        assert chosen.l2 is not None  # by `resolve`
        moments = column_moments(interactions, chosen.user_weight_exponent)
        rescaled = rescale_columns(moments, chosen.alpha, centred=False, popularity_discount=chosen.popularity_discount)
        gram = gram_rows(interactions, moments.weights, np.zeros(items), rescaled.factor)
        order = np.argsort(self.item_degrees, kind="stable")[np.count_nonzero(self.item_degrees == 0) :]
        most = max(1, int(min(1.0, ENTRIES / len(order)) * len(order)))
        factor = factorize(gram, order, chosen.l2, most)
        values, rows, starts = invert(factor, most, TOLERANCE)
        values = values / np.sqrt(factor.pivots)[rows]
        of_entries = np.repeat(order, np.diff(starts))  # the item of each entry
        diagonal = np.where(self.item_degrees > 0, np.bincount(of_entries, values**2, items), 1)
        self.roots = csr_matrix((values.astype(np.float32), (of_entries, rows)), shape=(items, len(order)))
        self.before = (1 / rescaled.scale).astype(np.float32)
        self.after = (-rescaled.back / diagonal).astype(np.float32)
        options.on_epoch(Epoch(1, 1, perf_counter() - started, {"entries": len(factor.rows), "shift": factor.shift}))

    def _contributions(self, history: csr_matrix, items: np.ndarray) -> np.ndarray:
        """Return the weights B_ji of the items j of the history times their recency weights.

        Their sum is the score, except for an item that has none of these weights.
        """
        of_entries = recency_weights(history, self.params.recency_exponent) * self.before[history.indices]
        products = (self.roots[history.indices] @ self.roots[items].T).toarray()
        return of_entries[:, None] * np.where(history.indices[:, None] == items, 0, products) * self.after[items]

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        of_entries = recency_weights(histories, self.params.recency_exponent) * self.before[histories.indices]
        scores = np.zeros(histories.shape, dtype=np.float32)
        indptr, indices = as_read_only(histories.indptr, np.int64), as_read_only(histories.indices, np.int32)
        table, transposed = self.compute_once(
            "tables", lambda: (sparse_table(self.roots), sparse_table(self.roots.T.tocsr()))
        )
        _add_products(indptr, indices, as_read_only(of_entries, np.float32), table, transposed, scores)
        scores *= self.after
        below = self.compute_once("below", lambda: fallback_factors(self.item_degrees))
        return fill_popularity_fallback(scores, self.item_degrees, below)

    def _arrays(self) -> dict[str, np.ndarray]:
        table, others = self.roots, {"before": self.before, "after": self.after, "width": np.array(self.roots.shape[1])}
        return {"indptr": table.indptr, "indices": table.indices, "values": table.data, **others}

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        parts = arrays["values"], arrays["indices"], arrays["indptr"]
        self.roots = csr_matrix(parts, shape=(self.item_count, int(arrays["width"])), copy=False)
        self.before, self.after = arrays["before"], arrays["after"]


@njit(parallel=True, nogil=True, cache=True)
def _add_products(indptr, indices, weights, table, transposed, out):
    """out += x S S' without the diagonal of S S', for each history x; S is `table`, CSR."""
    starts, columns, values = table
    item_starts, items, item_values = transposed
    for user in prange(len(out)):
        total = out[user]
        for entry in range(indptr[user], indptr[user + 1]):
            item, weight = indices[entry], weights[entry]
            for at in range(starts[item], starts[item + 1]):
                column, factor = columns[at], weight * values[at]
                for other in range(item_starts[column], item_starts[column + 1]):
                    if items[other] != item:
                        total[items[other]] += factor * item_values[other]
