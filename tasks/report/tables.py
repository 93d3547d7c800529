"""Tables of the page: their rows, columns, formats of values, raw values to sort by, and scales of means in HTML."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb
import polars as pl
from markupsafe import Markup

from oneclass import sql
from oneclass.data_contracts.contracts import STAGES
from oneclass.models.degrees.fits import BOOTSTRAP_REPLICATES
from oneclass.tasks import protocols
from oneclass.tasks.html import numbers
from oneclass.tasks.leaderboard import LeaderboardRow
from oneclass.tasks.stores import warehouse

Row = dict[str, Any]  # of a table of the warehouse, by column
METRIC_LABELS = {
    "ndcg@100": "how many of the held-out likes are among the first 100, early ones counting more; 1 is perfect",
    "ndcg@100_new_items": "the same of the likes of items that no model has seen, among such items",
    "recall@20_new_items": "the share of these likes among the first 20 such items",
    "mean_rank_new_items": "share of the other such items that one of these likes beats, ties lost",
    "ndcg@100_new": "the same of the likes that are new to the user, among items that are",
    "ndcg@100_repeated": "the same of the likes that the user had before, among the items of the history",
    "ndcg@20": "how many of the held-out likes are among the first 20, early ones counting more; 1 is perfect",
    "recall@20": "share of the held-out likes among the first 20, of at most 20",
    "recall@50": "share of the held-out likes among the first 50, of at most 50",
    "recall_of_all@20": "share of all held-out likes that are among the first 20",
    "mean_rank": "share of the other items that a held-out like beats, ties lost; 1 is the head, 0.5 guessing",
    "mean_rank_midtie": "the mean rank with a tie counting one half",
    "mean_rank_known_items": "the same of the likes of items that models know, ties at one half; 0.5 is guessing",
    "median_rank": "the middle one of all those ranks",
    "rank_p05": "one in twenty of those ranks is lower",
    "rank_p25": "one in four of those ranks is lower",
    "rank_p75": "three in four of those ranks are lower",
    "rank_p95": "nineteen in twenty of those ranks are lower",
    "validation_ndcg@100": "ndcg@100 on the validation users, by whom settings are chosen",
    "coverage@20": "share of the items that are among anybody's first 20",
    "novelty@20": "surprise in bits: how rarely the items recommended are liked, -log2 of the share of users who do",
    "popularity_percentile@20": "share of the items that are liked less than one recommended: 0.5 is even-handed",
    "popularity_lift@20": "how much more popular what is recommended is than what is in the history; 0 is the same",
    "gini@20": "how unevenly items are shown: 0 is all alike, 1 is one item for everybody",
}
ERRORS_PER_BAR = 2  # standard errors to each side, about 95 %


@dataclass(frozen=True)
class Scale:
    """A linear scale from `low` at the left to `high` at the right.

    Attributes:
        reference: the value of popularity, drawn as a dashed line.
    """

    low: float
    high: float
    reference: float | None = None

    def position(self, value: float) -> str:
        """Return the position of a value, in per cent of the width."""
        return f"{100 * (value - self.low) / (self.high - self.low):.2f}%"

    def dot(self, value: float, error: float | None) -> Markup:
        """Draw a value with its error bar."""
        parts = []
        if self.reference is not None:
            x = self.position(self.reference)
            parts.append(f'<line class="reference" x1="{x}" x2="{x}" y1="0" y2="100%"/>')
        if error:
            left, right = self.position(value - ERRORS_PER_BAR * error), self.position(value + ERRORS_PER_BAR * error)
            parts.append(f'<line class="bar" x1="{left}" x2="{right}" y1="50%" y2="50%"/>')
        parts.append(f'<circle cx="{self.position(value)}" cy="50%" r="4.5"/>')
        return Markup(f'<svg class="dot" aria-hidden="true">{"".join(parts)}</svg>')


def fit_scale(cells: list[tuple[float, float | None]], reference: float | None = None) -> Scale:
    """Return a scale that covers every mean with its error bar."""
    ends = [value + sign * ERRORS_PER_BAR * (error or 0.0) for value, error in cells for sign in (-1, 1)]
    low, high = min(ends), max(ends)
    margin = 0.04 * (high - low) or 0.01
    return Scale(low - margin, high + margin, reference)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        key: key of the values in a row.
        kind: format of a value: one of `FORMATTERS`, or `text`, `prose` (text with line breaks), or `score`.
        explain: the meaning, if the label is not enough.
        error: key of the standard error, shown beside the value.
        scale: scale of the value's dot plot, shown beside the text.
    """

    key: str
    label: str
    kind: str = "text"
    explain: str = ""
    error: str | None = None
    scale: Scale | None = None


@dataclass(frozen=True)
class Table:
    """A table of the page; without rows it is not shown.

    Attributes:
        name: its anchor.
        caption: the meaning of one row.
        source: its warehouse table.
        rows: the values by key; an optional `standing` marks the best and those level with it.
        sorted_by: the column by which the rows are sorted, and `ascending` or `descending`.
        cards: whether rows become cards on a narrow screen; otherwise the table scrolls sideways.
    """

    name: str
    caption: str
    source: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    sorted_by: tuple[str, str] | None = None
    cards: bool = True


FORMATTERS = {
    "count": numbers.format_fixed,
    "metric": lambda value: numbers.format_fixed(value, 4),
    "change": lambda value: numbers.format_fixed(value, 4, signed=True),
    "number": lambda value: numbers.format_significant(value, 4),
    "seconds": lambda value: numbers.format_fixed(value, 1 if value >= 10 else 2),
    "megabytes": lambda value: numbers.format_fixed(value / 1e6, 1),
    "p_value": numbers.format_p_value,
    "bootstrap_p": lambda value: numbers.format_p_value(value, MIN_BOOTSTRAP_P),
    "time": lambda value: f"{value:%Y-%m-%d %H:%M}",
}
MIN_BOOTSTRAP_P = 1 / (1 + BOOTSTRAP_REPLICATES)  # its value where no sample lay as far off as the data


def format_value(value: Any, kind: str) -> str:
    """Format a value; empty for NULL, and for the score of a model with a single score."""
    if value is None or (kind == "score" and value == "score"):
        return ""
    return FORMATTERS[kind](value) if kind in FORMATTERS else str(value)


def render_cell(column: Column, row: Row, cards: bool) -> Markup:
    """Render the `<td>` of a value, with the raw number in `data-value` and, in a card, the column's label."""
    value = row.get(column.key)
    shown = Markup.escape(format_value(value, column.kind))
    more = Markup(' data-label="{}" role="cell"').format(column.label) if cards else Markup("")
    if column.kind not in FORMATTERS:
        raw = Markup("") if column.kind != "score" else Markup(' data-value="{}"').format(value)
        kind = " prose" if column.kind == "prose" else ""
        return Markup('<td class="text{}"{}{}>{}</td>').format(kind, raw, more, shown)
    error = row.get(column.error) if column.error else None
    if error is not None:
        shown += Markup("<small> ± {}</small>").format(format_value(error, column.kind).lstrip("+"))
    plain = value.isoformat() if isinstance(value, datetime) else "" if value is None else repr(value)
    if column.scale is None:
        return Markup('<td data-value="{}"{}>{}</td>').format(plain, more, shown)
    drawn = column.scale.dot(value, error) if isinstance(value, int | float) else ""
    return Markup('<td class="dots" data-value="{}"{}><div><span>{}</span>{}</div></td>').format(
        plain, more, shown, drawn
    )


@dataclass(frozen=True)
class RunTables:
    """Reads the report's tables of one run."""

    connection: duckdb.DuckDBPyConnection
    run_id: str

    def __call__(self, name: str, **more: Any) -> pl.DataFrame:
        """Run the query `report/<name>`; `more` are additional parameters of the query."""
        query = f"report/{name}"
        parameters: dict[str, Any] = {
            "run_id": self.run_id,
            "stages": list(STAGES),
            "main_metrics": protocols.list_main_metrics(),
            **more,
        }
        values = {key: value for key, value in parameters.items() if f"${key}" in sql.statement(query)}
        return warehouse.select(self.connection, query, **values)

    def load_evaluation(self, table: str) -> list[Row]:
        """Load this run's rows of a table of the schema `evaluation`, in the order of its columns."""
        text = f"select * exclude (run_id) from evaluation.{table} where run_id = $run_id order by all"
        return warehouse.query(self.connection, text, run_id=self.run_id).to_dicts()

    def as_rows(self, name: str, **more: Any) -> list[Row]:
        """Run a query as `__call__` does, and return rows as dictionaries."""
        return self(name, **more).to_dicts()


@dataclass(frozen=True)
class FigureRows:
    """What the figures show.

    Attributes:
        scores: the score of each model whose ranks are shown.
        lacking: the columns of likes that published rows do not have.
        laws: of each side, the best first.
    """

    scores: dict[str, str]
    ranks: list[Row]
    calibration: list[Row]
    lacking: list[str]
    degrees: list[Row]
    laws: list[Row]


def load_figure_rows(tables: RunTables, main: Mapping[str, list[LeaderboardRow]]) -> FigureRows:
    """Load the rows of figures; `main` has the leaderboards by protocol, of which leave_one_out names the scores."""
    scores: dict[str, str] = {}
    for row in main.get("leave_one_out", []):
        scores.setdefault(row.model, row.score)
    # one row per side and degree, and one per side and law, the best first
    degrees, laws = "from diagnostics.degrees order by all", "from diagnostics.power_law_fits order by side, aic"
    # one row: the columns without a value, unless there is no row at all
    without = "if(count(*) > 0 and count({0}) = 0, ['{0}'], [])"
    published = f"select {without.format('like_mean')} || {without.format('like_sd')} from published.recommendations"
    return FigureRows(
        scores,
        tables.load_evaluation("ranks_by_degree"),
        tables.load_evaluation("calibration"),
        *warehouse.fetch_row(tables.connection, published),
        *(warehouse.query(tables.connection, text).to_dicts() for text in (degrees, laws)),
    )


def group_rows(rows: Iterable[Row], *keys: str) -> dict[Any, list[Row]]:
    """Group rows by one column, or by a tuple of several, in order of first appearance."""

    def key(row: Row) -> Any:
        return row[keys[0]] if len(keys) == 1 else tuple(row[name] for name in keys)

    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def join_words(words: list[str]) -> str:
    """Join words: a; a and b; a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
