"""Rank items for users by a fitted model, find the lists for everybody, and format both as Polars frames."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from oneclass.models.base import Model
from oneclass.models.numerics.threads import kernel_threads
from oneclass.tasks.errors import InputError
from oneclass.tasks.recommend.like_calibration import Companion, describe_items
from oneclass.tasks.recommend.new_items import MAX_REASONS, raise_new_items
from oneclass.tasks.recommend.vocabulary import ItemVocabulary
from oneclass.tasks.rules.selection import Selection, select_lists


@dataclass(frozen=True)
class RankedItems:
    """The best items of some users.

    Attributes:
        items: int32 (users, n), columns of the fit, best first; padded with -1.
        scores: float32 (users, n).
        like, explicit_like: mean and standard deviation, float32 (users, n), as in `ItemDescriptions`.
        because: int32 (users, n, MAX_REASONS), the columns of the history that speak for an item (`describe_items`),
            padded with -1; None without any.
    """

    items: np.ndarray
    scores: np.ndarray
    like: tuple[np.ndarray, np.ndarray] | None = None
    explicit_like: tuple[np.ndarray, np.ndarray] | None = None
    because: np.ndarray | None = None


def rank_items(
    model: Model,
    score: str,
    histories: csr_matrix,
    selection: Selection,
    *,
    users: np.ndarray | None,
    vectors: Callable[[], np.ndarray],
    companion: Companion | None,
    popular: np.ndarray | None,
) -> RankedItems:
    """Return the best items for each history.

    Args:
        selection: of these users.
        users: as in `Model.scores`.
        vectors: returns those of the items, for a selection with variety.
        companion: as in `describe_items`.
        popular: float32 (items,), the scores of an empty history that is given; by default the model's.
    """
    with kernel_threads(model.threads):
        scores = model.scores(histories, users=users, score=score)
        scores = raise_new_items(model, score, histories, users, scores, selection)
        if users is None and popular is not None:
            scores[histories.indptr[1:] == histories.indptr[:-1]] = popular
        chosen = None if selection.diversity is None else vectors()
        items, best = select_lists(scores, histories, selection, chosen)
        return RankedItems(items, best, *describe_items(model, companion, histories, users, items))


def explain_score(model: Model, history: csr_matrix, column: int) -> list[tuple[int, float]]:
    """Return (column, contribution) of a history's items that contribute most to an item's score."""
    contributions = model.contributions(history, np.array([column], dtype=np.int32))
    if contributions is None:
        return []
    values = contributions[:, 0]
    largest = [entry for entry in np.argsort(-values, kind="stable")[:MAX_REASONS] if values[entry] > 0]
    return [(int(history.indices[entry]), float(values[entry])) for entry in largest]


ITEM_COLUMNS = {
    "item_id": pl.String,
    "title": pl.String,
    "score": pl.Float64,
    "like_mean": pl.Float64,
    "like_sd": pl.Float64,
    "because": pl.List(pl.String),
    "mark": pl.String,
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
    texts += [names.marks[column] for column in columns] if names.marks else []
    numbers = [ranked.scores[valid]]
    for like in filter(None, (ranked.like, ranked.explicit_like)):
        numbers += [values[valid] for values in like]
    because = None if ranked.because is None else ranked.because[valid]
    if because is not None:
        texts += [names.ids[column] if column >= 0 else None for column in because.ravel().tolist()]
    rows, text = len(columns), pl.Series("item_id", texts, dtype=pl.String)
    number = pl.Series("score", np.concatenate(numbers, dtype=np.float64), nan_to_null=True)
    series = [text.slice(rows, rows).alias("title"), number.slice(0, rows)]
    for position, name in enumerate(LIKE_COLUMNS, 1):
        series.append(number.slice(position * rows, rows).alias(name) if ranked.like else _null_column(name, rows))
    series.append(_null_column("because", rows) if because is None or not rows else _list_reasons(text, because))
    series.append(text.slice(2 * rows, rows).alias("mark") if names.marks else _null_column("mark", rows))
    if ranked.explicit_like is not None:  # a calibration of `like`, which is there too
        explicit = enumerate((f"explicit_{name}" for name in LIKE_COLUMNS), 3)
        series += [number.slice(position * rows, rows).alias(name) for position, name in explicit]
    return text.slice(0, rows).to_frame().hstack(series)


def _list_reasons(text: pl.Series, because: np.ndarray) -> pl.Series:
    """Return the column of reasons, lists of the ids at the end of `text`, as many as `because` has items."""
    lists = text.slice(len(text) - because.size).reshape(because.shape).cast(ITEM_COLUMNS["because"]).alias("because")
    return lists if because.min() >= 0 else lists.list.drop_nulls()


@functools.lru_cache(maxsize=16)
def _null_column(name: str, rows: int) -> pl.Series:
    """Return a null column. Cached, since a frame has up to four of them and creating one is slow."""
    return pl.Series(name, [[] if name == "because" else None] * rows, dtype=ITEM_COLUMNS[name])


def user_frame(ranked: RankedItems, users: pl.Series, names: ItemVocabulary) -> pl.DataFrame:
    """Return one row per user and rank: `user_id`, `rank`, then `ITEM_COLUMNS`.

    Args:
        users: user_id of each row of `ranked`.
    """
    row, position = np.nonzero(ranked.items >= 0)
    leading = [users[row].alias("user_id"), pl.Series("rank", (position + 1).astype(np.int32))]
    return pl.DataFrame([*leading, *item_frame(ranked, names).get_columns()])


ListName = Literal["popular", "trending", "new"]
LIST_COLUMNS = ("item_id", "title", "value", "users", "expected_users", "p_value")


def find_list(lists: pl.DataFrame, name: str, category: str | None, window_days: int | None) -> pl.DataFrame:
    """Return the rows of a list in `published.lists`, best first.

    Args:
        window_days: by default the longest; of no effect if the log had no times.

    Raises:
        InputError: there is no such list, category or window.
    """
    if name not in get_args(ListName):
        raise InputError(f"list {name}: does not exist; the lists are {', '.join(get_args(ListName))}.")
    popular = lists.filter(pl.col("list") == "popular")  # it has every window and category
    windows = popular["window_days"].unique().drop_nulls().sort().to_list()
    if not windows and name != "popular":
        raise InputError(f"list {name}: takes the times of events, and the published logs have none.")
    if category is not None and name == "new":
        raise InputError("list new: is of all items only; leave the category out.")
    if category is not None and category not in (known := popular["category"].unique().drop_nulls().sort().to_list()):
        named = ", ".join(known) or "none; name columns of [items] as `category` or `categories`"
        raise InputError(f"category {category}: no item that users like has it. Categories: {named}.")
    if windows and (window_days := window_days or windows[-1]) not in windows:
        listed = ", ".join(map(str, windows))
        raise InputError(f"window {window_days}: lists are published for {listed} days.")
    wanted = {"list": name, "category": category, "window_days": window_days if windows else None}
    is_wanted = [pl.col(column).eq_missing(pl.lit(value)) for column, value in wanted.items()]
    return lists.filter(is_wanted).sort("rank")
