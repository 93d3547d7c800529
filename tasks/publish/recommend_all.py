"""What is recommended to every user of the logs, made a block of users at a time by what lies in the stores alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import polars as pl

from oneclass import sql
from oneclass.models.base import Model
from oneclass.tasks.cluster import Executor, imap, lru_cache_last
from oneclass.tasks.stores import fits, matrices, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.stage_cache import StageCache

USERS_PER_BATCH = 1 << 12  # whose recommendations are one piece of work, where blocks of scores are smaller


class RecommendationSpec(NamedTuple):
    """The recommendations that are asked for.

    Attributes:
        model, score: which model recommends, and by which of its scores.
        digest: of its fit.
        matrices_digest: of the edges that it was fitted on.
    """

    model: str
    score: str
    digest: str
    matrices_digest: str
    top_n: int


def store_recommendations(
    connection: duckdb.DuckDBPyConnection, home: Home, lists: RecommendationSpec, executor: Executor
) -> tuple[StageCache, bool]:
    """Have `ranked` hold the lists, made by an executor, or those that stand as published where nothing is new.

    Returns:
        What `published.recommendations` is made from, and whether it holds these lists already.
    """
    kept = StageCache(
        connection,
        "publish",
        Path(__file__),
        reads=lists.matrices_digest,
        parameters=lists._asdict(),
        tables=["published.recommendations"],
    )
    if kept.lookup() is not None:
        connection.execute(sql.statement("publish/standing"))
        return kept, True
    connection.execute(sql.statement("publish/ranked"))
    for block in compute_recommendations(home, lists, executor):
        warehouse.insert(connection, "ranked", block)
    return kept, False


def compute_recommendations(home: Home, lists: RecommendationSpec, executor: Executor) -> Iterator[pl.DataFrame]:
    """The best items of every user, for one block of users after another."""
    model, split = _load_model_and_split(home, lists)
    users, step = split.train.shape[0], model.users_at_once
    step *= max(1, USERS_PER_BATCH // step)
    asked = [(lists, first, first + step) for first in range(0, users, step)]
    serial = model.matrices_on(split.train.shape[1], split.train.nnz) > 0
    yield from imap(executor, recommend_block, home, asked, label=f"{lists.model}: recommend", serial=serial)
    _load_model_and_split.cache_clear()


def recommend_block(home: Home, lists: RecommendationSpec, first: int, end: int) -> pl.DataFrame:
    """The best items of the users in the rows from `first` to before `end`, by what lies in the stores alone."""
    model, split = _load_model_and_split(home, lists)
    end, step = min(end, split.train.shape[0]), model.users_at_once
    starts = range(first, end, step)
    return pl.concat([_recommend_rows(model, split, lists, start, min(start + step, end)) for start in starts])


@lru_cache_last
def _load_model_and_split(home: Home, lists: RecommendationSpec) -> tuple[Model, matrices.SplitMatrices]:
    """The model and its edges, kept from one block to the next."""
    return fits.load_fit(home, lists.model, lists.digest), matrices.load_split(home, lists.matrices_digest)


def _recommend_rows(
    model: Model, split: matrices.SplitMatrices, lists: RecommendationSpec, first: int, end: int
) -> pl.DataFrame:
    rows = np.arange(first, end, dtype=np.int32)
    histories = split.histories[rows]
    ids, values = model.recommend(histories, lists.top_n, users=rows, score=lists.score)
    user, place = np.nonzero(ids >= 0)
    like = model.like(histories, users=rows, items=ids)
    mean, deviation = (None, None) if like is None else (part[user, place].astype(np.float64) for part in like)
    return pl.DataFrame(
        {
            "user_index": rows[user],
            "item_index": split.items[ids[user, place]],
            "rank": (place + 1).astype(np.int32),
            "score": values[user, place].astype(np.float64),
            "like_mean": mean,
            "like_sd": deviation,
        },
        schema_overrides={"like_mean": pl.Float64, "like_sd": pl.Float64},
    )
