"""The centred and rescaled Gram matrix of a sparse users x items matrix, as a dense float32 triangle.

Each target row is summed by one thread in float64, over its item's users in their order, so that the bits do
not depend on the number of threads and centring loses nothing to cancellation.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from models.numerics.degree_weights import degree_weights
from models.numerics.products import read_only
from models.numerics.threads import kernel_threads


@dataclass(frozen=True)
class Columns:
    """First moments of the columns of X, zeros and ones, under user weights w.

    Attributes:
        weights: float64 (users,), mean one over users with an edge, zero for users without.
        mean: float64 (items,), mu = sum_m w_m x_m / n, n being the number of users with an edge.
        spread: float64 (items,), n times the variance; exactly 0 for an item that everybody or nobody likes.
        users: n.
    """

    weights: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    users: int


def columns(interactions: csr_matrix, user_weight_exponent: float) -> Columns:
    """Weights d_m^-exponent of the users, scaled to mean one, and the items' moments under them."""
    degrees = np.diff(interactions.indptr)
    users = int(np.count_nonzero(degrees))
    weights = degree_weights(degrees, user_weight_exponent)
    of_entries = np.repeat(weights, degrees)
    mean = np.bincount(interactions.indices, weights=of_entries, minlength=interactions.shape[1]) / users
    spread = users * mean * (1 - mean)
    item_degrees = np.bincount(interactions.indices, minlength=interactions.shape[1])
    spread[(item_degrees == 0) | (item_degrees == users)] = 0.0
    return Columns(weights, mean, spread, users)


@dataclass(frozen=True)
class Rescaling:
    """Centring and rescaling of the columns, section 5 of the paper on Markov random fields.

    Attributes:
        scale: float64 (items,), spread^(alpha / 2), and 1 for an item without spread.
        shift: float64 (items,), sqrt(n) mu to centre the columns, zeros not to.
        factor: float64 (items,), 1 / scale, and 0 for an item that takes no part.
        back: float64 (items,), what the scores of an item are multiplied by; the paper's is `scale`.
    """

    scale: np.ndarray
    shift: np.ndarray
    factor: np.ndarray
    back: np.ndarray


def rescaling(moments: Columns, alpha: float, centred: bool, popularity_discount: float = 0.0) -> Rescaling:
    """An item that everybody or nobody likes takes no part; without centring, only one that nobody likes."""
    varies = moments.spread > 0
    spread = np.where(varies, moments.spread, 1.0)
    scale, back = spread ** (alpha / 2), spread ** ((alpha - popularity_discount) / 2)
    shift = moments.mean * np.sqrt(moments.users) * centred
    return Rescaling(scale, shift, (varies if centred else moments.mean > 0) / scale, back)


class GramRows(NamedTuple):
    """What a kernel needs to sum a row of the Gram matrix; all read-only.

    Attributes:
        indptr, indices: int64 and int32, the users' items.
        item_indptr, item_users: int64 and int32, the items' users.
        item_entries: int64, the places in `indices` of the items' entries.
        weights: float64 (users,).
        shift, factor: float64 (items,), as in `lower_gram`.
    """

    indptr: np.ndarray
    indices: np.ndarray
    item_indptr: np.ndarray
    item_users: np.ndarray
    item_entries: np.ndarray
    weights: np.ndarray
    shift: np.ndarray
    factor: np.ndarray


def gram_rows(interactions: csr_matrix, weights: np.ndarray, shift: np.ndarray, factor: np.ndarray) -> GramRows:
    """The record of a matrix that is read as zeros and ones; arguments as in `lower_gram`."""
    entries = np.arange(interactions.nnz, dtype=np.int64)
    by_item = csr_matrix((entries, interactions.indices, interactions.indptr), shape=interactions.shape).tocsc()
    return GramRows(
        read_only(interactions.indptr, np.int64),
        read_only(interactions.indices, np.int32),
        read_only(by_item.indptr, np.int64),
        read_only(by_item.indices, np.int32),
        read_only(by_item.data, np.int64),
        read_only(weights, np.float64),
        read_only(shift, np.float64),
        read_only(factor, np.float64),
    )


def lower_gram(
    interactions: csr_matrix, weights: np.ndarray, shift: np.ndarray, factor: np.ndarray, threads: int
) -> np.ndarray:
    """factor_a factor_b (sum_m w_m x_ma x_mb - shift_a shift_b) for b <= a, and zeros above.

    Args:
        interactions: (users, items) CSR, sorted columns, read as zeros and ones.
        weights: float64 (users,).
        shift: float64 (items,), sqrt(n) mu to centre the columns, zeros not to.
        factor: float64 (items,); a row whose factor is zero comes out zero.

    Returns:
        float32 (items, items), C order.
    """
    gram = gram_rows(interactions, weights, shift, factor)
    heaviest_first = np.argsort(-np.diff(gram.item_indptr), kind="stable")
    out = np.zeros((interactions.shape[1],) * 2, dtype=np.float32)
    with kernel_threads(threads):
        _fill(gram, read_only(heaviest_first, np.int64), max(1, threads), out)
    return out


@njit(parallel=True, cache=True)
def _fill(gram, order, workers, out):
    """The rows of a `GramRows`; `workers` deal themselves the items of `order` in turn."""
    indptr, indices, item_indptr, item_users, item_entries, weights, shift, factor = gram
    for worker in prange(workers):
        row = np.zeros(len(order))
        for turn in range(worker, len(order), workers):
            item = order[turn]
            row[: item + 1] = 0.0
            for at in range(item_indptr[item], item_indptr[item + 1]):
                user = item_users[at]
                weight = weights[user]
                for entry in range(indptr[user], item_entries[at] + 1):
                    row[indices[entry]] += weight
            for other in range(item + 1):
                centred = row[other] - shift[item] * shift[other]
                out[item, other] = factor[item] * factor[other] * centred
