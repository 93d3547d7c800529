"""Distributions of sampled negatives: the pairs that a model learns `like` from, beside the likes.

`like` estimates, for a user m and an item n, the ratio q1 / (q1 + q0). Here q1 is the rate at which the fit uses n as a
like of the user, and q0 the rate at which it uses n as a negative. A distribution has q0, and draws from it.

The sample that evaluates `like` has one held-out like of every user and one negative from the distribution. The method
`weights` gives weights w1 and w0 by which likes and negatives are as frequent in the sample as in the fit. Among the
pairs with one value of `like`, the weighted share of likes, w1 / (w1 + w0), then tends to that value if the model is
right.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix

from oneclass.models.negatives.sampling import build_alias_table, draw_negatives, negative_starts
from oneclass.models.numerics.adjacency import copy_pattern, partition_shards
from oneclass.models.numerics.random_numbers import purpose, stream, uniform

EVALUATION_NEGATIVE = purpose("judging like: one negative of a user")


class NegativeDistribution(ABC):
    """The distribution of the sampled negatives of a fitted model."""

    def with_statistics(self, train: csr_matrix) -> Self:
        """Return the distribution with statistics of all rows of `train`; other methods read only their users' rows."""
        return self

    @abstractmethod
    def draw(self, train: csr_matrix, users: np.ndarray, seed: int) -> np.ndarray:
        """Draw one item for each user, as the fit draws the user's negatives.

        Args:
            train: (training users, items), the matrix that the model was fitted on.
            users: (block,) rows of `train`.

        Returns:
            int32 (block,); -1 for a user who can have no negative.
        """

    @abstractmethod
    def weights(self, train: csr_matrix, users: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of likes and negatives of the fit that each user's held-out like and negative represent.

        Args:
            counts: (block,) number of events of each held-out like.

        Returns:
            float64 (block,) each.
        """

    @abstractmethod
    def rates(self, train: csr_matrix, users: np.ndarray, likes: np.ndarray) -> np.ndarray:
        """Return the expected number of times that the fit uses each item as a negative of each user.

        Args:
            likes: float64 (block, items), the probability that the item is a training like of the user.

        Returns:
            float64 (block, items).
        """


@dataclass(frozen=True)
class WithoutReplacement(NegativeDistribution):
    """As many negatives as likes, drawn without replacement from a histogram; likes are never drawn.

    `models.negatives.sampling` draws them.

    Attributes:
        histogram: float64 (items,), pi.
    """

    histogram: np.ndarray

    def draw(self, train: csr_matrix, users: np.ndarray, seed: int) -> np.ndarray:
        """Draw one of the negatives of a hidden graph, each equally likely."""
        likes = copy_pattern(train[users])
        drawn = build_alias_table(self.histogram), partition_shards(likes[0]), (seed, 0), users.astype(np.uint64)
        starts, items = draw_negatives(likes, self.histogram, *drawn)
        counts, found = np.diff(starts), np.full(len(users), -1, dtype=np.int32)
        some = np.flatnonzero(counts)
        found[some] = items[starts[some] + (_draw_uniforms(seed, users[some]) * counts[some]).astype(np.int64)]
        return found

    def weights(self, train: csr_matrix, users: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return 1 for each, but less for a negative of a user who has fewer items left than likes."""
        rows = train[users]
        return np.ones(len(users)), self._counts(rows) / np.diff(rows.indptr)

    def rates(self, train: csr_matrix, users: np.ndarray, likes: np.ndarray) -> np.ndarray:
        """Return (1 - p(like)) times the probability that an item is a negative if it is not a like (Hajek 1964)."""
        rows = train[users]
        drawable, wanted = rows.toarray() == 0, self._counts(rows)
        times = np.geomspace(0.5, 40 / self.histogram[self.histogram > 0].min(), 64)
        taken = -np.expm1(-np.outer(times, self.histogram)) @ drawable.T  # (64, users)
        at = np.array([np.interp(wanted[user], taken[:, user], times) for user in range(len(wanted))])
        return (1 - likes) * -np.expm1(-self.histogram * at[:, None])

    def _counts(self, rows: csr_matrix) -> np.ndarray:
        """Return the number of negatives of each user, int64 (users,)."""
        return np.diff(negative_starts(copy_pattern(rows), self.histogram))


@dataclass(frozen=True)
class CensoredPairs(NegativeDistribution):
    """D' = r D pairs of independent users and items, with replacement, likes or not; D is the number of events.

    Attributes:
        user_shares, item_shares: float64 (training users,) and (items,), s_i and t_j.
        r: censored pairs for each event.
        pairs: D', once counted.
    """

    user_shares: np.ndarray
    item_shares: np.ndarray
    r: float
    pairs: float | None = None

    def with_statistics(self, train: csr_matrix) -> Self:
        """Return the distribution with D'."""
        return replace(self, pairs=self._count_pairs(train))

    def draw(self, train: csr_matrix, users: np.ndarray, seed: int) -> np.ndarray:
        """Draw the item of one censored pair of each user."""
        running = np.cumsum(self.item_shares)
        found = np.searchsorted(running, _draw_uniforms(seed, users) * running[-1], side="right")
        return np.minimum(found, len(running) - 1).astype(np.int32)

    def weights(self, train: csr_matrix, users: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of events for a like, as in the fit, and D' s_i / d_i for a negative."""
        degrees = np.maximum(_user_degrees(train, users), 1)
        return counts.astype(np.float64), self._count_pairs(train) * self.user_shares[users] / degrees

    def rates(self, train: csr_matrix, users: np.ndarray, likes: np.ndarray) -> np.ndarray:
        """Return D' s_i t_j."""
        return self._count_pairs(train) * (self.user_shares[users][:, None] * self.item_shares)

    def _count_pairs(self, train: csr_matrix) -> float:
        return self.r * float(train.data.sum(dtype=np.float64)) if self.pairs is None else self.pairs


@dataclass(frozen=True)
class AllZeros(NegativeDistribution):
    """Every entry of the matrix that is not a like is a negative."""

    def draw(self, train: csr_matrix, users: np.ndarray, seed: int) -> np.ndarray:
        """Draw one of the items that the user does not like, each equally likely."""
        rows = copy_pattern(train[users])
        return _select_zeros(*rows, train.shape[1], _draw_uniforms(seed, users))

    def weights(self, train: csr_matrix, users: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return 1 for a like, and (N - d_m) / d_m for a negative: the user has N - d_m zeros and d_m likes."""
        degrees = _user_degrees(train, users)
        return np.ones(len(users)), (train.shape[1] - degrees) / np.maximum(degrees, 1)

    def rates(self, train: csr_matrix, users: np.ndarray, likes: np.ndarray) -> np.ndarray:
        """Return 1 - p(like)."""
        return 1 - likes


def _user_degrees(train: csr_matrix, users: np.ndarray) -> np.ndarray:
    """Return the degrees of some users, without reading the rows of others."""
    return train.indptr[users + 1] - train.indptr[users]


@njit(cache=True, nogil=True)
def _draw_uniforms(seed, users):
    found = np.empty(len(users))
    for place in range(len(users)):
        found[place] = uniform(stream(seed, EVALUATION_NEGATIVE, 0, users[place]), 0)
    return found


@njit(cache=True, nogil=True)
def _select_zeros(starts, items, count, uniforms):
    """For each row the zero number floor(uniform times the number of zeros); -1 if the row has no zero."""
    found = np.full(len(uniforms), -1, dtype=np.int32)
    for row in range(len(uniforms)):
        ones = items[starts[row] : starts[row + 1]]
        if len(ones) < count:
            found[row] = np.int64(uniforms[row] * (count - len(ones)))
            for one in ones:
                if one > found[row]:
                    break
                found[row] += 1
    return found
