"""Metrics of new items and of known items apart: each kind is ranked among its own."""

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.metrics import compute_user_metrics
from oneclass.models.evaluation.ranking import TargetRanks, rank_targets

OF_NEW_ITEMS = {f"{metric}_new_items": metric for metric in ("ndcg@100", "recall@20", "mean_rank")}


def rank_new_items(scores: np.ndarray, targets: csr_matrix, new_items: np.ndarray) -> dict[str, np.ndarray]:
    """Return the metrics `OF_NEW_ITEMS` of each user, whose candidates are the new items alone.

    Args:
        scores: float32 (block, items).
        targets: (block, items), held out; those of known items do not count.
        new_items: int (new,), columns in ascending order, none of which is in a history.

    Returns:
        float64 (block,) each; NaN for a user without a target among the new items.

    Raises:
        CannotRank: a NaN among a user's scores.
    """
    found, of_new = {name: np.full(len(scores), np.nan) for name in OF_NEW_ITEMS}, csr_matrix(targets[:, new_items])
    rows = np.flatnonzero(np.diff(of_new.indptr))
    if len(rows):
        nothing = csr_matrix((len(rows), len(new_items)))
        ranks = rank_targets(scores[np.ix_(rows, new_items)], nothing, of_new[rows])
        values = compute_user_metrics(ranks)
        for name, metric in OF_NEW_ITEMS.items():
            found[name][rows] = values[metric]
    return found


def rank_known_items(
    scores: np.ndarray, excluded: csr_matrix, targets: csr_matrix, new_items: np.ndarray, n: int
) -> tuple[np.ndarray, TargetRanks]:
    """Rank the targets of known items among the known items that are not excluded.

    Args:
        scores, excluded, targets, n: as in `rank_targets`.
        new_items: int (new,), the other columns.

    Returns:
        The rows of the users with such a target, and their ranks, in which `first` has columns of `scores`.

    Raises:
        CannotRank: as `rank_targets`.
    """
    known = np.setdiff1d(np.arange(scores.shape[1]), new_items)
    of_known = csr_matrix(targets[:, known])
    rows = np.flatnonzero(np.diff(of_known.indptr))
    ranks = rank_targets(scores[np.ix_(rows, known)], csr_matrix(excluded[rows][:, known]), of_known[rows], n)
    first = np.where(ranks.first >= 0, known[ranks.first], -1).astype(np.int32)
    return rows, replace(ranks, first=first)
