"""Collect one user's history, and the published recommendations with reasons.

Only the publication is read, never the warehouse, so a run in progress does not interfere. The list comes from the
published model, in the published order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np
import polars as pl

from oneclass.tasks import recommend
from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend import Recommender
from oneclass.tasks.recommend.vocabulary import normalize_id
from oneclass.tasks.stores import publications, published_model
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.warehouse import select
from oneclass.tasks.terminal import escape_controls

MARKS = {"pinned": "pinned by the rules", "new": "new, liked by nobody yet"}


@dataclass(frozen=True)
class PublishedList:
    """The first items of a user: those published, then those that the published model ranks next.

    Attributes:
        score: the model's score that ordered the items.
        items: rows of `Recommender.recommend_for`, with `users` who like the item, whether it was `seen`, and
            `because`, (item id, its contribution to the score) of the likes that contributed most.
    """

    model: str
    score: str
    items: list[dict[str, Any]]


def load_published_list(recommender: Recommender, user_id: str, top: int) -> PublishedList:
    """Load a user's first `top` items."""
    users = dict(zip(recommender.items["item_id"], recommender.items["users"], strict=True))
    history = set(recommender.history(user_id))
    items = recommender.recommend_for(user_id, n=top).to_dicts()
    for item in items:
        item_id = item["item_id"]
        because = recommender.reasons_for(user_id, item_id)
        item |= {"users": users[item_id], "because": because, "seen": item_id in history}
    return PublishedList(recommender.model, recommender.score, items)


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
    is_ahead = (scores[after] > score) | ((scores[after] == score) & (after < column))  # by score, then by place
    rank = 1 + (ids.index(item_id) if item_id in ids else len(ids) + int(is_ahead.sum()))
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


@dataclass(frozen=True)
class Explanation:
    """The history and the recommendations of one user.

    Attributes:
        history: rows with `item_id`, `first_at` and `users`, how many like the item.
        published: the published list; None if the run recommended nothing.
        rank_explanations: sentences on the rank of each requested item.
        titles: the published titles by item id.
    """

    dataset: str
    user_id: str
    history: list[dict[str, Any]]
    published: PublishedList | None = None
    rank_explanations: Sequence[str] = ()
    titles: Mapping[str, str] = field(default_factory=dict)


def explain_user(home: Home, user_id: str, *, top: int = 10, item_ids: Sequence[str] = ()) -> Explanation:
    """Explain a user by the publication.

    Args:
        top: number of recommendations.
        item_ids: items whose ranks in the published list to explain.

    Raises:
        InputError: nothing is published yet, the user is unknown, or an item is named but the run recommended nothing.
        Damaged: a file of the publication does not match its checksum.
    """
    user_id = normalize_id(user_id)
    with publications.open_published_tables(home) as connection:
        likes = select(connection, "explain/history", user_index=_find_user(connection, home, user_id))
    explanation = Explanation(home.dataset, user_id, likes.to_dicts())
    if not published_model.has_published_model(home) and not item_ids:
        return explanation
    shop = recommend.load(home.root, home.dataset, threads=home.limits.threads)
    items = shop.items.filter(pl.col("title").is_not_null())
    lists = pl.scan_parquet(home.published / publications.RECOMMENDATIONS_FILE, glob=False)
    listed = lists.filter(pl.col("user_id") == user_id).select("item_id", "score", "rank").sort("rank").collect()
    return replace(
        explanation,
        published=load_published_list(shop, user_id, top),
        rank_explanations=[explain_rank(shop, user_id, item_id, listed) for item_id in item_ids],
        titles=dict(zip(items["item_id"], items["title"], strict=True)),
    )


def _find_user(connection: duckdb.DuckDBPyConnection, home: Home, user_id: str) -> int:
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
