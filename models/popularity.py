"""Popularity: items are ranked by their training degrees, the same for every user."""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.fit_options import FitOptions
from oneclass.models.settings import ModelSettings


class PopularitySettings(ModelSettings):
    """Settings of the popularity model, of which there are none."""


class Popularity(Model[PopularitySettings]):
    """Recommend the items with the most training edges, the same to every user.

    Attributes:
        item_degrees: int64 (items,), the scores.

    Example:
        >>> import numpy as np
        >>> from scipy.sparse import csr_matrix
        >>> from oneclass import Popularity
        >>> likes = csr_matrix(np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]]))
        >>> ids, scores = Popularity().fit(likes).recommend(likes, n=1)
        >>> ids.tolist(), scores.tolist()
        ([[2], [2], [0]], [[1.0], [1.0], [2.0]])
    """

    name = "popularity"
    Settings = PopularitySettings
    is_deterministic = True

    @classmethod
    def estimate_cost(cls, settings: Any, log: Any) -> Any:
        """Estimate the cost of counting."""
        return replace(super().estimate_cost(settings, log), seconds=0.0)

    def similar_items(self, items: Any, n: int = 10) -> Any:
        """Raise: the model knows only the items' degrees."""
        raise ValueError("popularity has no similarities between items; publish another model")

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        """Do nothing: `fit` has set `item_degrees`."""

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        return np.tile(self.item_degrees.astype(np.float32), (histories.shape[0], 1))
