"""What is published, as an object that answers: for a user, for a history, for an item."""

import functools
import warnings
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from models import catalogue
from models.numerics.threads import kernel_threads
from models.numerics.top_items import top_items
from tasks.errors import InputError
from tasks.recommend import frames
from tasks.recommend.frames import Ranked
from tasks.stores import published_model
from tasks.stores.home import Home
from tasks.stores.published_model import PublishedModel, csr_of

REASONS = 3
USERS_AT_A_TIME = 1024


class UnknownItems(UserWarning):
    """A history, or `within`, names items that the published model does not know; they are left out."""


def load(home: str | Path, dataset: str, *, threads: int = 1) -> "Recommender":
    """What is published for a data set now, checked against its sha256; later publications change nothing of it.

    Args:
        home: the folder that `--home` names.
        threads: numba threads; the answers do not depend on their number.

    Raises:
        InputError: nothing is published there, or no recommendations.
        Damaged: a file is not what was published.
    """
    return Recommender(dataset, published_model.read(Home(Path(home), dataset)), threads)


class Recommender:
    """A published model with its ids, titles and histories.

    Frames of items have the columns item_id, title (null where none was given), score, like_mean, like_sd (null for a
    model without) and because: the ids of up to three items of the history that spoke most for the item, where the
    model's scores are sums over the history.

    Attributes:
        publication: the run that published it.
        published_at: when, in UTC.
        model, score: which model answers, and by which of its scores.
        fitted: the estimator.
        items: one row per item: item_id, title, users.
        users: one row per user: user_id.
    """

    def __init__(self, dataset: str, published: PublishedModel, threads: int) -> None:
        self.dataset = dataset
        self.publication: str = published.publication["run_id"]
        at = published.publication["published_at"]
        self.published_at = datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        self.model, self.score = published.model, published.score
        self.items, self.users = published.items, published.users
        self._histories = published.histories
        self.fitted = catalogue.load(published.model, published.fit, threads=threads)
        self._ids: list[str] = self.items["item_id"].to_list()
        self._titles: list[str | None] = self.items["title"].to_list()
        self._columns = {item_id: column for column, item_id in enumerate(self._ids)}

    def recommend(
        self,
        history: Iterable[str],
        n: int = 20,
        *,
        within: Iterable[str] | None = None,
        without: Iterable[str] | None = None,
    ) -> pl.DataFrame:
        """The n best items for somebody who likes the items of the history; those are left out.

        An empty history gets the popular items. Items that are not known are named in a warning, `UnknownItems`.

        Args:
            history: item ids.
            within: item ids to choose among; all by default.
            without: item ids to leave out.

        Returns:
            One row per item, best first; of equal scores the item that came first in the logs.

        Raises:
            ValueError: n is below 1.
            TypeError: a single text where a list of ids belongs.
        """
        return self._answered(self._row(self._known(history, "history")), None, n, within, without)

    def recommend_for(
        self,
        user_id: str,
        n: int = 20,
        *,
        within: Iterable[str] | None = None,
        without: Iterable[str] | None = None,
    ) -> pl.DataFrame:
        """The n best items for a user of the logs, as `recommendations.parquet` has them; arguments as in `recommend`.

        Raises:
            InputError: no such user.
        """
        row = self._row_of(user_id)
        return self._answered(self._history(row), np.array([row], dtype=np.int32), n, within, without)

    def recommend_many(self, users: pl.DataFrame, n: int = 20) -> pl.DataFrame:
        """The n best items for many users, in blocks.

        Args:
            users: one row per user and item that they like, `user_id` and `item_id`; or, for users of the logs by
                what the logs have of them, one row per user, `user_id` alone.

        Returns:
            One row per user and rank: user_id, rank, and the columns of `recommend`; users in order of appearance.

        Raises:
            InputError: a column is missing, or one of the users is not known and no items were given.
        """
        if "user_id" not in users.columns:
            raise InputError(f"recommend_many: the frame has no column user_id, only {', '.join(users.columns)}.")
        names = users["user_id"].cast(pl.String).unique(maintain_order=True)
        if "item_id" in users.columns:
            histories, rows = self._matrix(users, names), None
        else:
            rows = np.array([self._row_of(name) for name in names], dtype=np.int32)
            histories = self._histories[rows]
        found = []
        for start in range(0, max(len(names), 1), USERS_AT_A_TIME):  # once at least, for a frame without rows
            block = slice(start, start + USERS_AT_A_TIME)
            ranked = self._ranked(histories[block], None if rows is None else rows[block], _count(n))
            found.append(frames.of_users(ranked, names[block], self._ids, self._titles))
        return pl.concat(found)

    def similar_items(self, item_id: str, n: int = 20) -> pl.DataFrame:
        """The n items most like one, by what the model learned of them: item_id, title, score; the score is a
        similarity, of one item at a time comparable.

        Raises:
            InputError: no such item, or the model says nothing of one item beside another.
        """
        column = self.column_of(item_id)
        try:
            items, scores = self.fitted.similar_items(
                np.array([column], dtype=np.int32), min(_count(n), len(self._ids))
            )
        except ValueError as error:
            raise InputError(f"{self.dataset}: {error}.") from error
        return frames.of_items(Ranked(items, scores), self._ids, self._titles).select("item_id", "title", "score")

    def history(self, user_id: str) -> list[str]:
        """The items that a user of the logs likes, in order of their first appearance in the logs.

        Raises:
            InputError: no such user.
        """
        return [self._ids[column] for column in self._history(self._row_of(user_id)).indices.tolist()]

    def unknown(self, item_ids: Iterable[str]) -> list[str]:
        """Those of the items that the published model does not know."""
        return [item for item in _texts(item_ids, "item_ids") if item not in self._columns]

    def column_of(self, item_id: str) -> int:
        """The column of an item in the fit.

        Raises:
            InputError: no such item.
        """
        if (column := self._columns.get(str(item_id))) is None:
            raise InputError(f"item {item_id}: nobody in {self.dataset} likes it, or the logs do not have it.")
        return column

    def scores_for(self, user_id: str) -> np.ndarray:
        """float32 (items,), the scores that order the items for a user of the logs; seen items are not masked.

        Raises:
            InputError: no such user.
        """
        row = self._row_of(user_id)
        return self.fitted.scores(self._history(row), users=np.array([row], dtype=np.int32), score=self.score)[0]

    def reasons_for(self, user_id: str, item_id: str) -> list[tuple[str, float]]:
        """(item id, what it added to the score of an item) of the items of a user's history that added most; empty for
        a model whose scores are not sums over the history.

        Raises:
            InputError: no such user or item.
        """
        history = self._history(self._row_of(user_id))
        added = self.fitted.contributions(history, np.array([self.column_of(item_id)], dtype=np.int32))
        if added is None:
            return []
        most = [place for place in np.argsort(-added[:, 0], kind="stable")[:REASONS] if added[place, 0] > 0]
        return [(self._ids[history.indices[place]], float(added[place, 0])) for place in most]

    @functools.cached_property
    def sums_over_history(self) -> bool:
        """Whether scores are sums of what each item of the history adds."""
        return self.fitted.contributions(self._row(np.zeros(1, np.int32)), np.zeros(1, np.int32)) is not None

    @functools.cached_property
    def _rows(self) -> dict[str, int]:
        return {user_id: row for row, user_id in enumerate(self.users["user_id"].to_list())}

    def _row_of(self, user_id: str) -> int:
        if (row := self._rows.get(str(user_id))) is None:
            some = ", ".join(self.users["user_id"].head(3).to_list())
            raise InputError(
                f"user {user_id}: is not among the {len(self.users):,} users of {self.dataset} that like anything, such "
                f"as {some}. For somebody new, give a history."
            )
        return row

    def _known(self, item_ids: Iterable[str], name: str) -> np.ndarray:
        """Columns of the items, sorted and each once; those without one are named in a warning."""
        given = _texts(item_ids, name)
        if unknown := self.unknown(given):
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            named = ", ".join(unknown[:5]) + more
            warnings.warn(f"{name}: not known in {self.dataset}, left out: {named}", UnknownItems, stacklevel=3)
        return np.array(sorted({self._columns[item] for item in given if item in self._columns}), dtype=np.int32)

    def _history(self, row: int) -> csr_matrix:
        """A user's row of the histories; scipy's own indexing takes a millisecond."""
        start, stop = self._histories.indptr[row : row + 2]
        return self._row(self._histories.indices[start:stop], self._histories.data[start:stop])

    def _row(self, columns: np.ndarray, counts: np.ndarray | None = None) -> csr_matrix:
        """One history; by default of one event an item. Columns are sorted."""
        counts = np.ones(len(columns), dtype=np.float32) if counts is None else counts
        return csr_of(counts, columns, np.array([0, len(columns)], dtype=np.int32), len(self._ids))

    def _matrix(self, users: pl.DataFrame, names: pl.Series) -> csr_matrix:
        given = users.select(pl.col("user_id", "item_id").cast(pl.String))
        self._known(given["item_id"].unique(maintain_order=True), "item_id")  # for its warning
        places = pl.DataFrame({"user_id": names, "row": np.arange(len(names), dtype=np.int32)})
        columns = pl.DataFrame({"item_id": self._ids, "column": np.arange(len(self._ids), dtype=np.int32)})
        edges = given.join(places, on="user_id").join(columns, on="item_id").select("row", "column").unique()
        edges = edges.sort("row", "column")
        counts = np.bincount(edges["row"].to_numpy(), minlength=len(names))
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return csr_of(np.ones(len(edges), dtype=np.float32), edges["column"].to_numpy(), indptr, len(self._ids))

    def _answered(
        self,
        history: csr_matrix,
        row: np.ndarray | None,
        n: int,
        within: Iterable[str] | None,
        without: Iterable[str] | None,
    ) -> pl.DataFrame:
        kept = None if within is None else self._known(within, "within")
        left_out = [self._columns[item] for item in _texts(without or (), "without") if item in self._columns]
        ranked = self._ranked(history, row, _count(n), kept, np.array(left_out, dtype=np.int32))
        return frames.of_items(ranked, self._ids, self._titles)

    def _ranked(
        self,
        histories: csr_matrix,
        rows: np.ndarray | None,
        n: int,
        within: np.ndarray | None = None,
        without: np.ndarray | None = None,
    ) -> Ranked:
        """The best items of users by their histories; `within` and `without` are columns, for a single user."""
        model, n = self.fitted, min(n, len(self._ids))
        scores = model.scores(histories, users=rows, score=self.score)
        indptr, seen = histories.indptr, histories.indices
        if without is not None and len(without):
            seen = np.union1d(seen, without).astype(np.int32)
            indptr = np.array([0, len(seen)])
        if within is not None:  # a row of the candidates alone: what is no candidate is no item
            candidates = np.setdiff1d(within, seen, assume_unique=True)
            scores, seen, indptr = scores[:, candidates], seen[:0], np.zeros(2, dtype=np.int64)
        with kernel_threads(model.threads):
            items, best = top_items(scores, indptr, seen, n)
        if within is not None and len(candidates):
            items = np.where(items >= 0, candidates[items], -1)
        like = model.like(histories, users=rows, items=items)
        return Ranked(items, best, like, self._because(histories, items))

    def _because(self, histories: csr_matrix, items: np.ndarray) -> np.ndarray | None:
        """As `Ranked` has them."""
        found = np.full((*items.shape, REASONS), -1, dtype=np.int32)
        for row, of_row in enumerate(items):
            history = histories if len(items) == 1 else histories[[row]]
            added = self.fitted.contributions(history, np.maximum(of_row, 0))
            if added is None:
                return None
            order = np.argsort(-added.T, axis=1, kind="stable")[:, :REASONS]
            spoke = np.take_along_axis(added.T, order, axis=1) > 0
            found[row, :, : order.shape[1]] = np.where(spoke, history.indices[order], -1)
        return found


def _texts(item_ids: Iterable[str], name: str) -> Sequence[str]:
    if isinstance(item_ids, str):
        raise TypeError(f"{name}: give a list of item ids, such as [{item_ids!r}], not a single text")
    return [item if type(item) is str else str(item) for item in item_ids]


def _count(n: int) -> int:
    if n < 1:
        raise ValueError(f"n = {n}: the number of items; give 1 or more")
    return n
