"""The trained items that are nearest to new ones by their attributes."""

import numpy as np
from scipy.sparse import csr_matrix, diags

from oneclass.models.numerics.random_numbers import normals, purpose

NEAREST = 50
MAX_NEAREST = 1000  # with the items that are tied
PAIRS_PER_BLOCK = 1 << 23


def find_nearest(features: csr_matrix, trained_features: csr_matrix, is_trained: np.ndarray) -> csr_matrix:
    """Find the nearest trained items of each new item by the cosine of their features, and their weights.

    These are the NEAREST items of positive similarity and those tied with the last of them. Of more than MAX_NEAREST, a
    fixed random choice of the tied is left. Without such an item, all trained items are tied: the new item is then like
    the average item.

    Args:
        features: (new, F), of the new items.
        trained_features: (items, F).
        is_trained: bool (items,), the items that may be near.

    Returns:
        float32 (new, items) CSR: similarities, divided by their sum; rows sum to one.
    """
    draws = normals(0, purpose("attributes: tied items"), len(is_trained), 1)[:, 0]
    order = np.argsort(np.where(is_trained, draws, np.inf), kind="stable")[: np.count_nonzero(is_trained)]
    table = csr_matrix(_normalize_rows(trained_features)[order].T)
    rows, columns, weights = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0)]
    block = max(1, PAIRS_PER_BLOCK // max(1, len(order)))
    for first in range(0, features.shape[0], block):
        similarities = (_normalize_rows(features[first : first + block]) @ table).toarray()
        for row, of_row in enumerate(similarities, first):
            near, similar = _select_nearest(of_row)
            rows.append(np.full(len(near), row))
            columns.append(order[near])
            weights.append(similar / similar.sum())
    parts = np.concatenate(weights).astype(np.float32), (np.concatenate(rows), np.concatenate(columns))
    nearest = csr_matrix(parts, shape=(features.shape[0], len(is_trained)))
    nearest.sort_indices()
    return nearest


def find_nearest_likes(
    features: csr_matrix, histories: csr_matrix, rows: np.ndarray, items: np.ndarray, n: int
) -> np.ndarray:
    """Find the n likes of a user that are most similar to an item by the cosine of their features.

    Args:
        features: (items, F).
        histories: (users, items).
        rows, items: int (pairs,), a user's row and an item each.

    Returns:
        int32 (pairs, n), the most similar first; if fewer have a positive similarity, the rest is -1.
    """
    nearest = np.full((len(items), n), -1, dtype=np.int32)
    table = _normalize_rows(features)
    for item in np.unique(items):
        similarities = (table @ table[item].T).toarray().ravel()
        for pair in np.flatnonzero(items == item):
            likes = histories.indices[histories.indptr[rows[pair]] : histories.indptr[rows[pair] + 1]]
            order = np.argsort(-similarities[likes], kind="stable")[:n]
            chosen = likes[order[similarities[likes[order]] > 0]]
            nearest[pair, : len(chosen)] = chosen
    return nearest


def _normalize_rows(features: csr_matrix) -> csr_matrix:
    squares = np.asarray(features.multiply(features).sum(axis=1), dtype=np.float64).ravel()
    return csr_matrix(diags(1 / np.sqrt(np.where(squares > 0, squares, 1))) @ features)


def _select_nearest(similarities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the nearest of one item, and their similarities; the tied in the order of positions."""
    rounded = np.round(similarities, 6)  # equal features are tied in spite of rounding errors
    if not (rounded > 0).any():
        near = np.arange(min(MAX_NEAREST, len(rounded)))
        return near, np.ones(len(near))
    last = np.partition(rounded, -NEAREST)[-NEAREST] if len(rounded) > NEAREST else 0.0
    above = np.flatnonzero(rounded > max(last, 0.0))
    tied = np.flatnonzero(rounded == last) if last > 0 else above[:0]
    near = np.concatenate([above, tied[: MAX_NEAREST - len(above)]])
    return near, rounded[near]
