"""The published lists for everybody: popular, trending and new items."""

from typing import Literal, get_args

import polars as pl

from oneclass.tasks.errors import InputError

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
        raise InputError(f"window {window_days}: lists are published for {listed} days (publish.list_windows).")
    wanted = {"list": name, "category": category, "window_days": window_days if windows else None}
    is_wanted = [pl.col(column).eq_missing(pl.lit(value)) for column, value in wanted.items()]
    return lists.filter(is_wanted).sort("rank")
