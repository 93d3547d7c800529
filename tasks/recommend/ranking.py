"""Rank items for users by a fitted model, with like probabilities and the items of the history that contributed
most.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.numerics.top_k import top_items
from oneclass.tasks.recommend.companion import Companion, describe_items
from oneclass.tasks.recommend.new_items import MAX_REASONS, raise_new_items
from oneclass.tasks.rules.selection import Selection, select_lists


@dataclass(frozen=True)
class RankedItems:
    """The best items of some users.

    Attributes:
        items: int32 (users, n), columns of the fit, best first; padded with -1.
        scores: float32 (users, n).
        like, explicit_like: mean and standard deviation, float32 (users, n), as in `ItemDescriptions`.
        because: int32 (users, n, MAX_REASONS), the columns of the history that speak for an item (`describe_items`),
            padded with -1; None without any.
    """

    items: np.ndarray
    scores: np.ndarray
    like: tuple[np.ndarray, np.ndarray] | None = None
    explicit_like: tuple[np.ndarray, np.ndarray] | None = None
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
    exclude_seen: bool = True,
    selection: Selection | None = None,
    vectors: Callable[[], np.ndarray] | None = None,
    companion: Companion | None = None,
    popular: np.ndarray | None = None,
) -> RankedItems:
    """Return the best items for each history.

    Args:
        users: as in `Model.scores`.
        within, without: for a single user: sorted columns to choose among, and columns to leave out.
        exclude_seen: whether to leave out the items of the history.
        selection: by rules, of these users; it takes the place of `n` and of the arguments that follow `users`.
        vectors: returns those of the items, for a selection with variety.
        companion: as in `describe_items`.
        popular: float32 (items,), the scores of an empty history that is given; by default the model's.
    """
    with kernel_threads(model.threads):
        indptr, excluded = histories.indptr, histories.indices
        if not exclude_seen:
            indptr, excluded = np.zeros_like(indptr), excluded[:0]
        if without is not None and len(without):
            excluded = np.union1d(excluded, without).astype(np.int32)
            indptr = np.array([0, len(excluded)])
        n = min(n, model.item_count)
        scores = model.scores(histories, users=users, score=score)
        if selection is not None:
            scores = raise_new_items(model, score, histories, users, scores, selection)
        if users is None and popular is not None:
            scores[histories.indptr[1:] == histories.indptr[:-1]] = popular
        if selection is not None:
            chosen = vectors() if vectors is not None and selection.diversity is not None else None
            items, best = select_lists(scores, histories, selection, chosen)
            return RankedItems(items, best, *describe_items(model, companion, histories, users, items))
        candidates = None
        if within is not None:  # one row, cut to the candidates
            candidates = np.setdiff1d(within, excluded, assume_unique=True)
            scores, excluded, indptr = scores[:, candidates], excluded[:0], np.zeros(2, dtype=np.int64)
        items, best = top_items(scores, indptr, excluded, n)
        if candidates is not None and len(candidates):
            items = np.where(items >= 0, candidates[items], -1)
        return RankedItems(items, best, *describe_items(model, companion, histories, users, items))


def explain_score(model: Model, history: csr_matrix, column: int) -> list[tuple[int, float]]:
    """Return (column, contribution) of a history's items that contribute most to an item's score."""
    contributions = model.contributions(history, np.array([column], dtype=np.int32))
    if contributions is None:
        return []
    values = contributions[:, 0]
    largest = [entry for entry in np.argsort(-values, kind="stable")[:MAX_REASONS] if values[entry] > 0]
    return [(int(history.indices[entry]), float(values[entry])) for entry in largest]
