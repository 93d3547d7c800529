"""Tables of the page: which columns, how a value is written, and the value itself beside the text, to sort by."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl
from markupsafe import Markup

from tasks.report.figures import Row


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: of the rows' values.
        kind: how a value is written; one of `WRITERS`, or `text`, or `prose`, text that may break into lines.
        explain: what the column means, where its label does not say it.
        error: key of the standard error that is written beside the value.
    """

    key: str
    label: str
    kind: str = "text"
    explain: str = ""
    error: str | None = None


@dataclass(frozen=True)
class Table:
    """One table of the page.

    Attributes:
        name: its anchor.
        caption: what one row is.
        source: the warehouse table that it shows.
        frame: the values, a column a key; `standing`, where it is there, marks the best, those level with it, and the weak.
        empty: said where there are no rows.
        sorted_by: the column that the rows come sorted by, and `ascending` or `descending`.
    """

    name: str
    caption: str
    source: str
    columns: Sequence[Column]
    frame: pl.DataFrame
    empty: str = "Nothing."
    sorted_by: tuple[str, str] | None = None

    @property
    def rows(self) -> list[Row]:
        """The frame for the template."""
        return self.frame.to_dicts()


WRITERS = {
    "count": lambda value: f"{value:,.0f}",
    "metric": lambda value: f"{value:.4f}",
    "change": lambda value: f"{value:+.4f}",
    "number": lambda value: f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:.4g}",
    "seconds": lambda value: f"{value:,.1f}" if value >= 10 else f"{value:.2f}",
    "megabytes": lambda value: f"{value / 1e6:,.1f}",
    "p_value": lambda value: f"{value:.2g}" if value >= 0.001 else "< 0.001",
    "time": lambda value: f"{value:%Y-%m-%d %H:%M}",
}


def text(value: Any, kind: str) -> str:
    """A value as the page writes it; nothing for NULL."""
    if value is None:
        return ""
    return WRITERS[kind](value) if kind in WRITERS else str(value)


def cell(column: Column, row: Row) -> Markup:
    """The `<td>` of a value: the number itself in `data-value`, and what a reader sees."""
    value = row.get(column.key)
    shown = Markup.escape(text(value, column.kind))
    if column.kind not in WRITERS:
        return Markup('<td class="text{}">{}</td>').format(" prose" if column.kind == "prose" else "", shown)
    error = row.get(column.error) if column.error else None
    if error is not None:
        shown += Markup("<small> ± {}</small>").format(text(error, column.kind).lstrip("+"))
    plain = value.isoformat() if isinstance(value, datetime) else "" if value is None else repr(value)
    return Markup('<td data-value="{}">{}</td>').format(plain, shown)
