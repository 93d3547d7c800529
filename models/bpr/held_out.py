"""When to stop: the loss on edges that are left out of training, pass after pass.

The loss on the training edges falls with every pass, long after the factors have begun to overfit. On a large log the
loss on other edges converges after a tenth of the passes that a small log needs (docs/benchmarks/papers.md). So one
edge of some of the users is left out of training: CHECKED edges, at most one in two hundred.
"""

from dataclasses import dataclass, field

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix

from oneclass.models.numerics.matmul import as_read_only
from oneclass.models.numerics.random_numbers import below, purpose, stream
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
