"""Lists by rules without the scores of all items.

Each user's best items before boosts are a pool, more than a list has. Where the rules find a whole list in it that no
item outside could change, it is the list; the other users' items are all scored.
"""

from math import ceil

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.numerics.constrained_top_k import MAX_POOL_SIZE, POOL_SIZE, Constraints
from oneclass.models.numerics.pooled_top_k import select_from_pools
from oneclass.models.numerics.threads import kernel_threads
from oneclass.tasks.rules.selection import Selection, select_lists

SPARE_ITEMS = 8  # of a pool, for items of equal scores at its end


def find_lists(
    model: Model, score: str, histories: csr_matrix, users: np.ndarray | None, selection: Selection
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the lists of a block of users as `select_lists` does of all scores; None where the model cannot.

    Args:
        users: as in `Model.scores`.
        selection: of these users.
    """
    of = selection.constraints
    raises_new_items = selection.max_new and model.item_features is not None and not model.item_degrees.all()
    if selection.diversity is not None or raises_new_items:
        return None
    allowed: np.ndarray = np.any(of.eligible, axis=0)
    if not 0 < (size := _choose_pool_size(of, allowed, selection.n)) <= MAX_POOL_SIZE:
        return None
    excluded = selection.find_excluded(histories)
    pools = model.find_best_items(histories, size, excluded, users=users, score=score, allowed=allowed)
    if pools is None:
        return None
    pinned_values = np.empty((len(selection.sets), 0), dtype=np.float32)
    if len(of.pinned):
        pinned_values = model.scores(histories, users=users, items=of.pinned, score=score)
    with kernel_threads(model.threads):
        ids, best, is_found = select_from_pools(*pools, pinned_values, *excluded, selection.sets, of, selection.n)
    left = np.flatnonzero(~is_found)
    for start in range(0, len(left), model.users_at_once):
        rows = left[start : start + model.users_at_once]
        scores = model.scores(histories[rows], users=None if users is None else users[rows], score=score)
        with kernel_threads(model.threads):
            ids[rows], best[rows] = select_lists(scores, histories[rows], selection.for_rows(rows))
    return ids, best


def _choose_pool_size(constraints: Constraints, allowed: np.ndarray, n: int) -> int:
    """Return how many items a user's pool has; 0 where nobody may get any."""
    least = constraints.eligible.sum(axis=1).min()
    if not least:
        return 0
    reorders = constraints.boosts is not None or len(constraints.pinned) or len(constraints.limits)
    wanted = (POOL_SIZE if reorders else 1) * n * allowed.sum() / least
    return min(ceil(wanted) + SPARE_ITEMS, int(allowed.sum()))
