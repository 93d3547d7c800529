"""Tables of the page: which columns, how a value is written, and the value itself beside the text, to sort by."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl
from markupsafe import Markup

from models.degrees.fits import REPLICATES
from tasks.pages import numbers
from tasks.report.dots import Scale
from tasks.report.figures import Row


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: of the rows' values.
        kind: how a value is written; one of `WRITERS`, or `text`, `prose`, text that may break into lines, or `score`.
        explain: what the column means, where its label does not say it.
        error: key of the standard error that is written beside the value.
        scale: on which the value is drawn as a dot, beside the text.
    """

    key: str
    label: str
    kind: str = "text"
    explain: str = ""
    error: str | None = None
    scale: Scale | None = None


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
        cards: on a narrow screen a row is a card; otherwise the table is pushed sideways.
    """

    name: str
    caption: str
    source: str
    columns: Sequence[Column]
    frame: pl.DataFrame
    empty: str = "Nothing."
    sorted_by: tuple[str, str] | None = None
    cards: bool = True

    @property
    def rows(self) -> list[Row]:
        """The frame for the template."""
        return self.frame.to_dicts()


WRITERS = {
    "count": numbers.fixed,
    "metric": lambda value: numbers.fixed(value, 4),
    "change": lambda value: numbers.fixed(value, 4, signed=True),
    "number": lambda value: numbers.significant(value, 4),
    "seconds": lambda value: numbers.fixed(value, 1 if value >= 10 else 2),
    "megabytes": lambda value: numbers.fixed(value / 1e6, 1),
    "p_value": numbers.p_value,
    "bootstrap_p": lambda value: numbers.p_value(value, LEAST_BOOTSTRAP_P),
    "time": lambda value: f"{value:%Y-%m-%d %H:%M}",
}
LEAST_BOOTSTRAP_P = 1 / (1 + REPLICATES)  # its value where no sample lay as far off as the data


def text(value: Any, kind: str) -> str:
    """A value as the page writes it; nothing for NULL, nor for the score of a model that has one only."""
    if value is None or (kind == "score" and value == "score"):
        return ""
    return WRITERS[kind](value) if kind in WRITERS else str(value)


def cell(column: Column, row: Row, cards: bool) -> Markup:
    """The `<td>` of a value: the number itself in `data-value`, and what a reader sees; in a card, its name too."""
    value = row.get(column.key)
    shown = Markup.escape(text(value, column.kind))
    more = Markup(' data-label="{}" role="cell"').format(column.label) if cards else Markup("")
    if column.kind not in WRITERS:
        known = Markup("") if column.kind != "score" else Markup(' data-value="{}"').format(value)
        kind = " prose" if column.kind == "prose" else ""
        return Markup('<td class="text{}"{}{}>{}</td>').format(kind, known, more, shown)
    error = row.get(column.error) if column.error else None
    if error is not None:
        shown += Markup("<small> ± {}</small>").format(text(error, column.kind).lstrip("+"))
    plain = value.isoformat() if isinstance(value, datetime) else "" if value is None else repr(value)
    if column.scale is None:
        return Markup('<td data-value="{}"{}>{}</td>').format(plain, more, shown)
    drawn = column.scale.dot(value, error)
    return Markup('<td class="dots" data-value="{}"{}><div><span>{}</span>{}</div></td>').format(
        plain, more, shown, drawn
    )
