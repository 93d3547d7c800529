"""Graph filters: scores are a user's row, filtered by the normalised graph of users and items.

R are the edges, D_u and D_i the degrees, x is a user's row of zeros and ones, or of the weights of their places
(`recency_exponent`). With `use_weights` the entries of R and x are roots of the edges' weights, so that a few large
ones do not outweigh the rest, and the degrees are sums of them. With

    W = D_u^(-du/2) R D_i^(-(in+out)/2),    S = W'W / its largest eigenvalue,    A = D_i^-delta S D_i^delta,
    delta = (in - out) / 2,    V the top right singular vectors of W

the scores are

    s = x F,    F = (p(A) + alpha D_i^-gamma V V' D_i^gamma) (1 - h A + h^2 A^2 / 2 - ...).

Where items are few, and where that is less work than ranking without (`forms_filter`), F is made by the fit, and scores
are sums of its rows; else F is never formed, and each user's row goes through the graph. Four published filters are
settings of it:

    linear       p(A) = A: s_i = d_i^-out sum_v R_vi d_v^-du sum_(j in x) d_j^-in R_vj, of which LinkProp (Fu et al.,
                 "Revisiting neighborhood-based link prediction for collaborative filtering", 2022) and RP3beta are
                 cases
    GF-CF        with in = out = 1/2, du = 1, alpha > 0 and gamma = 1/2: Shen et al., "How powerful is graph convolution
                 for recommendation?", 2021
    ChebyCF      p the plateau, in = 1/2 + beta, out = 1/2 - beta, gamma = beta: Kim et al., "Graph spectral filtering
                 with Chebyshev interpolation for recommendation", 2025
    BSPM         GF-CF and h > 0, the sharpening: Choi et al., "Blurring-sharpening process models for collaborative
                 filtering", 2023

The largest eigenvalue is 1 where du = 1 and in + out = 1, as in these papers; elsewhere the division makes alpha, h and
the plateau mean the same.
"""

import threading
from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.fit_options import Epoch, FitOptions
from oneclass.models.graph_filter.graph import (
    COLUMNS,
    WIDE,
    DenseSquare,
    NormalizedGraph,
    degree_powers,
    top_eigenvectors,
    weighted_degrees,
)
from oneclass.models.graph_filter.paths import HubColumns, sum_paths
from oneclass.models.graph_filter.polynomials import Product, apply_chebyshev, apply_decay, plateau_coefficients
from oneclass.models.graph_filter.settings import GraphFilterSettings, default_vectors
from oneclass.models.graph_filter.walks import MIN_USERS, add_walks, form_filter
from oneclass.models.memory_estimates import LogSize
from oneclass.models.numerics.matmul import dense_times, pattern_times
from oneclass.models.numerics.popularity_fallback import fallback_factors, fill_popularity_fallback
from oneclass.models.numerics.sequential_histories import recency_weights
from oneclass.models.numerics.sparse_products import rows_times
from oneclass.models.numerics.threads import kernel_threads, single_threaded_blas
from oneclass.models.numerics.validation import single_item_histories

ColumnMaker = Callable[[list[int]], Iterator[tuple[np.ndarray, np.ndarray]]]


class ColumnCache:
    """Two tables with a row for each cached item.

    Attributes:
        columns: float32 (capacity, size), the column without its low-pass.
        factors: float32 (capacity, k), the column of the low-pass's second factor.
        rows: the row of each item in the tables, most recently used last.
        lock: to be held from `lookup` until the rows are read; later they may hold other items.
    """

    def __init__(self, capacity: int, size: int, factors: int) -> None:
        self.columns = np.empty((capacity, size), dtype=np.float32)  # pages are allocated when filled
        self.factors = np.empty((capacity, factors), dtype=np.float32)
        self.rows: dict[int, int] = {}
        self.lock = threading.Lock()

    def lookup(self, items: np.ndarray, make: ColumnMaker) -> np.ndarray:
        """Return the rows of some items, int64 (n,), of at most as many different ones as the tables have rows.

        Args:
            make: computes the column and the factor of each missing item.
        """
        wanted = dict.fromkeys(items.tolist())
        missing = [item for item in wanted if item not in self.rows]
        computed = list(make(missing)) if missing else []
        recent = {item: self.rows.pop(item) for item in wanted if item in self.rows}
        for item, (column, factor) in zip(missing, computed, strict=True):
            row = len(self.rows) + len(recent)  # the next free row
            if row == len(self.columns):
                row = self.rows.pop(next(iter(self.rows)))
            self.columns[row], self.factors[row], recent[item] = column, factor, row
        self.rows |= recent
        return np.array([recent[item] for item in items.tolist()])


CACHE_ENTRIES = 1 << 25  # numbers in the cached columns of the filter: 128 MB, all columns of 5,792 items
MAX_FILTER_ENTRIES = 1 << 29  # numbers of the largest filter that is formed: 2 GB, 23,170 items
VECTOR_COPIES = 3  # of the vectors that are iterated, while they are made orthogonal
EDGE_BYTES = 40  # of an edge in the graph, by user and by item, and while it is scaled
FILTERS = 2  # matrices of all pairs of items: S, and the filter itself
FILTER_BLOCKS = 6  # blocks of columns that are held while the filter is formed
WALK = 40  # operations of BLAS in the time of one step of a walk
NOT_FORMED = np.zeros((0, 0), dtype=np.float32)
MAX_HUBS = 512  # items whose columns are kept for sums over paths
SINGLE_COLUMNS = 16  # up to this many columns are computed one by one, since most of the graph is far from most items


def forms_filter(items: int, edges: int) -> bool:
    """Whether a fit forms the whole filter.

    With d likes a user, ranking all users by walks over the edges is some 300 edges^2 / d operations, and forming the
    filter 2 items^3 in BLAS: where edges^2 > items^3, it is less work for any d below 150.
    """
    return items**2 <= CACHE_ENTRIES or (items**2 <= MAX_FILTER_ENTRIES and edges**2 > items**3)


def uses_dense_square(items: int, edges: int) -> bool:
    """Whether to form the filter from S, 2 items^3 operations in BLAS, not by 4 walks over the edges per item."""
    return forms_filter(items, edges) and WALK * edges > items**2


class GraphFilter(Model[GraphFilterSettings]):
    """Filter histories by a polynomial of the normalised graph of users and items, and by its low-pass.

    Contains LinkProp, GF-CF (Shen et al. 2021), ChebyCF (Kim et al. 2025) and BSPM (Choi et al. 2023) as settings.

    Attributes:
        edges: (users, items) CSR, R: the training edges as ones in int8, or with `use_weights` the roots of their
            weights, float32.
        graph: W over the root of `eigenvalue`; None if the filter is formed, which suffices for scoring.
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
    edge_seconds = 4e-6
    Settings = GraphFilterSettings
    memory_hint = "lower graph_filter.vectors"
    min_block_users = 2 * COLUMNS
    graph: NormalizedGraph | DenseSquare | None

    @classmethod
    def matrices_on(cls, items: int, edges: int) -> int:
        """Return 2, the filter and S, if they are large."""
        return 2 if items**2 > CACHE_ENTRIES and forms_filter(items, edges) else 0

    @classmethod
    def fit_bytes(cls, settings: GraphFilterSettings, log: LogSize) -> int:
        """Estimate the memory of a fit: the graph in both orders, the vectors, and the filter if it is formed."""
        by_rule = default_vectors(log.items, log.edges / max(1, log.users))
        vectors = (settings.vectors or by_rule) + settings.oversampling
        block = COLUMNS * (log.users + log.items)
        if forms_filter(log.items, log.edges):
            block = FILTERS * log.items**2 + FILTER_BLOCKS * WIDE * log.items
        return EDGE_BYTES * log.edges + 4 * (VECTOR_COPIES * vectors * log.items + block)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        started, chosen = perf_counter(), self.params
        ones = np.ones(interactions.nnz, dtype=np.int8)
        entries = np.sqrt(interactions.data, dtype=np.float32) if chosen.use_weights else ones
        self.edges = csr_matrix((entries, interactions.indices, interactions.indptr), shape=interactions.shape)
        self.eigenvalue, self.vectors = 1.0, np.zeros((self.item_count, 0), dtype=np.float32)
        graph = self._paths(uses_dense_square(self.item_count, interactions.nnz) and not chosen.use_weights)
        assert chosen.vectors is not None  # by `resolve`
        wanted = chosen.vectors if chosen.low_pass else 0
        if wanted or chosen.sharpening or chosen.polynomial == "plateau":
            with kernel_threads(self.threads), single_threaded_blas():
                values, vectors = top_eigenvectors(graph, max(wanted, 1), chosen.oversampling, chosen.passes, self.seed)
            self.eigenvalue, self.vectors = float(values[0]), np.ascontiguousarray(vectors[:, :wanted])
        self.graph, self.weights = graph.over(self.eigenvalue), NOT_FORMED
        if forms_filter(self.item_count, interactions.nnz):
            self.weights, self.graph = self._form_filter(), None
        options.on_epoch(Epoch(1, 1, perf_counter() - started))

    @property
    def explains_cheaply(self) -> bool:
        """Whether the filter is formed; otherwise contributions take passes over edges for each item."""
        return len(self.weights) > 0

    def contributions(self, history: csr_matrix, items: np.ndarray) -> np.ndarray:
        """Return the columns `items` of the filter at the items of the history, times their recency weights.

        Their sum is the score, unless all are zero.
        """
        of_entries = self._entry_weights(history)[:, None]
        if len(self.weights):
            return of_entries * self.weights[history.indices[:, None], items]
        before, low_after = self._low_pass()
        with kernel_threads(self.threads):
            if self._is_walk:
                added, low_columns = self._path_sums(history.indices, items), low_after[items].T
            else:
                added, low_columns = self._cached_columns(history.indices, items)
            low = before[history.indices] * self.vectors[history.indices]
            return of_entries * (added + dense_times(low, low_columns))

    @property
    def _is_walk(self) -> bool:
        """Whether the filter without its low-pass is S - h S^2 between powers of the degrees, so that contributions are
        sums over the paths between a history and an item; of others columns are cached.
        """
        chosen = self.params
        return chosen.polynomial == "linear" and (not chosen.sharpening or chosen.sharpening_terms == 1)

    def _path_sums(self, history: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Return what the filter without its low-pass adds for items of a history, float32 (history, items)."""
        graph, sharpening, (before, after) = self.graph, self.params.sharpening, self._walk_powers()
        assert isinstance(graph, NormalizedGraph) and sharpening is not None
        if self._cache is None:
            sums = sum_paths(*graph.tables, history, items, sharpening)
        else:  # a fitted model keeps columns of the hubs
            count = min(MAX_HUBS, CACHE_ENTRIES // self.edges.shape[0])
            sums = self.compute_once("hubs", lambda: HubColumns.of(graph, sharpening, count)).pair_sums(history, items)
        return before[history, None] * after[items] * sums

    def _cached_columns(self, history: np.ndarray, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what the filter without its low-pass adds for items of a history, float32 (history, items), and the
        columns of the low-pass's second factor, (k, items).
        """
        cache = self._column_cache(len(items))
        with cache.lock:
            rows = cache.lookup(items, self._columns)
            if not self._ends_at_users:
                return cache.columns[rows[:, None], history].T, cache.factors[rows].T
            assert isinstance(self.graph, NormalizedGraph)  # a square forms the filter
            after = self._degree_powers(self._delta(-1))[history]
            return after * rows_times(self.graph.of_items, history, cache.columns[rows].T), cache.factors[rows].T

    def _column_cache(self, count: int) -> ColumnCache:
        """Return a cache with room for the columns of `count` items.

        A fitted model keeps one, since most users are recommended the same few items.
        """
        size, factors = self.edges.shape[0] if self._ends_at_users else self.item_count, self.vectors.shape[1]
        cache = self.compute_once("filter columns", lambda: ColumnCache(CACHE_ENTRIES // size, size, factors))
        return cache if count <= len(cache.columns) else ColumnCache(count, size, factors)

    def _columns(self, items: list[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield columns of the filter: without its low-pass, float32 (items,), and of the low-pass's second factor,
        (k,).

        Two passes over all edges compute a block of them. If `_ends_at_users`, the first is (users,), before the last
        half of a product with the graph: it is shorter, so that more fit into the cache, and a history needs few of its
        numbers.
        """
        after, size = self._low_pass()[1], COLUMNS if len(items) > SINGLE_COLUMNS else 1
        for start in range(0, len(items), size):
            some = items[start : start + size]
            block = np.zeros((self.item_count, len(some)), dtype=np.float32)
            block[some, np.arange(len(some))] = 1
            block = self._sharpen(block, -1)
            if self._ends_at_users:
                assert isinstance(self.graph, NormalizedGraph)  # a square forms the filter
                columns = self.graph.at_users(self._degree_powers(-self._delta(-1)) * block)
            else:
                columns = self._apply_between(self._polynomial, block, -1)
            yield from zip(columns.T, after[some], strict=True)

    @property
    def _ends_at_users(self) -> bool:
        """Whether columns of the filter are cached as vectors over users, which are fewer than the items."""
        return self.params.polynomial == "linear" and self.edges.shape[0] < self.item_count

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        with kernel_threads(self.threads):
            if len(self.weights):
                scores = pattern_times(histories, self.weights, self._entry_weights(histories))
            else:
                scores = self._filter_histories(histories)
            below = self.compute_once("below", lambda: fallback_factors(self.item_degrees))
            return fill_popularity_fallback(scores, self.item_degrees, below)

    def _filter_histories(self, histories: csr_matrix) -> np.ndarray:
        """Return x F, float32 (block, items), passing each history through the graph."""
        chosen, (before, after), of_entries = self.params, self._low_pass(), self._entry_weights(histories)
        with kernel_threads(self.threads):
            low = pattern_times(histories, self.vectors, of_entries * before[histories.indices, 0])
            scores = dense_times(low, self.compute_once("low-pass columns", lambda: np.ascontiguousarray(after.T)))
            if isinstance(self.graph, NormalizedGraph) and self._is_walk and len(scores) >= MIN_USERS:
                add_walks(self.graph.tables, self._walk_powers(), chosen.sharpening, histories, of_entries, scores)
                return scores
            width, rows = self._operator.columns, np.repeat(np.arange(len(scores)), np.diff(histories.indptr))
            for start in range(0, len(scores), width):
                some = scores[start : start + width]
                entries = slice(histories.indptr[start], histories.indptr[start + len(some)])
                block = np.zeros((self.item_count, len(some)), dtype=np.float32)
                block[histories.indices[entries], rows[entries] - start] = of_entries[entries]
                some += self._sharpen(self._apply_between(self._polynomial, block, 1), 1).T
        return scores

    def _entry_weights(self, histories: csr_matrix) -> np.ndarray:
        """Return x at the entries of the histories, float32."""
        of_order = recency_weights(histories, self.params.recency_exponent)
        return of_order * np.sqrt(histories.data, dtype=np.float32) if self.params.use_weights else of_order

    def _form_filter(self) -> np.ndarray:
        """Return F, float32 (items, items)."""
        if not (isinstance(self.graph, DenseSquare) and self._is_walk):
            return self._filter_histories(single_item_histories(np.arange(self.item_count), self.item_count))
        before, after = self._low_pass()
        with kernel_threads(self.threads):
            return form_filter(self.graph, self._walk_powers(), self.params.sharpening, before * self.vectors, after)

    def _low_pass(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sharpened low-pass as two factors: D^-gamma, (items, 1), before V, and the transpose of
        alpha V' D^gamma times the sharpening, (items, k), after it.
        """
        return self.compute_once("low-pass", self._make_low_pass)

    def _make_low_pass(self) -> tuple[np.ndarray, np.ndarray]:
        gamma, low_pass = self.params.low_pass_exponent, self.params.low_pass
        assert gamma is not None and low_pass is not None  # by `resolve`
        after = np.float32(low_pass) * self._degree_powers(gamma) * self.vectors
        with kernel_threads(self.threads):
            for start in range(0, after.shape[1], self._operator.columns):
                some = slice(start, start + self._operator.columns)
                after[:, some] = self._sharpen(np.ascontiguousarray(after[:, some]), 1)
        return self._degree_powers(-gamma), after

    @property
    def _operator(self) -> NormalizedGraph | DenseSquare:
        """The graph, of a model whose filter is not formed, or not yet."""
        assert self.graph is not None
        return self.graph

    def _sharpen(self, block: np.ndarray, sign: int) -> np.ndarray:
        time, terms = self.params.sharpening, self.params.sharpening_terms
        if not time:
            return block
        return self._apply_between(lambda z: apply_decay(time, terms, self._operator.multiply, z), block, sign)

    def _apply_between(self, series: Product, block: np.ndarray, sign: int) -> np.ndarray:
        """D^delta f(S) D^-delta z, the transpose of a polynomial f of A, on columns z; sign -1 for f(A) itself."""
        delta = self._delta(sign)
        return self._degree_powers(delta) * series(self._degree_powers(-delta) * block)

    def _delta(self, sign: int) -> float:
        return sign * (self.params.in_exponent - self.params.out_exponent) / 2

    def _walk_powers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return D^-delta and D^delta, float32 (items,)."""
        return self._degree_powers(-self._delta(1))[:, 0], self._degree_powers(self._delta(1))[:, 0]

    def _polynomial(self, block: np.ndarray) -> np.ndarray:
        if self.params.polynomial == "linear":
            return self._operator.multiply(block)
        coefficients = plateau_coefficients(self.params.order, self.params.flatness)
        return apply_chebyshev(coefficients, self._operator.multiply, block)

    def _paths(self, squared: bool) -> NormalizedGraph | DenseSquare:
        """Build W, or W'W itself."""
        chosen = self.params
        exponents = chosen.user_exponent / 2, (chosen.in_exponent + chosen.out_exponent) / 2
        if squared:
            return DenseSquare.of(self.edges, *exponents, self.threads)
        return NormalizedGraph.of(self.edges, *exponents)

    def _degree_powers(self, exponent: float) -> np.ndarray:
        """Return powers of the item degrees, float32 (items, 1)."""
        return self.compute_once(
            f"degrees to the {exponent}", lambda: degree_powers(weighted_degrees(self.edges)[1], exponent)[:, None]
        )

    def _arrays(self) -> dict[str, np.ndarray]:
        edges, eigenvalue = self.edges, np.array(self.eigenvalue)
        entries = {"entries": edges.data} if self.params.use_weights else {}
        return entries | {
            "indptr": edges.indptr,
            "indices": edges.indices,
            "vectors": self.vectors,
            "eigenvalue": eigenvalue,
            "weights": self.weights,
        }

    def _restore(self, arrays: dict[str, np.ndarray]) -> None:
        indptr, indices = arrays["indptr"], arrays["indices"]
        parts = arrays.get("entries", np.ones(len(indices), dtype=np.int8)), indices, indptr
        self.edges = csr_matrix(parts, shape=(len(indptr) - 1, self.item_count), copy=False)
        self.eigenvalue, self.vectors = float(arrays["eigenvalue"]), arrays["vectors"]
        self.weights = arrays["weights"]
        self.graph = None if len(self.weights) else self._paths(False).over(self.eigenvalue)
