"""Load a publication as a recommender for users, histories and items."""

import functools
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.numerics.sequential_histories import with_event_ages
from oneclass.models.registry import MODELS
from oneclass.models.reranking import project_items
from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import ranking
from oneclass.tasks.recommend.like_calibration import Calibrations, Companion, has_like
from oneclass.tasks.recommend.ranking import RankedItems
from oneclass.tasks.recommend.rules import ListRequest, PublishedRules
from oneclass.tasks.recommend.vocabulary import ItemVocabulary, check_ids, normalize_id
from oneclass.tasks.stores import published_model
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.published_model import PublishedModel, SeenChoice

USERS_PER_BLOCK = 1024


def load(home: str | Path, dataset: str, *, threads: int = 1) -> "Recommender":
    """Load the current publication of a data set, verifying checksums. Later publications do not change it.

    Args:
        home: the folder that `--home` names.
        threads: numba threads; results do not depend on their number.

    Raises:
        InputError: nothing is published there, or a publication without recommendations.
        Damaged: a file does not match its checksum.
    """
    return Recommender(dataset, published_model.load_published_model(Home(Path(home), dataset)), threads)


class Recommender:
    """A published model with its ids, titles and histories.

    Frames of items have the columns item_id, title (null if unknown), score, like_mean, like_sd (null without a
    companion, the latter also unconfirmed), because: the ids of up to three items of the history that speak for the
    item (`tasks.recommend.like_calibration`), and mark: `pinned` if the rules put it first, `new` if nobody likes it
    yet, else null. If the log has enough explicit negatives, explicit_like_mean and explicit_like_sd are the same
    probability among likes and these.

    Attributes:
        publication: the id of the run that published it.
        published_at: time of the publication, in UTC.
        max_age: the age from which it is stale, by the setting publish.max_age; None if never.
        model, score: the published model, and the score that orders items.
        seen: whether the published lists include the items of the users' histories: `include` or `exclude`.
        fitted: the estimator.
        companion: the estimator that says how sure and why, `fitted` or another; None if the run had none.
        names: ids, titles and columns of the items.
        items: one row per item: item_id, title, users (how many like it).
        users: one row per user: user_id.
        rules: those that hold for every list, and of placements.
    """

    def __init__(self, dataset: str, published: PublishedModel, threads: int) -> None:
        self.dataset = dataset
        record = published.publication
        self.publication: str = record["run_id"]
        self.published_at = datetime.strptime(record["published_at"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        self.max_age = None if (days := record.get("max_age")) is None else timedelta(days=days)
        self.model, self.score = published.model, published.score
        self.seen = published_model.seen_choice(record)
        self.items, self.users = published.items, published.users
        self._histories, self._lists = published.histories, published.lists
        self.fitted = MODELS[published.model].load(published.fit, threads=threads)
        self._reads_order = self.fitted.settings.reads_order
        self.companion = self._load_companion(published)
        self.rules = PublishedRules(published)
        self.names = ItemVocabulary(dataset, self.items, set(self.rules.declared.rules.pinned))

    def _load_companion(self, published: PublishedModel) -> Companion | None:
        if published.companion is None and not has_like(self.model):
            return None
        fitted = self.fitted
        if published.companion:
            name, folder = published.companion
            fitted = MODELS[name].load(folder, threads=fitted.threads)
        return Companion(fitted, Calibrations.load(published.like_calibrations))

    def recommend(
        self,
        history: Iterable[str],
        n: int | None = None,
        *,
        within: Iterable[str] | None = None,
        without: Iterable[str] | None = None,
        seen: SeenChoice | None = None,
        placement: str | None = None,
        where: str | None = None,
    ) -> pl.DataFrame:
        """Recommend the n best items that the rules allow to a user who likes the items of `history`.

        A history without a known item gets the published list `popular` of the longest window, then the items that
        most users like; their scores are the users in the window, and shares below 1 of the most. Unknown items
        are skipped, with a warning `UnknownItems`.

        Args:
            history: item ids, oldest first; the order matters if the model has a `recency_exponent` above 0. Of a
                repeated id the first position counts.
            n: by default what the placement says, else 20.
            within: item ids to choose among; all by default.
            without: item ids to leave out.
            seen: whether to include the items of the history, or exclude them; by default as published.
            placement: a placement of the data set's file, whose rules hold beside those of all lists.
            where: a SQL condition on the columns that rules may name, such as `"stock > 0 and genre = 'jazz'"`.

        Returns:
            One row per item, best first; ties go to the item that came first in the logs.

        Raises:
            ValueError: n is below 1, or `seen` is neither.
            InputError: no such placement, or `where` is no condition on these columns.
            TypeError: `history` is a single string instead of a list.
        """
        history = check_ids(history, "history")
        self.names.warn_unknown(history, "history")
        if self._reads_order:
            row = self.names.build_ordered_history(history, "history")
        else:
            row = self.names.history(self.names.column_indices(history, "history"))
        return self._recommend(row, None, n, within, without, seen, placement, where)

    def recommend_for(
        self,
        user_id: str,
        n: int | None = None,
        *,
        within: Iterable[str] | None = None,
        without: Iterable[str] | None = None,
        seen: SeenChoice | None = None,
        placement: str | None = None,
        where: str | None = None,
    ) -> pl.DataFrame:
        """Recommend n items to a user of the logs, as in `recommendations.parquet`; arguments as in `recommend`.

        Raises:
            InputError: no such user or placement, or `where` is no condition.
        """
        row = self._user_row(user_id)
        rows, history = np.array([row], dtype=np.int32), self._stored_history(row)
        return self._recommend(history, rows, n, within, without, seen, placement, where)

    def recommend_many(
        self,
        users: pl.DataFrame,
        n: int | None = None,
        *,
        seen: SeenChoice | None = None,
        placement: str | None = None,
        where: str | None = None,
    ) -> pl.DataFrame:
        """Recommend the n best items to many users, in blocks.

        Args:
            users: one row per like with the columns `user_id` and `item_id`, a user's rows oldest first; or one row per
                user of the logs with the column `user_id` only, for their histories in the logs.
            n, seen, placement, where: as in `recommend`.

        Returns:
            One row per user and rank: user_id, rank, and the columns of `recommend`; users in order of appearance.

        Raises:
            InputError: a column is missing, or a user is unknown and no items were given.
        """
        if "user_id" not in users.columns:
            raise InputError(f"recommend_many: the frame has no column user_id, only {', '.join(users.columns)}.")
        names = users["user_id"].cast(pl.String).unique(maintain_order=True)
        if "item_id" in users.columns:
            likes = users.select(pl.col("user_id", "item_id").cast(pl.String))
            likes = likes.with_columns(pl.col("item_id").str.strip_chars(" "))
            self.names.warn_unknown(likes["item_id"].unique(maintain_order=True), "item_id")
            histories, rows = self.names.histories(likes, names, in_order=self._reads_order), None
        else:
            rows = np.array([self._user_row(name) for name in names], dtype=np.int32)
            histories = self._histories[rows]
        blocks = []
        self.rules.check_request(placement, where)
        n, request = _check_count(self.rules.count_items(placement) if n is None else n), ListRequest(placement, where)
        for start in range(0, max(len(names), 1), USERS_PER_BLOCK):  # at least once, for a frame without rows
            block = slice(start, start + USERS_PER_BLOCK)
            block_rows = None if rows is None else rows[block]
            ranked = self._rank(histories[block], n, block_rows, seen, request, user_ids=names[block])
            blocks.append(ranking.user_frame(ranked, names[block], self.names))
        return pl.concat(blocks)

    def similar_items(self, item_id: str, n: int = 20) -> pl.DataFrame:
        """Return the n items most similar to one (`Model.similar_items`), of those that the rules allow everybody.

        Returns:
            item_id, title and score, the similarity; best first.

        Raises:
            InputError: no such item, or the model has no similarity of items.
            ValueError: n is below 1.
        """
        columns = np.array([self.names.column_index(item_id)], dtype=np.int32)
        eligible = self.rules.eligible_items
        try:
            count = min(_check_count(n) + int((~eligible).sum()), self.fitted.item_count)
            items, scores = self.fitted.similar_items(columns, count)
        except ValueError as error:
            raise InputError(f"{self.dataset}: {error}.") from error
        kept = np.flatnonzero((items[0] >= 0) & eligible[items[0]])[:n]
        items, scores = items[:, kept], scores[:, kept]
        return ranking.item_frame(RankedItems(items, scores), self.names).select("item_id", "title", "score")

    def list_items(
        self, name: ranking.ListName, n: int = 20, *, category: str | None = None, window_days: int | None = None
    ) -> pl.DataFrame:
        """Return the first n items of a list for everybody.

        Args:
            name: `popular`, `trending` or `new`.
            category: of the items' attributes; the list of all items by default.
            window_days: one of the published windows, by default the longest.

        Returns:
            item_id, title, value (what ranks it), users, expected_users and p_value (null but of trending items); best
            first. `published.lists` says what these are.

        Raises:
            InputError: there is no such list, category or window.
            ValueError: n is below 1.
        """
        found = ranking.find_list(self._lists, name, category, window_days).head(_check_count(n))
        titles = self.items.select("item_id", "title")
        return found.join(titles, on="item_id", how="left", maintain_order="left").select(ranking.LIST_COLUMNS)

    def history(self, user_id: str) -> list[str]:
        """Return the items that a user of the logs likes: oldest first if the run stored the order of likes
        (`split.order`), else in the order of the items' first appearance in the logs.

        Raises:
            InputError: no such user.
        """
        columns, recency_ranks = self._history_entries(self._user_row(user_id))
        if recency_ranks is not None:
            columns = columns[np.argsort(-recency_ranks)]
        return [self.names.ids[column] for column in columns.tolist()]

    def unknown(self, item_ids: Iterable[str]) -> list[str]:
        """Return the items that the published model does not know."""
        return self.names.unknown(item_ids)

    def scores_for(self, user_id: str) -> np.ndarray:
        """Return float32 (items,), the scores that order the items for a user of the logs; seen items are not masked.

        Raises:
            InputError: no such user.
        """
        row = self._user_row(user_id)
        return self.fitted.scores(self._stored_history(row), users=np.array([row], dtype=np.int32), score=self.score)[0]

    def find_allowed_items(self, user_id: str) -> np.ndarray:
        """Return bool (items,), the items that the rules of all lists and `seen` allow a user of the logs.

        Raises:
            InputError: no such user.
        """
        row = self._user_row(user_id)
        return self.rules.find_allowed_items(row, self._stored_history(row), exclude_seen=self.seen == "exclude")

    def find_objections(self, user_id: str, item_id: str, listed: Sequence[str]) -> list[str]:
        """Return what keeps an item out of the list of a user of the logs, in words; nothing if its score alone does.

        Args:
            listed: the items of the list.

        Raises:
            InputError: no such user or item.
        """
        row, column = self._user_row(user_id), self.names.column_index(item_id)
        objections = self.rules.find_objections(row, column, self.names.column_indices(listed, "listed"))
        if self.seen == "exclude" and column in self._stored_history(row).indices:
            objections.append("they like it already, and the items of a history are left out")
        return objections

    def reasons_for(self, user_id: str, item_id: str) -> list[tuple[str, float]]:
        """Return (item id, contribution to an item's score) of the items of the history that contributed most.

        Empty if the model's scores are not sums over the history.

        Raises:
            InputError: no such user or item.
        """
        history = self._stored_history(self._user_row(user_id))
        reasons = ranking.explain_score(self.fitted, history, self.names.column_index(item_id))
        return [(self.names.ids[column], contribution) for column, contribution in reasons]

    @functools.cached_property
    def sums_over_history(self) -> bool:
        """Whether scores are sums of contributions of the items in the history."""
        first = np.zeros(1, dtype=np.int32)
        return self.fitted.contributions(self.names.history(first, recency_ranks=first), first) is not None

    @functools.cached_property
    def _item_vectors(self) -> np.ndarray:
        """Unit vectors for lists with variety."""
        return project_items(self._histories)

    @functools.cached_property
    def _popular_scores(self) -> np.ndarray:
        """Scores of a history without a known item."""
        listed = ranking.find_list(self._lists, "popular", None, None).select("item_id", "value")
        items = self.items.join(listed, on="item_id", how="left", maintain_order="left")
        score = pl.coalesce("value", pl.col("users") / (pl.col("users").max() + 1))
        return items.select(score.cast(pl.Float32)).to_series().to_numpy()

    @functools.cached_property
    def _rows_by_user(self) -> dict[str, int]:
        return {normalize_id(user_id): row for row, user_id in enumerate(self.users["user_id"].to_list())}

    def _user_row(self, user_id: str) -> int:
        if (row := self._rows_by_user.get(normalize_id(user_id))) is None:
            raise InputError(
                f"user {user_id}: is not among the {len(self.users):,} users of {self.dataset} with likes. For a new "
                "user, give a history."
            )
        return row

    def _stored_history(self, row: int) -> csr_matrix:
        """Return a user's row of the histories, faster than scipy's indexing, which takes a millisecond."""
        start, stop = self._histories.indptr[row : row + 2]
        columns, recency_ranks = self._history_entries(row)
        ranks = recency_ranks if self._reads_order else None
        history = self.names.history(columns, self._histories.data[start:stop], ranks)
        ages = getattr(self._histories, "event_ages", None)
        return with_event_ages(history, None if ages is None else ages.take(np.arange(start, stop)))

    def _history_entries(self, row: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the columns of a user's row, and their recency ranks if known."""
        start, stop = self._histories.indptr[row : row + 2]
        ranks = getattr(self._histories, "recency_ranks", None)
        return self._histories.indices[start:stop], None if ranks is None else ranks[start:stop]

    def _recommend(
        self,
        history: csr_matrix,
        row: np.ndarray | None,
        n: int | None,
        within: Iterable[str] | None,
        without: Iterable[str] | None,
        seen: SeenChoice | None,
        placement: str | None,
        where: str | None,
    ) -> pl.DataFrame:
        self.rules.check_request(placement, where)
        n = _check_count(self.rules.count_items(placement) if n is None else n)
        columns = None
        if within is not None:
            within = check_ids(within, "within")
            self.names.warn_unknown(within, "within", above=2)
            columns = self.names.column_indices(within, "within")
        excluded = None if without is None else self.names.column_indices(without, "without")
        request = ListRequest(placement, where, columns, excluded)
        return ranking.item_frame(self._rank(history, n, row, seen, request), self.names)

    def _rank(
        self,
        histories: csr_matrix,
        n: int,
        rows: np.ndarray | None,
        seen: SeenChoice | None,
        request: ListRequest,
        user_ids: pl.Series | None = None,
    ) -> RankedItems:
        """Rank for each history the n best items that the rules and the request allow."""
        if seen not in (None, "include", "exclude"):
            raise ValueError(f"seen = {seen!r}: must be 'include' or 'exclude'; None takes what is published")
        exclude_seen = (seen or self.seen) == "exclude"
        selection = self.rules.select(histories, n, request, rows=rows, user_ids=user_ids, exclude_seen=exclude_seen)
        return ranking.rank_items(
            self.fitted,
            self.score,
            histories,
            selection,
            users=rows,
            vectors=lambda: self._item_vectors,
            companion=self.companion,
            popular=self._popular_scores,
        )


def _check_count(n: int) -> int:
    if n < 1:
        raise ValueError(f"n = {n}: the number of items must be at least 1")
    return n
