"""Graph filters: scores are a user's row, filtered by the normalised graph of users and items.

R are the edges, D_u and D_i the degrees, x is a user's row of zeros and ones, or of the weights of their places
(`recency_exponent`). With

    W = D_u^(-du/2) R D_i^(-(in+out)/2),    S = W'W / its largest eigenvalue,    A = D_i^-delta S D_i^delta,
    delta = (in - out) / 2,    V the top right singular vectors of W

the scores are

    s = x F,    F = (A + alpha D_i^-gamma V V' D_i^gamma) (1 - h A).

Where items are few, and where that is less work than ranking without (`forms_filter`), F is made by the fit, and scores
are sums of its rows; else F is never formed, and each user's row goes through the graph. Three published filters are
settings of it:

    linear       alpha = h = 0: s_i = d_i^-out sum_v R_vi d_v^-du sum_(j in x) d_j^-in R_vj, of which LinkProp (Fu et
                 al., "Revisiting neighborhood-based link prediction for collaborative filtering", 2022) and RP3beta are
                 cases
    GF-CF        with in = out = 1/2, du = 1, alpha > 0 and gamma = 1/2: Shen et al., "How powerful is graph convolution
                 for recommendation?", 2021
    BSPM         GF-CF and h > 0, the sharpening in one step: Choi et al., "Blurring-sharpening process models for
                 collaborative filtering", 2023

The largest eigenvalue is 1 where du = 1 and in + out = 1, as in these papers; elsewhere the division makes alpha and h
mean the same.
"""

from time import perf_counter
from typing import ClassVar, Self

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.derived_settings import RecencySettings, RelativeRange, interpolate_by_items, mean_degree
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.graph_filter.graph import (
    COLUMNS,
    WIDE,
    DenseSquare,
    NormalizedGraph,
    degree_powers,
    top_eigenvectors,
)
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.numerics.matmul import dense_times, pattern_times
from oneclass.models.numerics.popularity_fallback import fallback_factors, fill_popularity_fallback
from oneclass.models.numerics.sequential_histories import recency_weights, single_item_histories
from oneclass.models.numerics.threads import single_threaded_blas
from oneclass.models.settings import NumericRange, SearchSpace

SMALL_FILTER = 1 << 25  # numbers of a filter that is always formed: 128 MB, 5,792 items
MAX_FILTER = 1 << 29  # numbers of the largest filter that is formed: 2 GB, 23,170 items
VECTOR_COPIES = 3  # of the vectors that are iterated, while they are made orthogonal
EDGE_BYTES = 40  # of an edge in the graph, by user and by item, and while it is scaled
FILTERS = 2  # matrices of all pairs of items: S, and the filter itself
FILTER_BLOCKS = 6  # blocks of columns that are held while the filter is formed
TURNED = 4096  # items whose scores are transposed at a time, so that they stay in a cache: a fifth of a block's time
PASSES = 6  # of the randomized singular value decomposition
WALK = 40  # operations of BLAS in the time of one step along an edge
NOT_FORMED = np.zeros((0, 0), dtype=np.float32)
VECTORS = 2.0  # times the square root of the number of items, where a mean user has ENOUGH likes
ENOUGH = 25.0  # the vectors of shorter histories are mostly noise: a share (likes / ENOUGH)^1.5 of them is taken
SHORT, LONG = 5.0, 12.0  # likes of a mean user, between which the settings below go from the first to the second
FROM_HISTORIES = {"low_pass_exponent": (0.4, 0.1), "sharpening": (0.0, 0.4)}
LONG_LOW_PASS = 1.0  # that of short histories is by the items
# Of short histories over few and over many items; the vectors are so many times those of the rule.
FROM_ITEMS = {"low_pass": (1.0, 3.0), "vectors": (2.0, 1.0)}


def default_vectors(items: int, likes: float) -> int:
    """The vectors of the low-pass for a number of items and the likes of a mean user."""
    share = min(1.0, (likes / ENOUGH) ** 1.5)
    return max(1, round(VECTORS * share * items**0.5))


class GraphFilterSettings(RecencySettings):
    """The defaults are chosen on validation users of seven logs."""

    search_space: ClassVar[SearchSpace] = {
        "user_exponent": NumericRange(0.5, 1.0),
        "in_exponent": NumericRange(0.3, 0.9),
        "out_exponent": NumericRange(0.0, 0.4),
        "low_pass": NumericRange(0.2, 3.0, log=True),
        "vectors": RelativeRange(1 / 4, 2),
        "low_pass_exponent": NumericRange(0.0, 0.4),
        "sharpening": NumericRange(0.0, 1.0),
    }
    initial_trials: ClassVar = (
        {
            "in_exponent": 0.3, "out_exponent": 0.15,
            "low_pass": 0.85, "low_pass_exponent": 0.1, "sharpening": 0.05,
        },
        {
            "in_exponent": 0.3, "out_exponent": 0.15,
            "low_pass": 1.0, "vectors": 0.3, "low_pass_exponent": 0.1, "sharpening": 0.05,
        },
        {
            "user_exponent": 0.65, "out_exponent": 0.15,
            "low_pass": 0.2, "low_pass_exponent": 0.2, "sharpening": 0.8,
        },
    )  # fmt: skip

    user_exponent: float = Field(0.7, ge=-1, le=3, description="du: a path through a user weighs degree^-du.")
    in_exponent: float = Field(0.6, ge=-1, le=3, description="An item of the history weighs degree^-in.")
    out_exponent: float = Field(0.1, ge=-1, le=3, description="An item's score weighs degree^-out.")
    low_pass: float | None = Field(
        None,
        ge=0,
        description="alpha, the weight of the ideal low-pass; 0 to leave it out. By default 1 where a mean user has 12 "
        "likes or more, or where there are 300 items or fewer; 3 where 5 likes or fewer and 3,000 items or more; and "
        "between these between.",
    )
    vectors: int | None = Field(
        None,
        ge=1,
        description="Singular vectors of the low-pass. By default 2 sqrt(items), rounded; where a mean user has fewer "
        "than 25 likes, (likes / 25)^1.5 of that, and up to twice as many where there are few items.",
    )
    low_pass_exponent: float | None = Field(
        None,
        ge=-1,
        le=3,
        description="gamma: the low-pass divides the items of a history by degree^gamma, and multiplies scores by it. "
        "By default 0.1, or 0.4 where a mean user has 5 likes or fewer, as for `low_pass`.",
    )
    sharpening: float | None = Field(
        None,
        ge=0,
        description="h, the strength of the sharpening; 0 to leave it out. By default 0.4, or 0 where a mean user has "
        "5 likes or fewer, as for `low_pass`.",
    )

    def resolve(self, interactions: csr_matrix) -> Self:
        """The settings with the low-pass and the sharpening for a (users, items) log, by the likes of a mean user."""
        likes, items = mean_degree(interactions), interactions.shape[1]
        long = min(max((likes - SHORT) / (LONG - SHORT), 0.0), 1.0)
        of_items = {name: interpolate_by_items(items, few, many) for name, (few, many) in FROM_ITEMS.items()}
        ends = FROM_HISTORIES | {"low_pass": (of_items["low_pass"], LONG_LOW_PASS)}
        by_rule: dict[str, float] = {name: (1 - long) * a + long * b for name, (a, b) in ends.items()}
        by_rule["vectors"] = round(default_vectors(items, likes) * of_items["vectors"] ** (1 - long))
        return self.model_copy(update={name: value for name, value in by_rule.items() if getattr(self, name) is None})


def forms_filter(items: int, edges: int) -> bool:
    """Whether a fit forms the whole filter.

    With d likes a user, ranking all users by walks over the edges is some 300 edges^2 / d operations, and forming the
    filter 2 items^3 in BLAS: where edges^2 > items^3, it is less work for any d below 150.
    """
    return items**2 <= SMALL_FILTER or (items**2 <= MAX_FILTER and edges**2 > items**3)


def uses_dense_square(items: int, edges: int) -> bool:
    """Whether to form the filter from S, 2 items^3 operations in BLAS, not by 4 walks over the edges per item."""
    return forms_filter(items, edges) and WALK * edges > items**2


class GraphFilter(Model[GraphFilterSettings]):
    """Filter histories by a polynomial of the normalised graph of users and items, and by its low-pass.

    Contains LinkProp, GF-CF (Shen et al. 2021) and BSPM (Choi et al. 2023) as settings.

    Attributes:
        edges: (users, items) CSR, R: the training edges as ones in int8.
        eigenvalue: the largest eigenvalue of W'W; 1 if nothing depends on it.
        vectors: float32 (items, k), V; k is 0 without a low-pass, and at most the rank of W.
        weights: float32 (items, items), F, row j being added to the scores of a user who likes j; (0, 0) if not formed.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import GraphFilter
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = GraphFilter().fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "graph_filter"
    Settings = GraphFilterSettings

    @classmethod
    def estimate_cost(cls, settings: GraphFilterSettings, log: LogSize) -> FitCost:
        """Estimate the cost of a fit: the graph in both orders, the vectors, and the filter if it is formed."""
        vectors = (settings.vectors or default_vectors(log.items, log.edges / max(1, log.users))) + COLUMNS
        block = COLUMNS * (log.users + log.items)
        if forms_filter(log.items, log.edges):
            block = FILTERS * log.items**2 + FILTER_BLOCKS * WIDE * log.items
        return FitCost(
            EDGE_BYTES * log.edges + 4 * (VECTOR_COPIES * vectors * log.items + block),
            seconds=4e-6 * log.edges,
            remedy="lower graph_filter.vectors",
            reads_table=log.items**2 > SMALL_FILTER and forms_filter(log.items, log.edges),
            min_users=2 * COLUMNS,
        )

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        started, chosen = perf_counter(), self.params
        ones = np.ones(interactions.nnz, dtype=np.int8)
        self.edges = csr_matrix((ones, interactions.indices, interactions.indptr), shape=interactions.shape)
        self.eigenvalue, self.weights = 1.0, NOT_FORMED
        self.vectors = np.zeros((self.item_count, 0), dtype=np.float32)
        squared = uses_dense_square(self.item_count, interactions.nnz)
        graph = DenseSquare.of(self.edges, *self._exponents()) if squared else self._normalize_graph()
        assert chosen.vectors is not None  # by `resolve`
        wanted = chosen.vectors if chosen.low_pass else 0
        if wanted or chosen.sharpening:
            with single_threaded_blas():
                values, vectors = top_eigenvectors(graph, self.edges.shape, max(wanted, 1), PASSES, self.seed)
            self.eigenvalue, self.vectors = float(values[0]), np.ascontiguousarray(vectors[:, :wanted])
        if forms_filter(self.item_count, interactions.nnz):
            self.weights = self._form_filter(graph.over(self.eigenvalue))
        options.on_epoch(Epoch(1, 1, perf_counter() - started))

    def _form_filter(self, graph: NormalizedGraph | DenseSquare) -> np.ndarray:
        """Return F, float32 (items, items)."""
        if isinstance(graph, NormalizedGraph):
            return self._filter(single_item_histories(np.arange(self.item_count), self.item_count), graph)
        (before, after), (into, out_of) = self._make_low_pass(graph), self._degree_scales()
        formed, first = graph.sharpen(self.params.sharpening or 0.0), before * self.vectors
        for start in range(0, len(formed), WIDE):
            rows = formed[start : start + WIDE]
            rows *= into[start : start + WIDE]
            rows *= out_of[:, 0]
            rows += dense_times(first[start : start + WIDE], after)
        return formed

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        if len(self.weights):
            of_entries = recency_weights(histories, self.params.recency_exponent)
            scores = pattern_times(histories, self.weights, of_entries)
        else:
            scores = self._filter(histories, self._graph())
        below = self.compute_once("below", lambda: fallback_factors(self.item_degrees))
        return fill_popularity_fallback(scores, self.item_degrees, below)

    def _filter(self, histories: csr_matrix, graph: NormalizedGraph) -> np.ndarray:
        """Return x F, float32 (block, items), passing each history x through the graph."""
        of_entries = recency_weights(histories, self.params.recency_exponent)
        into, out_of = self._degree_scales()
        before, after = self.compute_once("low-pass", lambda: self._make_low_pass(graph))
        indptr, indices = histories.indptr, histories.indices
        scores = dense_times(pattern_times(histories, self.vectors, of_entries * before[indices, 0]), after)
        rows = np.repeat(np.arange(len(scores)), np.diff(indptr))
        for start in range(0, len(scores), COLUMNS):
            some = scores[start : start + COLUMNS]
            entries = slice(indptr[start], indptr[start + len(some)])
            block = np.zeros((self.item_count, len(some)), dtype=np.float32)
            block[indices[entries], rows[entries] - start] = of_entries[entries] * into[indices[entries], 0]
            block = self._sharpen(graph.multiply(block), graph)
            block *= out_of
            for first in range(0, len(block), TURNED):
                some[:, first : first + TURNED] += block[first : first + TURNED].T
        return scores

    def _sharpen(self, block: np.ndarray, graph: NormalizedGraph | DenseSquare) -> np.ndarray:
        """Return (1 - h S) z, float32 (items, width): a step of dz/dt = -S z by Euler."""
        if not self.params.sharpening:
            return block
        sharpened = graph.multiply(block)
        sharpened *= np.float32(-self.params.sharpening)
        sharpened += block
        return sharpened

    def _make_low_pass(self, graph: NormalizedGraph | DenseSquare) -> tuple[np.ndarray, np.ndarray]:
        """Return the sharpened low-pass as two factors: D^-gamma, (items, 1), before V, and after it
        alpha V' D^gamma (1 - h A), float32 (k, items).
        """
        gamma, low_pass, (into, out_of) = self.params.low_pass_exponent, self.params.low_pass, self._degree_scales()
        assert gamma is not None and low_pass is not None  # by `resolve`
        after = np.float32(low_pass) * self._degree_powers(gamma) * self.vectors
        for start in range(0, after.shape[1] if self.params.sharpening else 0, graph.columns):
            some = slice(start, start + graph.columns)
            after[:, some] = out_of * self._sharpen(into * np.ascontiguousarray(after[:, some]), graph)
        return self._degree_powers(-gamma), np.ascontiguousarray(after.T)

    @property
    def explains_cheaply(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (it is only read)
        """Whether the filter is formed; otherwise contributions take passes over all edges."""
        return len(self.weights) > 0

    def _contributions(self, history: csr_matrix, items: np.ndarray) -> np.ndarray:
        """Return the columns `items` of the filter at the items of the history, times their recency weights.

        Their sum is the score, unless all are zero.
        """
        of_entries = recency_weights(history, self.params.recency_exponent)[:, None]
        if len(self.weights):
            return of_entries * self.weights[history.indices[:, None], items]
        liked, graph, (into, out_of) = history.indices, self._graph(), self._degree_scales()
        before, after = self.compute_once("low-pass", lambda: self._make_low_pass(graph))
        columns = np.zeros((self.item_count, len(items)), dtype=np.float32)
        columns[items, np.arange(len(items))] = out_of[items, 0]
        columns = graph.multiply(self._sharpen(columns, graph))[liked]
        low = dense_times(before[liked] * self.vectors[liked], np.ascontiguousarray(after[:, items]))
        return of_entries * (into[liked] * columns + low)

    def _graph(self) -> NormalizedGraph:
        """Return the graph, with S divided by its largest eigenvalue."""
        return self.compute_once("graph", lambda: self._normalize_graph().over(self.eigenvalue))

    def _normalize_graph(self) -> NormalizedGraph:
        return NormalizedGraph.of(self.edges, *self._exponents())

    def _exponents(self) -> tuple[float, float]:
        """Return what W divides users' and items' degrees by, as powers of them."""
        return self.params.user_exponent / 2, (self.params.in_exponent + self.params.out_exponent) / 2

    def _degree_scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Return D^-delta and D^delta, float32 (items, 1)."""
        delta = (self.params.in_exponent - self.params.out_exponent) / 2
        return self._degree_powers(-delta), self._degree_powers(delta)

    def _degree_powers(self, exponent: float) -> np.ndarray:
        """Return powers of the item degrees, float32 (items, 1)."""
        return self.compute_once(
            f"degrees to the {exponent}", lambda: degree_powers(self.item_degrees, exponent)[:, None]
        )

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "indptr": self.edges.indptr,
            "indices": self.edges.indices,
            "vectors": self.vectors,
            "eigenvalue": np.array(self.eigenvalue),
            "weights": self.weights,
        }

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        indptr, indices = arrays["indptr"], arrays["indices"]
        parts = np.ones(len(indices), dtype=np.int8), indices, indptr
        self.edges = csr_matrix(parts, shape=(len(indptr) - 1, self.item_count), copy=False)
        self.eigenvalue, self.vectors = float(arrays["eigenvalue"]), arrays["vectors"]
        self.weights = arrays["weights"]
