"""Scores of items without a training edge, by their attributes."""

from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, eq=False)
class NewItems:
    """Items that were not in training, as a fitted model represents them by their attributes.

    Attributes:
        nearest: float32 (new, items) CSR, the trained items most similar by attributes; a row's weights sum to one.
    """

    nearest: csr_matrix

    def average(self, values: np.ndarray) -> np.ndarray:
        """Return the weighted mean over the nearest items of their values, (..., items), float32 (..., new)."""
        return np.ascontiguousarray((self.nearest @ values.T).T, dtype=np.float32)


def fold_in_items(model: Any, features: csr_matrix) -> NewItems:
    """Represent items that were not in training by their attributes.

    Args:
        features: float32 (new, F) CSR, encoded as those given to the model's `fit`.

    Raises:
        ValueError: the model was fitted without attributes of items, or with other features.
    """
    if model.item_features is None:
        raise ValueError(
            "the model was fitted without attributes of items; give FitOptions(item_features=...), or name the "
            "table under [items] in the data set's TOML, and fit it again"
        )
    if features.shape[1] != model.item_features.shape[1]:
        raise ValueError(
            f"the new items have {features.shape[1]} features and those of the fit {model.item_features.shape[1]}; "
            "encode both with one encoder"
        )
    return NewItems(find_nearest(features, model.item_features, model.item_degrees > 0))


def score_new_items(
    model: Any,
    histories: csr_matrix,
    new_items: NewItems,
    *,
    users: np.ndarray | None = None,
    score: str | None = None,
) -> np.ndarray:
    """Score new items on the scale of `Model.scores`, so that both can be merged into one ranking.

    Their scores are the mean of the scores of the nearest trained items (`find_nearest`), weighted by their similarity,
    unless the model has a method `scores_of_new_items`.

    Args:
        histories, users, score: as in `Model.scores`.
        new_items: as `fold_in_items` returned them.

    Returns:
        float32 (block, new).

    Raises:
        TypeError, ValueError: as in `Model.scores`.
    """
    if hasattr(type(model), "scores_of_new_items"):
        return model.scores_of_new_items(histories, new_items, users)
    return new_items.average(model.scores(histories, users=users, score=score))


def fill_cold_columns(model: Any, scores: np.ndarray) -> np.ndarray:
    """Set the scores of the columns without a training edge, in place, to the means of their nearest columns."""
    if model.item_degrees.all():
        return scores
    columns, nearest = model.compute_once("cold columns", lambda: _find_cold_columns(model))
    scores[..., columns] = NewItems(nearest).average(scores)
    return scores


def _find_cold_columns(model: Any) -> tuple[np.ndarray, csr_matrix]:
    columns = np.flatnonzero(model.item_degrees == 0)
    return columns, find_nearest(model.item_features[columns], model.item_features, model.item_degrees > 0)


def store_features(features: csr_matrix) -> dict[str, np.ndarray]:
    """Return the arrays of `item_features` as a saved model has them."""
    parts = {"values": features.data, "columns": features.indices, "starts": features.indptr}
    return {f"item_features_{name}": array for name, array in parts.items()} | {
        "item_features_count": np.array(features.shape[1])
    }


def take_features(arrays: dict[str, np.ndarray]) -> csr_matrix:
    """Take the arrays that `store_features` returned out of a saved model's."""
    parts = tuple(arrays.pop(f"item_features_{name}") for name in ("values", "columns", "starts"))
    return csr_matrix(parts, shape=(len(parts[2]) - 1, int(arrays.pop("item_features_count"))))
