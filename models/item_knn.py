"""Item neighbours: an item's score is the sum of its similarities to the items of the history.

Sarwar, Karypis, Konstan and Riedl, "Item-based collaborative filtering recommendation algorithms", 2001. With n_j the
users of an item, d_m the items of a user, h the shrinkage and the sums over the users m who like both i and j, the
similarity of i, in the history, to j, which is scored, is

    cosine     sum 1 / (sqrt(n_i n_j) + h)
    jaccard    sum 1 / (n_i + n_j - sum 1 + h)
    tf_idf     sum f_m^2 / (sqrt(F_i F_j) + h),    f_m = log(items / (1 + d_m)), F_j = sum_(m likes j) f_m^2
    bm25       sum f_m^2 / (l_i l_j + h),          l_j = (K1 (1 - B + B n_j / mean n) + 1) / (K1 + 1)
    p3alpha    sum d_m^-alpha / (n_i^alpha + h)
    rp3beta    sum d_m^-alpha / (n_i^alpha n_j^beta + h)

where items without a like do not count in `items` and `mean n`. `tf_idf` and `bm25` treat an item as a document and its
users as its words, as the library implicit does; in `p3alpha`, random walks of three steps (Cooper, Lee, Radinsky and
Siantos, "Random walks in recommender systems", 2014), the power is that of each transition, and `rp3beta` divides by a
power of the popularity (Christoffel, Paudel, Newell and Bernstein, "Blockbusters and wallflowers", 2015). Each item
keeps the `neighbours` items most similar to it.
"""

from time import perf_counter
from typing import ClassVar, Literal

import numpy as np
from numba import get_num_threads, njit, prange
from pydantic import Field
from scipy.sparse import csc_matrix, csr_matrix

from oneclass.models.derived_settings import RecencySettings
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.item_weights import MAX_CHUNK_ENTRIES, ItemWeights, collect_weights
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.numerics.adjacency import as_read_only, find_largest
from oneclass.models.numerics.gram import gram_rows
from oneclass.models.settings import Choice, ModelSettings, NumericRange, SearchSpace


@njit(parallel=True, nogil=True, cache=True)
def find_nearest(gram, first, of_neighbour, of_item, shrinkage, is_jaccard, workers, counts, ids, values):
    """Find the nearest neighbours of the items from `first` on, at most as many as `ids` has columns.

    The similarity of a neighbour i to an item j is g_ij / (of_neighbour_i of_item_j + shrinkage), or with `is_jaccard`
    g_ij / (of_neighbour_i + of_item_j - g_ij + shrinkage), g being the Gram matrix. Worker w takes every `workers`-th
    item.

    Args:
        gram: the `GramRows`; its shift and factor are not read.
        of_neighbour, of_item: float64 (items,).
        counts, ids, values: int64 (n,), int32 and float32 (n, k), filled here with the neighbours of n items by
            ascending id. Only positive similarities count, and of equal ones the lower id.
    """
    for worker in prange(workers):
        total = np.zeros(len(of_item))
        touched = np.empty(len(of_item), dtype=np.int32)
        for place in range(worker, len(counts), workers):
            item = first + place
            shared = 0
            for at in range(gram.item_indptr[item], gram.item_indptr[item + 1]):
                user = gram.item_users[at]
                weight = gram.weights[user]
                for entry in range(gram.indptr[user], gram.indptr[user + 1]):
                    other = gram.indices[entry]
                    if total[other] == 0.0 and weight != 0.0:
                        touched[shared] = other
                        shared += 1
                    total[other] += weight
            others = np.sort(touched[:shared])
            similarities = np.zeros(shared, dtype=np.float32)
            for at in range(shared):
                weight = total[others[at]]
                total[others[at]] = 0.0
                if is_jaccard:
                    divisor = of_neighbour[others[at]] + of_item[item] - weight + shrinkage
                else:
                    divisor = of_neighbour[others[at]] * of_item[item] + shrinkage
                if others[at] != item:
                    similarities[at] = weight / divisor
            count = 0
            for at in find_largest(similarities, ids.shape[1]):
                if similarities[at] > 0:
                    ids[place, count], values[place, count] = others[at], similarities[at]
                    count += 1
            counts[place] = count


Similarity = Literal["cosine", "jaccard", "tf_idf", "bm25", "p3alpha", "rp3beta"]
K1, B = 100.0, 0.8  # of `bm25`, which saturates slowly, and in which items with many users weigh less
GRAM_BYTES = 40  # of an edge in the arrays of `GramRows` and while they are made
WEIGHT_BYTES = 24  # of a similarity: as found, by columns and by rows


class RandomWalkSettings(ModelSettings):
    """Which items count for an item, and how much. The defaults were chosen on validation edges of two logs."""

    search_space: ClassVar[SearchSpace] = {
        "neighbours": NumericRange(20, 1000, log=True),
        "alpha": NumericRange(0.3, 1.5),
        "beta": NumericRange(0.0, 1.0),
    }

    neighbours: int = Field(200, ge=1, description="Only so many items, the most similar ones, count for an item.")
    alpha: float = Field(
        0.5, ge=0, le=3, description="Power of the transitions of `p3alpha` and `rp3beta`; no other similarity has it."
    )
    beta: float = Field(
        0.2, ge=0, le=2, description="Power of an item's popularity by which `rp3beta` divides its similarities."
    )


class ItemKNNSettings(RecencySettings, RandomWalkSettings):
    """Settings of random walks, and which similarity there is."""

    search_space: ClassVar[SearchSpace] = {
        "similarity": Choice(("cosine", "jaccard", "tf_idf", "bm25", "p3alpha", "rp3beta")),
        "neighbours": NumericRange(20, 1000, log=True),
        "shrinkage": NumericRange(0.0, 100.0),
        "alpha": NumericRange(0.3, 1.5),
        "beta": NumericRange(0.0, 1.0),
    }
    initial_trials: ClassVar = (
        {"similarity": "cosine", "shrinkage": 10.0},
        {"similarity": "tf_idf", "shrinkage": 10.0},
        {"similarity": "bm25"},
    )

    similarity: Similarity = Field("rp3beta", description="The measure of similarity between two items.")
    shrinkage: float = Field(
        0.0, ge=0, description="h, added to the denominator of a similarity: items that few users share count less."
    )


class ItemKNN(ItemWeights[ItemKNNSettings]):
    """Score by truncated similarities between items: cosine, Jaccard, TF-IDF, BM25, P3alpha and RP3beta.

    Attributes:
        weights: float32 (items, items) CSR, the similarities; row i is added to the scores of a user who likes i, and
            column j has at most `neighbours` entries.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import ItemKNN
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = ItemKNN().fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "item_knn"
    Settings = ItemKNNSettings
    is_deterministic = True

    @classmethod
    def estimate_cost(cls, settings: ItemKNNSettings, log: LogSize) -> FitCost:
        """Estimate the cost of a fit: the log by user and by item, and the similarities that are kept."""
        kept = min(log.items * settings.neighbours, log.gram_entries)
        chunk = min(log.items * settings.neighbours, MAX_CHUNK_ENTRIES)
        size = GRAM_BYTES * log.edges + WEIGHT_BYTES * kept + 16 * chunk + 32 * log.items
        return FitCost(size, 1.5e-6 * log.edges, depends_on_items=True, remedy="lower item_knn.neighbours")

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        started, items, most = perf_counter(), self.item_count, min(self.params.neighbours, self.item_count - 1)
        weights, of_neighbour, of_item = self._weigh(interactions)
        gram = gram_rows(interactions, weights, np.zeros(items), np.ones(items))
        divisors = as_read_only(of_neighbour, np.float64), as_read_only(of_item, np.float64)
        chosen = self.params.shrinkage, self.params.similarity == "jaccard", get_num_threads()
        parts = collect_weights(items, most, lambda first, *out: find_nearest(gram, first, *divisors, *chosen, *out))
        self.weights = csr_matrix(csc_matrix(parts, shape=(items, items)))
        options.on_epoch(Epoch(1, 1, perf_counter() - started, {"similarities": self.weights.nnz}))

    def _weigh(self, interactions: csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the weight of each user, and what divides similarities, by neighbour and by item that is scored."""
        chosen, users = self.params, np.diff(interactions.indptr).astype(np.float64)
        degrees, alike, ones = self.item_degrees.astype(np.float64), np.ones(len(users)), np.ones(self.item_count)
        if chosen.similarity == "jaccard":
            return alike, degrees, degrees
        if chosen.similarity == "cosine":
            return alike, np.sqrt(degrees), np.sqrt(degrees)
        if chosen.similarity in ("p3alpha", "rp3beta"):
            weights = np.where(users > 0, np.maximum(users, 1) ** -chosen.alpha, 0.0)
            after = degrees**chosen.beta if chosen.similarity == "rp3beta" else ones
            return weights, degrees**chosen.alpha, after
        active = np.count_nonzero(self.item_degrees)
        weights = np.log(active / (1 + users)) ** 2
        if chosen.similarity == "tf_idf":
            of_entries = np.repeat(weights, np.diff(interactions.indptr))
            norms = np.sqrt(np.bincount(interactions.indices, weights=of_entries, minlength=self.item_count))
            return weights, norms, norms
        lengths = 1 - B + B * degrees * active / degrees.sum()
        saturated = (K1 * lengths + 1) / (K1 + 1)
        return weights, saturated, saturated


class RP3betaSettings(RandomWalkSettings):
    """Settings of `item_knn` with the similarity `rp3beta`, which is not searched."""

    recency_exponent: ClassVar[float] = 0.0
    similarity: ClassVar[Similarity] = "rp3beta"
    shrinkage: ClassVar[float] = 0.0


class RP3beta(ItemKNN):
    """`item_knn` by random walks of three steps, divided by a power of the popularity (Christoffel et al. 2015)."""

    name = "rp3beta"
    Settings = RP3betaSettings
