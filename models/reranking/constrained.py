"""Lists that are picked for relevance and variety, under the constraints of `select_top_items`."""

import dataclasses

import numpy as np

from oneclass.models.numerics.constrained_top_k import Constraints, select_top_items
from oneclass.models.reranking.rerank import rerank

CANDIDATES_PER_PLACE = 5


def select_diverse_items(
    scores: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    sets: np.ndarray,
    constraints: Constraints,
    n: int,
    *,
    vectors: np.ndarray,
    strength: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Pick n items for each user by max-sum diversification, under constraints.

    The CANDIDATES_PER_PLACE * n best items, boosts included, are put in the order of the picks. `select_top_items`
    follows this order, and then the other items, so that pins and limits hold, and a list is short only if nothing that
    is left fits into it.

    Args:
        scores, indptr, indices, sets, constraints, n: as in `select_top_items`; no score is NaN.
        vectors: float32 (items, K), of `models.reranking.vectors`.
        strength: as in `rerank`.

    Returns:
        As `select_top_items`: pinned items first, then the picks by their scores.
    """
    none = np.empty(0, dtype=np.int32)
    plain = dataclasses.replace(constraints, boosts=None, pinned=none, limits=none)
    if constraints.boosts is not None:
        _, best = select_top_items(scores, indptr, indices, sets, plain, n)
        spread = best[:, 0] - np.min(best, axis=1, where=best > -np.inf, initial=np.inf)
        scores = scores + constraints.boosts[sets] * np.where(np.isfinite(spread), spread, 0)[:, None].astype(
            np.float32
        )
    candidates, values = select_top_items(scores, indptr, indices, sets, plain, CANDIDATES_PER_PLACE * n)
    candidates = np.where(np.isfinite(values), candidates, -1)
    every = candidates.shape[1]
    picks = rerank(candidates, values, vectors, n, strength=strength, method="max_sum", picks=every)
    users, places = np.nonzero(picks >= 0)
    in_order = scores - scores.max(axis=1, keepdims=True) - 1  # of the others, all below zero
    in_order[users, candidates[users, picks[users, places]]] = picks.shape[1] - places
    ids, _ = select_top_items(in_order, indptr, indices, sets, dataclasses.replace(constraints, boosts=None), n)
    chosen = np.where(ids >= 0, np.take_along_axis(scores, np.maximum(ids, 0), axis=1), np.float32(-np.inf))
    is_pinned = np.isin(ids, constraints.pinned)
    order = np.lexsort((np.where(is_pinned, np.arange(n), -chosen), ~is_pinned))
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(chosen, order, axis=1)
