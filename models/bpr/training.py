"""The tables of a BPR fit in the layout of the kernels, its epochs, and when to stop.

The loss on the training edges falls with every pass, long after the factors have begun to overfit. On a large log the
loss on other edges converges after a tenth of the passes that a small log needs. So one
edge of some of the users is left out of training: CHECKED edges, at most one in two hundred.
"""

from dataclasses import dataclass, field

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix

from oneclass.models.bpr.kernels import CELLS, SHARDS, compile_step_kernel, draw_samples
from oneclass.models.fit_options import Start, copy_rows
from oneclass.models.numerics.matmul import as_read_only
from oneclass.models.numerics.partition import partition_rows
from oneclass.models.numerics.random_numbers import below, normals, purpose, stream
from oneclass.models.numerics.top_k import contains

MIN_EDGES, MAX_HELD_OUT = (
    2_000_000,
    10_000,
)  # a log of fewer edges makes all passes, in seconds; edges left out of a larger one
NEGATIVES_PER_EDGE, MAX_TRIES = (
    4,
    20,
)  # other items that each is held against, and draws for one that the user does not like
PASSES = 10  # that are compared with those before them


@dataclass
class HeldOutTriples:
    """Triples of a user, a liked item that is left out of training, and items that the user does not like.

    Attributes:
        users, liked: int64 (edges,).
        others: int64 (edges, AGAINST).
        losses: the mean of -ln sigma(x_ui - x_uj) over the triples after each pass so far.
    """

    users: np.ndarray
    liked: np.ndarray
    others: np.ndarray
    losses: list[float] = field(default_factory=list)

    def add(self, users: np.ndarray, items: np.ndarray, bias: np.ndarray) -> float:
        """Note the loss after a pass.

        Args:
            users, items: float32 (users, K) and (items, K), the factors after the pass.
            bias: float32 (items,).
        """
        factors = users[self.users]
        liked = np.einsum("nk,nk->n", factors, items[self.liked]) + bias[self.liked]
        others = np.einsum("nk,njk->nj", factors, items[self.others]) + bias[self.others]
        margins = liked[:, None].astype(np.float64) - others
        self.losses.append(float(np.logaddexp(0, -margins).mean()))
        return self.losses[-1]

    def has_converged(self, tolerance: float) -> bool:
        """Whether the best of the last PASSES passes is not lower by this share than the best before them."""
        if len(self.losses) <= PASSES:
            return False
        return min(self.losses[-PASSES:]) > (1 - tolerance) * min(self.losses[:-PASSES])


def hold_out(interactions: csr_matrix, seed: int) -> tuple[csr_matrix, HeldOutTriples | None]:
    """The edges to train on, and what is left out; all edges and None on a small log.

    One edge is drawn of each of some users with at least two, who are spread evenly over the rows. The other items are
    uniform in both models, as among them an item's rank S is counted: against popular items alone, the loss of
    `bpr_popularity` on ml-1m is level at ten passes, and S still rises by .01.

    Args:
        interactions: (users, items) CSR.
    """
    indptr = as_read_only(interactions.indptr, np.int64)
    users = np.flatnonzero(np.diff(indptr) >= 2)
    count = min(MAX_HELD_OUT, len(users))
    if interactions.nnz < MIN_EDGES or count == 0:
        return interactions, None
    users = users[np.arange(count) * len(users) // count]
    indices, key = as_read_only(interactions.indices, np.int32), (np.uint64(seed), purpose("bpr held-out edges"))
    edges, others = np.empty(count, np.int64), np.empty((count, NEGATIVES_PER_EDGE), np.int64)
    _draw_triples(indptr, indices, users, interactions.shape[1], key, edges, others)
    kept = np.ones(interactions.nnz, dtype=bool)
    kept[edges] = False
    starts = indptr - np.searchsorted(edges, indptr)
    rest = csr_matrix((interactions.data[kept], interactions.indices[kept], starts), shape=interactions.shape)
    return rest, HeldOutTriples(users, indices[edges].astype(np.int64), others)


@njit(cache=True, nogil=True)
def _draw_triples(indptr, indices, users, items, key, edges, others):
    """Fill `edges` with one edge of each user, and `others` with other items, of which a few may be liked after all."""
    for place in range(len(users)):
        first, last = indptr[users[place]], indptr[users[place] + 1]
        own = stream(key[0], key[1], 0, users[place])
        edges[place] = first + below(own, 0, last - first)
        for other in range(others.shape[1]):
            for attempt in range(MAX_TRIES):
                others[place, other] = item = below(own, 1 + other * MAX_TRIES + attempt, items)
                if not contains(indices[first:last], item):
                    break


SAMPLES = 1 << 22  # samples that are drawn and sorted at a time: 50 MB
SHORT_EPOCH_SAMPLES = (
    1 << 17
)  # numbers that a core changes while it wakes another: a step over fewer of them is run by one thread


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
            np.zeros((SHARDS, room), np.int32),
        )
        self.samples = np.zeros((SHARDS, room, 3), np.int32)
        self.starts = np.zeros((SHARDS, CELLS + 1), np.int64)

    def start(self, scale: float, seed: int) -> None:
        """Small normal factors; zeros for users without edges."""
        users, width, factors = len(self.indptr) - 1, row_width(self.factors), self.factors
        self.users, self.items = (np.zeros((rows, width), dtype=np.float32) for rows in (users, self.rows))
        self.users[:, :factors] = normals(seed, purpose("bpr users"), users, factors) * np.float32(scale)
        self.users[np.diff(self.indptr) == 0] = 0.0
        self.users[:, factors] = 1.0
        place = self.layout[0]
        self.items[place, :factors] = normals(seed, purpose("bpr items"), len(place), factors) * np.float32(scale)

    def take(self, start: Start) -> None:
        """Put the factors and biases of an earlier fit in place of the first ones, but for new users and items."""
        before, factors, place = start.previous, self.factors, self.layout[0]
        copy_rows(self.users[:, :factors], before.user_factors, start.users)
        rows = self.items[place]
        copy_rows(rows[:, :factors], before.item_factors, start.items)
        copy_rows(rows[:, factors], before.item_bias, start.items)
        self.items[place] = rows

    def epoch(self, number: int, rate: float, regularization: float, seed: int) -> float:
        """One epoch, with as many steps as there are edges; returns the mean loss of every 16th sample before its
        step.
        """
        loss = np.zeros((SHARDS, 2))
        streams = (np.uint64(seed), purpose("bpr negatives"), np.uint64(number))
        for bounds in self.parts:
            draw_samples(
                (self.indptr, self.indices, self.first),
                bounds,
                self.draws,
                self.layout,
                streams,
                self.work,
                (self.samples, self.starts),
            )
            compile_step_kernel(row_width(self.factors))(
                self.users,
                self.items,
                self.samples,
                self.starts,
                self.factors,
                np.float32(rate),
                np.float32(regularization),
                loss,
            )
        total, count = loss.sum(axis=0)
        return float(total / max(count, 1.0))

    def threads(self, most: int) -> int:
        """On how many threads, of at most so many, an epoch is fastest: its samples are run in CELLS steps or more.

        The factors do not depend on it.
        """
        return most if min(int(self.first[-1]), SAMPLES) * self.users.shape[1] >= CELLS * SHORT_EPOCH_SAMPLES else 1

    def export_arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Factors of users, factors of items, biases of items, in the order of the training matrix."""
        items = self.items[self.layout[0]]
        return self.users[:, : self.factors].copy(), items[:, : self.factors].copy(), items[:, self.factors].copy()


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
    if degree_exponent == 1:
        return indptr
    degrees = np.diff(indptr).astype(np.float64)
    weights = np.cumsum(np.where(degrees > 0, degrees**degree_exponent, 0.0))
    return as_read_only(np.append(0, np.floor(weights * (indptr[-1] / weights[-1]) + 0.5)), np.int64)


def _partition_users(first: np.ndarray) -> np.ndarray:
    """int64 (parts, SHARDS, 2): the first user of each block, and the last + 1; a part is sampled at a time."""
    parts = -(-int(first[-1]) // SAMPLES)
    cuts = partition_rows(first, parts * SHARDS, whole=True)
    bounds = np.stack([cuts[:-1], cuts[1:]], axis=1)
    return np.ascontiguousarray(bounds.reshape(SHARDS, parts, 2).swapaxes(0, 1))


def row_width(factors: int) -> int:
    """Columns of a row: factors and bias, filled up to a multiple of 8 float32 (32 bytes)."""
    return -(-(factors + 1) // 8) * 8
