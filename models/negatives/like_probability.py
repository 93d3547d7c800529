"""The probability of a like under a Gaussian posterior (Paquet and Koenigstein 2014, eq. 22), its spread, and scores.

The logit a = u'v + b is approximated by a Gaussian with the first two moments that a has under q. Users and items are
`GaussianFactors`.
"""

from collections.abc import Iterator

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.logistic_bound import PLAIN, GaussianFactors, exp_of_minus
from oneclass.models.numerics.matmul import dense_times

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
NODES, NODE_WEIGHTS = _NODES.astype(np.float32), (_WEIGHTS / _WEIGHTS.sum()).astype(np.float32)
MACKAY, ONE = np.float32(np.pi / 8), np.float32(1)
PAIRS_PER_BLOCK = 4096  # whose values at all nodes are computed at a time: 400 KB an array, which stays in the cache


def item_columns(items: GaussianFactors) -> tuple[np.ndarray, np.ndarray]:
    """What the moments need of the items, float32 (K + 2, items) and (2 K + 2, items)."""
    ones = np.ones(len(items.mean), dtype=np.float32)
    means = np.vstack([items.mean.T, items.bias_mean, ones])
    variances = np.vstack([items.mean.T**2, (1 / items.precision).T, 1 / items.bias_precision, ones])
    return np.ascontiguousarray(means), np.ascontiguousarray(variances)  # numpy has kept the order of the transposes


def pair_likes(
    users: GaussianFactors, items: GaussianFactors, columns: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """(mean, sd) of the like probability, float32 (users, n).

    Args:
        columns: of the items: (n,) for all users, or (users, n) for each user, where -1 gives NaN; None for all items.
    """
    if columns is not None and np.ndim(columns) == 2:
        return _like_moments(*_pair_moments(users.arrays, items.arrays, np.asarray(columns).astype(np.int64)))
    return _like_moments(*logit_moments(users, item_columns(items if columns is None else items.rows(columns))))


def logit_moments(users: GaussianFactors, columns: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """mu_a and sigma_a^2 of every pair, two new float32 arrays (users, items), by the `item_columns`.

    For independent x and y, var xy = var x E[y]^2 + E[x^2] var y.
    """
    variance, ones = 1 / users.precision, np.ones((len(users.mean), 1), dtype=np.float32)
    means = np.hstack([users.mean, ones, users.bias_mean[:, None]])
    variances = np.hstack([variance, users.mean**2 + variance, ones, 1 / users.bias_precision[:, None]])
    return dense_times(means, columns[0]), dense_times(variances, columns[1])


@njit(**PLAIN, parallel=True)
def log_odds(means, variances):
    """mu_a / sqrt(1 + pi sigma_a^2 / 8) of (rows, columns), whose sigmoid is about E sigma(a) (MacKay 1992)."""
    found = np.empty_like(means)
    for row in prange(len(means)):
        for column in range(means.shape[1]):
            found[row, column] = means[row, column] / np.sqrt(variances[row, column] * MACKAY + ONE)
    return found


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) of a float32 array (rows, columns), on all threads."""
    values = np.empty_like(logits)
    _put_sigmoid(logits, values)
    return values


@njit(**PLAIN, parallel=True)
def _put_sigmoid(logits, values):
    for row in prange(len(logits)):
        for column in range(logits.shape[1]):
            x = logits[row, column]
            tail = exp_of_minus(min(abs(x), np.float32(80)))
            values[row, column] = (ONE if x > 0 else tail) / (ONE + tail) if not np.isnan(x) else x


class LikeScorer:
    """Scores by like probability and popularity.

    With x = mu_a / sqrt(1 + pi sigma_a^2 / 8): `like` is sigma(x), `popularity_x_like` sigma(x) pi, and
    `popularity_x_odds` x + a log pi.

    Args:
        items: q of the items.
        popularity: float64 (items,), pi; an item without an edge gets the log of half the smallest positive one.
        weight: a.
    """

    score_names = ("like", "popularity_x_like", "popularity_x_odds")

    def __init__(self, items: GaussianFactors, popularity: np.ndarray, weight: float) -> None:
        logs = np.log(np.where(popularity > 0, popularity, popularity[popularity > 0].min() / 2))
        self._items, self._columns = items, item_columns(items)
        self._popularity, self._weighted_logs = popularity.astype(np.float32), (weight * logs).astype(np.float32)

    def like(self, users: GaussianFactors, items: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and standard deviation of the like probability, as `pair_likes`."""
        return pair_likes(users, self._items, items)

    def compute_scores(self, users: GaussianFactors, names: tuple[str, ...]) -> Iterator[np.ndarray]:
        """Yield the scores of these names, new float32 arrays (users, items), one by one."""
        logits = log_odds(*logit_moments(users, self._columns))
        like = sigmoid(logits) if names != ("popularity_x_odds",) else logits
        for name in names:
            if name == "popularity_x_odds":
                yield logits + self._weighted_logs
            else:
                yield like if name == "like" else like * self._popularity


def like_spread(means: np.ndarray, variances: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The standard deviation of sigma(a), a ~ N(mean, variance), by Gauss-Hermite quadrature.

    Args:
        means, variances, like: float32, of one shape; `like` lies near E sigma(a).

    Returns:
        float32, of the same shape.
    """
    found = np.empty(means.shape, dtype=np.float32)
    flat, parts = found.reshape(-1), [array.reshape(-1) for array in (means, variances, like)]
    for start in range(0, len(flat), PAIRS_PER_BLOCK):
        flat[start : start + PAIRS_PER_BLOCK] = _pair_spread(*(part[start : start + PAIRS_PER_BLOCK] for part in parts))
    return found


def _pair_spread(means: np.ndarray, variances: np.ndarray, like: np.ndarray) -> np.ndarray:
    """`spread` of some pairs, float32 (pairs,), at all nodes at once."""
    values = sigmoid(means + NODES[:, None] * np.sqrt(variances))
    values -= like  # keeps the digits of the difference of squares below if the posterior is sharp
    weights = NODE_WEIGHTS[:, None]
    first, second = (weights * values).sum(axis=0), (weights * values * values).sum(axis=0)
    return np.sqrt(np.maximum(second - first * first, 0))


def _like_moments(means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean by eq. 22, and the standard deviation."""
    like = sigmoid(log_odds(means, variances))
    return like, like_spread(means, variances, like)


@njit(cache=True, parallel=True, nogil=True)
def _pair_moments(users, items, columns):
    means, variances = np.full(columns.shape, np.nan, np.float32), np.full(columns.shape, np.nan, np.float32)
    for user in prange(columns.shape[0]):
        for place in range(columns.shape[1]):
            item = columns[user, place]
            if item < 0:
                continue
            mean, variance = users[2][user] + items[2][item], 1 / users[3][user] + 1 / items[3][item]
            for factor in range(users[0].shape[1]):
                u, v = users[0][user, factor], items[0][item, factor]
                u_variance, v_variance = 1 / users[1][user, factor], 1 / items[1][item, factor]
                mean += u * v
                variance += u_variance * v * v + (u * u + u_variance) * v_variance
            means[user, place], variances[user, place] = mean, variance
    return means, variances
