"""Recommendations for every user of the logs, computed in batches of users from the stored fit and matrices."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import polars as pl

from oneclass import sql
from oneclass.models.base import Model
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.reranking import project_items
from oneclass.tasks import rules
from oneclass.tasks.cluster import Executor, imap, lru_cache_last
from oneclass.tasks.recommend import companion, like_calibration, new_items
from oneclass.tasks.recommend.companion import Companion, describe_items
from oneclass.tasks.recommend.frames import LIKE_COLUMNS
from oneclass.tasks.recommend.like_calibration import UNCALIBRATED, Calibrations
from oneclass.tasks.rules.lists import ListSelections
from oneclass.tasks.rules.selection import select_lists
from oneclass.tasks.stores import fits, matrices, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.stage_cache import StageCache, table_digest

USERS_PER_BATCH = 1 << 12  # if blocks of scores are smaller


class RecommendationSpec(NamedTuple):
    """The recommendations to compute.

    Attributes:
        model, score: the model and the score that ranks.
        digest: of its fit.
        matrices_digest: of the edges that it was fitted on.
        exclude_seen: whether to leave out the items of the users' histories.
        companion: name and digest of the fit on the same edges that says how sure and why (`describe_items`).
        calibrations: of its `like`.
    """

    model: str
    score: str
    digest: str
    matrices_digest: str
    top_n: int
    exclude_seen: bool = True
    companion: tuple[str, str] | None = None
    calibrations: Calibrations = UNCALIBRATED


def store_recommendations(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    spec: RecommendationSpec,
    executor: Executor,
    selections: ListSelections | None = None,
) -> tuple[StageCache, bool]:
    """Fill the temporary table `ranked` by the executor, or with the published recommendations if nothing is new.

    Lists of placements go to `ranked_placements`, if nothing is published already.

    Args:
        selections: of all users, where lists obey rules.

    Returns:
        The cache entry of the published lists, and whether the tables have these lists already.
    """
    cache = StageCache(
        connection,
        "publish",
        [
            Path(new_items.__file__),
            Path(companion.__file__),
            Path(like_calibration.__file__),
            Path(__file__),
            Path(rules.__file__).parent,
        ],
        reads=f"{spec.matrices_digest} {table_digest(connection, 'indexed.new_items')}",
        parameters=spec._asdict() | _describe_selections(selections or {}),
        tables=["published.recommendations", *(["published.placements"] if selections else [])],
    )
    if cache.lookup() is not None:
        connection.execute(sql.statement("publish/standing"))
        return cache, True
    connection.execute(sql.statement("publish/ranked"))
    connection.execute(sql.statement("publish/ranked_placements"))
    for batch in compute_recommendations(home, spec, executor, selections):
        of_placement = pl.col("placement").is_not_null()
        warehouse.insert(connection, "ranked", batch.filter(~of_placement).drop("placement"))
        warehouse.insert(connection, "ranked_placements", batch.filter(of_placement))
    return cache, False


def store_lists(connection: duckdb.DuckDBPyConnection) -> None:
    """Publish the lists of the temporary tables `ranked` and `ranked_placements`."""
    for table, statement, ranked, key in (
        ("published.recommendations", "publish/recommendations", "ranked", "user_index, rank"),
        ("published.placements", "publish/placements", "ranked_placements", "placement, user_index, rank"),
    ):
        reasons = sql.statement("publish/reasons", key=key, lists=ranked)
        connection.execute(f"delete from {table}")
        connection.execute(sql.statement(statement, reasons=reasons))


def _describe_selections(selections: ListSelections) -> dict[str, dict[str, str]]:
    """Return the digest of each selection; nothing where lists obey no rules."""
    digests = {name or "": selection.compute_digest() for name, selection in selections.items()}
    return {"selections": digests} if digests else {}


def compute_recommendations(
    home: Home, spec: RecommendationSpec, executor: Executor, selections: ListSelections | None = None
) -> Iterator[pl.DataFrame]:
    """Yield the lists of every user, one batch of users after another."""
    model, _, split = _load_models_and_split(home, spec)
    users, step = split.train.shape[0], model.users_at_once
    step *= max(1, USERS_PER_BATCH // step)
    calls = [
        (spec, first, first + step, _select_rows(selections, slice(first, first + step)))
        for first in range(0, users, step)
    ]
    serial = model.matrices_on(split.train.shape[1], split.train.nnz) > 0
    yield from imap(executor, recommend_batch, home, calls, label=f"{spec.model}: recommend", serial=serial)
    _load_models_and_split.cache_clear()
    _load_vectors.cache_clear()


def recommend_batch(
    home: Home, spec: RecommendationSpec, first: int, end: int, selections: ListSelections | None = None
) -> pl.DataFrame:
    """Return the lists of the users in rows [first, end), to whom the selections belong."""
    model, _, split = _load_models_and_split(home, spec)
    end, step = min(end, split.train.shape[0]), model.users_at_once
    blocks = []
    for start in range(first, end, step):
        stop = min(start + step, end)
        selected = _select_rows(selections, slice(start - first, stop - first))
        blocks += _recommend_rows(home, spec, np.arange(start, stop, dtype=np.int32), selected)
    return pl.concat(blocks)


def _select_rows(selections: ListSelections | None, rows: slice) -> ListSelections | None:
    return selections and {name: selection.for_rows(rows) for name, selection in selections.items()}


@lru_cache_last
def _load_vectors(home: Home, matrices_digest: str) -> np.ndarray:
    """Project the items for lists with variety, cached between batches."""
    return project_items(matrices.load_split(home, matrices_digest).train)


@lru_cache_last
def _load_models_and_split(
    home: Home, spec: RecommendationSpec
) -> tuple[Model, Companion | None, matrices.SplitMatrices]:
    """Load the model, its companion and their edges, cached between batches."""
    model, beside = fits.load_fit(home, spec.model, spec.digest), None
    if spec.companion is not None:
        is_model = spec.companion == (spec.model, spec.digest)
        beside = Companion(model if is_model else fits.load_fit(home, *spec.companion), spec.calibrations)
    return model, beside, matrices.load_split(home, spec.matrices_digest)


def _recommend_rows(
    home: Home, spec: RecommendationSpec, rows: np.ndarray, selections: ListSelections | None
) -> Iterator[pl.DataFrame]:
    """Yield the lists of a block of users, one frame for each placement."""
    model, beside, split = _load_models_and_split(home, spec)
    histories = split.histories[rows]
    if selections is None:
        ids, values = model.recommend(
            histories, spec.top_n, users=rows, score=spec.score, exclude_seen=spec.exclude_seen
        )
        yield _build_frame(model, beside, split, rows, None, ids, values)
        return
    scores = model.scores(histories, users=rows, score=spec.score)
    for placement, selection in selections.items():
        with kernel_threads(model.threads):
            vectors = None if selection.diversity is None else _load_vectors(home, spec.matrices_digest)
            placed = new_items.raise_new_items(model, spec.score, histories, rows, scores, selection)
            ids, values = select_lists(placed, histories, selection, vectors)
        yield _build_frame(model, beside, split, rows, placement, ids, values)


def _build_frame(
    model: Model,
    beside: Companion | None,
    split: matrices.SplitMatrices,
    rows: np.ndarray,
    placement: str | None,
    ids: np.ndarray,
    values: np.ndarray,
) -> pl.DataFrame:
    """Return one row per user and rank of the lists of a block of users."""
    user, rank = np.nonzero(ids >= 0)
    with kernel_threads(model.threads):
        found = describe_items(model, beside, split.histories[rows], rows, ids, explain=model.explains_cheaply)
    likes = {
        f"{prefix}{name}": None if part is None else part[user, rank].astype(np.float64)
        for prefix, like in (("", found.like), ("explicit_", found.explicit_like))
        for name, part in zip(LIKE_COLUMNS, like or (None, None), strict=True)
    }
    return pl.DataFrame(
        {
            "placement": placement,
            "user_index": rows[user],
            "item_index": split.items[ids[user, rank]],
            "rank": (rank + 1).astype(np.int32),
            "score": values[user, rank].astype(np.float64),
            "is_new": (model.item_degrees == 0)[ids[user, rank]],
            "because": None if found.because is None else _build_lists(split.items, found.because[user, rank]),
            **likes,
        },
        schema_overrides={
            "placement": pl.String,
            "because": pl.List(pl.Int32),
            **dict.fromkeys(likes, pl.Float64),
        },
    )


def _build_lists(items: np.ndarray, columns: np.ndarray) -> pl.Series:
    """Return lists of items by columns that are padded with -1; null without any."""
    indices = pl.Series(np.where(columns >= 0, items[columns], -1).astype(np.int32).ravel())
    lists = indices.replace(-1, None).reshape(columns.shape).arr.to_list().list.drop_nulls()
    return pl.select(pl.when(lists.list.len() > 0).then(lists)).to_series()
