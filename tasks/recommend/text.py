"""Recommendations as text, for a terminal, and as JSON, for a program."""

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

from oneclass.tasks.recommend.recommender import Recommender
from oneclass.tasks.terminal import escape_controls, format_grid, truncate

TITLE_WIDTH = 44


def format_table(recommender: Recommender, found: pl.DataFrame, unknown: Sequence[str]) -> str:
    """A table, best first.

    Args:
        unknown: items that were named and are not known.
    """
    rows = [["", "item", "title", "score", "like", "because of"]]
    for rank, row in enumerate(found.iter_rows(named=True), 1):
        like = "" if row["like_mean"] is None else f"{row['like_mean']:.3f} ± {row['like_sd']:.3f}"
        title = truncate(row["title"] or "", TITLE_WIDTH)
        rows.append([str(rank), row["item_id"], title, f"{row['score']:.4g}", like, ", ".join(row["because"])])
    head = f"{recommender.dataset}, published {recommender.published_at:%Y-%m-%d %H:%M} UTC: {recommender.model}, by {recommender.score}"
    parts = [head, f"Not known, left out: {escape_controls(', '.join(unknown))}"] if unknown else [head]
    return "\n\n".join([*parts, format_grid(rows) if len(found) else "No item is left to recommend."])


def format_json(recommender: Recommender, found: pl.DataFrame, unknown: Sequence[str]) -> str:
    """As `answer`, in one line."""
    return json.dumps(build_answer(recommender, found, unknown), ensure_ascii=False)


def build_answer(recommender: Recommender, found: pl.DataFrame, unknown: Sequence[str]) -> dict[str, Any]:
    """Plain data: which publication and model answered, the items that are not known, and a record an item."""
    return {
        "dataset": recommender.dataset,
        "publication": recommender.publication,
        "model": recommender.model,
        "score": recommender.score,
        "unknown": list(unknown),
        "items": found.to_dicts(),
    }
