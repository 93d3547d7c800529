"""Format recommendations as text for a terminal, or as JSON for a program."""

import json
from collections.abc import Sequence

import polars as pl

from oneclass.tasks.recommend.ranking import LIKE_COLUMNS
from oneclass.tasks.recommend.recommender import Recommender
from oneclass.tasks.terminal import escape_controls, format_grid, truncate

TITLE_WIDTH = 44


def format_table(recommender: Recommender, recommended: pl.DataFrame, unknown: Sequence[str]) -> str:
    """Format a table, best first.

    Args:
        unknown: the requested items that the model does not know.
    """
    rows = [["", "item", "title", "score", "like", "because of"]]
    marked = any(recommended["mark"])
    rows[0] += ["mark"] * marked
    for rank, row in enumerate(recommended.iter_rows(named=True), 1):
        like = " ± ".join(f"{row[name]:.3f}" for name in LIKE_COLUMNS if row[name] is not None)
        title = truncate(row["title"] or "", TITLE_WIDTH)
        cells = [str(rank), row["item_id"], title, f"{row['score']:.4g}", like, ", ".join(row["because"])]
        rows.append([*cells, *[row["mark"] or ""] * marked])
    head = (
        f"{recommender.dataset}, published {recommender.published_at:%Y-%m-%d %H:%M} UTC: {recommender.model}, by "
        f"{recommender.score}"
    )
    parts = [head, f"Not known, left out: {escape_controls(', '.join(unknown))}"] if unknown else [head]
    return "\n\n".join([*parts, format_grid(rows) if len(recommended) else "No item is left to recommend."])


def format_json(recommender: Recommender, recommended: pl.DataFrame, unknown: Sequence[str]) -> str:
    """Format the publication and model, the unknown items and the recommended ones in a line of JSON, all in ASCII."""
    names = ("dataset", "publication", "model", "score")
    answer = {name: getattr(recommender, name) for name in names}
    return json.dumps({**answer, "unknown": list(unknown), "items": recommended.to_dicts()})


def format_list(recommender: Recommender, items: pl.DataFrame, name: str, *, as_json: bool) -> str:
    """Format a list for everybody as a table, best first, or as a line of JSON."""
    if as_json:
        answer = {"dataset": recommender.dataset, "publication": recommender.publication}
        return json.dumps({**answer, "items": items.to_dicts()})
    rows = [["", "item", "title", "value", "users"]]
    for rank, row in enumerate(items.iter_rows(named=True), 1):
        title = truncate(row["title"] or "", TITLE_WIDTH)
        rows.append([str(rank), row["item_id"], title, f"{row['value']:.4g}", str(row["users"])])
    head = f"{recommender.dataset}, published {recommender.published_at:%Y-%m-%d %H:%M} UTC: {name} items"
    return "\n\n".join([head, format_grid(rows) if len(items) else "The list is empty."])
