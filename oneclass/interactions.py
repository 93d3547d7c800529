"""Interactions: what users did with items by their ids, as the estimators and the evaluation take it."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix, issparse

from oneclass.models.by_id import AnswersById
from oneclass.models.numerics.sequential_histories import EventAges, with_event_ages, with_recency_ranks
from oneclass.models.numerics.validation import refuse_id_pairs
from oneclass.tables import read_events, read_frame, read_ids

SHOWN_IDS = 5  # in an error or a warning
LEVEL_OF_CALLER = 6  # calls from a warning of `histories` to that of `Model.recommend` or `Model.like`


class Interactions:
    """Events of users and items by their ids, and the users x items matrix of them.

    Attributes:
        events: a row for each event, in the order given: `user_id`, `item_id`, and `weight` and `time` if known.
        user_ids, item_ids: the ids of the rows and columns of `matrix`, ascending, or as `from_matrix` got them.
        users, items: the tables of attributes, or None.

    Example:
        >>> import oneclass
        >>> likes = oneclass.Interactions([("ann", "tea"), ("ann", "milk"), ("bob", "tea"), ("cid", "milk")])
        >>> likes
        Interactions(3 users x 2 items, 4 events)
        >>> likes.matrix.toarray().tolist()
        [[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
        >>> oneclass.Popularity().fit(likes).recommend(users=["bob"], n=1)["item_id"].to_list()
        ['milk']
    """

    def __init__(
        self,
        data: Any,
        *,
        user: str | None = None,
        item: str | None = None,
        weight: str | None = None,
        time: str | None = None,
        items: Any = None,
    ) -> None:
        """Read interactions.

        Args:
            data: a frame of Polars, pandas, Arrow or DuckDB, a mapping of columns, tuples `(user, item)`, `(user, item,
                weight)` or `(user, item, weight, time)`, or a users x items matrix, sparse or dense, whose ids are the
                row and column numbers.
            user, item, weight, time: names of columns; by default the usual ones, of weights `weight` or `count`.
                Without weights each row weighs 1. The weights of a pair add up. Times without a zone are in UTC, and
                numbers are seconds since 1970.
            items: attributes, a frame with a row for each item and a column named as `item_id` is. Texts become
                categories, lists of texts several categories, and numbers are numbers.

        Raises:
            TypeError: `data` is of another type.
            ValueError: a column is not found, an id is missing, a weight is not positive, or `data` is a matrix of
                pairs of ids.
        """
        if issparse(data) or isinstance(data, np.ndarray):
            self.events, self.user_ids, self.item_ids = _name_entries(data)
        else:
            self.events = read_events(data, {"user": user, "item": item, "weight": weight, "time": time})
            self.user_ids, self.item_ids = (self.events[name].unique().sort() for name in ("user_id", "item_id"))
        self.items = _read_attributes(items, item)

    @classmethod
    def from_matrix(
        cls,
        matrix: Any,
        user_ids: Iterable[Any] | None = None,
        item_ids: Iterable[Any] | None = None,
        items: Any = None,
    ) -> Self:
        """Name the rows and columns of a users x items matrix, whose entries are weights.

        Args:
            user_ids, item_ids: ids in the order of the rows and columns, their numbers by default.
            items: attributes, as in the constructor.

        Raises:
            TypeError: it is no matrix.
            ValueError: there are more or fewer ids than rows or columns, or an id comes twice.
        """
        if not (issparse(matrix) or isinstance(matrix, np.ndarray)):
            raise TypeError(f"a {type(matrix).__name__}; give a matrix of SciPy or an array of NumPy, of users x items")
        return cls._of(*_name_entries(matrix, user_ids, item_ids), _read_attributes(items, None))

    @classmethod
    def _of(cls, events: pl.DataFrame, user_ids: pl.Series, item_ids: pl.Series, items: pl.DataFrame | None) -> Self:
        found = cls.__new__(cls)
        found.events, found.user_ids, found.item_ids, found.items = events, user_ids, item_ids, items
        return found

    def __repr__(self) -> str:
        users, items = len(self.user_ids), len(self.item_ids)
        more = [f", {name}s" for name in ("weight", "time") if name in self.events.columns]
        more += [] if self.items is None else [", attributes of items"]
        return f"Interactions({users} users x {items} items, {len(self.events)} events{''.join(more)})"

    @cached_property
    def matrix(self) -> csr_matrix:
        """The float32 (users, items) CSR of summed weights, or of the number of events.

        With times it has the order of each user's likes, by first events, and the ages of the events.
        """
        return self._fold(self.events, self.user_ids)

    @cached_property
    def item_features(self) -> csr_matrix | None:
        """The items' attributes as `FitOptions` takes them, float32 (items, F); None without attributes."""
        return encode_attributes(self.items, self.item_ids)

    def rows(self, users: Any) -> np.ndarray:
        """Return the rows of users, int64.

        Raises:
            ValueError: a user is unknown.
        """
        return _find_all(users, self.user_ids, "user", "give their likes as histories instead")

    def columns(self, items: Any) -> np.ndarray:
        """Return the columns of items, int64.

        Raises:
            ValueError: an item is unknown.
        """
        return _find_all(items, self.item_ids, "item", "leave it out")

    def histories(self, data: Any) -> tuple[pl.Series, csr_matrix]:
        """Return the ids of new users and their histories, with the columns of `matrix`.

        Args:
            data: the items of one user, a list of them for each user, who are then numbered, a mapping of users to
                items, or anything that the constructor takes. Unknown items are left out, with a warning
                `UnknownItems`. Without times, the last item of a user is the newest, and all are of the last day of
                the fit.

        Raises:
            TypeError: a user of a mapping has no list.
            ValueError: ids are of another type than those of the fit, or of several.
        """
        users, events = _read_histories(data)
        if len(events) and events["item_id"].dtype != self.item_ids.dtype:
            raise ValueError(f"histories: {_compare_types(events['item_id'], self.item_ids)}")
        known = _locate(events["item_id"], self.item_ids).is_not_null()
        if not known.all():
            from oneclass.tasks.recommend.vocabulary import warn_unknown  # with unknown items only

            unknown = events["item_id"].filter(~known).unique(maintain_order=True).to_list()
            warn_unknown("histories", unknown, "the fit", LEVEL_OF_CALLER)
        return users, self._fold(events.filter(known), users)

    def save(self, folder: str | Path) -> None:
        """Write the tables as Parquet into a folder, which is made if missing."""
        (folder := Path(folder)).mkdir(parents=True, exist_ok=True)
        tables = {"events": self.events, "user_ids": self.user_ids.to_frame(), "item_ids": self.item_ids.to_frame()}
        for name, table in {**tables, "items": self.items}.items():
            if table is not None:
                table.write_parquet(folder / f"{name}.parquet")

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote."""
        tables = {file.stem: pl.read_parquet(file, glob=False) for file in Path(folder).glob("*.parquet")}
        users, items = (tables[f"{side}_ids"].to_series() for side in ("user", "item"))
        return cls._of(tables["events"], users, items, tables.get("items"))

    def _fold(self, events: pl.DataFrame, users: pl.Series) -> csr_matrix:
        """Return the CSR of events of these users, whose items are known."""
        times, has_times = self._times, "time" in events.columns
        if times:
            events = events.with_columns(time=pl.col("time").fill_null(times[0]) if has_times else pl.lit(times[1]))
        indexed = events.select(
            _locate(events["user_id"], users).alias("row"),
            _locate(events["item_id"], self.item_ids).alias("column"),
            *(name for name in ("weight", "time") if name in events.columns),
        ).with_row_index("position")
        value = pl.col("weight").sum() if "weight" in events.columns else pl.len()
        firsts = [pl.col(name).min() for name in ("time", "position") if name in indexed.columns]
        pairs = indexed.group_by("row", "column").agg(value.alias("value"), pl.len().alias("events"), *firsts)
        pairs = pairs.sort("row", "column")
        starts = np.searchsorted(pairs["row"].to_numpy(), np.arange(len(users) + 1))
        parts = pairs["value"].to_numpy().astype(np.float32), pairs["column"].to_numpy().astype(np.int32), starts
        matrix = csr_matrix(parts, shape=(len(users), len(self.item_ids)))
        if times is None:
            return matrix
        rank = pl.col("time" if has_times else "position").rank("dense", descending=True).over("row")
        days = (pl.lit(times[1].date()) - pl.col("time").dt.date()).dt.total_days().clip(0).cast(pl.Int32).alias("days")
        ages = indexed.select("row", "column", days).sort("row", "column", "days")["days"].to_numpy()
        ends = np.append(0, np.cumsum(pairs["events"].to_numpy(), dtype=np.int64))
        ranked = with_recency_ranks(matrix, pairs.select(rank.cast(pl.Int32)).to_series().to_numpy())
        return with_event_ages(ranked, EventAges(ends, ages))

    @cached_property
    def _times(self) -> Any:
        """The first and last time, or None without times. The first stands for a missing one, as in a run."""
        times = self.events["time"].drop_nulls() if "time" in self.events.columns else pl.Series()
        return (times.min(), times.max()) if len(times) else None


AnswersById.table_class = Interactions


def _name_entries(
    data: Any, user_ids: Iterable[Any] | None = None, item_ids: Iterable[Any] | None = None
) -> tuple[pl.DataFrame, pl.Series, pl.Series]:
    """Return the entries of a matrix as events, and the ids of its rows and columns, by default their numbers."""
    if data.ndim != 2:
        raise ValueError(f"interactions: an array of {data.ndim} dimensions; give a users x items matrix")
    are_few = isinstance(data, np.ndarray) and data.dtype.kind in "iu" and data.shape[1] in (2, 3) and (data > 1).any()
    if data.dtype.kind not in "biuf" or are_few:
        raise ValueError(
            f"interactions: an array of type {data.dtype} and {data.shape[1]} columns may be pairs of ids; give "
            "list(map(tuple, array)) for pairs, or csr_matrix(array) for counts"
        )
    matrix = csr_matrix(data, dtype=np.float32)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    refuse_id_pairs(matrix)
    events, ids = {}, []
    for side, given, count, at in zip(
        ("user", "item"), (user_ids, item_ids), matrix.shape, matrix.nonzero(), strict=True
    ):
        ids.append(read_ids(range(count) if given is None else given, side))
        if len(ids[-1]) != count or ids[-1].n_unique() != count:
            raise ValueError(
                f"{side}_ids: {len(ids[-1])} ids, {ids[-1].n_unique()} of them different, for the {count} {side}s of "
                "the matrix; give one for each"
            )
        events[f"{side}_id"] = ids[-1].gather(at)
    return read_events({**events, "weight": matrix.data}), *ids


def _read_attributes(table: Any, id_column: str | None) -> pl.DataFrame | None:
    if table is None:
        return None
    if (frame := read_frame(table)) is None:
        raise TypeError(f"items: a {type(table).__name__}; give a frame with a row for each item")
    choices = [name for name in (id_column, "item_id", "item", "id") if name in frame.columns]
    if not choices:
        raise ValueError(f"items: no column item_id among {', '.join(frame.columns)}; rename the column of ids")
    frame = frame.rename({choices[0]: "item_id"})
    ids = read_ids(frame["item_id"], "item")
    if ids.is_duplicated().any():
        raise ValueError(f"items: {ids.filter(ids.is_duplicated())[0]!r} has several rows; give one for each item")
    return frame.with_columns(ids)


def encode_attributes(table: pl.DataFrame | None, ids: pl.Series) -> csr_matrix | None:
    """Return the features of ids, float32 (ids, F); those without a row of attributes have none."""
    from oneclass.tasks.split.matrix import encode_items  # with attributes only

    if table is None:
        return None
    if table["item_id"].dtype != ids.dtype:
        raise ValueError(f"attributes: {_compare_types(table['item_id'], ids)}")
    return encode_items(table, attribute_kinds(table), ids)


def attribute_kinds(table: pl.DataFrame) -> dict[str, str]:
    """Return the kind of each column of a table of items that is a feature (`models.attributes.encoder`).

    Raises:
        ValueError: there is none.
    """
    kinds = {
        column: "categories" if dtype == pl.List(pl.String) else "number" if dtype.is_numeric() else "category"
        for column, dtype in table.schema.items()
        if column != "item_id" and (dtype == pl.List(pl.String) or not (dtype.is_nested() or dtype.is_temporal()))
    }
    if not kinds:
        raise ValueError("attributes: no column of texts, lists of texts or numbers beside item_id")
    return kinds


def _read_histories(data: Any) -> tuple[pl.Series, pl.DataFrame]:
    """Return the ids of the users, those without an event among them, and the events."""
    is_list = isinstance(data, list | tuple | pl.Series | np.ndarray) and not any(
        isinstance(row, tuple) for row in data
    )
    if not is_list and not (isinstance(data, Mapping) and not set(data) & {"user_id", "user"}):
        events = data.events if isinstance(data, Interactions) else read_events(data)
        return events["user_id"].unique(maintain_order=True), events
    if is_list:
        has_lists = any(isinstance(row, list | set | np.ndarray | pl.Series) for row in data)
        data = enumerate(data if has_lists else [data])
    by_user: dict[Any, Any] = dict(data)
    for user, items in by_user.items():
        if isinstance(items, str) or not isinstance(items, Iterable):
            raise TypeError(f"histories: user {user!r} has {items!r}; give a list of items")
    lists = [list(items) for items in by_user.values()]
    users = read_ids(by_user, "user")
    of_event = users.gather(np.repeat(np.arange(len(users)), list(map(len, lists))))
    return users, pl.DataFrame({"user_id": of_event, "item_id": read_ids(list(chain(*lists)), "item")})


def _locate(ids: pl.Series, known: pl.Series) -> pl.Series:
    """Return the position of each id among the known ones, null for others."""
    if ids.dtype != known.dtype:
        return pl.Series([None] * len(ids), dtype=pl.Int64)
    positions = pl.DataFrame({"id": known, "position": np.arange(len(known))})
    return pl.DataFrame({"id": ids}).join(positions, on="id", how="left", maintain_order="left")["position"]


def _find_all(ids: Any, known: pl.Series, side: str, advice: str) -> np.ndarray:
    ids = read_ids(ids, side)
    found = _locate(ids, known)
    if len(unknown := ids.filter(found.is_null())):
        shown = ", ".join(map(repr, unknown.head(SHOWN_IDS)))
        kinds = f"; {_compare_types(ids, known)}" if ids.dtype != known.dtype else ""
        raise ValueError(f"{side} {shown}: {len(unknown)} of {len(ids)} not in the interactions{kinds}; {advice}")
    return found.to_numpy()


def _compare_types(ids: pl.Series, known: pl.Series) -> str:
    kinds = ["a text" if of.dtype == pl.String else "a number" for of in (ids, known)]
    return f"{ids[0]!r} is {kinds[0]}, and an id of the interactions, {known[0]!r}, is {kinds[1]}; give ids of one type"
