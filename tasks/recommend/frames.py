"""Format ranked items as Polars frames."""

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
LIKE_COLUMNS = ("like_mean", "like_sd")


def item_frame(ranked: RankedItems, names: ItemVocabulary) -> pl.DataFrame:
    """Return one row per item with `ITEM_COLUMNS`, users one after the other, best first.

    The log's explicit negatives, if it has enough, add `explicit_like_mean` and `explicit_like_sd`.
    Most frames are of one user, for whom creating a series takes longer than filling it. So the text columns are slices
    of one series, and the numbers of another, which halves the time.
    """
    valid = ranked.items >= 0
    columns = ranked.items[valid].tolist()
    texts = [names.ids[column] for column in columns] + [names.titles[column] for column in columns]
    numbers = [ranked.scores[valid]]
    likes = [like for like in (ranked.like, ranked.explicit_like) if like is not None]
    numbers += [values[valid] for like in likes for values in like]
    because = None if ranked.because is None else ranked.because[valid]
    if because is not None:
        texts += [names.ids[column] if column >= 0 else None for column in because.ravel().tolist()]
    rows, text = len(columns), pl.Series("item_id", texts, dtype=pl.String)
    number = pl.Series("score", np.concatenate(numbers, dtype=np.float64))
    series = [text.slice(rows, rows).alias("title"), number.slice(0, rows)]
    for position, name in enumerate(LIKE_COLUMNS, 1):
        series.append(number.slice(position * rows, rows).alias(name) if ranked.like else _null_column(name, rows))
    if because is None or not rows:
        series.append(_null_column("because", rows))
    else:
        lists = text.slice(2 * rows).reshape(because.shape).cast(ITEM_COLUMNS["because"]).alias("because")
        series.append(lists if because.min() >= 0 else lists.list.drop_nulls())
    if ranked.explicit_like is not None:  # a calibration of `like`, which is there too
        explicit = enumerate((f"explicit_{name}" for name in LIKE_COLUMNS), 3)
        series += [number.slice(position * rows, rows).alias(name) for position, name in explicit]
    return text.slice(0, rows).to_frame().hstack(series)


@functools.lru_cache(maxsize=16)
def _null_column(name: str, rows: int) -> pl.Series:
    """Return a null column. Cached, since a frame has up to three of them and creating one is slow."""
    return pl.Series(name, [[] if name == "because" else None] * rows, dtype=ITEM_COLUMNS[name])


def user_frame(ranked: RankedItems, users: pl.Series, names: ItemVocabulary) -> pl.DataFrame:
    """Return one row per user and rank: `user_id`, `rank`, then `ITEM_COLUMNS`.

    Args:
        users: user_id of each row of `ranked`.
    """
    row, position = np.nonzero(ranked.items >= 0)
    leading = [users[row].alias("user_id"), pl.Series("rank", (position + 1).astype(np.int32))]
    return pl.DataFrame([*leading, *item_frame(ranked, names).get_columns()])
