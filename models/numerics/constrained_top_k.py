"""The n best items of each row of scores under constraints: eligible items only, boosts, pins, limits per category."""

import functools
from dataclasses import dataclass

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.adjacency import as_read_only, first_above
from oneclass.models.numerics.top_k import as_index_arrays, top_of_row

WINDOW = 2  # times n items of the ranking are found first, where categories have limits; then four times as many


@dataclass(frozen=True)
class Constraints:
    """Constraints of lists, for some sets of users.

    Attributes:
        eligible: bool (sets, items).
        boosts: float32 (sets, items), or None without boosts; an item's score rises by its boost times the user's
            spread of scores: the best minus the n-th among the items that the user may get, both before boosts (the
            last, where fewer than n are left; 0 where one of the two is not finite).
        pinned: int32, items that come first, in this order, where they are eligible, not excluded and within limits.
        category_indptr, category_indices: categories of each item (CSR).
        limits: int32 by category, how many of a list's items may have it.
    """

    eligible: np.ndarray
    boosts: np.ndarray | None
    pinned: np.ndarray
    category_indptr: np.ndarray
    category_indices: np.ndarray
    limits: np.ndarray

    @functools.cached_property
    def candidates(self) -> tuple[np.ndarray, np.ndarray]:
        """The eligible items of each set (CSR: indptr, indices)."""
        items = [np.flatnonzero(eligible) for eligible in self.eligible]
        indptr = np.concatenate([[0], np.cumsum([len(one) for one in items])])
        return as_index_arrays(indptr, np.concatenate(items))


def select_top_items(
    scores: np.ndarray, indptr: np.ndarray, indices: np.ndarray, sets: np.ndarray, constraints: Constraints, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """The n best items for each user under constraints.

    Pinned items come first. Then the ranking is followed down as far as needed: an item is passed over if one of its
    categories is full. So a list is short only if no eligible item that is left fits into it.

    Args:
        scores: float32 (block, items), higher is better; NaN ranks like -inf, last.
        indptr, indices: the items that each user must not get (CSR), with sorted column indices.
        sets: the set of each user, a row of `constraints.eligible`.
        n: number of items for each user.

    Returns:
        (ids, scores): int32 and float32, (block, n), best first, scores with boosts. Of equal scores the lower id comes
        first. A short list is filled with id -1 and score -inf.
    """
    ids = np.full((len(scores), n), -1, dtype=np.int32)
    best = np.full((len(scores), n), -np.inf, dtype=np.float32)
    if n > 0 and len(scores):
        _select_top_items(
            as_read_only(scores, np.float32),
            *as_index_arrays(indptr, indices),
            as_read_only(sets, np.int32),
            *constraints.candidates,
            as_read_only(np.empty((0, 0)) if constraints.boosts is None else constraints.boosts, np.float32),
            as_read_only(constraints.pinned, np.int32),
            *as_index_arrays(constraints.category_indptr, constraints.category_indices),
            as_read_only(constraints.limits, np.int32),
            ids,
            best,
        )
    return ids, best


@njit(cache=True, parallel=True, nogil=True)
def _select_top_items(
    scores,
    indptr,
    indices,
    sets,
    starts,
    columns,
    boosts,
    pinned,
    category_indptr,
    categories,
    limits,
    ids,
    best,
):
    for user in prange(len(scores)):
        start, stop = starts[sets[user]], starts[sets[user] + 1]
        candidates = columns[start:stop]
        history = indices[indptr[user] : indptr[user + 1]]
        values = np.empty(len(candidates), dtype=np.float32)
        for position in range(len(candidates)):
            values[position] = scores[user, candidates[position]]
        excluded = _find_positions(candidates, history)
        if boosts.shape[1] > 0:
            _add_boosts(values, excluded, boosts[sets[user]][candidates], ids[user], best[user])
        if len(pinned) == 0 and len(limits) == 0:
            top_of_row(values, excluded, ids[user], best[user])
            for rank in range(len(ids[user])):
                if ids[user, rank] >= 0:
                    ids[user, rank] = candidates[ids[user, rank]]
        else:
            _select_within_limits(
                values, excluded, candidates, pinned, category_indptr, categories, limits, ids[user], best[user]
            )


@njit(cache=True, nogil=True)
def _find_positions(candidates, items):
    """Positions of those items that are candidates, in the order of the items; candidates are sorted."""
    positions = np.empty(len(items), dtype=np.int32)
    count = 0
    for item in items:
        position = first_above(candidates, item) - 1
        if position >= 0 and candidates[position] == item:
            positions[count] = position
            count += 1
    return positions[:count]


@njit(cache=True, nogil=True)
def _add_boosts(values, excluded, boosts, ids, best):
    """Add the boosts times the spread to the scores; `ids` and `best` are left as they were."""
    top_of_row(values, excluded, ids, best)
    last = len(ids) - 1
    while last > 0 and ids[last] < 0:
        last -= 1
    spread = best[0] - best[last]
    if np.isfinite(spread):
        for position in range(len(values)):
            values[position] += boosts[position] * spread
    ids[:], best[:] = -1, -np.inf


@njit(cache=True, nogil=True)
def _select_within_limits(values, excluded, candidates, pinned, category_indptr, categories, limits, ids, best):
    """Fill `ids` and `best` with the pinned items, then down the ranking, past items whose categories are full."""
    gone = np.zeros(len(candidates), dtype=np.bool_)  # excluded, or taken as pinned
    counts = np.zeros(len(limits), dtype=np.int32)
    taken = np.int64(0)
    for position in excluded:
        gone[position] = True
    for position in _find_positions(candidates, pinned):
        item = candidates[position]
        if taken < len(ids) and not gone[position] and _fits(item, category_indptr, categories, counts, limits):
            _count_item(item, category_indptr, categories, counts)
            ids[taken], best[taken] = item, -np.inf if np.isnan(values[position]) else values[position]
            taken, gone[position] = taken + 1, True
    left_out, rank = np.flatnonzero(gone).astype(np.int32), 0
    window, scores = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
    while taken < len(ids):
        if rank == len(window):
            width = min(max(WINDOW * len(ids), 4 * rank), len(candidates) - len(left_out))
            if rank == width:
                return
            window, scores = np.empty(width, dtype=np.int32), np.empty(width, dtype=np.float32)
            top_of_row(values, left_out, window, scores)
        item = candidates[window[rank]]
        if _fits(item, category_indptr, categories, counts, limits):
            _count_item(item, category_indptr, categories, counts)
            ids[taken], best[taken] = item, scores[rank]
            taken += 1
        rank += 1


@njit(cache=True, nogil=True)
def _fits(item, category_indptr, categories, counts, limits):
    for category in categories[category_indptr[item] : category_indptr[item + 1]]:
        if counts[category] >= limits[category]:
            return False
    return True


@njit(cache=True, nogil=True)
def _count_item(item, category_indptr, categories, counts):
    for category in categories[category_indptr[item] : category_indptr[item + 1]]:
        counts[category] += 1
