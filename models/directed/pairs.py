"""Sums over the ordered pairs of every history, weighed by how many steps lie between the two likes.

Likes of one time, such as those of a basket, are one step, since their order is unknown. Each row of a sum is added up
in one order, so that its bits do not depend on the threads.
"""

from typing import NamedTuple

import numpy as np
from numba import get_num_threads, njit, prange
from scipy.sparse import csr_matrix

from oneclass.models.numerics.adjacency import as_read_only, find_largest

WINDOW = 50  # likes of a history that count, the newest


class OrderedLikes(NamedTuple):
    """The newest likes of every history, the oldest of these first. All arrays are read-only.

    Attributes:
        items: int32 (likes,).
        steps: int32 (likes,), 0 for the first step of a history.
        ends: int64 (likes,), where the history of each like ends.
        item_starts, of_items: int64 (items + 1,) and (likes,), the likes of each item.
    """

    items: np.ndarray
    steps: np.ndarray
    ends: np.ndarray
    item_starts: np.ndarray
    of_items: np.ndarray


def order_likes(histories: csr_matrix, name: str) -> OrderedLikes:
    """Sort the likes of `SequentialHistories` by user and time.

    Raises:
        ValueError: the histories have no order; `name` is that of the model.
    """
    if (ranks := getattr(histories, "recency_ranks", None)) is None:
        raise ValueError(
            f"{name} learns from the order of likes, which these histories do not have: give events with times, or "
            "oneclass.models.numerics.sequential_histories.with_recency_ranks(histories, recency_ranks)"
        )
    lengths = np.diff(histories.indptr)
    users = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    oldest_first = np.lexsort((-ranks.astype(np.int64), users))
    newer = np.repeat(histories.indptr[1:], lengths) - np.arange(histories.nnz)
    kept = oldest_first[newer <= WINDOW]
    users, items, ranks = users[kept], histories.indices[kept], ranks[kept]
    starts_history = np.diff(users, prepend=-1) != 0
    first = np.flatnonzero(starts_history)
    counted = np.cumsum(starts_history | (np.diff(ranks, prepend=0) != 0))
    sizes = np.diff(first, append=len(users))
    of_items = np.argsort(items, kind="stable")
    item_starts = np.concatenate([[0], np.cumsum(np.bincount(items, minlength=histories.shape[1]))])
    return OrderedLikes(
        as_read_only(items, np.int32),
        as_read_only(counted - np.repeat(counted[first], sizes), np.int32),
        as_read_only(np.repeat(first + sizes, sizes), np.int64),
        as_read_only(item_starts, np.int64),
        as_read_only(of_items, np.int64),
    )


@njit(nogil=True, cache=True)
def sum_later_targets(likes, decay):
    """R of each like at step q: the sum over the later likes of the history, at steps j, of decay^(2 (j - 1 - q)).

    Returns:
        float64 (likes,).
    """
    found = np.zeros(len(likes.items))
    for like in range(len(found) - 1, -1, -1):
        following = like + 1
        if following < likes.ends[like]:
            if likes.steps[following] == likes.steps[like]:
                found[like] = found[following]
            else:
                last = following
                while last < likes.ends[like] and likes.steps[last] == likes.steps[following]:
                    last += 1
                found[like] = (last - following) + decay**2 * found[following]
    return found


@njit(nogil=True, cache=True)
def add_pairs(likes, item, by_distance, gain, row, touched):
    """Add by_distance[steps between] gain[later like] of each pair that begins with the item to `row`, at the later
    item; list the items in `touched` and return how many there are.
    """
    count = 0
    for at in range(likes.item_starts[item], likes.item_starts[item + 1]):
        like = likes.of_items[at]
        for later in range(like, likes.ends[like]):
            added = by_distance[likes.steps[later] - likes.steps[like]] * gain[later]
            if added != 0.0:
                other = likes.items[later]
                if row[other] == 0.0:
                    touched[count] = other
                    count += 1
                row[other] += added
    return count


@njit(parallel=True, nogil=True, cache=True)
def _fill_pairs(likes, by_distance, gain, workers, out):
    for worker in prange(workers):
        row, touched = np.zeros(len(out)), np.empty(len(out), dtype=np.int32)
        for item in range(worker, len(out), workers):
            for other in touched[: add_pairs(likes, item, by_distance, gain, row, touched)]:
                out[item, other], row[other] = row[other], 0.0


def sum_pairs(likes: OrderedLikes, by_distance: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Sum the pairs of an item and one that the history has at the same step or later, and of each with itself.

    Args:
        by_distance: float64 (WINDOW,), the factor of a pair by the steps between its likes.
        gain: float64 (likes,), the factor of a pair by its later like.

    Returns:
        float32 (items, items); row i has the pairs that begin with item i.
    """
    out = np.zeros((len(likes.item_starts) - 1,) * 2, dtype=np.float32)
    _fill_pairs(likes, by_distance, gain, get_num_threads(), out)
    return out


@njit(parallel=True, nogil=True, cache=True)
def find_successors(likes, by_distance, gain, first, of_item, of_successor, workers, counts, ids, values):
    """Find the items that follow each of the items from `first` on most, at most as many as `ids` has columns.

    Args:
        likes, by_distance, gain: as of `sum_pairs`.
        of_item, of_successor: float64 (items,), by whose product a sum of pairs is divided.
        counts, ids, values: int64 (n,), int32 and float32 (n, k), filled here with the successors of n items by
            ascending id; of equal quotients the lower id counts.
    """
    for worker in prange(workers):
        row, touched = np.zeros(len(of_item)), np.empty(len(of_item), dtype=np.int32)
        for place in range(worker, len(counts), workers):
            item = first + place
            others = np.sort(touched[: add_pairs(likes, item, by_distance, gain, row, touched)])
            quotients = np.zeros(len(others), dtype=np.float32)
            for at in range(len(others)):
                quotients[at] = row[others[at]] / (of_item[item] * of_successor[others[at]])
                row[others[at]] = 0.0
            counts[place] = min(len(others), ids.shape[1])
            kept = find_largest(quotients, ids.shape[1])
            for at in range(counts[place]):
                ids[place, at], values[place, at] = others[kept[at]], quotients[kept[at]]
