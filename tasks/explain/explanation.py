"""Explain: one user's history, what is published for them and why, and what each model of that run recommends.

It writes nothing, and reads what is published and the fits behind that, never the warehouse, so a run that goes on is not
in its way. What is published comes from the published model itself, in the published order. The models of the run answer
as they did in their evaluation: for a training user of one of their fits, from what that fit learned of the user; for
anybody else, by folding the history in.
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
from oneclass.tasks.explain import place
from oneclass.tasks.explain.lists import ModelRecommendations, RecommendedItem
from oneclass.tasks.protocols import ALL_EDGES, PROTOCOLS
from oneclass.tasks.stores import fits, matrices, publications, published_model
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.matrices import SplitMatrices
from oneclass.tasks.stores.warehouse import select
from oneclass.tasks.terminal import escape_controls

PREFERRED_PROTOCOLS = sorted(
    [*PROTOCOLS, ALL_EDGES], key=lambda name: name != "leave_one_out"
)  # it has most of a history
MAX_REASONS = 3


@dataclass(frozen=True)
class HistoryItem:
    """One item of the history; `users` like it."""

    item_id: str
    item_index: int
    first_at: datetime | None
    users: int


@dataclass(frozen=True)
class Explanation:
    """The history of one user and what is recommended to them.

    Attributes:
        by_model: the models of the run as they were evaluated, in the order asked for.
        published: what is published; None where nothing is recommended.
        asked: sentences on the item that was asked for: at which place it is, and why.
        titles: of items, by their ids, as they are published.
    """

    dataset: str
    user_id: str
    history: list[HistoryItem]
    by_model: list[ModelRecommendations]
    published: ModelRecommendations | None = None
    asked: str = ""
    titles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _ExplanationQuery:
    """A fit and what it is asked: the history in the fit's own columns, and the user's row where there is one."""

    name: str
    score: str | None
    digest: str
    split: SplitMatrices
    history: csr_matrix
    row: int | None


def explain_user(
    home: Home, user_id: str, *, models: Sequence[str] = (), top: int = 10, item_id: str | None = None
) -> Explanation:
    """Explain a user by what is published, and by the fits of the run that published it.

    Args:
        models: names; all that the run fitted by default.
        top: recommendations of each; past the number of items, all of them.
        item_id: an item to say of why it is among the published recommendations, or is not.

    Raises:
        InputError: nothing is published yet, the user is unknown, the run has no fit of a model that is named, or an
            item is asked for where nothing is recommended.
        Damaged: what is published, a fit or its matrices is not what was written.
    """
    with publications.open_published_tables(home) as connection:
        kept = _find_fits(connection, home, models)
        user = _load_user(connection, home, user_id)
        found = select(connection, "explain/history", user_index=user)
        history = [HistoryItem(**row) for row in found.iter_rows(named=True)]
        asked = [_choose_fit(home, of_model, user, history) for of_model in kept]
        by_model = [_explain_with_model(connection, home, one, user_id, history, top) for one in asked]
    return _add_published_list(home, Explanation(home.dataset, user_id, history, by_model), top, item_id)


def _add_published_list(home: Home, found: Explanation, top: int, item_id: str | None) -> Explanation:
    """The explanation with the published model's own list, where there is one."""
    if not published_model.has_published_model(home) and item_id is None:
        return found
    shop = recommend.load(home.root, home.dataset, threads=home.limits.threads)
    asked = "" if item_id is None else place.explain_rank(shop, found.user_id, item_id, top)
    items = shop.items.filter(pl.col("title").is_not_null())
    titles = dict(zip(items["item_id"], items["title"], strict=True))
    return replace(found, published=place.load_published_list(shop, found.user_id, top), asked=asked, titles=titles)


def _find_fits(connection: duckdb.DuckDBPyConnection, home: Home, models: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The fits of each model, the preferred protocol's first."""
    kept: dict[str, list[dict[str, Any]]] = {}
    for fit in connection.sql("from fits").pl().iter_rows(named=True):
        if (matrices_digest := fits.find_matrices_digest(home, fit["model"], fit["digest"])) is not None:
            kept.setdefault(fit["model"], []).append(fit | {"matrices": matrices_digest})
    if not kept:
        raise InputError(f"{home.models}: holds none of the fits behind what is published. {_rerun_hint(home)}")
    for name in models:
        if name not in kept:
            raise InputError(f"--models {name}: the published run has no fit of it. It has {', '.join(kept)}.")
    return [sorted(kept[name], key=lambda fit: PREFERRED_PROTOCOLS.index(fit["protocol"])) for name in models or kept]


def _load_user(connection: duckdb.DuckDBPyConnection, home: Home, user_id: str) -> int:
    shown = escape_controls(user_id)
    if any("\ud800" <= character <= "\udfff" for character in user_id):  # of an argument in another encoding
        raise InputError(f"--user {shown}: is not UTF-8 text, as the ids of users are.")
    found = select(connection, "explain/user", user_id=user_id).row(0, named=True)
    if found["user_index"] is not None:
        return found["user_index"]
    if found["events"]:
        raise InputError(
            f"--user {shown}: has {found['events']:,} events in the logs of {home.dataset}, and none of them is kept "
            "as a like; binarize.threshold and the activity filters decide that."
        )
    others = escape_controls(str(found["others"]))
    raise InputError(f"--user {shown}: no such user in {home.dataset}. There are {others} and others.")


def _choose_fit(
    home: Home, of_model: list[dict[str, Any]], user_index: int, history: list[HistoryItem]
) -> _ExplanationQuery:
    """The first fit that has the user among its training users; where none has, the first fit, to fold the user in."""
    splits = [matrices.load_split(home, fit["matrices"], parts=()) for fit in of_model]
    rows = [np.flatnonzero(split.users == user_index) for split in splits]
    of_user = next((place for place, row in enumerate(rows) if len(row)), None)
    place = of_user or 0
    fit, split = of_model[place], splits[place]
    if of_user is not None:
        row = int(rows[place][0])
        return _ExplanationQuery(fit["model"], fit["score"], fit["digest"], split, split.histories[[row]], row)
    columns = np.flatnonzero(np.isin(split.items, [liked.item_index for liked in history])).astype(np.int32)
    ones = np.ones(len(columns), dtype=np.float32)
    folded = csr_matrix((ones, columns, np.array([0, len(columns)], dtype=np.int32)), shape=(1, len(split.items)))
    return _ExplanationQuery(fit["model"], fit["score"], fit["digest"], split, folded, None)


def _recency_ranks(home: Home, user_id: str, item_ids: list[str]) -> np.ndarray:
    """How many of the user's likes are newer than each of these items, by the history that is published."""
    newest_first = recommend.load(home.root, home.dataset).history(user_id)[::-1]
    places = {item_id: place for place, item_id in enumerate(newest_first)}
    if lacking := [item_id for item_id in item_ids if item_id not in places]:
        raise InputError(
            f"--user {user_id}: the published model does not know that they like {lacking[0]}, and so not the order of "
            f"their likes, which a model of the run weighs. {_rerun_hint(home)}"
        )
    return np.array([places[item_id] for item_id in item_ids], dtype=np.int32)


def _explain_with_model(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    query: _ExplanationQuery,
    user_id: str,
    history: list[HistoryItem],
    top: int,
) -> ModelRecommendations:
    model = fits.load_fit(home, query.name, query.digest)
    own = {liked.item_index: liked.item_id for liked in history}
    if query.row is None and model.settings.reads_order:
        item_ids = [own[index] for index in query.split.items[query.history.indices].tolist()]
        query = replace(query, history=with_recency_ranks(query.history, _recency_ranks(home, user_id, item_ids)))
    users = None if query.row is None else np.array([query.row], dtype=np.int32)
    score = query.score or model.score_names[0]
    ids, values = model.recommend(query.history, min(top, len(query.split.items)), users=users, score=score)
    ids, values = ids[:, ids[0] >= 0], values[0]
    likes = model.like(query.history, users=users, items=ids)
    facts = _load_item_facts(connection, query.split.items[ids[0]])
    items = [
        RecommendedItem(
            facts[index]["item_id"],
            float(values[place]),
            facts[index]["users"],
            None if likes is None else (float(likes[0][0, place]), float(likes[1][0, place])),
            index in own,
            _top_contributions(model, query, int(ids[0, place]), own),
        )
        for place, index in enumerate(query.split.items[ids[0]].tolist())
    ]
    return ModelRecommendations(query.name, score, query.split.protocol, users is not None, query.history.nnz, items)


def _top_contributions(
    model: Model, query: _ExplanationQuery, column: int, own: dict[int, str]
) -> tuple[tuple[str, float], ...]:
    """The items that added most; empty for a model whose scores are not sums over the history."""
    added = model.contributions(query.history, np.array([column], dtype=np.int32))
    if added is None:
        return ()
    added = added[:, 0]
    most = [place for place in np.argsort(-added, kind="stable")[:MAX_REASONS] if added[place] > 0]
    columns = query.history.indices
    return tuple((own[int(query.split.items[columns[place]])], float(added[place])) for place in most)


def _load_item_facts(connection: duckdb.DuckDBPyConnection, items: np.ndarray) -> dict[int, dict[str, Any]]:
    found = select(connection, "explain/items", items=items.tolist())
    return {row["item_index"]: row for row in found.iter_rows(named=True)}


def _rerun_hint(home: Home) -> str:
    return f"Run `python -m flows.backfill --dataset {home.dataset}` with the same --home again."
