"""Answers as Polars frames."""

import numpy as np
import polars as pl
import pyarrow as pa

from tasks.recommend.names import Names
from tasks.recommend.ranking import Ranked

COLUMNS = {
    "item_id": pl.String,
    "title": pl.String,
    "score": pl.Float64,
    "like_mean": pl.Float64,
    "like_sd": pl.Float64,
    "because": pl.List(pl.String),
}


# Made from lists, since most answers are of one user: looking up rows of a frame costs several times as much.


def of_items(ranked: Ranked, names: Names) -> pl.DataFrame:
    """One row per item with `COLUMNS`, users one after the other, best first."""
    there = ranked.items >= 0
    columns = ranked.items[there].tolist()
    like = ([None] * len(columns),) * 2 if ranked.like is None else (part[there] for part in ranked.like)
    because = np.empty((len(columns), 0), np.int32) if ranked.because is None else ranked.because[there]
    values = (
        [names.ids[column] for column in columns],
        [names.titles[column] for column in columns],
        ranked.scores[there].astype(np.float64),
        *like,
        _lists(because, names.ids),
    )
    series = zip(COLUMNS.items(), values, strict=True)
    return pl.DataFrame([pl.Series(name, part, dtype=kind) for (name, kind), part in series])


def of_users(ranked: Ranked, users: pl.Series, names: Names) -> pl.DataFrame:
    """One row per user and rank: `user_id`, `rank`, then `COLUMNS`.

    Args:
        users: user_id of each row of `ranked`.
    """
    row, place = np.nonzero(ranked.items >= 0)
    first = [users[row].alias("user_id"), pl.Series("rank", (place + 1).astype(np.int32))]
    return pl.DataFrame([*first, *of_items(ranked, names).get_columns()])


def _lists(columns: np.ndarray, ids: list[str]) -> pa.Array:
    """Lists of ids of an (n, width) array of columns, without those that are -1."""
    named, ends = columns >= 0, np.zeros(len(columns) + 1, dtype=np.int64)
    np.cumsum(named.sum(axis=1), out=ends[1:])
    values = pa.array([ids[column] for column in columns[named].tolist()], type=pa.large_string())
    return pa.LargeListArray.from_arrays(pa.array(ends), values)
