"""Recommendations for every user of the logs, computed in batches of users from the stored fit and matrices."""

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

USERS_PER_BATCH = 1 << 12  # if blocks of scores are smaller


class RecommendationSpec(NamedTuple):
    """The recommendations to compute.

    Attributes:
        model, score: the model and the score that ranks.
        digest: of its fit.
        matrices_digest: of the edges that it was fitted on.
        exclude_seen: whether to leave out the items of the users' histories.
    """

    model: str
    score: str
    digest: str
    matrices_digest: str
    top_n: int
    exclude_seen: bool = True


def store_recommendations(
    connection: duckdb.DuckDBPyConnection, home: Home, spec: RecommendationSpec, executor: Executor
) -> tuple[StageCache, bool]:
    """Fill the temporary table `ranked` by the executor, or with the published recommendations if nothing is new.

    Returns:
        The cache entry of `published.recommendations`, and whether that table has these recommendations already.
    """
    cache = StageCache(
        connection,
        "publish",
        Path(__file__),
        reads=spec.matrices_digest,
        parameters=spec._asdict(),
        tables=["published.recommendations"],
    )
    if cache.lookup() is not None:
        connection.execute(sql.statement("publish/standing"))
        return cache, True
    connection.execute(sql.statement("publish/ranked"))
    for batch in compute_recommendations(home, spec, executor):
        warehouse.insert(connection, "ranked", batch)
    return cache, False


def compute_recommendations(home: Home, spec: RecommendationSpec, executor: Executor) -> Iterator[pl.DataFrame]:
    """Yield the best items of every user, one batch of users after another."""
    model, split = _load_model_and_split(home, spec)
    users, step = split.train.shape[0], model.users_at_once
    step *= max(1, USERS_PER_BATCH // step)
    calls = [(spec, first, first + step) for first in range(0, users, step)]
    serial = model.matrices_on(split.train.shape[1], split.train.nnz) > 0
    yield from imap(executor, recommend_batch, home, calls, label=f"{spec.model}: recommend", serial=serial)
    _load_model_and_split.cache_clear()


def recommend_batch(home: Home, spec: RecommendationSpec, first: int, end: int) -> pl.DataFrame:
    """Return the best items of the users in rows [first, end)."""
    model, split = _load_model_and_split(home, spec)
    end, step = min(end, split.train.shape[0]), model.users_at_once
    starts = range(first, end, step)
    return pl.concat([_recommend_rows(model, split, spec, start, min(start + step, end)) for start in starts])


@lru_cache_last
def _load_model_and_split(home: Home, spec: RecommendationSpec) -> tuple[Model, matrices.SplitMatrices]:
    """Load the model and its edges, cached between batches."""
    return fits.load_fit(home, spec.model, spec.digest), matrices.load_split(home, spec.matrices_digest)


def _recommend_rows(
    model: Model, split: matrices.SplitMatrices, spec: RecommendationSpec, first: int, end: int
) -> pl.DataFrame:
    rows = np.arange(first, end, dtype=np.int32)
    histories = split.histories[rows]
    ids, values = model.recommend(histories, spec.top_n, users=rows, score=spec.score, exclude_seen=spec.exclude_seen)
    user, rank = np.nonzero(ids >= 0)
    like = model.like(histories, users=rows, items=ids)
    mean, deviation = (None, None) if like is None else (part[user, rank].astype(np.float64) for part in like)
    return pl.DataFrame(
        {
            "user_index": rows[user],
            "item_index": split.items[ids[user, rank]],
            "rank": (rank + 1).astype(np.int32),
            "score": values[user, rank].astype(np.float64),
            "like_mean": mean,
            "like_sd": deviation,
        },
        schema_overrides={"like_mean": pl.Float64, "like_sd": pl.Float64},
    )
