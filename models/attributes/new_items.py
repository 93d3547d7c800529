"""Scores of items without a training edge, by ridge regression of the scores of other items on their attributes.

The kernel of two items is cos + SHARE exp(SHARPNESS (cos - 1)), by the cosine of their features: the first part adds up
effects of single attributes, the second knows which occur together. The Nystroem method (Williams and Seeger 2001)
gives each item FACTORS coordinates by the leading eigenvectors of the kernel of the LANDMARKS items of the most users:
phi(x) = L^-1/2 V' k(landmarks, x). A user's scores of trained items are regressed on phi with an intercept and the
penalty RIDGE; an item of d users has the weight d / (d + DOUBT). The fitted values are linear in the scores, so that
one map serves all users and models.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, diags

from oneclass.models.numerics.matmul import dense_times
from oneclass.models.numerics.threads import single_threaded_blas

# Chosen by nDCG@100 of new items on two generated logs and MovieLens' genres (benchmarks.cold_items).
LANDMARKS, FACTORS = 1000, 128
SHARE, SHARPNESS = 0.3, 6.0
RIDGE, DOUBT = 1.0, 10.0
ITEMS_PER_BLOCK = 4096
MIN_EIGENVALUE = 1e-9  # relative to the largest


def check_features(features: object, items: int) -> None:
    """Refuse features that do not go with the items of the matrix.

    Raises:
        TypeError: they are no `csr_matrix`.
        ValueError: their number of rows differs, or a value is not finite.
    """
    if not isinstance(features, csr_matrix):
        raise TypeError(f"features of items: a {type(features).__name__}; give a scipy.sparse.csr_matrix")
    if features.shape[0] != items:
        raise ValueError(f"features of items: {features.shape[0]} rows for {items} items of the matrix; give one each")
    if not np.isfinite(features.data).all():
        raise ValueError("features of items: a value is not finite; leave out what is missing")


@dataclass(frozen=True, eq=False)
class AttributeMap:
    """The regression of scores on attributes.

    Attributes:
        landmarks: float32 (F, landmarks), their features, each column of norm 1.
        projection: (landmarks, factors), L^-1/2 V'.
        center: (factors,), the weighted mean of the coordinates of the trained items.
        trained: int (trained,), columns of the items with an edge.
        weights: float32 (trained, 1 + factors), by which scores become an intercept and coefficients.
    """

    landmarks: np.ndarray
    projection: np.ndarray
    center: np.ndarray
    trained: np.ndarray
    weights: np.ndarray

    @classmethod
    def fit(cls, features: csr_matrix, degrees: np.ndarray) -> "AttributeMap":
        """Fit the regression.

        Args:
            features: (items, F) CSR.
            degrees: int (items,), the number of training edges of each item.
        """
        trained = np.flatnonzero(degrees)
        chosen = np.sort(trained[np.argsort(-degrees[trained], kind="stable")[:LANDMARKS]])
        landmarks = np.ascontiguousarray(_normalize_rows(features[chosen]).toarray().T, dtype=np.float32)
        with single_threaded_blas():
            values, vectors = np.linalg.eigh(_compute_kernel(features[chosen], landmarks))
            kept = np.flatnonzero(values > MIN_EIGENVALUE * values[-1])[-FACTORS:]
            projection = vectors[:, kept] / np.sqrt(values[kept])
            weights = degrees[trained] / (degrees[trained] + DOUBT)
            coordinates = _find_coordinates(features[trained], landmarks, projection)
            center = weights @ coordinates / weights.sum()
            coordinates -= center
            weighted = coordinates * weights[:, None]
            slopes = np.linalg.solve(coordinates.T @ weighted + RIDGE * np.eye(len(kept)), weighted.T)
        of_scores = np.vstack([weights / weights.sum(), slopes]).T
        return cls(landmarks, projection, center, trained, np.ascontiguousarray(of_scores, dtype=np.float32))

    def represent(self, features: csr_matrix) -> "NewItems":
        """Represent items by their (new, F) features."""
        with single_threaded_blas():
            coordinates = _find_coordinates(features, self.landmarks, self.projection) - self.center
        return NewItems(self, np.vstack([np.ones(len(coordinates)), coordinates.T]).astype(np.float32))


@dataclass(frozen=True, eq=False)
class NewItems:
    """Items that were not in training, as a fitted model represents them by their attributes.

    Attributes:
        regression: the map of the model's items.
        coordinates: float32 (1 + factors, new); the first row is 1, for the intercept.
    """

    regression: AttributeMap
    coordinates: np.ndarray

    def predict(self, scores: np.ndarray) -> np.ndarray:
        """Return the new items' scores, float32 (..., new), by those of all columns, (..., items)."""
        of_trained = scores[..., self.regression.trained].reshape(-1, len(self.regression.trained))
        coefficients = dense_times(of_trained, self.regression.weights)
        return dense_times(coefficients, self.coordinates).reshape(*scores.shape[:-1], -1)


def _find_coordinates(features: csr_matrix, landmarks: np.ndarray, projection: np.ndarray) -> np.ndarray:
    """Return phi, (items, factors)."""
    blocks = range(0, features.shape[0], ITEMS_PER_BLOCK)
    kernels = (_compute_kernel(features[first : first + ITEMS_PER_BLOCK], landmarks) for first in blocks)
    return np.vstack([np.empty((0, projection.shape[1])), *(kernel @ projection for kernel in kernels)])


def _compute_kernel(features: csr_matrix, landmarks: np.ndarray) -> np.ndarray:
    """Return the kernel of items and landmarks, (items, landmarks)."""
    cosines = (_normalize_rows(features) @ landmarks).astype(np.float64)
    return cosines + SHARE * np.exp(SHARPNESS * (cosines - 1))


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
    fit = partial(AttributeMap.fit, model.item_features, model.item_degrees)
    return model.compute_once("attributes", fit).represent(features)


def score_new_items(
    model: Any,
    histories: csr_matrix,
    new_items: NewItems,
    *,
    users: np.ndarray | None = None,
    score: str | None = None,
) -> np.ndarray:
    """Score new items on the scale of `Model.scores`, so that both can be merged into one ranking.

    They are regressed on attributes (`AttributeMap`), unless the model has a method `scores_of_new_items`.

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
    return new_items.predict(model.scores(histories, users=users, score=score))


def fill_cold_columns(model: Any, scores: np.ndarray) -> np.ndarray:
    """Set the scores of the columns without a training edge, in place, by their attributes."""
    if model.item_degrees.all():
        return scores
    columns, cold = model.compute_once("cold columns", lambda: _fold_in_cold_columns(model))
    scores[..., columns] = cold.predict(scores)
    return scores


def _fold_in_cold_columns(model: Any) -> tuple[np.ndarray, NewItems]:
    columns = np.flatnonzero(model.item_degrees == 0)
    return columns, fold_in_items(model, model.item_features[columns])


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
