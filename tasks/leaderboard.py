"""The leaderboard of a run: the main metrics of every model and score under each protocol, as data and as text."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import duckdb
import numpy as np
import polars as pl

from oneclass.models.evaluation.metrics import ALPHA, Comparison, adjust_against_best
from oneclass.tasks.protocols import describe_folds, list_main_metrics
from oneclass.tasks.stores import warehouse

DIFFERENCE_LABEL = "minus the best"
FOLDS_NOTE = (
    "Each user is a test user of models that were fitted, and a blend that was weighed, on the other folds. The same "
    "users choose settings and, by this protocol, the published list, so that the values of what they chose are "
    "slightly too high."
)
LEGEND = (
    "**Bold**: the best. The last column is the difference from the best by the first metric, paired over the same "
    "users. `=`: cannot be told from it (Holm's procedure over all lists, 5 %). ± is one standard error."
)


@dataclass(frozen=True)
class LeaderboardRow:
    """One model and score under one protocol.

    Attributes:
        cells: (value, standard error or None) by metric, in the order of the protocol's main metrics.
        standing: `best`, `level` with the best, or `` if it is surely worse.
        against_best: its first metric less that of the best, paired over users, with the p-value corrected by
            `adjust_against_best`; None for the best itself.
        folds: the number of folds that the users are in, 1 without.
        is_left_out: whether the model was not fitted under other protocols (`capacity.find_models_behind`).
    """

    protocol: str
    model: str
    score: str
    users: int
    cells: dict[str, tuple[float, float | None]]
    standing: str
    against_best: Comparison | None = None
    folds: int = 1
    is_left_out: bool = False

    @property
    def described_users(self) -> str:
        """The number of users, and of their folds."""
        return f"{self.users:,} users{describe_folds(self.folds)}"


def load_leaderboard(connection: duckdb.DuckDBPyConnection, run_id: str) -> list[LeaderboardRow]:
    """Load a run's rows: protocols in their order, the best model first."""
    found = warehouse.select(connection, "publish/main_table", run_id=run_id, main_metrics=list_main_metrics())
    by_protocol = found.partition_by("protocol", maintain_order=True)
    return [row for of_protocol in by_protocol for row in _mark_lists(of_protocol)]


def _mark_lists(of_protocol: pl.DataFrame) -> Iterator[LeaderboardRow]:
    """Yield the row of each list of one protocol in the order of `publish/main_table`, compared with the best."""
    lists = of_protocol.partition_by("model", "score", maintain_order=True)
    p_values = [of_list["p_value"][0] for of_list in lists[1:]]
    adjusted = adjust_against_best(np.array([1.0 if p_value is None else p_value for p_value in p_values]))
    for i, of_list in enumerate(lists):
        first, compared = of_list.row(0, named=True), None
        if first["difference"] is not None:
            p_value = None if first["p_value"] is None else float(adjusted[i - 1])
            compared = Comparison(first["difference"], first["difference_error"], p_value, first["users"])
        surely_worse = compared is not None and compared.p_value is not None and compared.p_value < ALPHA
        yield LeaderboardRow(
            first["protocol"],
            first["model"],
            first["score"],
            first["users"],
            {metric: (value, error) for metric, value, error in of_list[:, -3:].iter_rows()},
            "best" if i == 0 else "" if surely_worse else "level",
            against_best=compared,
            folds=first["folds"],
            is_left_out=bool(first["left_out"]),
        )


def group_by_protocol(table: list[LeaderboardRow]) -> dict[str, list[LeaderboardRow]]:
    """Group rows by protocol; protocols without rows are absent."""
    return {name: list(of_one) for name, of_one in groupby(table, lambda row: row.protocol)}


def format_markdown(table: list[LeaderboardRow], title: str) -> str:
    """Format the table as Markdown that a terminal can show too, with one section for each protocol."""
    lines = [f"# {title}", ""]
    for protocol, rows in group_by_protocol(table).items():
        header = ["model", "score", *rows[0].cells, DIFFERENCE_LABEL]
        grid = [[row.model, row.score, *format_cells(row, "**", "**")] for row in rows]
        lines += [f"## {protocol}", "", rows[0].described_users, "", *([FOLDS_NOTE, ""] if rows[0].folds > 1 else [])]
        widths = [max(map(len, column)) for column in zip(header, *grid, strict=True)]
        padded = (map(str.ljust, line, widths) for line in (header, ["-" * width for width in widths], *grid))
        lines += [f"| {' | '.join(line)} |" for line in padded]
        lines += [""]
    if any(row.is_left_out for row in table):
        lines += ["†: surely below the best on validation users, so not fitted under the other protocols.", ""]
    return "\n".join([*lines, LEGEND, ""] if table else [*lines, "No user had anything held out.", ""])


def format_cells(row: LeaderboardRow, begin_bold: str, end_bold: str) -> list[str]:
    """Format the metrics of a row and its difference from the best, with the marks of the legend."""
    first, *others = (_format_cell(*cell) for cell in row.cells.values())
    marked = {"best": f"{begin_bold}{first}{end_bold}", "level": f"{first} ="}.get(row.standing, first)
    compared = row.against_best
    difference = _format_cell(compared.difference, compared.standard_error, "+") if compared else ""
    return [marked, *others, f"{difference} †".lstrip() if row.is_left_out else difference]


def _format_cell(value: float, error: float | None, sign: str = "") -> str:
    return f"{value:{sign}.4f}" if error is None else f"{value:{sign}.4f} ± {error:.4f}"
