"""Recommendations for every user of the logs, computed in batches of users from the stored fit and matrices."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
from cachetools.func import lru_cache
from scipy.sparse import csr_matrix

from oneclass import sql
from oneclass.models.base import Model
from oneclass.models.memory_estimates import is_serial
from oneclass.models.reranking import project_items
from oneclass.tasks import rules
from oneclass.tasks.cluster import Executor, imap
from oneclass.tasks.publish.plan import RecommendationSpec
from oneclass.tasks.recommend import exploration, like_calibration, new_items
from oneclass.tasks.recommend.exploration import Exploration, pick_items
from oneclass.tasks.recommend.like_calibration import Companion, describe_items
from oneclass.tasks.recommend.new_items import MAX_REASONS
from oneclass.tasks.recommend.ranking import LIKE_COLUMNS
from oneclass.tasks.rules.lists import EXPLORATION, ListSelections
from oneclass.tasks.rules.selection import Selection, select_lists
from oneclass.tasks.stores import fits, matrices, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.stores.stages import StageCache
from oneclass.tasks.stores.warehouse import table_digest

USERS_PER_BATCH = 1 << 12  # if blocks of scores are smaller

Lists = dict[str, np.ndarray]
"""Lists of users by column of the fit: `user_index` (users,), `item` and `score` (users, n), padded with -1 and -inf,
`because` (users, n, MAX_REASONS); where there are such, `propensity` and the columns of LIKE_COLUMNS, (users, n)."""


def store_recommendations(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    spec: RecommendationSpec,
    executor: Executor,
    selections: ListSelections,
) -> tuple[StageCache, bool]:
    """Fill the temporary table `ranked` by the executor, or with the published recommendations alone if nothing is new.

    Returns:
        The cache entry of the published lists, and whether the tables have these lists already.
    """
    modules = (new_items, exploration, like_calibration)
    cache = StageCache(
        connection,
        "publish",
        [*(Path(str(module.__file__)) for module in modules), Path(__file__), Path(rules.__file__).parent],
        reads=f"{spec.matrices_digest} {table_digest(connection, 'indexed.new_items')}",
        parameters={
            **spec._asdict(),
            "selections": {name or "": of.compute_digest() for name, of in selections.items()},
        },
        tables=["published.recommendations", "published.placements", "published.exploration"],
    )
    if cache.lookup() is not None:
        connection.execute(sql.statement("publish/standing"))
        return cache, True
    connection.execute(sql.statement("publish/ranked"))
    model, _, split = _load_models_and_split(home, spec)
    users, step = split.train.shape[0], model.users_at_once
    step *= max(1, USERS_PER_BATCH // step)
    calls = [
        (spec, first, first + step, _select_rows(selections, slice(first, first + step)))
        for first in range(0, users, step)
    ]
    serial = is_serial(model.item_count, model.users_at_once)
    for batch in imap(executor, recommend_batch, home, calls, label=f"{spec.model}: recommend", serial=serial):
        warehouse.insert(connection, "ranked", batch)
    _load_models_and_split.cache_clear()
    _load_vectors.cache_clear()
    return cache, False


def store_lists(connection: duckdb.DuckDBPyConnection, explores: Exploration | None) -> None:
    """Publish the lists of the temporary table `ranked`."""
    for table, places in (
        ("published.recommendations", "placement = ''"),
        ("published.placements", f"placement not in ('', '{EXPLORATION}')"),
    ):
        columns = ", ".join(connection.table(table).columns)
        connection.execute(f"delete from {table}")
        connection.execute(sql.statement("publish/lists", table=table, places=places, columns=columns))
    connection.execute("delete from published.exploration")
    if explores:
        given = {"night": explores.night, "placement": EXPLORATION}
        connection.execute(sql.statement("publish/exploration"), given)


def recommend_batch(
    home: Home, spec: RecommendationSpec, first: int, end: int, selections: ListSelections
) -> pl.DataFrame:
    """Return the lists of the users in rows [first, end), to whom the selections belong."""
    model, _, split = _load_models_and_split(home, spec)
    lists: dict[str, list[Lists]] = {}
    for start in range(first, min(end, split.train.shape[0]), model.users_at_once):
        rows = np.arange(start, min(start + model.users_at_once, end, split.train.shape[0]), dtype=np.int32)
        selected = _select_rows(selections, slice(start - first, start - first + len(rows)))
        for placement, block in _recommend_rows(home, spec, rows, selected):
            lists.setdefault(placement or "", []).append(block)
        if spec.exploration is not None:
            explored = _explore_rows(home, spec, spec.exploration, rows, selected.get(None))
            lists.setdefault(EXPLORATION, []).append(explored)
    is_new = model.item_degrees == 0
    return pl.concat(_build_frame(placement, blocks, split.items, is_new) for placement, blocks in lists.items())


def _select_rows(selections: ListSelections, rows: slice) -> ListSelections:
    return {name: selection.for_rows(rows) for name, selection in selections.items()}


@lru_cache(maxsize=1)
def _load_vectors(home: Home, matrices_digest: str) -> np.ndarray:
    """Project the items for lists with variety, cached between batches."""
    return project_items(matrices.load_split(home, matrices_digest).train)


@lru_cache(maxsize=1)
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
    home: Home, spec: RecommendationSpec, rows: np.ndarray, selections: ListSelections
) -> Iterator[tuple[str | None, Lists]]:
    """Yield the lists of a block of users, those of one placement after another."""
    model, beside, split = _load_models_and_split(home, spec)
    histories = split.histories[rows]
    scores = model.scores(histories, users=rows, score=spec.score)
    if not selections:
        ids, values = model.select_best(scores, histories, spec.top_n, exclude_seen=spec.exclude_seen)
        yield None, _describe_lists(model, beside, histories, rows, ids, values)
        return
    for placement, selection in selections.items():
        vectors = None if selection.diversity is None else _load_vectors(home, spec.matrices_digest)
        placed = new_items.raise_new_items(model, spec.score, histories, rows, scores, selection)
        ids, values = select_lists(placed, histories, selection, vectors)
        yield placement, _describe_lists(model, beside, histories, rows, ids, values)


def _explore_rows(
    home: Home, spec: RecommendationSpec, explores: Exploration, rows: np.ndarray, selection: Selection | None
) -> Lists:
    """Return the lists of a block of users that explore; a score is the model's, without boosts."""
    model, beside, split = _load_models_and_split(home, spec)
    assert beside is not None  # by whose posterior they explore
    histories, pinned = split.histories[rows], np.empty(0, dtype=np.int32)
    scores = model.scores(histories, users=rows, score=spec.score)
    raw = beside.model.like(histories, users=rows)
    assert raw is not None
    like = beside.calibrations.sampled.apply(raw)
    if selection is not None:
        pinned = selection.constraints.pinned
        scores = new_items.raise_new_items(model, spec.score, histories, rows, scores, selection)
    selected = selection or Selection.of_all(histories, spec.top_n, exclude_seen=spec.exclude_seen)
    candidates = exploration.find_candidates(scores, like, histories, selected)
    filled = np.maximum(candidates, 0)
    means, deviations, values = (np.take_along_axis(part, filled, axis=1) for part in (*like, scores))
    picks, propensities = pick_items(explores, candidates, (means, deviations), rows, spec.top_n, pinned)
    order = exploration.order_picks(picks, candidates, values, pinned)
    picks, propensities = (np.take_along_axis(part, order, axis=1) for part in (picks, propensities))
    shown = np.maximum(picks, 0)
    lists = {"user_index": rows, "item": np.where(picks >= 0, np.take_along_axis(candidates, shown, axis=1), -1)}
    of_shown = {"score": values, **dict(zip(LIKE_COLUMNS, (means, deviations), strict=True))}
    lists |= {name: np.take_along_axis(part, shown, axis=1) for name, part in of_shown.items()}
    return lists | {"propensity": propensities, "because": np.full((*picks.shape, MAX_REASONS), -1, dtype=np.int32)}


def _describe_lists(
    model: Model,
    beside: Companion | None,
    histories: csr_matrix,
    rows: np.ndarray,
    ids: np.ndarray,
    values: np.ndarray,
) -> Lists:
    """Return the lists of a block of users with how sure each like is, and why the items are listed."""
    found = describe_items(model, beside, histories, rows, ids, explain=model.explains_cheaply)
    because = np.full((*ids.shape, MAX_REASONS), -1, dtype=np.int32) if found.because is None else found.because
    lists = {"user_index": rows, "item": ids, "score": values, "because": because}
    for prefix, like in (("", found.like), ("explicit_", found.explicit_like)):
        if like is not None:
            lists |= {f"{prefix}{name}": part for name, part in zip(LIKE_COLUMNS, like, strict=True)}
    return lists


def _build_frame(placement: str, blocks: list[Lists], items: np.ndarray, is_new: np.ndarray) -> pl.DataFrame:
    """Return one row per user and rank of the lists of a placement, an item by its index."""
    lists = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    user, rank = np.nonzero(lists["item"] >= 0)
    columns = lists["item"][user, rank]
    optional = ["propensity", *(f"{prefix}{name}" for prefix in ("", "explicit_") for name in LIKE_COLUMNS)]
    return pl.DataFrame(
        {
            "placement": placement,
            "user_index": lists["user_index"][user],
            "item_index": items[columns],
            "rank": (rank + 1).astype(np.int32),
            "score": lists["score"][user, rank].astype(np.float64),
            "is_new": is_new[columns],
            "because": _build_reasons(items, lists["because"][user, rank]),
            **{name: lists[name][user, rank].astype(np.float64) if name in lists else None for name in optional},
        },
        schema_overrides=dict.fromkeys(optional, pl.Float64),
        nan_to_null=True,
    )


def _build_reasons(items: np.ndarray, columns: np.ndarray) -> pl.Series:
    """Return lists of items by columns that are padded with -1; null without any."""
    indices = pl.Series(np.where(columns >= 0, items[columns], -1).astype(np.int32).ravel())
    lists = indices.replace(-1, None).reshape(columns.shape).arr.to_list().list.drop_nulls()
    return pl.select(pl.when(lists.list.len() > 0).then(lists)).to_series()
