"""nDCG of new and of repeated targets apart, for rankings that include the items of a user's history.

New targets are ranked among the items outside the history, repeated ones among the items of the history. So neither
depends on how a model mixes the two.
"""

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.evaluation.holdout import split_matrix
from oneclass.models.evaluation.metrics import compute_user_metrics
from oneclass.models.evaluation.ranking import rank_targets

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
