"""Popularity: items are ranked by their training degrees, the same for every user."""

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from models.base import Model
from models.fitting import FitOptions
from models.memory import Sizes
from models.numerics.counts import check_edges, check_entries, check_kind, item_degrees
from models.settings import ModelSettings
from models.user_blocks import Block, cut_into_blocks


class PopularitySettings(ModelSettings):
    """What the model says depends on none of its settings."""

    blocks: int = Field(
        1,
        ge=1,
        description="Blocks of users whose edges are counted separately (docs/explanation/scaling.md). The bits do not "
        "depend on it.",
    )


class Popularity(Model):
    """The score of an item is the number of its training edges, whoever the user."""

    name = "popularity"
    Settings = PopularitySettings
    draws_nothing = True

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
        check_kind(interactions, "interactions")
        check_edges(interactions)
        with cut_into_blocks(interactions, self.settings.blocks, None, options, self.name) as blocks:
            return sum(blocks.ask(_degrees_in_block, interactions.shape[1]))

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        """Nothing is learned beyond `item_degrees`."""

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        return np.tile(self.item_degrees.astype(np.float32), (histories.shape[0], 1))


def _degrees_in_block(block: Block, state: int, items: int) -> np.ndarray:
    matrix = block.matrix(items)
    check_entries(matrix, "interactions", block.first)
    return item_degrees(matrix)
