"""The centred and rescaled Gram matrix of a sparse users x items matrix, as a dense float32 triangle.

Rows are summed in float64, of weights whose sums are exact (`exact_degree_weights`). So the bits depend neither on the
number of threads nor on the order of the users, and centring loses no digits to cancellation. What columns are centred
and rescaled by is in `models.numerics.column_moments`.
"""

from typing import NamedTuple

import numpy as np
from numba import get_num_threads, njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.adjacency import as_read_only


class GramRows(NamedTuple):
    """What a kernel needs for a row of the Gram matrix. All arrays are read-only.

    Attributes:
        indptr, indices: int64 and int32, the items of each user (CSR).
        item_indptr, item_users: int64 and int32, the users of each item (CSC).
        item_entries: int64, for each entry of `item_users`, its place in `indices`.
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


def gram_rows(
    interactions: csr_matrix,
    weights: np.ndarray,
    shift: np.ndarray,
    factor: np.ndarray,
) -> GramRows:
    """The `GramRows` of a matrix that is read as zeros and ones; arguments as in `lower_gram`."""
    entries = np.arange(interactions.nnz, dtype=np.int64)
    by_item = csr_matrix((entries, interactions.indices, interactions.indptr), shape=interactions.shape).tocsc()
    return GramRows(
        as_read_only(interactions.indptr, np.int64),
        as_read_only(interactions.indices, np.int32),
        as_read_only(by_item.indptr, np.int64),
        as_read_only(by_item.indices, np.int32),
        as_read_only(by_item.data, np.int64),
        as_read_only(weights, np.float64),
        as_read_only(shift, np.float64),
        as_read_only(factor, np.float64),
    )


@njit(nogil=True, cache=True)
def add_row(gram, item, row, is_lower):
    """Add sum_m w_m x_m,item x_mb to `row` for all b, or only for b <= item."""
    for at in range(gram.item_indptr[item], gram.item_indptr[item + 1]):
        user = gram.item_users[at]
        weight, end = gram.weights[user], gram.item_entries[at] + 1 if is_lower else gram.indptr[user + 1]
        for entry in range(gram.indptr[user], end):
            row[gram.indices[entry]] += weight


@njit(nogil=True, cache=True)
def rescale_row(gram, item, row, values):
    """Centre and rescale the first sums of a row of the Gram matrix: as many as `values`, float32, has room for."""
    shift, factor = gram.shift, gram.factor
    for other in range(len(values)):
        values[other] = factor[item] * factor[other] * (row[other] - shift[item] * shift[other])


def lower_gram(
    interactions: csr_matrix,
    weights: np.ndarray,
    shift: np.ndarray,
    factor: np.ndarray,
) -> np.ndarray:
    """factor_a factor_b (sum_m w_m x_ma x_mb - shift_a shift_b) for b <= a, and zeros above.

    Args:
        interactions: (users, items) CSR, sorted columns, read as zeros and ones.
        weights: float64 (users,).
        shift: float64 (items,), to centre the columns, or zeros to leave them as they are.
        factor: float64 (items,); where it is zero, so is the row.

    Returns:
        float32 (items, items), C order.
    """
    gram = gram_rows(interactions, weights, shift, factor)
    out = np.zeros((len(gram.factor),) * 2, dtype=np.float32)
    order = np.argsort(-np.diff(gram.item_indptr), kind="stable")  # the items with the most users first
    _fill_rows(gram, as_read_only(order, np.int64), get_num_threads(), out)
    return out


@njit(parallel=True, nogil=True, cache=True)
def _fill_rows(gram, order, workers, out):
    """Fill `out` with the rows of a `GramRows`; worker w takes the items at places w, w + workers, ... of `order`."""
    for worker in prange(workers):
        row = np.zeros(len(order))
        for turn in range(worker, len(order), workers):
            item = order[turn]
            row[: item + 1] = 0.0
            add_row(gram, item, row, True)
            rescale_row(gram, item, row, out[item, : item + 1])
