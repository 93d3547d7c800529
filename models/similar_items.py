"""Items similar to others, by the vectors or the scores of a fitted model."""

from typing import Any

import numpy as np

from oneclass.models.numerics.matmul import dense_times, normalize_columns
from oneclass.models.numerics.validation import single_item_histories


def find_similar_items(model: Any, items: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the n items most similar to each of some columns, by the cosine of their vectors.

    A model without `item_vectors` uses the scores of a history of that one item: the weights of an item-item model.

    Returns:
        (ids, similarities): int32 and float32, (block, n), as `Model.recommend` gives them.
    """
    alone = single_item_histories(items, model.item_count)
    if (vectors := model.item_vectors()) is None:
        scores = model.scores(alone)
    else:
        columns = model.compute_once("unit vectors", lambda: normalize_columns(vectors))
        scores = dense_times(np.ascontiguousarray(columns[:, items].T), columns)
    return model.select_best(scores, alone, n)
