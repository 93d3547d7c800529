"""Collect one user's history, published recommendations with reasons, and the recommendations of each model of that
run.

Only the publication and its fits are read, never the warehouse, so a run in progress does not interfere. The published
list comes from the published model, in the published order. The models of the run answer as in their evaluation: a
training user of one of their fits by that fit's own parameters, any other user by folding in the history.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import duckdb
import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.numerics.sequential_histories import with_recency_ranks
from oneclass.tasks import recommend
from oneclass.tasks.errors import InputError
from oneclass.tasks.protocols import ALL_EDGES, NEXT_EVENTS_VALIDATION, PROTOCOLS, find_protocol
from oneclass.tasks.recommend import Recommender
from oneclass.tasks.recommend.ranking import explain_score
from oneclass.tasks.recommend.vocabulary import normalize_id
from oneclass.tasks.stores import fits, matrices, publications, published_model
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.warehouse import select
from oneclass.tasks.terminal import escape_controls

# First leave_one_out, whose fits know most of a history.
PREFERRED_PROTOCOLS = sorted([*PROTOCOLS, ALL_EDGES, NEXT_EVENTS_VALIDATION], key=lambda name: name != "leave_one_out")

MARKS = {"pinned": "pinned by the rules", "new": "new, liked by nobody yet"}


@dataclass(frozen=True)
class RecommendedItem:
    """One recommended item.

    Attributes:
        users: number of users who like it.
        like: mean and standard deviation of the like probability; None if the model has none.
        held_out: whether the user likes the item, but that like was not among the training edges.
        seen: whether the item is in the history that the model used.
        because: (item id, its contribution to the score) of the items in the history that contributed most.
        mark: `pinned` or `new`, as in `Recommender`.
    """

    item_id: str
    score: float
    users: int
    like: tuple[float, float] | None
    held_out: bool
    because: tuple[tuple[str, float], ...]
    seen: bool = False
    mark: str | None = None


@dataclass(frozen=True)
class ModelRecommendations:
    """The recommended items of one model.

    Attributes:
        score: the model's score that ordered the items.
        protocol: the protocol on whose training edges the model was fitted.
        in_training: whether the user is a training user of the fit; otherwise their history was folded in.
        history_size: number of items of the history that the model used.
    """

    model: str
    score: str
    protocol: str
    in_training: bool
    history_size: int
    items: list[RecommendedItem]


def load_published_list(recommender: Recommender, user_id: str, top: int) -> ModelRecommendations:
    """Load a user's first `top` items: those published, then those that the model ranks next."""
    users = dict(zip(recommender.items["item_id"], recommender.items["users"], strict=True))
    recommended, history = recommender.recommend_for(user_id, n=top), set(recommender.history(user_id))
    items = [
        RecommendedItem(
            row["item_id"],
            row["score"],
            users[row["item_id"]],
            None if row["like_mean"] is None else (row["like_mean"], row["like_sd"]),
            False,
            tuple(recommender.reasons_for(user_id, row["item_id"])),
            row["item_id"] in history,
            row["mark"],
        )
        for row in recommended.iter_rows(named=True)
    ]
    return ModelRecommendations(recommender.model, recommender.score, ALL_EDGES, True, len(history), items)


def explain_rank(recommender: Recommender, user_id: str, item_id: str, listed: pl.DataFrame) -> str:
    """Describe an item's rank in a user's published list, or what keeps it out of the list, and what contributed most.

    Args:
        listed: the published list, `item_id` and `score`, best first.
    """
    if recommender.unknown([item_id]):
        return (
            f"{item_id}: is not recommended to anybody; no user in {recommender.dataset} likes it, or the logs lack it."
        )
    column, ids = recommender.names.column_index(item_id), listed["item_id"].to_list()
    item_id = recommender.names.ids[column]
    if item_id not in ids and (objections := recommender.find_objections(user_id, item_id, ids)):
        return f"{item_id}: is not recommended to {user_id}: {'; '.join(objections)}."
    scores, allowed = recommender.scores_for(user_id), recommender.find_allowed_items(user_id)
    score, after = scores[column], np.flatnonzero(allowed & ~np.isin(recommender.names.ids, ids))
    rank = 1 + (ids.index(item_id) if item_id in ids else len(ids) + _count_ahead(scores, after, column))
    mark = recommender.names.marks[column] if recommender.names.marks else None
    text = f"{item_id}: rank {rank:,} of {allowed.sum():,} for {user_id}"
    text += ", who likes it already" if item_id in recommender.history(user_id) else ""
    text += f", {MARKS[mark]}" if mark and item_id in ids else ""
    text += f", by {recommender.model}/{recommender.score}; its score is {score:.4g}"
    if item_id not in ids and ids:
        text += f", and that of the last of the {len(ids):,} published is {listed['score'][-1]:.4g}"
    contributions = recommender.reasons_for(user_id, item_id)
    if contributions:
        text += ". Largest contributions: " + ", ".join(f"{liked} ({value:+.3g})" for liked, value in contributions)
    elif recommender.sums_over_history:
        text += ". No item of the history contributes to it"
    return f"{text}."


def _count_ahead(scores: np.ndarray, columns: np.ndarray, column: int) -> int:
    """Count the columns that rank before one, by score and then by place."""
    ahead = (scores[columns] > scores[column]) | ((scores[columns] == scores[column]) & (columns < column))
    return int(ahead.sum())


@dataclass(frozen=True)
class HistoryItem:
    """One item of the history; `users` is the number of users who like it."""

    item_id: str
    item_index: int
    first_at: datetime | None
    users: int


@dataclass(frozen=True)
class Explanation:
    """The history and the recommendations of one user.

    Attributes:
        by_model: the lists of the run's models, in the requested order.
        published: the published list; None if the run recommended nothing.
        rank_explanations: sentences on the rank of each requested item.
        titles: the published titles by item id.
    """

    dataset: str
    user_id: str
    history: list[HistoryItem]
    by_model: list[ModelRecommendations]
    published: ModelRecommendations | None = None
    rank_explanations: Sequence[str] = ()
    titles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _ExplanationQuery:
    """The input of one fit: the history in the fit's columns, and the user's row if they are a training user."""

    name: str
    score: str | None
    digest: str
    split: SplitMatrices
    history: csr_matrix
    row: int | None


def explain_user(home: Home, user_id: str, *, top: int = 10, item_ids: Sequence[str] = ()) -> Explanation:
    """Explain a user by the publication, and by the fits of the run that published it.

    Args:
        top: number of recommendations of each model.
        item_ids: items whose ranks in the published list to explain.

    Raises:
        InputError: nothing is published yet, the user is unknown, or an item is named but the run recommended nothing.
        Damaged: a file of the publication, a fit or its matrices does not match its checksum.
    """
    user_id = normalize_id(user_id)
    with publications.open_published_tables(home) as connection:
        stored_fits = _find_fits(connection, home)
        user = _load_user(connection, home, user_id)
        likes = select(connection, "explain/history", user_index=user)
        history = [HistoryItem(**row) for row in likes.iter_rows(named=True)]
        queries = [_choose_fit(home, of_model, user, history) for of_model in stored_fits]
        exclude_seen = published_model.seen_choice(publications.load_current(home)) == "exclude"
        by_model = [
            _explain_with_model(connection, home, query, user_id, history, top, exclude_seen) for query in queries
        ]
    return _add_published_list(home, Explanation(home.dataset, user_id, history, by_model), top, item_ids)


def _add_published_list(home: Home, explanation: Explanation, top: int, item_ids: Sequence[str]) -> Explanation:
    """Add the published model's list, if any."""
    if not published_model.has_published_model(home) and not item_ids:
        return explanation
    shop, user_id = recommend.load(home.root, home.dataset, threads=home.limits.threads), explanation.user_id
    items = shop.items.filter(pl.col("title").is_not_null())
    lists = pl.scan_parquet(home.published / publications.RECOMMENDATIONS_FILE, glob=False)
    listed = lists.filter(pl.col("user_id") == user_id).select("item_id", "score", "rank").sort("rank").collect()
    return replace(
        explanation,
        published=load_published_list(shop, user_id, top),
        rank_explanations=[explain_rank(shop, user_id, item_id, listed) for item_id in item_ids],
        titles=dict(zip(items["item_id"], items["title"], strict=True)),
    )


def _find_fits(connection: duckdb.DuckDBPyConnection, home: Home) -> list[list[dict[str, Any]]]:
    """Find the stored fits of each model, the preferred protocol's first."""
    by_model: dict[str, list[dict[str, Any]]] = {}
    for fit in connection.sql("from fits").pl().iter_rows(named=True):
        if stored := fits.find_fit(home, fit["model"], fit["digest"], checked=False):
            by_model.setdefault(fit["model"], []).append(fit | {"matrices": stored.matrices})
    if not by_model:
        raise InputError(f"{home.models}: holds none of the fits behind the publication. {_rerun_hint(home)}")
    return [
        sorted(of_model, key=lambda fit: PREFERRED_PROTOCOLS.index(find_protocol(fit["protocol"])))
        for of_model in by_model.values()
    ]


def _load_user(connection: duckdb.DuckDBPyConnection, home: Home, user_id: str) -> int:
    """Return the user's index."""
    shown = escape_controls(user_id)
    # Surrogates come from an argument in another encoding.
    if any("\ud800" <= character <= "\udfff" for character in user_id):
        raise InputError(f"--user {shown}: is not UTF-8 text, as the ids of users are.")
    row = select(connection, "explain/user", user_id=user_id).row(0, named=True)
    if row["user_index"] is not None:
        return row["user_index"]
    if row["events"]:
        raise InputError(
            f"--user {shown}: has {row['events']:,} events in the logs of {home.dataset}, and none of them is kept "
            "as a like; binarize.threshold and the activity filters decide that."
        )
    others = escape_controls(str(row["others"]))
    raise InputError(f"--user {shown}: no such user in {home.dataset}. There are {others} and others.")


def _choose_fit(
    home: Home, model_fits: list[dict[str, Any]], user_index: int, history: list[HistoryItem]
) -> _ExplanationQuery:
    """Choose the first fit with the user among its training users, or else the first fit, to fold the user in."""
    splits = [matrices.load_split(home, fit["matrices"], parts=()) for fit in model_fits]
    rows = [np.flatnonzero(split.users == user_index) for split in splits]
    for fit, split, user_rows in zip(model_fits, splits, rows, strict=True):
        if len(user_rows):
            row = int(user_rows[0])
            return _ExplanationQuery(fit["model"], fit["score"], fit["digest"], split, split.histories[[row]], row)
    fit, split = model_fits[0], splits[0]
    columns = np.flatnonzero(np.isin(split.items, [liked.item_index for liked in history])).astype(np.int32)
    ones = np.ones(len(columns), dtype=np.float32)
    folded = csr_matrix((ones, columns, np.array([0, len(columns)], dtype=np.int32)), shape=(1, len(split.items)))
    return _ExplanationQuery(fit["model"], fit["score"], fit["digest"], split, folded, None)


def _load_recency_ranks(home: Home, user_id: str, item_ids: list[str]) -> np.ndarray:
    """Return how many of the user's likes are newer than each item, by the published history."""
    newest_first = recommend.load(home.root, home.dataset).history(user_id)[::-1]
    ranks = {item_id: rank for rank, item_id in enumerate(newest_first)}
    if unknown := [item_id for item_id in item_ids if item_id not in ranks]:
        raise InputError(
            f"--user {user_id}: the published model does not know that they like {unknown[0]}, and so not the order of "
            f"their likes, which a model of the run weighs. {_rerun_hint(home)}"
        )
    return np.array([ranks[item_id] for item_id in item_ids], dtype=np.int32)


def _explain_with_model(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    query: _ExplanationQuery,
    user_id: str,
    history: list[HistoryItem],
    top: int,
    exclude_seen: bool,
) -> ModelRecommendations:
    model = fits.load_fit(home, query.name, query.digest)
    own = {liked.item_index: liked.item_id for liked in history}
    if query.row is None and model.settings.reads_order:
        item_ids = [own[index] for index in query.split.items[query.history.indices].tolist()]
        query = replace(query, history=with_recency_ranks(query.history, _load_recency_ranks(home, user_id, item_ids)))
    users = None if query.row is None else np.array([query.row], dtype=np.int32)
    score = query.score or model.score_names[0]
    ids, values = model.recommend(
        query.history, min(top, len(query.split.items)), users=users, score=score, exclude_seen=exclude_seen
    )
    ids, values = ids[:, ids[0] >= 0], values[0]
    likes = model.like(query.history, users=users, items=ids)
    seen = np.isin(ids[0], query.history.indices).tolist()
    facts = _load_item_facts(connection, query.split.items[ids[0]])
    items = [
        RecommendedItem(
            facts[index]["item_id"],
            float(values[rank]),
            facts[index]["users"],
            None if likes is None else (float(likes[0][0, rank]), float(likes[1][0, rank])),
            index in own and not seen[rank],
            _top_contributions(model, query, int(ids[0, rank]), own),
            seen[rank],
        )
        for rank, index in enumerate(query.split.items[ids[0]].tolist())
    ]
    return ModelRecommendations(query.name, score, query.split.protocol, users is not None, query.history.nnz, items)


def _top_contributions(
    model: Model, query: _ExplanationQuery, column: int, own: dict[int, str]
) -> tuple[tuple[str, float], ...]:
    """Return the items of the history that contributed most; empty if the model's scores are not sums over it."""
    largest = explain_score(model, query.history, column)
    return tuple((own[int(query.split.items[liked])], value) for liked, value in largest)


def _load_item_facts(connection: duckdb.DuckDBPyConnection, items: np.ndarray) -> dict[int, dict[str, Any]]:
    rows = select(connection, "explain/items", items=items.tolist())
    return {row["item_index"]: row for row in rows.iter_rows(named=True)}


def _rerun_hint(home: Home) -> str:
    return f"Run `python -m flows.backfill --dataset {home.dataset}` with the same --home again."
