"""Metrics of new and of known items apart, and of new and of repeated targets: each kind is ranked among its own.

If rankings include the items of a user's history, new targets are ranked among the items outside it, repeated ones
among its items. So neither depends on how a model mixes the two.
"""

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.holdout import split_matrix
from oneclass.models.evaluation.metrics import compute_edge_ranks, compute_user_metrics, sum_by_user
from oneclass.models.evaluation.ranking import TargetRanks, rank_targets

OF_NEW_ITEMS = {f"{metric}_new_items": metric for metric in ("ndcg@100", "recall@20", "mean_rank")}

KNOWN_RANK = "mean_rank_known_items"


def average_known_ranks(ranks: TargetRanks, is_known: np.ndarray) -> np.ndarray:
    """Average the ranks of each user's targets that have a training edge, a tie counting one half.

    Guesses have 1/2 on any log, and popularity is above it. Without ties or with items that no model can know it may be
    far below: where half of a small shop's items have one like, they tie with the item that is held out.

    Args:
        is_known: bool (targets,).

    Returns:
        float64 (users,); NaN for a user without such a target.
    """
    won = sum_by_user(ranks, np.where(is_known, compute_edge_ranks(ranks, midtie=True), 0))
    counts = sum_by_user(ranks, is_known.astype(np.float64))
    return np.divide(won, counts, out=np.full(len(counts), np.nan), where=counts > 0)


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
    found = {name: np.full(len(scores), np.nan) for name in OF_NEW_ITEMS}
    rows, ranks = _rank_among(new_items, scores, csr_matrix(scores.shape), targets)
    if len(rows):
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
    rows, ranks = _rank_among(known, scores, excluded, targets, n)
    first = np.where(ranks.first >= 0, known[ranks.first], -1).astype(np.int32)
    return rows, replace(ranks, first=first)


def _rank_among(
    columns: np.ndarray, scores: np.ndarray, excluded: csr_matrix, targets: csr_matrix, n: int = 0
) -> tuple[np.ndarray, TargetRanks]:
    """Return the rows with a target among some columns, and its ranks among these columns."""
    wanted = csr_matrix(targets[:, columns])
    rows = np.flatnonzero(np.diff(wanted.indptr))
    left_out = csr_matrix(excluded[rows][:, columns])
    return rows, rank_targets(scores[np.ix_(rows, columns)], left_out, wanted[rows], n)


NEW, REPEATED = "ndcg@100_new", "ndcg@100_repeated"


def rank_new_and_repeated(scores: np.ndarray, histories: csr_matrix, targets: csr_matrix) -> dict[str, np.ndarray]:
    """Return nDCG@100 of the new and of the repeated targets of each user.

    Args:
        scores, histories, targets: as in `rank_targets`; a target may lie in the history.

    Returns:
        float64 (users,) each; NaN for users without such a target.

    Raises:
        CannotRank: a NaN among a user's scores.
    """
    entries, known = _number_entries(targets), _number_entries(histories)
    is_repeated = np.isin(entries, known, assume_unique=True)
    new, repeated = split_matrix(targets, is_repeated)
    position = np.searchsorted(known, entries[is_repeated])  # of repeated targets among the entries of the histories
    return {
        NEW: _find_ndcg(scores, histories, new),
        REPEATED: _rank_in_histories(scores, histories, repeated, position),
    }


def _number_entries(matrix: csr_matrix) -> np.ndarray:
    """Return row * columns + column of each entry, int64, ascending."""
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return rows * matrix.shape[1] + matrix.indices


def _find_ndcg(scores: np.ndarray, excluded: csr_matrix, targets: csr_matrix) -> np.ndarray:
    ndcg = np.full(len(scores), np.nan)
    users = np.flatnonzero(np.diff(targets.indptr))
    if len(users):
        ranks = rank_targets(scores[users], excluded[users], targets[users])
        ndcg[users] = compute_user_metrics(ranks)["ndcg@100"]
    return ndcg


def _rank_in_histories(
    scores: np.ndarray, histories: csr_matrix, repeated: csr_matrix, position: np.ndarray
) -> np.ndarray:
    """Rank repeated targets among the items of the histories: each row has the scores of a history, then padding."""
    degrees = np.diff(histories.indptr)
    width = int(degrees.max(initial=0))
    in_history = np.arange(width) < degrees[:, None]
    of_histories = np.zeros((len(scores), width), dtype=np.float32)
    of_histories[in_history] = scores[np.repeat(np.arange(len(scores)), degrees), histories.indices]
    columns = position - np.repeat(histories.indptr[:-1], np.diff(repeated.indptr))
    targets = csr_matrix((repeated.data, columns, repeated.indptr), shape=(len(scores), width))
    return _find_ndcg(of_histories, csr_matrix(~in_history), targets)
