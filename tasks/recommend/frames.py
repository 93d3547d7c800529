"""Answers as Polars frames."""

import functools

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
    series = [
        pl.Series("item_id", [names.ids[column] for column in columns], dtype=pl.String),
        pl.Series("title", [names.titles[column] for column in columns], dtype=pl.String),
        pl.Series("score", ranked.scores[there].astype(np.float64)),
    ]
    for number, name in enumerate(("like_mean", "like_sd")):
        if ranked.like is None:
            series.append(_nothing(name, len(columns)))
        else:
            series.append(pl.Series(name, ranked.like[number][there].astype(np.float64)))
    if ranked.because is None:
        series.append(_nothing("because", len(columns)))
    else:
        series.append(pl.Series("because", _lists(ranked.because[there], names.ids)))
    return pl.DataFrame(series)


@functools.lru_cache(maxsize=8)
def _nothing(name: str, rows: int) -> pl.Series:
    """A column of what a model does not know, kept: an answer has up to three of them, and making one takes a while."""
    return pl.Series(name, [[] if name == "because" else None] * rows, dtype=COLUMNS[name])


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
    named = columns >= 0
    if named.all():
        ends = _even_ends(*columns.shape)
    else:
        counts = np.zeros(len(columns) + 1, dtype=np.int64)
        np.cumsum(named.sum(axis=1), out=counts[1:])
        ends = pa.array(counts)
    values = pa.array([ids[column] for column in columns[named].tolist()], type=pa.large_string())
    return pa.LargeListArray.from_arrays(ends, values)


@functools.lru_cache(maxsize=8)
def _even_ends(rows: int, width: int) -> pa.Array:
    """Where lists of one length begin and end, kept: of most answers every list is full."""
    return pa.array(np.arange(rows + 1, dtype=np.int64) * width)
