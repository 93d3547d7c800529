"""The probability of a like under a Gaussian posterior (Paquet and Koenigstein 2014, eq. 22), and its spread.

The logit a = u'v + b is approximated by a Gaussian with the first two moments that a has under q. Users and items are
`GaussianFactors`.
"""

from collections.abc import Iterator

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.bilinear_logits import GaussianFactors
from oneclass.models.numerics.logistic_bound import PLAIN, exp_of_minus
from oneclass.models.numerics.matmul import dense_times

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
NODES, NODE_WEIGHTS = _NODES.astype(np.float32), (_WEIGHTS / _WEIGHTS.sum()).astype(np.float32)
MACKAY, ONE = np.float32(np.pi / 8), np.float32(1)
PAIRS_PER_BLOCK = 4096  # whose values at all nodes are computed at a time: 400 KB an array, which stays in the cache


def like_logits(users: GaussianFactors, columns: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The logit of the like probability, mu_a / sqrt(1 + pi sigma_a^2 / 8), float32 (users, items).

    Args:
        columns: `item_columns(items)`.
    """
    means, variances = _moments_but_for_biases(users, columns)
    _put_logits(means, variances, users.bias_mean, 1 / users.bias_precision)
    return means


def item_columns(items: GaussianFactors) -> tuple[np.ndarray, np.ndarray]:
    """What the moments need of the items, float32 (K + 1, items) and (2 K + 1, items)."""
    means = np.vstack([items.mean.T, items.bias_mean])
    variances = np.vstack([items.mean.T**2, (1 / items.precision).T, 1 / items.bias_precision])
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
    """mu_a and sigma_a^2 of every pair, two new float32 arrays (users, items).

    For independent x and y, var xy = var x E[y]^2 + E[x^2] var y.
    """
    means, variances = _moments_but_for_biases(users, columns)
    means += users.bias_mean[:, None]
    variances += (1 / users.bias_precision)[:, None]
    return means, variances


def _moments_but_for_biases(
    users: GaussianFactors, columns: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """`logit_moments` without the users' biases."""
    of_means, of_variances = user_rows(users)
    return dense_times(of_means, columns[0]), dense_times(of_variances, columns[1])


def user_rows(users: GaussianFactors) -> tuple[np.ndarray, np.ndarray]:
    """What is multiplied with `item_columns`, float32 (users, K + 1) and (users, 2 K + 1)."""
    user_variance = 1 / users.precision
    ones = np.ones((len(users.mean), 1), dtype=np.float32)
    means = np.concatenate([users.mean, ones], axis=1)
    return means, np.concatenate([user_variance, users.mean**2 + user_variance, ones], axis=1)


def log_odds(means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """mu_a / sqrt(1 + pi sigma_a^2 / 8), whose sigmoid is about E sigma(a) for a Gaussian a (MacKay 1992)."""
    scale = variances * MACKAY
    scale += 1
    np.sqrt(scale, out=scale)
    return np.divide(means, scale, out=scale)


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


def compute_scores(
    logits: np.ndarray, names: tuple[str, ...], popularity: np.ndarray, log_popularity: np.ndarray
) -> Iterator[np.ndarray]:
    """Some of the scores that a model with a like probability has, new float32 arrays (users, items), one by one.

    Args:
        logits: float32 (users, items), x, of the like probability sigma(x).
        names: of `like`, sigma(x); `popularity_x_like`, sigma(x) pi; and `popularity_x_odds`, x + a log pi.
        popularity, log_popularity: float32 (items,), pi and a log pi.
    """
    like = sigmoid(logits) if names != ("popularity_x_odds",) else logits
    for name in names:
        if name == "popularity_x_odds":
            yield logits + log_popularity
        else:
            yield like if name == "like" else like * popularity


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
    first = np.add.accumulate(weights * values)[-1]  # adds the nodes in their order, as `sum` need not
    second = np.add.accumulate(weights * values * values)[-1]
    return np.sqrt(np.maximum(second - first * first, 0))


def _like_moments(means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean by eq. 22, and the standard deviation."""
    like = sigmoid(log_odds(means, variances))
    return like, like_spread(means, variances, like)


@njit(cache=True, parallel=True, nogil=True)
def _put_logits(means, variances, biases, bias_variances):
    """Put `log_odds` of all pairs in the place of `means`, in one pass; the users' biases are added first."""
    for user in prange(len(means)):
        row, spread = means[user], variances[user]
        for item in range(len(row)):
            mean, variance = row[item] + biases[user], spread[item] + bias_variances[user]
            row[item] = mean / np.sqrt(variance * MACKAY + ONE)


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
