"""Answers of a fitted model by the ids of its users and items: frames of ids in and out, around any model."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.fit_options import FitOptions

LIKE_COLUMNS = ("like_mean", "like_sd")


@dataclass(frozen=True, eq=False)
class AnswersById:
    """The answers of `recommend`, `like` and `similar_items` by ids; each asks a model for those by columns.

    Attributes:
        table: the `oneclass.Interactions` on whose matrix the model was fitted.
        table_class: the class that reads frames and other tables of ids: `oneclass.Interactions`, once it is imported.
    """

    table: Any

    table_class: ClassVar[Any] = None

    @classmethod
    def read(cls, data: Any) -> Self:
        """Take `oneclass.Interactions`, or what it reads, such as a frame."""
        table_class = cls._find_table_class()
        return cls(data if isinstance(data, table_class) else table_class(data))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the table that `oneclass.Interactions` saved."""
        return cls(cls._find_table_class().load(folder))

    @classmethod
    def _find_table_class(cls) -> Any:
        if cls.table_class is None:
            raise TypeError(
                "frames and other tables of ids are read by oneclass.Interactions; import oneclass.interactions"
            )
        return cls.table_class

    def add_features(self, options: FitOptions) -> FitOptions:
        """Return the options of a fit with the attributes of the items of the table, where none are given."""
        features = self.table.item_features if options.item_features is None else options.item_features
        return replace(options, item_features=features)

    def recommend(self, model: Any, histories: Any, users: Any, n: int, **choices: Any) -> pl.DataFrame:
        """Return `user_id`, `rank`, `item_id`, `score`, and `like_mean` and `like_sd` if the model has such."""
        frames, item_ids = [], self.table.item_ids
        for user_ids, matrix, rows in self._blocks(model, histories, users):
            items, scores = model.recommend(matrix, n, users=rows, **choices)
            row, rank = np.nonzero(items >= 0)
            columns = [
                user_ids.gather(row).alias("user_id"),
                pl.Series("rank", (rank + 1).astype(np.int32)),
                item_ids.gather(items[row, rank]).alias("item_id"),
                pl.Series("score", scores[row, rank]),
            ]
            if (like := model.like(matrix, users=rows, items=items)) is not None:
                columns += [pl.Series(name, part[row, rank]) for name, part in zip(LIKE_COLUMNS, like, strict=True)]
            frames.append(pl.DataFrame(columns))
        return pl.concat(frames)

    def like(self, model: Any, histories: Any, users: Any, items: Any) -> pl.DataFrame | None:
        """Return `user_id`, `item_id`, `like_mean` and `like_sd` of each user with each of the items."""
        ids = self.table.item_ids if items is None else pl.Series(items)
        columns = self.table.columns(ids)
        frames = []
        for user_ids, matrix, rows in self._blocks(model, histories, users):
            if (like := model.like(matrix, users=rows, items=columns)) is None:
                return None
            who, which = np.repeat(np.arange(len(user_ids)), len(ids)), np.tile(np.arange(len(ids)), len(user_ids))
            values = [pl.Series(name, part.ravel()) for name, part in zip(LIKE_COLUMNS, like, strict=True)]
            frames.append(
                pl.DataFrame([user_ids.gather(who).alias("user_id"), ids.gather(which).alias("item_id"), *values])
            )
        return pl.concat(frames)

    def name_similar(self, items: Any, find: Any) -> pl.DataFrame:
        """Return `item_id`, `rank`, `similar_item_id` and `similarity`; `find` returns both of columns."""
        columns, ids = self.table.columns(items), self.table.item_ids
        found, similarities = find(columns)
        row, rank = np.nonzero(found >= 0)
        return pl.DataFrame(
            [
                ids.gather(columns[row]).alias("item_id"),
                pl.Series("rank", (rank + 1).astype(np.int32)),
                ids.gather(found[row, rank]).alias("similar_item_id"),
                pl.Series("similarity", similarities[row, rank]),
            ]
        )

    def _blocks(
        self, model: Any, histories: Any, users: Any
    ) -> Iterator[tuple[pl.Series, csr_matrix, np.ndarray | None]]:
        """Yield (user ids, their histories, their rows of the fit if they are of it) of some users at a time."""
        table, step = self.table, model.users_at_once
        if histories is not None and users is not None:
            raise ValueError("give users of the fit, or the histories of others; a user of the fit has a history")
        if histories is not None:
            ids, matrix, rows = *table.histories(histories), None
        else:
            rows = np.arange(len(table.user_ids)) if users is None else table.rows(users)
            ids, matrix = table.user_ids.gather(rows), table.matrix
        if ids.is_empty():
            raise ValueError("there is no user to answer; give ids of users, or histories")
        for first in range(0, len(ids), step):
            block = slice(first, first + step)
            yield (ids[block], matrix[block], None) if rows is None else (ids[block], matrix[rows[block]], rows[block])
