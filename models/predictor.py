"""Answers of a fitted model: recommendations, similar items and like probabilities, by columns or by ids.

A matrix of histories is answered with arrays of columns. A model that was fitted on `oneclass.Interactions`, or on a
frame, is also asked by ids, and answers with Polars frames of ids.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix, issparse

from oneclass.models.fit_options import FitOptions
from oneclass.models.numerics.matmul import dense_times, normalize_columns
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.numerics.top_k import top_items
from oneclass.models.numerics.validation import single_item_histories

Arrays = tuple[np.ndarray, np.ndarray]
LIKE_COLUMNS = ("like_mean", "like_sd")


class Predictor(ABC):
    """The public methods of a model that answer.

    Attributes:
        interactions: the `oneclass.Interactions` of the fit, whose ids the answers use; None if it was on a matrix.
        table_class: the class that reads frames and other tables of ids: `oneclass.Interactions`, once it is imported.
    """

    interactions: Any = None
    table_class: ClassVar[Any] = None

    if TYPE_CHECKING:  # of the other bases of `Model`
        threads: int

        @property
        def item_count(self) -> int: ...
        @property
        def users_at_once(self) -> int: ...
        def compute_once(self, name: str, make: Any) -> Any: ...
        def _check_score(self, score: str | None) -> str: ...
        def _score_block(self, histories: csr_matrix, users: np.ndarray | None) -> csr_matrix: ...
        def scores_of_training_users(
            self, histories: csr_matrix, users: np.ndarray | None, score: str
        ) -> np.ndarray: ...

    @classmethod
    def has_like(cls) -> bool:
        """Whether the model has like probabilities."""
        return cls._like is not Predictor._like

    @overload
    def recommend(  # pyright: ignore[reportOverlappingOverload]: the other takes the frames of any library
        self,
        histories: csr_matrix,
        n: int = ...,
        *,
        users: np.ndarray | None = ...,
        score: str | None = ...,
        exclude_seen: bool = ...,
    ) -> Arrays: ...

    @overload
    def recommend(
        self, histories: Any = ..., n: int = ..., *, users: Any = ..., score: str | None = ..., exclude_seen: bool = ...
    ) -> pl.DataFrame: ...

    def recommend(
        self,
        histories: Any = None,
        n: int = 10,
        *,
        users: Any = None,
        score: str | None = None,
        exclude_seen: bool = True,
    ) -> Arrays | pl.DataFrame:
        """Recommend the n best items for each user; `users_at_once` users are scored at a time.

        Args:
            histories, users, score: as in `scores`. By ids: `users` of the fit, all by default, or the histories of
                other users as `oneclass.Interactions.histories` takes them.
            exclude_seen: whether to leave out the items of the history.

        Returns:
            (ids, scores): int32 and float32, (block, n), best first. Of equal scores the lower id comes first. If fewer
            than n items are left, the rest has id -1 and score -inf.
            By ids: a frame of `user_id`, `rank`, `item_id`, `score`, and `like_mean` and `like_sd` if the model has
            like probabilities.

        Raises:
            ValueError: as `scores`; or by ids, a user or all items of the histories are unknown.
        """
        if self.interactions is not None and not isinstance(histories, csr_matrix):
            return self._recommend_by_id(histories, users, (n, score, exclude_seen))
        score, known = self._check_score(score), self._score_block(histories, users)
        size, found = self.users_at_once, []
        for first in range(0, max(1, known.shape[0]), size):
            block = slice(first, first + size)
            scores = self.scores_of_training_users(known[block], None if users is None else users[block], score)
            found.append(self.select_best(scores, histories[block], n, exclude_seen=exclude_seen))
        ids, best = zip(*found, strict=True)
        return np.concatenate(ids), np.concatenate(best)

    def select_best(self, scores: np.ndarray, histories: csr_matrix, n: int, *, exclude_seen: bool) -> Arrays:
        """Return the n best items by these scores of all items, as `recommend` does."""
        indptr, seen = histories.indptr, histories.indices
        if not exclude_seen:
            indptr, seen = np.zeros_like(indptr), seen[:0]
        with kernel_threads(self.threads):
            return top_items(scores, indptr, seen, n)

    @overload
    def like(  # pyright: ignore[reportOverlappingOverload]: as above
        self, histories: csr_matrix, *, users: np.ndarray | None = ..., items: Any = ...
    ) -> Arrays | None: ...

    @overload
    def like(self, histories: Any = ..., *, users: Any = ..., items: Any = ...) -> pl.DataFrame | None: ...

    def like(self, histories: Any = None, *, users: Any = None, items: Any = None) -> Arrays | pl.DataFrame | None:
        """Return the mean and standard deviation of the like probability; None if the model has no such probability.

        Args:
            histories, users: as in `recommend`.
            items: (n,) columns for all users, or (block, n) columns for each user, padded with -1; all by default. By
                ids: the items for all users.

        Returns:
            float32 (block, n) each; NaN for an item of -1.
            By ids: a frame of `user_id`, `item_id`, `like_mean`, `like_sd`.
        """
        if self.interactions is None or isinstance(histories, csr_matrix):
            return self._like(histories, users=users, items=items)
        ids = self.interactions.item_ids if items is None else pl.Series(items)
        columns = self.interactions.columns(ids)
        frames = []
        for user_ids, matrix, rows in self._blocks(histories, users):
            if (like := self._like(matrix, users=rows, items=columns)) is None:
                return None
            who, which = np.repeat(np.arange(len(user_ids)), len(ids)), np.tile(np.arange(len(ids)), len(user_ids))
            values = [pl.Series(name, part.ravel()) for name, part in zip(LIKE_COLUMNS, like, strict=True)]
            frames.append(
                pl.DataFrame([user_ids.gather(who).alias("user_id"), ids.gather(which).alias("item_id"), *values])
            )
        return pl.concat(frames)

    @overload
    def similar_items(self, items: np.ndarray, n: int = ...) -> Arrays: ...

    @overload
    def similar_items(self, items: Any, n: int = ...) -> Any: ...

    def similar_items(self, items: Any, n: int = 10) -> Any:
        """Find the n items most similar to each, by the cosine of their vectors.

        A model without `item_vectors` uses the scores of a history of that one item: the weights of an item-item model.

        Args:
            items: int (block,), columns; item ids, if the model was fitted on such.

        Returns:
            (ids, similarities): int32 and float32, (block, n), as `recommend` gives them.
            By ids: a frame of `item_id`, `rank`, `similar_item_id`, `similarity`.

        Raises:
            ValueError: the model has no similarities between items, or an item is unknown.
        """
        if self.interactions is None:
            return self._similar_columns(items, n)
        columns = self.interactions.columns(items)
        found, similarities = self._similar_columns(columns, n)
        row, rank = np.nonzero(found >= 0)
        ids = self.interactions.item_ids
        return pl.DataFrame(
            [
                ids.gather(columns[row]).alias("item_id"),
                pl.Series("rank", (rank + 1).astype(np.int32)),
                ids.gather(found[row, rank]).alias("similar_item_id"),
                pl.Series("similarity", similarities[row, rank]),
            ]
        )

    def item_vectors(self) -> np.ndarray | None:
        """Return the items' factors, float32 (items, K); None if the model has none."""
        return None

    @abstractmethod
    def scores(
        self,
        histories: csr_matrix,
        *,
        users: np.ndarray | None = None,
        items: np.ndarray | None = None,
        score: str | None = None,
    ) -> np.ndarray:
        """Score items."""

    def _like(
        self, histories: csr_matrix, *, users: np.ndarray | None = None, items: np.ndarray | None = None
    ) -> Arrays | None:
        """Return `like` of a matrix of histories."""
        return None

    def _similar_columns(self, items: np.ndarray, n: int) -> Arrays:
        """Return `similar_items` of columns."""
        alone = single_item_histories(items, self.item_count)
        with kernel_threads(self.threads):
            if (vectors := self.item_vectors()) is None:
                scores = self.scores(alone)
            else:
                columns = self.compute_once("unit vectors", lambda: normalize_columns(vectors))
                scores = dense_times(np.ascontiguousarray(columns[:, items].T), columns)
            return top_items(scores, alone.indptr, alone.indices, n)

    def _read_interactions(self, data: Any, options: FitOptions) -> tuple[Any, FitOptions]:
        """Return the matrix of what `fit` is given, and its options with the attributes; keep the ids, if any."""
        self.interactions = None
        if isinstance(data, csr_matrix | np.ndarray) or issparse(data):
            return data, options
        table_class = self._find_table_class()
        self.interactions = table = data if isinstance(data, table_class) else table_class(data)
        given = {name: getattr(options, name) for name in ("user_features", "item_features")}
        features = {name: getattr(table, name) if value is None else value for name, value in given.items()}
        return table.matrix, replace(options, **features)

    def _restore_interactions(self, folder: Path) -> None:
        """Load what a model fitted on ids has saved."""
        if folder.exists():
            self.interactions = self._find_table_class().load(folder)

    def _find_table_class(self) -> Any:
        if self.table_class is None:
            raise TypeError(
                "frames and other tables of ids are read by oneclass.Interactions; import oneclass.interactions"
            )
        return self.table_class

    def _blocks(self, histories: Any, users: Any) -> Iterator[tuple[pl.Series, csr_matrix, np.ndarray | None]]:
        """Yield (user ids, their histories, their rows of the fit if they are of it) of some users at a time."""
        table = self.interactions
        if histories is not None and users is not None:
            raise ValueError("give users of the fit, or the histories of others; a user of the fit has a history")
        if histories is not None:
            ids, matrix, rows = *table.histories(histories), None
        else:
            rows = np.arange(len(table.user_ids)) if users is None else table.rows(users)
            ids, matrix = table.user_ids.gather(rows), table.matrix
        if ids.is_empty():
            raise ValueError("there is no user to answer; give ids of users, or histories")
        for first in range(0, len(ids), self.users_at_once):
            block = slice(first, first + self.users_at_once)
            yield (ids[block], matrix[block], None) if rows is None else (ids[block], matrix[rows[block]], rows[block])

    def _recommend_by_id(self, histories: Any, users: Any, wanted: tuple[int, str | None, bool]) -> pl.DataFrame:
        n, score, exclude_seen = wanted
        frames, item_ids = [], self.interactions.item_ids
        for user_ids, matrix, rows in self._blocks(histories, users):
            items, scores = self.recommend(matrix, n, users=rows, score=score, exclude_seen=exclude_seen)
            row, rank = np.nonzero(items >= 0)
            columns = [
                user_ids.gather(row).alias("user_id"),
                pl.Series("rank", (rank + 1).astype(np.int32)),
                item_ids.gather(items[row, rank]).alias("item_id"),
                pl.Series("score", scores[row, rank]),
            ]
            if (like := self._like(matrix, users=rows, items=items)) is not None:
                columns += [pl.Series(name, part[row, rank]) for name, part in zip(LIKE_COLUMNS, like, strict=True)]
            frames.append(pl.DataFrame(columns))
        return pl.concat(frames)
