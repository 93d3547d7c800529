"""Popularity: items are ranked by their training degrees, the same for every user."""

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.distributed import UserBlock, partition_users
from oneclass.models.fit_options import FitOptions
from oneclass.models.memory_estimates import Sizes
from oneclass.models.numerics.validation import check_edges, check_entries, check_matrix_type, count_item_degrees
from oneclass.models.settings import ModelSettings


class PopularitySettings(ModelSettings):
    """What the model says depends on none of its settings."""

    blocks: int = Field(
        1,
        ge=1,
        description="Blocks of users whose edges are counted separately (docs/explanation/scaling.md). The bits do not "
        "depend on it.",
    )


class Popularity(Model[PopularitySettings]):
    """The score of an item is the number of its training edges, whoever the user."""

    name = "popularity"
    Settings = PopularitySettings
    is_deterministic = True

    @classmethod
    def block_sizes(cls, settings: PopularitySettings, items: int) -> Sizes | None:
        """The users' edges are counted, and the counts added."""
        return Sizes(24, 0, 8 * items, here=8 * items, call=0) if settings.blocks > 1 else None

    def similar_items(self, items: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """There are none: an item has its degree, and no more is known of it."""
        raise ValueError("popularity says nothing of one item beside another; publish another model")

    def _degrees(self, interactions: csr_matrix, options: FitOptions) -> np.ndarray:
        if self.settings.blocks == 1:
            return super()._degrees(interactions, options)
        check_matrix_type(interactions, "interactions")
        check_edges(interactions)
        with partition_users(interactions, self.settings.blocks, None, options, self.name) as blocks:
            return sum(
                blocks.ask(_block_degrees, interactions.shape[1]), np.zeros(interactions.shape[1], dtype=np.int64)
            )

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        """Nothing is learned beyond `count_item_degrees`."""

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        return np.tile(self.item_degrees.astype(np.float32), (histories.shape[0], 1))


def _block_degrees(block: UserBlock, state: int, items: int) -> np.ndarray:
    matrix = block.matrix(items)
    check_entries(matrix, "interactions", block.first)
    return count_item_degrees(matrix)
