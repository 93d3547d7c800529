"""The n best items of each row of scores, without those in the row's history; of equal scores the lower id is first."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.adjacency import as_read_only, find_largest, nth_smallest
from oneclass.models.numerics.matmul import dense_times, normalize_columns
from oneclass.models.numerics.sequential_histories import single_item_histories

ITEMS_PER_SCAN = 32  # items that are passed over together, where none is among the n best
NUM_GROUPS = 256  # of items; their maxima tell below which score no item is among the n best


def top_items(scores: np.ndarray, indptr: np.ndarray, indices: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n best items for each user, without those in the user's history.

    One vectorized pass finds a score that n items reach, and of most runs of items a second one finds that all are
    below it; the best of the others are selected and sorted.

    Args:
        scores: float32 (block, items), higher is better; NaN ranks like -inf, last.
        indptr, indices: the block's histories (CSR), with sorted column indices.
        n: number of items for each user.

    Returns:
        (ids, scores): int32 and float32, (block, n), best first. Of equal scores the lower id comes first. Where
        fewer than n items are left, the rest is filled with id -1 and score -inf.

    Raises:
        ValueError: n is negative, or the histories do not have a row for each row of the scores.
    """
    if n < 0:
        raise ValueError(f"n = {n}: the number of items for each user cannot be negative; give 0 or more")
    if len(indptr) != len(scores) + 1:
        raise ValueError(f"{len(scores)} rows of scores but {len(indptr) - 1} histories; give one history for each row")
    indptr, indices = as_index_arrays(indptr, indices)
    ids = np.full((len(scores), n), -1, dtype=np.int32)
    best = np.full((len(scores), n), -np.inf, dtype=np.float32)
    if n > 0:
        _top_items(np.ascontiguousarray(scores, dtype=np.float32), indptr, indices, ids, best)
    return ids, best


def find_similar_items(model: Any, items: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the n items most similar to each of some columns, by the cosine of their vectors.

    A model without `item_vectors` uses the scores of a history of that one item: the weights of an item-item model.

    Returns:
        (ids, similarities): int32 and float32, (block, n), as `Model.recommend` gives them.
    """
    alone = single_item_histories(items, model.item_count)
    if (vectors := model.item_vectors()) is None:
        scores = model.scores(alone)
    else:
        columns = model.compute_once("unit vectors", lambda: normalize_columns(vectors))
        scores = dense_times(np.ascontiguousarray(columns[:, items].T), columns)
    return model.select_best(scores, alone, n)


def find_top_contributions(
    histories: csr_matrix,
    items: np.ndarray,
    contribute: Callable[[csr_matrix, np.ndarray], np.ndarray | None],
    count: int,
) -> np.ndarray | None:
    """Return the columns of each history that contribute most to the user's items, those above zero.

    Of equal contributions the lower column comes first; NaN is not above zero.

    Args:
        items: int32 (block, n), padded with -1.
        contribute: of one history and its items, as `Model.contributions`.

    Returns:
        int32 (block, n, count), the largest first, padded with -1; None if `contribute` gives None.
    """
    found = np.full((*items.shape, count), -1, dtype=np.int32)
    for row, row_items in enumerate(items):
        history = histories if len(items) == 1 else histories[[row]]
        contributions = contribute(history, np.maximum(row_items, 0))
        if contributions is None:
            return None
        added = np.ascontiguousarray(contributions, dtype=np.float32)
        _top_contributions(added, as_read_only(history.indices, np.int32), found[row])
    return found


def as_index_arrays(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """CSR index arrays in the types that the kernels are compiled for."""
    return as_read_only(indptr, np.int64), as_read_only(indices, np.int32)


@njit(cache=True, parallel=True, nogil=True)
def _top_items(scores, indptr, indices, ids, best):
    for user in prange(len(scores)):
        history = indices[indptr[user] : indptr[user + 1]]
        top_of_row(scores[user], history, ids[user], best[user])


@njit(cache=True, nogil=True)
def top_of_row(scores, history, ids, best):
    """Fill `ids` and `best` (both (n,)) with one user's best items, best first; `history` is sorted."""
    below = top_n_threshold(scores, history, len(ids))
    items, values = np.empty(len(scores), dtype=np.int32), np.empty(len(scores), dtype=np.float32)
    count = seen = 0
    for start in range(0, len(scores), ITEMS_PER_SCAN):
        stop = min(start + ITEMS_PER_SCAN, len(scores))
        if below > -np.inf and not any_above(scores[start:stop], below):
            continue
        while seen < len(history) and history[seen] < start:
            seen += 1
        for item in range(start, stop):
            if seen < len(history) and history[seen] == item:
                seen += 1
            elif below == -np.inf or scores[item] > below:
                items[count] = item
                values[count] = -np.inf if np.isnan(scores[item]) else scores[item]
                count += 1
    chosen = find_largest(values[:count], len(ids))
    order = np.argsort(-values[chosen], kind="mergesort")  # stable: of equal scores the lower id is first
    for rank in range(len(order)):
        ids[rank], best[rank] = items[chosen[order[rank]]], values[chosen[order[rank]]]


@njit(cache=True, nogil=True)
def top_n_threshold(scores, history, n):
    """A score that at least n items outside the history exceed, float32; -inf where none was found.

    It is the next one below the n-th largest of the maxima of NUM_GROUPS groups, each of every so many-th item.
    """
    if len(scores) < 2 * NUM_GROUPS or 2 * n > NUM_GROUPS:
        return np.float32(-np.inf)
    maxima, some = np.full(NUM_GROUPS, -np.inf, dtype=np.float32), np.empty(NUM_GROUPS, dtype=np.float32)
    seen = 0
    for start in range(0, len(scores) - NUM_GROUPS + 1, NUM_GROUPS):
        row = scores[start : start + NUM_GROUPS]
        for group in range(NUM_GROUPS):
            some[group] = row[group]
        while seen < len(history) and history[seen] < start + NUM_GROUPS:
            some[history[seen] - start] = -np.inf
            seen += 1
        for group in range(NUM_GROUPS):
            maxima[group] = max(maxima[group], some[group])  # a NaN is never above
    return np.nextafter(nth_smallest(maxima, NUM_GROUPS - n), np.float32(-np.inf))


@njit(cache=True, nogil=True)
def _top_contributions(added, names, found):
    """Fill `found` (columns, count) with the names of the rows of the largest numbers of each column."""
    best = np.empty(found.shape[1], dtype=np.float32)
    for column in range(len(found)):
        found[column], best[:] = -1, 0
        for row in range(len(added)):
            value, place = added[row, column], len(best)
            while place > 0 and value > best[place - 1]:
                place -= 1
                if place + 1 < len(best):
                    found[column, place + 1], best[place + 1] = found[column, place], best[place]
            if place < len(best):
                found[column, place], best[place] = names[row], value


@njit(cache=True, nogil=True)
def any_above(scores, score):
    """Whether one of them is higher; a sum without a branch, so that the loop vectorizes."""
    above = np.int32(0)
    for item in range(len(scores)):
        above = np.int32(above + (scores[item] > score))
    return above > 0
