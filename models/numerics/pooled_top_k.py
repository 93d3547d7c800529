"""The n best items under constraints, of a pool of each user's best items by scores."""

import numpy as np
from numba import njit, prange

from oneclass.models.numerics.constrained_top_k import Constraints, choose_from_pool
from oneclass.models.numerics.matmul import as_read_only
from oneclass.models.numerics.top_k import as_index_arrays, ascending_order


def select_from_pools(
    pools: np.ndarray,
    values: np.ndarray,
    pinned_values: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    sets: np.ndarray,
    constraints: Constraints,
    n: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `select_top_items`, from each user's best items by scores before boosts, where these suffice.

    Args:
        pools, values: int32 and float32 (block, m), the m best items that the user may get and their scores, best
            first; padded with -1. An item that is eligible to nobody may be missing.
        pinned_values: float32 (block, len(constraints.pinned)), the scores of the pinned items.
        indptr, indices, sets, constraints, n: as in `select_top_items`.

    Returns:
        The ids and scores, and bool (block,), whether a user's list is found; it is not if an item outside the pool
        might belong into it, and the user's row is then padding.
    """
    ids = np.full((len(pools), n), -1, dtype=np.int32)
    best = np.full((len(pools), n), -np.inf, dtype=np.float32)
    is_found = np.zeros(len(pools), dtype=np.bool_)
    _select_from_pools(
        as_read_only(pools, np.int32),
        as_read_only(values, np.float32),
        as_read_only(pinned_values, np.float32),
        *as_index_arrays(indptr, indices),
        as_read_only(sets, np.int32),
        *constraints.dense,
        as_read_only(constraints.pinned, np.int32),
        *as_index_arrays(constraints.category_indptr, constraints.category_indices),
        as_read_only(constraints.limits, np.int32),
        ids,
        best,
        is_found,
    )
    return ids, best, is_found


@njit(cache=True, parallel=True, nogil=True)
def _select_from_pools(
    pools,
    values,
    pinned_values,
    indptr,
    indices,
    sets,
    eligible,
    boosts,
    highest,
    pinned,
    category_indptr,
    categories,
    limits,
    ids,
    best,
    is_found,
):
    for user in prange(len(pools)):
        pool, of_pool, size = np.empty(pools.shape[1], dtype=np.int32), np.empty(pools.shape[1], dtype=np.float32), 0
        order = ascending_order(pools[user])  # of equal scores the lower id comes first
        for place in order:
            if pools[user, place] >= 0 and eligible[sets[user], pools[user, place]]:
                pool[size], of_pool[size] = pools[user, place], values[user, place]
                size += 1
        if size >= len(ids[user]) and pools[user, -1] >= 0:
            is_found[user] = choose_from_pool(
                pool[:size],
                of_pool[:size],
                values[user, -1],
                indices[indptr[user] : indptr[user + 1]],
                eligible[sets[user]],
                boosts[sets[user]],
                highest[sets[user]],
                pinned,
                pinned_values[user],
                category_indptr,
                categories,
                limits,
                ids[user],
                best[user],
            )
