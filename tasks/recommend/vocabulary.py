"""Map item ids to columns of the published fit, and histories of ids to its matrices."""

import warnings
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.tasks.errors import InputError
from oneclass.tasks.stores.matrices import csr_view

MAX_NAMED_ITEMS = 5  # unknown items in a warning


class UnknownItems(UserWarning):
    """A history, or `within`, names items that the published model does not know; they are skipped."""


def warn_unknown(name: str, items: Sequence[str | int], known_in: str, level: int) -> None:
    """Warn that a history, or `within`, has unknown items; `level` counts the calls from here to the line to blame."""
    more = f" and {len(items) - MAX_NAMED_ITEMS} more" if len(items) > MAX_NAMED_ITEMS else ""
    listed = ", ".join(map(str, items[:MAX_NAMED_ITEMS])) + more
    warnings.warn(f"{name}: not known in {known_in}, left out: {listed}", UnknownItems, stacklevel=level)


class ItemVocabulary:
    """The items of a publication.

    Attributes:
        ids, titles: by column of the fit; a title is None if unknown.
        marks: `pinned` for items that the rules pin, `new` for those that nobody likes, None for others; empty if all
            are None.
    """

    def __init__(self, dataset: str, items: pl.DataFrame, pinned: Collection[str]) -> None:
        """Index the items: `items` has item_id, title and users, one row per column of the fit."""
        self.dataset = dataset
        self.ids: list[str] = items["item_id"].to_list()
        self.titles: list[str | None] = items["title"].to_list()
        marks = [
            "pinned" if item_id in pinned else None if users else "new"
            for item_id, users in zip(self.ids, items["users"], strict=True)
        ]
        self.marks = marks if any(marks) else []
        self._columns = {normalize_id(item_id): column for column, item_id in enumerate(self.ids)}

    def unknown(self, item_ids: Iterable[str]) -> list[str]:
        """Return the items that the publication does not have."""
        return [item for item in check_ids(item_ids, "item_ids") if item not in self._columns]

    def column_index(self, item_id: str) -> int:
        """Return the column of an item.

        Raises:
            InputError: no such item.
        """
        if (column := self._columns.get(normalize_id(item_id))) is None:
            raise InputError(f"item {item_id}: no user in {self.dataset} likes it, or the logs lack it.")
        return column

    def column_indices(self, item_ids: Iterable[str], name: str) -> np.ndarray:
        """Return int32, the sorted columns of the known items without repetition."""
        columns = {self._columns[item_id] for item_id in check_ids(item_ids, name) if item_id in self._columns}
        return np.array(sorted(columns), dtype=np.int32)

    def warn_unknown(self, item_ids: Iterable[str], name: str, above: int = 1) -> None:
        """Warn of unknown items with `UnknownItems`, attributed to the line `above` calls above the caller."""
        if unknown := [item for item in item_ids if item not in self._columns]:
            warn_unknown(name, unknown, self.dataset, 3 + above)

    def history(
        self, columns: np.ndarray, counts: np.ndarray | None = None, recency_ranks: np.ndarray | None = None
    ) -> csr_matrix:
        """Return (1, items), a history of sorted columns; by default with one event per item, and without an order."""
        counts = np.ones(len(columns), dtype=np.float32) if counts is None else counts
        return csr_view(counts, columns, np.array([0, len(columns)], dtype=np.int32), len(self.ids), recency_ranks)

    def build_ordered_history(self, item_ids: Iterable[str], name: str) -> csr_matrix:
        """Return (1, items), the history of ids, oldest first; of a repeated id the first position counts.

        Unknown ids are skipped.
        """
        distinct = dict.fromkeys(map(self._columns.get, check_ids(item_ids, name)))
        columns = np.array([column for column in distinct if column is not None], dtype=np.int32)
        ascending = np.argsort(columns)
        return self.history(columns[ascending], recency_ranks=len(columns) - 1 - ascending)

    def histories(self, likes: pl.DataFrame, users: pl.Series, *, in_order: bool = False) -> csr_matrix:
        """Return (users, items), with one event per item.

        Args:
            likes: user_id and item_id, as text; unknown items are skipped.
            users: the user_id of each row.
            in_order: with the order of likes, a user's last row the newest.
        """
        rows = pl.DataFrame({"user_id": users, "row": np.arange(len(users), dtype=np.int32)})
        schema = {"item_id": pl.String, "column": pl.Int32}
        columns = pl.DataFrame({"item_id": list(self._columns), "column": list(self._columns.values())}, schema=schema)
        edges = likes.with_row_index("mention").join(rows, on="user_id").join(columns, on="item_id")
        edges = edges.group_by("row", "column").agg(pl.col("mention").cast(pl.Int64).min()).sort("row", "column")
        counts = np.bincount(edges["row"].to_numpy(), minlength=len(users))
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        counts = np.ones(len(edges), dtype=np.float32)
        newest_lowest = -edges["mention"].to_numpy() if in_order else None
        return csr_view(counts, edges["column"].to_numpy(), indptr, len(self.ids), newest_lowest)


def normalize_id(id: object) -> str:
    """Return an id as text, without the blanks around it, which no log keeps."""
    return str(id).strip(" ")


def check_ids(item_ids: Iterable[str], name: str) -> list[str]:
    """Return ids as text, without the blanks around them.

    Raises:
        TypeError: `item_ids` is a single string instead of a list.
    """
    if isinstance(item_ids, str):
        raise TypeError(f"{name}: give a list of item ids, such as [{item_ids!r}], not a single string")
    return [normalize_id(item) for item in item_ids]
