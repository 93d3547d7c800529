"""The main table of a run: the main metrics of every model and score under each protocol, as data and as text."""

from dataclasses import dataclass
from itertools import groupby

import duckdb

from tasks.protocols import PROTOCOLS, main_metrics
from tasks.stores import warehouse

LEGEND = (
    "**Bold**: the best by the first column; `=`: not significantly worse than it (paired over users, 5 %). "
    "± is one standard error."
)


@dataclass(frozen=True)
class MainRow:
    """One model and score under one protocol.

    Attributes:
        cells: (value, standard error or None) by metric, in the order of the protocol's main metrics.
        standing: `best`, `level` with the best, or ``.
    """

    protocol: str
    model: str
    score: str
    users: int
    cells: dict[str, tuple[float, float | None]]
    standing: str


def rows(connection: duckdb.DuckDBPyConnection, run_id: str) -> list[MainRow]:
    """The run's rows: protocols in their own order, in each the best first."""
    found = warehouse.select(connection, "publish/main_table", run_id=run_id, **main_metrics())
    table = []
    for of_list in found.partition_by("protocol", "model", "score", maintain_order=True):
        protocol, model, score, users, standing = of_list.row(0)[:5]
        cells = {metric: (value, error) for metric, value, error in of_list[:, 5:].iter_rows()}
        table.append(MainRow(protocol, model, score, users, cells, standing))
    return table


def by_protocol(table: list[MainRow]) -> dict[str, list[MainRow]]:
    """The rows of each protocol; protocols without rows are left out."""
    return {name: list(of_one) for name, of_one in groupby(table, lambda row: row.protocol)}


def markdown(table: list[MainRow], title: str) -> str:
    """The table as Markdown, with one section for each protocol."""
    lines = [f"# {title}", ""]
    for protocol, chosen in by_protocol(table).items():
        metrics = PROTOCOLS[protocol].main_metrics
        lines += [f"## {protocol}", "", f"{chosen[0].users:,} users", ""]
        lines += ["| model | score | " + " | ".join(metrics) + " |", "|---|---|" + "---|" * len(metrics)]
        lines += ["| " + " | ".join([row.model, row.score, *_marked(row)]) + " |" for row in chosen]
        lines += [""]
    return "\n".join([*lines, LEGEND, ""] if table else [*lines, "No user had anything held out.", ""])


def plain(table: list[MainRow]) -> str:
    """The table for a terminal."""
    blocks = []
    for protocol, chosen in by_protocol(table).items():
        grid = [[f"{protocol} ({chosen[0].users:,} users)", "", *PROTOCOLS[protocol].main_metrics]]
        grid += [
            [row.model, "" if row.score == "score" else row.score, *map(_cell, row.cells.values())] for row in chosen
        ]
        widths = [max(len(line[column]) for line in grid) for column in range(len(grid[0]))]
        blocks.append("\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in grid))
    return "\n\n".join(blocks)


def records(table: list[MainRow]) -> list[dict[str, str]]:
    """A record for each row, all with the same keys, as a table artifact needs them."""
    metrics = list(dict.fromkeys(metric for one in PROTOCOLS.values() for metric in one.main_metrics))
    return [
        {"protocol": row.protocol, "model": row.model, "score": row.score}
        | {metric: _cell(row.cells[metric]) if metric in row.cells else "" for metric in metrics}
        for row in table
    ]


def _marked(row: MainRow) -> list[str]:
    texts = list(map(_cell, row.cells.values()))
    if row.standing == "best":
        texts[0] = f"**{texts[0]}**"
    elif row.standing == "level":
        texts[0] = f"{texts[0]} ="
    return texts


def _cell(cell: tuple[float, float | None]) -> str:
    value, error = cell
    return f"{value:.4f}" if error is None else f"{value:.4f} ± {error:.4f}"
