"""Popularity: items are ranked by their training degrees, the same for every user."""

import numpy as np
from scipy.sparse import csr_matrix

from models.base import Model
from models.fitting import FitOptions
from models.settings import ModelSettings


class PopularitySettings(ModelSettings):
    """Popularity has nothing to set."""


class Popularity(Model):
    """The score of an item is the number of its training edges, whoever the user."""

    name = "popularity"
    Settings = PopularitySettings
    draws_nothing = True

    def similar_items(self, items: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """There are none: an item has its degree, and no more is known of it."""
        raise ValueError("popularity says nothing of one item beside another; publish another model")

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        """Nothing is learned beyond `item_degrees`."""

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        return np.tile(self.item_degrees.astype(np.float32), (histories.shape[0], 1))
