"""The main table of a run: the main metrics of every model and score under each protocol, as data and as text.

It names every model that is worse than a trivial one (`weaknesses`), wherever the table is shown.
"""

from dataclasses import dataclass, replace
from itertools import groupby

import duckdb

from tasks.protocols import PROTOCOLS, main_metrics
from tasks.stores import warehouse

GUESSING = 0.5  # the mean rank of guesses
WEAK = "(!)"  # beside the name of a model that is worse than a trivial one
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
        weaknesses: a sentence for each way in which the model is worse than a trivial one.
    """

    protocol: str
    model: str
    score: str
    users: int
    cells: dict[str, tuple[float, float | None]]
    standing: str
    weaknesses: tuple[str, ...] = ()


def rows(connection: duckdb.DuckDBPyConnection, run_id: str) -> list[MainRow]:
    """The run's rows: protocols in their own order, in each the best first."""
    found = warehouse.select(connection, "publish/main_table", run_id=run_id, **main_metrics())
    table = []
    for of_list in found.partition_by("protocol", "model", "score", maintain_order=True):
        protocol, model, score, users, standing = of_list.row(0)[:5]
        cells = {metric: (value, error) for metric, value, error in of_list[:, 5:].iter_rows()}
        table.append(MainRow(protocol, model, score, users, cells, standing))
    return named(table)


def named(table: list[MainRow]) -> list[MainRow]:
    """The rows with their `weaknesses`.

    A model is weak under a protocol if its mean rank is below 0.5, that of guesses, or its nDCG is below that of
    `popularity`, which ranked for the same users; without popularity in the table only the first is looked at. A model
    with several scores is judged by the best of them, for a plain `like` leaves popularity out on purpose. Means are
    compared as they are, whatever their errors. Popularity itself can only be worse than guesses.
    """
    of_models: dict[tuple[str, str], list[MainRow]] = {}
    for row in table:
        of_models.setdefault((row.protocol, row.model), []).append(row)
    best = {
        key: {metric: max(row.cells[metric][0] for row in lists if metric in row.cells) for metric in lists[0].cells}
        for key, lists in of_models.items()
    }
    weak = {
        (protocol, model): _weaknesses(protocol, model, values, best.get((protocol, "popularity"), {}))
        for (protocol, model), values in best.items()
    }
    return [replace(row, weaknesses=weak[row.protocol, row.model]) for row in table]


def _weaknesses(protocol: str, model: str, values: dict[str, float], popular: dict[str, float]) -> tuple[str, ...]:
    said = []
    if (rank := values.get("mean_rank", GUESSING)) < GUESSING:
        said.append(f"{model} on {protocol} ranks worse than guessing: mean_rank {rank:.4f}, and guesses have 0.5")
    for metric in (metric for metric in values if metric.startswith("ndcg")):
        if values[metric] < popular.get(metric, float("-inf")):
            of_popularity = f"{metric} {values[metric]:.4f}, and popularity has {popular[metric]:.4f}"
            said.append(f"{model} on {protocol} is worse than popularity: {of_popularity}")
    return tuple(said)


def weaknesses(table: list[MainRow]) -> list[str]:
    """The sentences on every weak model, each once, in the order of the rows."""
    return list(dict.fromkeys(sentence for row in table for sentence in row.weaknesses))


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
        lines += ["| " + " | ".join([_name(row), row.score, *_marked(row)]) + " |" for row in chosen]
        lines += ["", *(f"- {WEAK} {sentence}." for sentence in weaknesses(chosen))]
        lines += [""] if weaknesses(chosen) else []
    return "\n".join([*lines, LEGEND, ""] if table else [*lines, "No user had anything held out.", ""])


def plain(table: list[MainRow]) -> str:
    """The table for a terminal; below each protocol's rows the weaknesses of its models."""
    blocks = []
    for protocol, chosen in by_protocol(table).items():
        grid = [[f"{protocol} ({chosen[0].users:,} users)", "", *PROTOCOLS[protocol].main_metrics]]
        grid += [
            [_name(row), "" if row.score == "score" else row.score, *map(_cell, row.cells.values())] for row in chosen
        ]
        widths = [max(len(line[column]) for line in grid) for column in range(len(grid[0]))]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in grid]
        blocks.append("\n".join([*lines, *(f"{WEAK} {sentence}." for sentence in weaknesses(chosen))]))
    return "\n\n".join(blocks)


def records(rows: list[MainRow]) -> list[dict[str, str]]:
    """A record for each row of one protocol, as a table artifact needs them."""
    return [
        {"model": _name(row), "score": row.score} | {metric: _cell(cell) for metric, cell in row.cells.items()}
        for row in rows
    ]


def _name(row: MainRow) -> str:
    return f"{row.model} {WEAK}" if row.weaknesses else row.model


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
