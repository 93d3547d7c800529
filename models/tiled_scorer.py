"""Scores of some items at a time, and lists that leave most items unscored, on large catalogues."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import csr_matrix

from oneclass.models.inference_cache import InferenceCache
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.numerics.tiled_ranking import (
    Balls,
    ColumnsOf,
    ItemTiles,
    LinearScores,
    TiledScores,
    find_ball,
    rank_tiles,
)

MIN_TILED_ITEMS = 1 << 14  # with fewer, scoring all items takes no longer


class TiledScorer(InferenceCache, ABC):
    """The part of a model that scores tiles of items of about equal popularity, one after another."""

    score_names: ClassVar[tuple[str, ...]]
    item_degrees: np.ndarray

    if TYPE_CHECKING:  # of the other bases of `Model`
        threads: int
        learns_attributes: ClassVar[bool]
        item_features: Any

        @property
        def item_count(self) -> int: ...
        def _popularity(self) -> np.ndarray: ...

    @abstractmethod
    def _score_block(self, histories: csr_matrix, users: np.ndarray | None) -> csr_matrix:
        """Check the histories, one for each of the users, and drop unknown items."""

    @property
    def scores_by_tiles(self) -> bool:
        """Whether `score_tiles` has the scores of some items without those of others, on a large catalogue.

        An item without an edge may have the mean score of similar ones.
        """
        if (
            self._cache is None
            or self.item_count < MIN_TILED_ITEMS
            or type(self)._score_tiles is TiledScorer._score_tiles
        ):
            return False
        return self.learns_attributes or self.item_features is None or bool(self.item_degrees.all())

    def score_tiles(
        self, histories: csr_matrix, *, users: np.ndarray | None = None
    ) -> Callable[[np.ndarray], list[np.ndarray]]:
        """Return a function of columns, int (n,), that returns each of `score_names` for these, float32 (block, n).

        For a model that `scores_by_tiles`; the arguments are those of `scores`, and scores have the same bits.
        """
        known = self._score_block(histories, users)
        with kernel_threads(self.threads):
            tiled, popularity = self._score_tiles(known, users, self.score_names[0]), self._popularity()
        assert tiled is not None
        empty = np.flatnonzero(known.indptr[1:] == known.indptr[:-1]) if users is None else []

        def score(items: np.ndarray) -> list[np.ndarray]:
            with kernel_threads(self.threads):
                found = tiled.score_all(items)
            for scores in found if len(empty) else ():
                scores[empty] = popularity[items]
            return found

        return score

    def _find_best_items(
        self,
        histories: csr_matrix,
        users: np.ndarray | None,
        score: str,
        n: int,
        excluded: tuple[np.ndarray, np.ndarray],
        allowed: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the n best items, int32 (block, n), and their scores; None if they are not found without scoring all.

        Called after a fit; the histories have known items only, each at least one unless `users` are given.
        """
        if not self.scores_by_tiles:
            return None
        with kernel_threads(self.threads):
            tiled = self._score_tiles(histories, users, score)
            return tiled and rank_tiles(tiled, *excluded, n, allowed)

    def _score_tiles(self, histories: csr_matrix, users: np.ndarray | None, score: str) -> TiledScores | None:
        """Return the scores of a block by tiles of items; None for a model whose scores have no bounds by tile."""
        return None

    def _linear_scores(self, rows: np.ndarray, columns_of: ColumnsOf, constant: float = 0.0) -> LinearScores:
        """Return those of a model whose scores are products of these rows, float32 (block, width), and columns."""
        tiles = self._tiles()

        def make_balls() -> Balls:
            return self.compute_once("balls", lambda: Balls.of(find_ball(columns_of(items)) for items in tiles))

        return LinearScores(tiles, rows, columns_of, make_balls, constant)

    def _tiles(self) -> ItemTiles:
        return self.compute_once("tiles", lambda: ItemTiles.of(self.item_degrees))
