"""The best items of users by a fitted model, with what it knows of each and which items of the history spoke for it."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.numerics.top_k import top_contributions, top_items

MAX_REASONS = 3


@dataclass(frozen=True)
class RankedItems:
    """The best items of some users.

    Attributes:
        items: int32 (users, n), columns of the fit, best first; padded with -1.
        scores: float32 (users, n).
        like: mean and standard deviation, float32 (users, n); None for a model without.
        because: int32 (users, n, REASONS), the columns of the history that added most to an item's score, padded with -1;
            None for a model whose scores are no sums over the history.
    """

    items: np.ndarray
    scores: np.ndarray
    like: tuple[np.ndarray, np.ndarray] | None = None
    because: np.ndarray | None = None


def rank_items(
    model: Model,
    score: str,
    histories: csr_matrix,
    n: int,
    *,
    users: np.ndarray | None = None,
    within: np.ndarray | None = None,
    without: np.ndarray | None = None,
) -> RankedItems:
    """The best items of each history that are not in it.

    Args:
        users: as in `Model.scores`.
        within, without: for a single user: sorted columns to choose among, and columns to leave out.
    """
    n = min(n, model.item_count)
    indptr, seen = histories.indptr, histories.indices
    if without is not None and len(without):
        seen = np.union1d(seen, without).astype(np.int32)
        indptr = np.array([0, len(seen)])
    with kernel_threads(model.threads):
        scores = model.scores(histories, users=users, score=score)
        candidates = None
        if within is not None:  # one row, of the candidates alone
            candidates = np.setdiff1d(within, seen, assume_unique=True)
            scores, seen, indptr = scores[:, candidates], seen[:0], np.zeros(2, dtype=np.int64)
        items, best = top_items(scores, indptr, seen, n)
        if candidates is not None and len(candidates):
            items = np.where(items >= 0, candidates[items], -1)
        like = model.like(histories, users=users, items=items)
        return RankedItems(items, best, like, _explain_items(model, histories, items))


def explain_score(model: Model, history: csr_matrix, column: int) -> list[tuple[int, float]]:
    """(column, what it added to the score of an item) of the items of a history that added most, above zero."""
    added = model.contributions(history, np.array([column], dtype=np.int32))
    if added is None:
        return []
    most = [place for place in np.argsort(-added[:, 0], kind="stable")[:MAX_REASONS] if added[place, 0] > 0]
    return [(int(history.indices[place]), float(added[place, 0])) for place in most]


def _explain_items(model: Model, histories: csr_matrix, items: np.ndarray) -> np.ndarray | None:
    """As `RankedItems` has them."""
    found = np.full((*items.shape, MAX_REASONS), -1, dtype=np.int32)
    for row, of_row in enumerate(items):
        history = histories if len(items) == 1 else histories[[row]]
        added = model.contributions(history, np.maximum(of_row, 0))
        if added is None:
            return None
        found[row] = top_contributions(added, history.indices, MAX_REASONS)
    return found
