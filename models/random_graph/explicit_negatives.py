"""q(H) where some negatives are known (Paquet and Koenigstein 2014, section 7).

A rating of 1 to 3 stars is an item that was considered and not liked: h = 1 and g = 0 are known. With N the set of
these edges, q(h_mn = 1) = 1 for them as for the likes G, and only the rest R of H is random. The bound of eq. 12
then splits into terms that are known and an expectation:

    L[q] = sum_{(m,n) in G} E l_mn(1) + sum_{(m,n) in N} E l_mn(0) + E_{q(R)} [ sum_{(m,n) in R} E l_mn(0) ]
           + E log p(U, V, b, tau) + entropy of q,
    l_mn(g) = log sigma(xi) + (g - 1/2) a - xi / 2 - lambda(xi) (a^2 - xi^2),   a = u_m'v_n + b_m + b_n (eq. 11).

A user with d_m likes and D_m observed negatives has max(d_m - D_m, 0) random ones, drawn as before (section 4.1),
from what is left of pi: never a like, and never an observed negative. Leaving some of more than d_m observed ones
out would say that a considered item was not considered, and raise the user's logits by log(D_m / d_m).
"""

import numpy as np
from numba import njit

from oneclass.models.negatives.sampling import negative_starts
from oneclass.models.numerics.adjacency import Adjacency
from oneclass.models.random_graph.inference import GraphSampler


class ExplicitNegativeSampler(GraphSampler):
    """The likes and the observed negatives, which come first in the list of each user, and random negatives.

    Args:
        likes, weights, seed, units: as of a `GraphSampler`.
        observed: the observed negatives by user, none of them a like; items without a weight may be among them.
    """

    def __init__(
        self, likes: Adjacency, observed: Adjacency, weights: np.ndarray, seed: int, units: np.ndarray
    ) -> None:
        super().__init__(likes, weights, seed, units)
        self.observed = observed
        self.known = merge_graphs(likes, observed)
        wanted = np.diff(likes[0]) - np.diff(observed[0])
        self._starts = negative_starts(self.known, weights, wanted)

    def negatives(self, iteration: int) -> Adjacency:
        """The negatives of one iteration, by user: the observed ones, then the random ones."""
        return merge_graphs(self.observed, super().negatives(iteration))


@njit(cache=True, nogil=True)
def merge_graphs(first, second):
    """The edges of two graphs over the same vertices as one: those of the first, then those of the second."""
    starts = first[0] + second[0]
    neighbours = np.empty(starts[-1], dtype=np.int32)
    for vertex in range(len(starts) - 1):
        at = starts[vertex]
        for part in (first, second):
            count = part[0][vertex + 1] - part[0][vertex]
            neighbours[at : at + count] = part[1][part[0][vertex] : part[0][vertex + 1]]
            at += count
    return starts, neighbours
