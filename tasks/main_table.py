"""The main table of a run: every model and score by the main metrics of each protocol, as plain data and text."""

from dataclasses import dataclass

import duckdb

import sql

MAIN_METRICS = {
    "strong_generalization": ("ndcg@100", "recall@20", "recall@50", "mean_rank"),
    "leave_one_out": ("mean_rank", "mean_rank_midtie", "median_rank", "ndcg@100"),
    "given": ("recall_of_all@20", "ndcg@20", "mean_rank"),
}
LEGEND = (
    "**Bold**: the best by the first column; `=`: not significantly worse than it (paired over users, 5 %). "
    "± is one standard error."
)


@dataclass(frozen=True)
class Row:
    """One model and score under one protocol.

    Attributes:
        cells: (value, standard error or None) by metric, in the order of `MAIN_METRICS`.
        standing: `best`, `level` with the best, or ``.
    """

    protocol: str
    model: str
    score: str
    users: int
    cells: dict[str, tuple[float, float | None]]
    standing: str


def rows(connection: duckdb.DuckDBPyConnection, run_id: str) -> list[Row]:
    """The run's rows: protocols in their own order, in each the best first."""
    cells: dict[tuple[str, str, str], dict] = {}
    users: dict[tuple[str, str, str], int] = {}
    found = connection.execute(sql.statement("publish/evaluation"), {"run_id": run_id}).fetchall()
    for protocol, model, score, metric, value, error, count in found:
        if metric in MAIN_METRICS[protocol]:
            cells.setdefault((protocol, model, score), {})[metric] = (value, error)
            users[protocol, model, score] = count
    table = []
    for protocol, metrics in MAIN_METRICS.items():
        standing = _standing(connection, run_id, protocol, metrics[0])
        of_protocol = [key for key in cells if key[0] == protocol]
        for key in sorted(of_protocol, key=lambda key: (-cells[key][metrics[0]][0], key)):
            ordered = {metric: cells[key][metric] for metric in metrics if metric in cells[key]}
            table.append(Row(*key, users[key], ordered, standing.get(key[1:], "")))
    return table


def markdown(table: list[Row], title: str) -> str:
    """The table as Markdown, one section a protocol."""
    lines = [f"# {title}", ""]
    for protocol, metrics in MAIN_METRICS.items():
        chosen = [row for row in table if row.protocol == protocol]
        if not chosen:
            continue
        lines += [f"## {protocol}", "", f"{chosen[0].users:,} users", ""]
        lines += ["| model | score | " + " | ".join(metrics) + " |", "|---|---|" + "---|" * len(metrics)]
        lines += ["| " + " | ".join([row.model, row.score, *_marked(row)]) + " |" for row in chosen]
        lines += [""]
    return "\n".join([*lines, LEGEND, ""] if table else [*lines, "No user had anything held out.", ""])


def plain(table: list[Row]) -> str:
    """The table for a terminal."""
    blocks = []
    for protocol, metrics in MAIN_METRICS.items():
        chosen = [row for row in table if row.protocol == protocol]
        if not chosen:
            continue
        grid = [[f"{protocol} ({chosen[0].users:,} users)", "", *metrics]]
        grid += [
            [row.model, "" if row.score == "score" else row.score, *map(_cell, row.cells.values())] for row in chosen
        ]
        widths = [max(len(line[column]) for line in grid) for column in range(len(grid[0]))]
        blocks.append("\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in grid))
    return "\n\n".join(blocks)


def records(table: list[Row]) -> list[dict[str, str]]:
    """One flat record a row, for a table artifact; the same keys in each."""
    metrics = list(dict.fromkeys(metric for of_protocol in MAIN_METRICS.values() for metric in of_protocol))
    return [
        {"protocol": row.protocol, "model": row.model, "score": row.score}
        | {metric: _cell(row.cells[metric]) if metric in row.cells else "" for metric in metrics}
        for row in table
    ]


def _standing(connection: duckdb.DuckDBPyConnection, run_id: str, protocol: str, metric: str) -> dict:
    values = {"run_id": run_id, "protocol": protocol, "metric": metric}
    found = connection.execute(sql.statement("publish/level_with_best"), values).fetchall()
    return {(model, score): "best" if is_best else "level" for model, score, is_best in reversed(found)}


def _marked(row: Row) -> list[str]:
    texts = list(map(_cell, row.cells.values()))
    if row.standing == "best":
        texts[0] = f"**{texts[0]}**"
    elif row.standing == "level":
        texts[0] = f"{texts[0]} ="
    return texts


def _cell(cell: tuple[float, float | None]) -> str:
    value, error = cell
    return f"{value:.4f}" if error is None else f"{value:.4f} ± {error:.4f}"
