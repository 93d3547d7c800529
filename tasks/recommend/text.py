"""Recommendations as text, for a terminal, and as JSON, for a program."""

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

from tasks.recommend.recommender import Recommender
from tasks.terminal import grid, printable, shortened

TITLE_WIDTH = 44


def plain(shop: Recommender, found: pl.DataFrame, unknown: Sequence[str]) -> str:
    """A table, best first.

    Args:
        unknown: items that were named and are not known.
    """
    rows = [["", "item", "title", "score", "like", "because of"]]
    for rank, row in enumerate(found.iter_rows(named=True), 1):
        like = "" if row["like_mean"] is None else f"{row['like_mean']:.3f} ± {row['like_sd']:.3f}"
        title = shortened(row["title"] or "", TITLE_WIDTH)
        rows.append([str(rank), row["item_id"], title, f"{row['score']:.4g}", like, ", ".join(row["because"])])
    head = f"{shop.dataset}, published {shop.published_at:%Y-%m-%d %H:%M} UTC: {shop.model}, by {shop.score}"
    parts = [head, f"Not known, left out: {printable(', '.join(unknown))}"] if unknown else [head]
    return "\n\n".join([*parts, grid(rows) if len(found) else "No item is left to recommend."])


def as_json(shop: Recommender, found: pl.DataFrame, unknown: Sequence[str]) -> str:
    """As `answer`, in one line."""
    return json.dumps(answer(shop, found, unknown), ensure_ascii=False)


def answer(shop: Recommender, found: pl.DataFrame, unknown: Sequence[str]) -> dict[str, Any]:
    """Plain data: which publication and model answered, the items that are not known, and a record an item."""
    return {
        "dataset": shop.dataset,
        "publication": shop.publication,
        "model": shop.model,
        "score": shop.score,
        "unknown": list(unknown),
        "items": found.to_dicts(),
    }
