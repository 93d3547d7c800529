"""The leaderboard of a run: the main metrics of every model and score under each protocol, as data and as text.

It marks every model that is worse than a trivial baseline (`weaknesses`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import duckdb
import numpy as np
import polars as pl

from oneclass.models.evaluation.metrics import Comparison
from oneclass.models.evaluation.multiple_tests import ALPHA, adjust_against_best
from oneclass.tasks.protocols import PROTOCOLS, main_metric_parameters
from oneclass.tasks.stores import warehouse

RANDOM_MEAN_RANK = 0.5  # the mean rank of random scores
WEAK_MARK = "(!)"  # beside the name of a model that is worse than a trivial baseline
DIFFERENCE_LABEL = "minus the best"
COMPARISON_LEGEND = (
    "The last column is the difference from the best by the first metric, paired over the same users. `=`: cannot be "
    "told from it (Holm's procedure over all lists, 5 %). ± is one standard error."
)
LEGEND = f"**Bold**: the best. {COMPARISON_LEGEND}"


@dataclass(frozen=True)
class LeaderboardRow:
    """One model and score under one protocol.

    Attributes:
        cells: (value, standard error or None) by metric, in the order of the protocol's main metrics.
        standing: `best`, `level` with the best, or `` if it is surely worse.
        weaknesses: a sentence for each way in which the model is worse than a trivial baseline.
        against_best: its first metric less that of the best, paired over users, with the p-value corrected by
            `adjust_against_best`; None for the best itself.
    """

    protocol: str
    model: str
    score: str
    users: int
    cells: dict[str, tuple[float, float | None]]
    standing: str
    weaknesses: tuple[str, ...] = ()
    against_best: Comparison | None = None


def load_leaderboard(connection: duckdb.DuckDBPyConnection, run_id: str) -> list[LeaderboardRow]:
    """Load a run's rows: protocols in their order, the best model first."""
    found = warehouse.select(connection, "publish/main_table", run_id=run_id, **main_metric_parameters())
    by_protocol = found.partition_by("protocol", maintain_order=True)
    return add_weaknesses([row for of_protocol in by_protocol for row in _mark_lists(of_protocol)])


def _mark_lists(of_protocol: pl.DataFrame) -> Iterator[LeaderboardRow]:
    """Yield the row of each list of one protocol, the best first; the others by their comparison with it."""
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
        )


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
        names = [*PROTOCOLS[protocol].main_metrics, DIFFERENCE_LABEL]
        lines += [f"## {protocol}", "", f"{chosen[0].users:,} users", ""]
        lines += ["| model | score | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
        lines += [
            "| " + " | ".join([_display_name(row), row.score, *_format_cells(row, "**")]) + " |" for row in chosen
        ]
        lines += ["", *(f"- {WEAK_MARK} {sentence}." for sentence in list_weaknesses(chosen))]
        lines += [""] if list_weaknesses(chosen) else []
    return "\n".join([*lines, LEGEND, ""] if table else [*lines, "No user had anything held out.", ""])


def format_plain(table: list[LeaderboardRow]) -> str:
    """Format the table for a terminal; the weaknesses of its models follow each protocol's rows."""
    blocks = []
    for protocol, chosen in group_by_protocol(table).items():
        header = [f"{protocol} ({chosen[0].users:,} users)", "", *PROTOCOLS[protocol].main_metrics, DIFFERENCE_LABEL]
        grid = [header] + [
            [_display_name(row), "" if row.score == "score" else row.score, *_format_cells(row)] for row in chosen
        ]
        widths = [max(len(line[column]) for line in grid) for column in range(len(grid[0]))]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in grid]
        blocks.append("\n".join([*lines, *(f"{WEAK_MARK} {sentence}." for sentence in list_weaknesses(chosen))]))
    return "\n\n".join(blocks)


def to_records(rows: list[LeaderboardRow]) -> list[dict[str, str]]:
    """Return a record for each row of one protocol, for a table artifact."""
    return [
        {"model": _display_name(row), "score": row.score}
        | dict(zip([*row.cells, DIFFERENCE_LABEL], _format_cells(row), strict=True))
        for row in rows
    ]


def _display_name(row: LeaderboardRow) -> str:
    return f"{row.model} {WEAK_MARK}" if row.weaknesses else row.model


def _format_cells(row: LeaderboardRow, bold: str = "") -> list[str]:
    """Format the metrics of a row and its difference from the best, with the marks of the legend."""
    texts = [_format_cell(*cell) for cell in row.cells.values()]
    if row.standing == "best":
        texts[0] = f"{bold}{texts[0]}{bold}"
    elif row.standing == "level":
        texts[0] = f"{texts[0]} ="
    compared = row.against_best
    return [*texts, "" if compared is None else _format_cell(compared.difference, compared.standard_error, "+")]


def _format_cell(value: float, error: float | None, sign: str = "") -> str:
    return f"{value:{sign}.4f}" if error is None else f"{value:{sign}.4f} ± {error:.4f}"
