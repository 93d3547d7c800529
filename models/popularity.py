"""Popularity: every user gets the items in the order of their training degrees."""

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_matrix

from models.base import Epoch, Model, ModelSettings


class PopularitySettings(ModelSettings):
    """Popularity has nothing to set."""


class Popularity(Model):
    """The score of an item is the number of its training edges, whoever asks."""

    name = "popularity"
    Settings = PopularitySettings

    def _fit(self, interactions: csr_matrix, on_epoch: Callable[[Epoch], None]) -> None:
        """Nothing is learned beyond `item_degrees`."""

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        return np.tile(self.item_degrees.astype(np.float32), (histories.shape[0], 1))
