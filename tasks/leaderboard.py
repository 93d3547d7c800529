"""The leaderboard of a run: the main metrics of every model and score under each protocol, as data and as text.

It marks every model that is worse than a trivial baseline (`weaknesses`).
"""

from dataclasses import dataclass, replace
from itertools import groupby

import duckdb

from oneclass.tasks.protocols import PROTOCOLS, main_metric_parameters
from oneclass.tasks.stores import warehouse

RANDOM_MEAN_RANK = 0.5  # the mean rank of random scores
WEAK_MARK = "(!)"  # beside the name of a model that is worse than a trivial baseline
LEGEND = (
    "**Bold**: the best by the first column; `=`: not significantly worse than it (paired over users, 5 %). "
    "± is one standard error."
)


@dataclass(frozen=True)
class LeaderboardRow:
    """One model and score under one protocol.

    Attributes:
        cells: (value, standard error or None) by metric, in the order of the protocol's main metrics.
        standing: `best`, `level` with the best, or ``.
        weaknesses: a sentence for each way in which the model is worse than a trivial baseline.
    """

    protocol: str
    model: str
    score: str
    users: int
    cells: dict[str, tuple[float, float | None]]
    standing: str
    weaknesses: tuple[str, ...] = ()


def load_leaderboard(connection: duckdb.DuckDBPyConnection, run_id: str) -> list[LeaderboardRow]:
    """Load a run's rows: protocols in their order, the best model first."""
    found = warehouse.select(connection, "publish/main_table", run_id=run_id, **main_metric_parameters())
    table = []
    for of_list in found.partition_by("protocol", "model", "score", maintain_order=True):
        protocol, model, score, users, standing = of_list.row(0)[:5]
        cells = {metric: (value, error) for metric, value, error in of_list[:, 5:].iter_rows()}
        table.append(LeaderboardRow(protocol, model, score, users, cells, standing))
    return add_weaknesses(table)


def add_weaknesses(table: list[LeaderboardRow]) -> list[LeaderboardRow]:
    """Add the `weaknesses` to rows.

    A model is weak under a protocol if its mean rank is below 0.5, that of random scores, or its nDCG is below that of
    `popularity` on the same users, if the table has it. A model with several scores is compared by the best of them,
    since a plain `like` leaves popularity out on purpose. Means are compared without regard to their errors. Popularity
    itself can only be worse than random scores.
    """
    of_models: dict[tuple[str, str], list[LeaderboardRow]] = {}
    for row in table:
        of_models.setdefault((row.protocol, row.model), []).append(row)
    best = {
        key: {metric: max(row.cells[metric][0] for row in lists if metric in row.cells) for metric in lists[0].cells}
        for key, lists in of_models.items()
    }
    weak = {
        (protocol, model): _find_weaknesses(protocol, model, values, best.get((protocol, "popularity"), {}))
        for (protocol, model), values in best.items()
    }
    return [replace(row, weaknesses=weak[row.protocol, row.model]) for row in table]


def _find_weaknesses(protocol: str, model: str, values: dict[str, float], popular: dict[str, float]) -> tuple[str, ...]:
    sentences = []
    if (rank := values.get("mean_rank", RANDOM_MEAN_RANK)) < RANDOM_MEAN_RANK:
        sentences.append(f"{model} on {protocol} ranks worse than guessing: mean_rank {rank:.4f}, and guesses have 0.5")
    for metric in (metric for metric in values if metric.startswith("ndcg")):
        if values[metric] < popular.get(metric, float("-inf")):
            of_popularity = f"{metric} {values[metric]:.4f}, and popularity has {popular[metric]:.4f}"
            sentences.append(f"{model} on {protocol} is worse than popularity: {of_popularity}")
    return tuple(sentences)


def list_weaknesses(table: list[LeaderboardRow]) -> list[str]:
    """List the weaknesses of all models, each once, in the order of the rows."""
    return list(dict.fromkeys(sentence for row in table for sentence in row.weaknesses))


def group_by_protocol(table: list[LeaderboardRow]) -> dict[str, list[LeaderboardRow]]:
    """Group rows by protocol; protocols without rows are absent."""
    return {name: list(of_one) for name, of_one in groupby(table, lambda row: row.protocol)}


def format_markdown(table: list[LeaderboardRow], title: str) -> str:
    """Format the table as Markdown, with one section for each protocol."""
    lines = [f"# {title}", ""]
    for protocol, chosen in group_by_protocol(table).items():
        metrics = PROTOCOLS[protocol].main_metrics
        lines += [f"## {protocol}", "", f"{chosen[0].users:,} users", ""]
        lines += ["| model | score | " + " | ".join(metrics) + " |", "|---|---|" + "---|" * len(metrics)]
        lines += ["| " + " | ".join([_display_name(row), row.score, *_mark_best(row)]) + " |" for row in chosen]
        lines += ["", *(f"- {WEAK_MARK} {sentence}." for sentence in list_weaknesses(chosen))]
        lines += [""] if list_weaknesses(chosen) else []
    return "\n".join([*lines, LEGEND, ""] if table else [*lines, "No user had anything held out.", ""])


def format_plain(table: list[LeaderboardRow]) -> str:
    """Format the table for a terminal; the weaknesses of its models follow each protocol's rows."""
    blocks = []
    for protocol, chosen in group_by_protocol(table).items():
        grid = [[f"{protocol} ({chosen[0].users:,} users)", "", *PROTOCOLS[protocol].main_metrics]]
        grid += [
            [_display_name(row), "" if row.score == "score" else row.score, *map(_format_cell, row.cells.values())]
            for row in chosen
        ]
        widths = [max(len(line[column]) for line in grid) for column in range(len(grid[0]))]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in grid]
        blocks.append("\n".join([*lines, *(f"{WEAK_MARK} {sentence}." for sentence in list_weaknesses(chosen))]))
    return "\n\n".join(blocks)


def to_records(rows: list[LeaderboardRow]) -> list[dict[str, str]]:
    """Return a record for each row of one protocol, for a table artifact."""
    return [
        {"model": _display_name(row), "score": row.score}
        | {metric: _format_cell(cell) for metric, cell in row.cells.items()}
        for row in rows
    ]


def _display_name(row: LeaderboardRow) -> str:
    return f"{row.model} {WEAK_MARK}" if row.weaknesses else row.model


def _mark_best(row: LeaderboardRow) -> list[str]:
    texts = list(map(_format_cell, row.cells.values()))
    if row.standing == "best":
        texts[0] = f"**{texts[0]}**"
    elif row.standing == "level":
        texts[0] = f"{texts[0]} ="
    return texts


def _format_cell(cell: tuple[float, float | None]) -> str:
    value, error = cell
    return f"{value:.4f}" if error is None else f"{value:.4f} ± {error:.4f}"
