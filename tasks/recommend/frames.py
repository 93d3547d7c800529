"""Answers as Polars frames."""

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

COLUMNS = {
    "item_id": pl.String,
    "title": pl.String,
    "score": pl.Float64,
    "like_mean": pl.Float64,
    "like_sd": pl.Float64,
    "because": pl.List(pl.String),
}


@dataclass(frozen=True)
class Ranked:
    """The best items of some users.

    Attributes:
        items: int32 (users, n), columns of the fit, best first; padded with -1.
        scores: float32 (users, n).
        like: mean and standard deviation, float32 (users, n); None for a model without.
        because: int32 (users, n, reasons), the columns of the history that spoke most for an item, padded with -1;
            None for a model whose scores are no sums over the history.
    """

    items: np.ndarray
    scores: np.ndarray
    like: tuple[np.ndarray, np.ndarray] | None = None
    because: np.ndarray | None = None


# Made from lists, since most answers are of one user: looking up rows of a frame costs several times as much.


def of_items(ranked: Ranked, ids: list[str], titles: list[str | None]) -> pl.DataFrame:
    """One row per item with `COLUMNS`, users one after the other, best first.

    Args:
        ids, titles: by column of the fit.
    """
    there = ranked.items >= 0
    columns = ranked.items[there].tolist()
    like = ([None] * len(columns),) * 2 if ranked.like is None else (part[there] for part in ranked.like)
    because = np.empty((len(columns), 0), np.int32) if ranked.because is None else ranked.because[there]
    values = (
        [ids[column] for column in columns],
        [titles[column] for column in columns],
        ranked.scores[there],
        *like,
        _lists(because, ids),
    )
    series = zip(COLUMNS.items(), values, strict=True)
    return pl.DataFrame([pl.Series(name, part, dtype=kind) for (name, kind), part in series])


def of_users(ranked: Ranked, users: pl.Series, ids: list[str], titles: list[str | None]) -> pl.DataFrame:
    """One row per user and rank: `user_id`, `rank`, then `COLUMNS`.

    Args:
        users: user_id of each row of `ranked`.
    """
    row, place = np.nonzero(ranked.items >= 0)
    first = [users[row].alias("user_id"), pl.Series("rank", (place + 1).astype(np.int32))]
    return pl.DataFrame([*first, *of_items(ranked, ids, titles).get_columns()])


def _lists(columns: np.ndarray, ids: list[str]) -> pa.Array:
    """Lists of ids of an (n, width) array of columns, without those that are -1."""
    named = columns >= 0
    ends = np.concatenate([[0], np.cumsum(named.sum(axis=1))])
    values = pa.array([ids[column] for column in columns[named].tolist()], type=pa.large_string())
    return pa.LargeListArray.from_arrays(pa.array(ends), values)
