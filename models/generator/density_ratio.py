"""The true probability that `like` estimates, for data whose generative story is known (the demo).

User m likes item n if the user considers the item, which is an edge of the hidden graph H, and if a coin with
probability sigma(u_m'v_n + b_n) comes up heads. If only the degrees of H are known, H is taken as the random bipartite
graph of greatest entropy, in which p(considered) = a_m b_n / (1 + a_m b_n).
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

ITERATIONS = 200
TOLERANCE = 1e-9


@dataclass(frozen=True)
class GroundTruth:
    """The traits that were drawn, for users and items in the order of the rows and columns of a training matrix.

    Attributes:
        users, items, item_bias: float32 (users, K), (items, K), (items,): the traits u, v, b.
        user_odds, item_odds: float64 (users,) and (items,), a and b of `solve_odds`.
    """

    users: np.ndarray
    items: np.ndarray
    item_bias: np.ndarray
    user_odds: np.ndarray
    item_odds: np.ndarray

    def of_users(self, rows: np.ndarray) -> Self:
        """The traits of some users, in that order, and of all items."""
        return replace(self, users=self.users[rows], user_odds=self.user_odds[rows])

    def coins(self, users: np.ndarray) -> np.ndarray:
        """Probability that a considered item is liked, float64 (block, items)."""
        logits = self.users[users].astype(np.float64) @ self.items.T + self.item_bias
        return 1 / (1 + np.exp(-logits))

    def pair_probabilities(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """The same of some pairs, float64 (pairs,)."""
        logits = np.einsum("pk,pk->p", self.users[users].astype(np.float64), self.items[items]) + self.item_bias[items]
        return 1 / (1 + np.exp(-logits))

    def training_like_probabilities(self, users: np.ndarray, degrees: np.ndarray) -> np.ndarray:
        """Probability that an item is a training like, float64 (block, items).

        The rates of a user are scaled to sum to the user's training degree, because that degree is known: the coins
        have been flipped, and the held-out edges have been drawn.

        Args:
            users: (block,) rows.
            degrees: (block,) number of training edges of each user.
        """
        odds = np.outer(self.user_odds[users], self.item_odds)
        rates = odds / (1 + odds) * self.coins(users)
        return np.minimum(rates * (degrees / rates.sum(axis=1))[:, None], 1)


def solve_odds(user_degrees: np.ndarray, item_degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a (users,) and b (items,) for which the expected degrees are the given ones; both degrees have the same total.

    Vertices of equal degree have equal numbers, so that the cost depends on the distinct degrees only. Fixed-point
    steps for a and b alternate. A vertex that is joined to all of the other side gets a large finite number.
    """
    (own, own_at, own_count), (other, other_at, other_count) = (
        np.unique(degrees, return_inverse=True, return_counts=True) for degrees in (user_degrees, item_degrees)
    )
    scale = np.sqrt(own @ own_count)
    a, b = own / scale, other / scale
    for _ in range(ITERATIONS):
        before = a
        a = own / ((b / (1 + np.outer(a, b))) @ other_count)
        b = other / ((a / (1 + np.outer(b, a))) @ own_count)
        if np.allclose(a, before, rtol=TOLERANCE, atol=0):
            break
    return a[own_at], b[other_at]
