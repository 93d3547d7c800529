"""Popularity: items are ranked by their training degrees, the same for every user."""

import numpy as np
from pydantic import Field
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.distributed import UserBlock, partition_users
from oneclass.models.fit_options import FitOptions
from oneclass.models.memory_estimates import Sizes
from oneclass.models.numerics.tiled_ranking import LinearScores
from oneclass.models.numerics.validation import check_edges, check_entries, check_matrix_type, count_item_degrees
from oneclass.models.settings import ModelSettings


class PopularitySettings(ModelSettings):
    """Settings of the popularity model, which its scores do not depend on."""

    blocks: int = Field(
        1,
        ge=1,
        description="Blocks of users whose edges are counted separately (docs/explanation/scaling.md). The bits do not "
        "depend on it.",
    )


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
    edge_seconds = 0.0

    @classmethod
    def block_sizes(cls, settings: PopularitySettings, items: int) -> Sizes | None:
        """Return the sizes of blocks whose edges are counted."""
        return Sizes(24, 0, 8 * items, here=8 * items, call=0) if settings.blocks > 1 else None

    def _similar_columns(self, items: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Raise: the model knows only the items' degrees."""
        raise ValueError("popularity has no similarities between items; publish another model")

    def _degrees(self, interactions: csr_matrix, options: FitOptions) -> np.ndarray:
        if self.settings.blocks == 1:
            return super()._degrees(interactions, options)
        check_matrix_type(interactions, "interactions")
        check_edges(interactions)
        with partition_users(interactions, self.settings.blocks, None, options, self.name) as blocks:
            return sum(
                blocks.map_blocks(_block_degrees, interactions.shape[1]),
                np.zeros(interactions.shape[1], dtype=np.int64),
            )

    def _fit(self, interactions: csr_matrix, options: FitOptions) -> None:
        """Do nothing: `fit` has set `item_degrees`."""

    def _scores(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> np.ndarray:
        return np.tile(self.item_degrees.astype(np.float32), (histories.shape[0], 1))

    def _score_tiles(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> LinearScores:
        ones = np.ones((histories.shape[0], 1), dtype=np.float32)
        return self._linear_scores(ones, lambda items: self.item_degrees[None, items].astype(np.float32))


def _block_degrees(block: UserBlock, state: int, items: int) -> np.ndarray:
    matrix = block.matrix(items)
    check_entries(matrix, "interactions", block.first)
    return count_item_degrees(matrix)
