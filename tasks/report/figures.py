"""What every family of figures shares: a figure with its words, and small helpers for rows and axes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from tasks.report.drawing import LIGHT, Panel

Row = dict[str, Any]  # of a table of the warehouse, by column: what drawings take


@dataclass(frozen=True)
class Figure:
    """One figure of the page, or the reason why it is not there.

    Attributes:
        name: its anchor in the page, and the beginning of its panels' names.
        see: what to see in it, from the data.
        how: how to read it: axes, lines, colours.
        table: the warehouse table that it draws.
        absent: why it is missing and how to get it; shown where there are no panels.
        size: of its panels: `small`, `medium`, or ``, two abreast on a wide screen.
    """

    name: str
    heading: str
    see: str
    how: str
    table: str
    absent: str
    panels: list[Panel] = field(default_factory=list)
    size: str = ""


def grouped(rows: Iterable[Row], *keys: str) -> dict[Any, list[Row]]:
    """Rows by one column, or by a tuple of several, in order of first appearance."""

    def key(row: Row) -> Any:
        return row[keys[0]] if len(keys) == 1 else tuple(row[name] for name in keys)

    found: dict[Any, list[Row]] = {}
    for value, of_value in groupby(rows, key):
        found.setdefault(value, []).extend(of_value)
    return found


def column(rows: list[Row], name: str) -> np.ndarray:
    """One column as float64; NULL is NaN."""
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)


def middles(rows: list[Row], prefix: str = "degree") -> np.ndarray:
    """Where a bin of degrees lies on a logarithmic axis; a bin that holds zero begins at one half."""
    low, high = column(rows, f"{prefix}_low"), column(rows, f"{prefix}_high")
    return np.sqrt(np.maximum(low, 0.5) * np.maximum(high, 0.5))


def mean_over(rows: list[Row], value: str, weight: str = "edges", where: Callable[[Row], bool] | None = None) -> float:
    """The mean of a column weighted by another, over the rows asked for; NaN where there are none."""
    chosen = [row for row in rows if where is None or where(row)]
    total = sum(row[weight] for row in chosen)
    return sum(row[value] * row[weight] for row in chosen) / total if total else float("nan")


def legend_below(panel: Panel, columns: int = 2, **keywords: Any) -> None:
    """The legend under the axes; the panel grows by the rows that it needs."""
    handles, labels = panel.axes.get_legend_handles_labels()
    lines = -(-len(labels) // columns)
    width, height = panel.figure.get_size_inches()
    room = 0.17 * lines + 0.06
    left, bottom, wide, high = panel.axes.get_position().bounds
    panel.figure.set_size_inches(width, height + room)
    scale = height / (height + room)
    panel.axes.set_position((left, (bottom * height + room) / (height + room), wide, high * scale))
    panel.figure.legend(
        handles, labels, loc="lower left", ncols=columns, bbox_to_anchor=(0.01, 0.0), borderaxespad=0.1,
        columnspacing=1.2, labelspacing=0.25, labelcolor=LIGHT["ink"], **keywords,
    )  # fmt: skip


def listed(words: list[str]) -> str:
    """a; a and b; a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
