"""Answers as Polars frames."""

import functools

import numpy as np
import polars as pl

from oneclass.tasks.recommend.ranking import RankedItems
from oneclass.tasks.recommend.vocabulary import ItemVocabulary

ITEM_COLUMNS = {
    "item_id": pl.String,
    "title": pl.String,
    "score": pl.Float64,
    "like_mean": pl.Float64,
    "like_sd": pl.Float64,
    "because": pl.List(pl.String),
}


# Most answers are of one user, and to make a series takes longer than to fill it: looking up rows of a frame costs
# several times as much as a list, and one series that is cut into columns half as much as a series a column.


def item_frame(ranked: RankedItems, names: ItemVocabulary) -> pl.DataFrame:
    """One row per item with `ITEM_COLUMNS`, users one after the other, best first."""
    there = ranked.items >= 0
    columns = ranked.items[there].tolist()
    texts = [names.ids[column] for column in columns] + [names.titles[column] for column in columns]
    numbers = [ranked.scores[there]]
    if ranked.like is not None:
        numbers += [values[there] for values in ranked.like]
    because = None if ranked.because is None else ranked.because[there]
    if because is not None:
        texts += [names.ids[column] if column >= 0 else None for column in because.ravel().tolist()]
    rows, text = len(columns), pl.Series("item_id", texts, dtype=pl.String)
    number = pl.Series("score", np.concatenate(numbers, dtype=np.float64))
    found = [text.slice(rows, rows).alias("title"), number.slice(0, rows)]
    for place, name in enumerate(("like_mean", "like_sd"), 1):
        found.append(number.slice(place * rows, rows).alias(name) if ranked.like else _null_column(name, rows))
    if because is None or not rows:
        found.append(_null_column("because", rows))
    else:
        lists = text.slice(2 * rows).reshape(because.shape).cast(ITEM_COLUMNS["because"]).alias("because")
        found.append(lists if because.min() >= 0 else lists.list.drop_nulls())
    return text.slice(0, rows).to_frame().hstack(found)


@functools.lru_cache(maxsize=8)
def _null_column(name: str, rows: int) -> pl.Series:
    """A column of what a model does not know, kept: an answer has up to three of them, and making one takes a while."""
    return pl.Series(name, [[] if name == "because" else None] * rows, dtype=ITEM_COLUMNS[name])


def user_frame(ranked: RankedItems, users: pl.Series, names: ItemVocabulary) -> pl.DataFrame:
    """One row per user and rank: `user_id`, `rank`, then `ITEM_COLUMNS`.

    Args:
        users: user_id of each row of `ranked`.
    """
    row, place = np.nonzero(ranked.items >= 0)
    first = [users[row].alias("user_id"), pl.Series("rank", (place + 1).astype(np.int32))]
    return pl.DataFrame([*first, *item_frame(ranked, names).get_columns()])
