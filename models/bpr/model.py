"""Bayesian Personalized Ranking: factors learned by ranking liked items above others.

Rendle, Freudenthaler, Gantner and Schmidt-Thieme, "BPR: Bayesian Personalized Ranking from Implicit Feedback",
2009. With x_uj = u'v_j + b_j, an epoch takes a gradient step for every edge (u, i) and one item j that u does
not like, on

    -ln sigma(x_ui - x_uj) + regularization / 2 (|u|^2 + |v_i|^2 + |v_j|^2 + b_i^2 + b_j^2)

With `degree_exponent` below one an epoch takes as many steps, but more of them for users with few edges.

`bpr_uniform` draws j uniformly, `bpr_popularity` in proportion to degree: the two benchmarks of Paquet and
Koenigstein, "One-class Collaborative Filtering with Random Graphs", 2013, section 6.
"""

from time import perf_counter
from typing import ClassVar, Self

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.bpr.kernels import CELLS, SHARDS, draw_samples, fold_users, run_steps
from oneclass.models.fit_options import Epoch, FitOptions, Start, copy_rows, sampling_seed, skipped_epochs
from oneclass.models.memory_estimates import FitCost, LogSize
from oneclass.models.numerics.adjacency import as_read_only, partition_rows
from oneclass.models.numerics.matmul import dense_times
from oneclass.models.numerics.random_numbers import normals, purpose
from oneclass.models.numerics.simd import aligned_zeros, pad_width
from oneclass.models.numerics.threads import limit_threads
from oneclass.models.settings import Choice, ModelSettings, NumericRange, SearchSpace

TARGET_STEPS = 2 * 10**8  # gradient steps of a fit by default
MIN_EPOCHS, MAX_EPOCHS = 20, 400  # bounds of the default passes
INITIAL_SCALE = np.float32(0.1)  # standard deviation of the factors before the first step
SAMPLES_PER_THREAD = 1 << 18  # of an epoch; with fewer, threads wait for one another longer than they work
SAMPLES = 1 << 22  # samples that are drawn and sorted at a time: 120 MB


class BPRSettings(ModelSettings):
    """The defaults were chosen by hand on held-out edges of ml-1m, where similar settings differ by little more than
    noise; the number of factors on validation users of ml-100k, ml-1m, lastfm and citeulike-a: 64 rank better than 20
    on all.
    """

    search_space: ClassVar[SearchSpace] = {
        "factors": Choice((20, 32, 64, 128), manual_only=True),
        "epochs": NumericRange(50, 400, log=True, manual_only=True),
        "learning_rate": NumericRange(0.02, 0.5, log=True),
        "regularization": NumericRange(0.001, 0.1, log=True),
        "degree_exponent": Choice((0.0, 0.5, 1.0)),
    }
    initial_trials: ClassVar = (
        {"factors": 128, "learning_rate": 0.23, "regularization": 0.016, "degree_exponent": 0.5},
        {"factors": 128, "learning_rate": 0.27, "regularization": 0.003},
    )

    factors: int = Field(64, ge=1, le=1024, description="Length K of the factors of users and items.")
    epochs: int | None = Field(
        None,
        ge=1,
        description="Number of passes over the edges; a pass samples one negative for each edge. By default as many "
        "as come to 200 million samples, but 20 to 400.",
    )
    learning_rate: float = Field(
        0.1, gt=0, le=1, description="Step size of the first epoch; it falls linearly towards zero."
    )
    regularization: float = Field(
        0.01, ge=0, lt=1, description="Penalty on the squares of factors and biases, for each gradient step."
    )
    degree_exponent: float = Field(
        1.0,
        ge=0,
        le=1,
        description="The samples of an epoch are divided among users by this power of their degree: with 1 every edge "
        "is taken once, with 0 every user has equally many samples.",
    )
    fold_in_epochs: int = Field(
        30, ge=1, description="Passes over an unseen user's history that find the user's factors."
    )

    def resolve(self, interactions: csr_matrix) -> Self:
        """Derive the number of passes from the number of edges."""
        if self.epochs is not None:
            return self
        return self.model_copy(update={"epochs": min(max(TARGET_STEPS // interactions.nnz, MIN_EPOCHS), MAX_EPOCHS)})


class Training:
    """The tables in the layout of the kernels, and the epochs of training."""

    def __init__(
        self,
        interactions: csr_matrix,
        draws: tuple[np.ndarray, np.ndarray, int],
        factors: int,
        degree_exponent: float = 1.0,
    ) -> None:
        self.indptr = as_read_only(interactions.indptr, np.int64)
        self.indices = as_read_only(interactions.indices, np.int32)
        self.draws, self.factors = draws, factors
        self.layout, self.rows = _assign_item_blocks(np.bincount(self.indices, minlength=interactions.shape[1]))
        self.first = _first_samples(self.indptr, degree_exponent)
        self.parts = _partition_users(self.first)
        room = int((self.first[self.parts[..., 1]] - self.first[self.parts[..., 0]]).max())
        items = interactions.shape[1]
        self.work = (
            np.zeros((SHARDS, items), np.uint8),
            np.zeros((SHARDS, items), np.int64),
            np.zeros((SHARDS, room, 4), np.int32),
        )
        self.samples = np.zeros((SHARDS, room, 3), np.int32)
        self.starts = np.zeros((SHARDS, CELLS + 1), np.int64)

    def start(self, seed: int) -> None:
        """Small normal factors; zeros for users without edges."""
        users, width, factors = len(self.indptr) - 1, int(pad_width(self.factors)), self.factors
        self.users, self.items = (aligned_zeros(rows * width).reshape(rows, width) for rows in (users, self.rows))
        self.biases = np.zeros(self.rows, np.float32)
        self.users[:, :factors] = normals(seed, purpose("bpr users"), users, factors) * INITIAL_SCALE
        self.users[np.diff(self.indptr) == 0] = 0.0
        place = self.layout[0]
        self.items[place, :factors] = normals(seed, purpose("bpr items"), len(place), factors) * INITIAL_SCALE

    def take(self, start: Start) -> None:
        """Put the factors and biases of an earlier fit in place of the first ones, but for new users and items."""
        before, factors, place = start.previous, self.factors, self.layout[0]
        copy_rows(self.users[:, :factors], before.user_factors, start.users)
        rows, biases = self.items[place], self.biases[place]
        copy_rows(rows[:, :factors], before.item_factors, start.items)
        copy_rows(biases, before.item_bias, start.items)
        self.items[place], self.biases[place] = rows, biases

    def epoch(self, number: int, rate: float, regularization: float, seed: int) -> float:
        """Make as many steps as there are edges; return the mean loss of every 16th sample before its step."""
        loss, tables = np.zeros((SHARDS, 2)), (self.users.reshape(-1), self.items.reshape(-1), self.biases)
        streams = (np.uint64(seed), purpose("bpr negatives"), np.uint64(number))
        for bounds in self.parts:
            edges, drawn = (self.indptr, self.indices, self.first), (self.samples, self.starts)
            draw_samples(edges, bounds, self.draws, self.layout, streams, self.work, drawn)
            with limit_threads(len(self.indices) // SAMPLES_PER_THREAD):
                run_steps(*tables, self.users.shape[1], *drawn, np.float32(rate), np.float32(regularization), loss)
        total, count = loss.sum(axis=0)
        return float(total / max(count, 1.0))

    def export_arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Factors of users, factors of items, biases of items, in the order of the training matrix."""
        place, factors = self.layout[0], self.factors
        return self.users[:, :factors].copy(), self.items[place, :factors], self.biases[place]


def _assign_item_blocks(degrees: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], int]:
    """Deal items to 2 SHARDS blocks of about equal weight, heaviest first, in alternating order.

    Returns:
        (place, block): int32 and int64 (items,), the row of each item in the table, in which blocks are contiguous, and
            its block; and the number of rows, with padding.
    """
    blocks = 2 * SHARDS
    lap, seat = np.divmod(np.argsort(np.argsort(-degrees, kind="stable")), blocks)
    block = np.where(lap % 2 == 0, seat, blocks - 1 - seat)
    size = -(-len(degrees) // blocks)
    place = block * size + lap
    return (as_read_only(place, np.int32), as_read_only(block, np.int64)), blocks * size


def _first_samples(indptr: np.ndarray, degree_exponent: float) -> np.ndarray:
    """int64 (users + 1,): the number of each user's first sample in an epoch; with exponent 1 it is `indptr`."""
    degrees = np.diff(indptr).astype(np.float64)
    weights = np.cumsum(np.where(degrees > 0, degrees**degree_exponent, 0.0))
    return as_read_only(np.append(0, np.floor(weights * (indptr[-1] / weights[-1]) + 0.5)), np.int64)


def _partition_users(first: np.ndarray) -> np.ndarray:
    """int64 (parts, SHARDS, 2): the first user of each block, and the last + 1; a part is sampled at a time."""
    parts = -(-int(first[-1]) // SAMPLES)
    cuts = partition_rows(first, parts * SHARDS)
    bounds = np.stack([cuts[:-1], cuts[1:]], axis=1)
    return np.ascontiguousarray(bounds.reshape(SHARDS, parts, 2).swapaxes(0, 1))


class BPR(Model[BPRSettings]):
    """Base of BPR with uniform and with popularity-sampled negatives.

    Attributes:
        user_factors: float32 (users, K); zeros for a user without edges.
        item_factors: float32 (items, K).
        item_bias: float32 (items,).
    """

    Settings = BPRSettings
    is_iterative = True
    popular: ClassVar[bool]

    @classmethod
    def estimate_cost(cls, settings: BPRSettings, log: LogSize) -> FitCost:
        """Estimate what a fit on a log of this size takes."""
        return FitCost.of_factors(log, settings.factors, 3e-5)

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        chosen, start = self.params, options.start
        assert chosen.epochs is not None  # by `resolve`
        training = Training(interactions, self._negative_draws(), chosen.factors, chosen.degree_exponent)
        training.start(self.seed)
        if start:
            training.take(start)
        seed = sampling_seed(self.seed, interactions, start)
        for number in range(skipped_epochs(chosen.epochs, start) + 1, chosen.epochs + 1):
            started, rate = perf_counter(), chosen.learning_rate * (1 - (number - 1) / chosen.epochs)
            loss = training.epoch(number, rate, chosen.regularization, seed)
            values = {"loss": loss, "rate": rate}
            options.on_epoch(Epoch(number, chosen.epochs, perf_counter() - started, values))
        self.user_factors, self.item_factors, self.item_bias = training.export_arrays()
        if not (np.isfinite(self.user_factors).all() and np.isfinite(self.item_factors).all()):
            raise ValueError(f"{self.name}: the factors grew without bound; lower learning_rate")

    def _fold_in(self, histories: csr_matrix) -> np.ndarray:
        """Find the factors of users who were not in training, float32 (block, K), by gradient steps with fixed items.

        A user's factors depend only on the history and the seed.
        """
        chosen, factors = self.params, self.params.factors
        out = np.zeros((histories.shape[0], int(pad_width(factors))), dtype=np.float32)
        likes = as_read_only(histories.indptr, np.int64), as_read_only(histories.indices, np.int32)
        items, draws = self.compute_once("rows", self._item_rows), self.compute_once("draws", self._negative_draws)
        streams = np.uint64(self.seed), purpose("bpr fold-in negatives")
        steps = np.float32(chosen.learning_rate), np.float32(chosen.regularization), chosen.fold_in_epochs
        fold_users(likes, items, self.item_bias, out.shape[1], draws, streams, steps, out.reshape(-1))
        return out[:, :factors].copy()

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        rows = self._user_rows(histories, users)
        return dense_times(rows, self.compute_once("columns", self._columns))

    def _user_rows(self, histories: csr_matrix, users: np.ndarray | None) -> np.ndarray:
        """Return the users' factors and ones, by which the items' biases are multiplied, float32 (block, K + 1)."""
        rows = self.fold_in(histories) if users is None else np.asarray(self.user_factors[users])
        return np.concatenate([rows, np.ones((len(rows), 1), dtype=np.float32)], axis=1)

    def _item_rows(self) -> np.ndarray:
        """Return the items' factors, each row filled up to whole vectors, flat."""
        factors = self.params.factors
        rows = np.zeros((self.item_count, int(pad_width(factors))), dtype=np.float32)
        rows[:, :factors] = self.item_factors
        return rows.reshape(-1)

    def _columns(self) -> np.ndarray:
        """Return the items' factors and biases, float32 (K + 1, items) in C order."""
        return np.ascontiguousarray(np.vstack([self.item_factors.T, self.item_bias]))

    def _negative_draws(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the items to draw negatives from uniformly, the count of each item among them, and their number."""
        items = np.arange(self.item_count, dtype=np.int32)
        weights = np.asarray(self.item_degrees, dtype=np.int64) if self.popular else np.ones(len(items), np.int64)
        proposals = np.repeat(items, weights) if self.popular else items
        return as_read_only(proposals, np.int32), as_read_only(weights, np.int64), len(proposals)

    def item_vectors(self) -> np.ndarray:
        """Return the items' factors."""
        return self.item_factors


class BPRUniform(BPR):
    """Bayesian Personalized Ranking with negatives sampled uniformly from the items that the user does not like.

    Rendle et al. (2009), eq. 5; see the module's docstring. What it learns is in `user_factors`, `item_factors` and
    `item_bias`.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import BPRUniform
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = BPRUniform(factors=4).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "bpr_uniform"
    popular = False


class BPRPopularity(BPR):
    """Bayesian Personalized Ranking with negatives sampled in proportion to degree, among items the user does not like.

    Rendle et al. (2009), eq. 5; see the module's docstring. What it learns is in `user_factors`, `item_factors` and
    `item_bias`.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import BPRPopularity
        >>> taste = np.kron(np.eye(2), np.ones((10, 5)))  # two groups of ten users, each of which likes five items
        >>> model = BPRPopularity(factors=4).fit(csr_matrix(taste))
        >>> ids, scores = model.recommend(csr_matrix([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]]), n=1)
        >>> ids.tolist()
        [[4]]
    """

    name = "bpr_popularity"
    popular = True
