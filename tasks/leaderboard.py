"""The leaderboard of a run: the main metrics of every model and score under each protocol, as data and as text.

It marks every model that is worse than a trivial baseline (`weaknesses`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

import duckdb
import numpy as np
import polars as pl
from scipy.special import stdtr

from oneclass.models.evaluation.metrics import ALPHA, Comparison, Mean, adjust_against_best, adjust_holm
from oneclass.models.evaluation.ranks_apart import KNOWN_RANK
from oneclass.tasks.protocols import describe_folds, main_metric_parameters
from oneclass.tasks.stores import warehouse

RANDOM_MEAN_RANK = 0.5  # the mean rank of random scores
WEAK_MARK = "(!)"  # beside the name of a model that is worse than a trivial baseline
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
        weaknesses: a sentence for each way in which the model is worse than a trivial baseline.
        against_best: its first metric less that of the best, paired over users, with the p-value corrected by
            `adjust_against_best`; None for the best itself.
        folds: the number of folds that the users are in, 1 without.
    """

    protocol: str
    model: str
    score: str
    users: int
    cells: dict[str, tuple[float, float | None]]
    standing: str
    weaknesses: tuple[str, ...] = ()
    against_best: Comparison | None = None
    folds: int = 1

    @property
    def described_users(self) -> str:
        """The number of users, and of their folds."""
        return f"{self.users:,} users{describe_folds(self.folds)}"


def load_leaderboard(connection: duckdb.DuckDBPyConnection, run_id: str) -> list[LeaderboardRow]:
    """Load a run's rows: protocols in their order, the best model first."""
    main = main_metric_parameters()
    found = warehouse.select(connection, "publish/main_table", run_id=run_id, **main)
    by_protocol = found.partition_by("protocol", maintain_order=True)
    table = [row for of_protocol in by_protocol for row in mark_lists(of_protocol)]
    names = {"protocols": main["protocols"], "metrics": main["metrics"]}
    tests = warehouse.select(connection, "publish/popularity_tests", run_id=run_id, **names).rows()
    ranks = warehouse.select(connection, "publish/known_ranks", run_id=run_id, metric=KNOWN_RANK).rows()
    # A mean over no user is null.
    known_ranks = {row[:3]: Mean(*row[3:]) for row in ranks if row[3] is not None}
    return add_weaknesses(table, {tuple(of_list): p_value for *of_list, p_value in tests}, known_ranks)


def mark_lists(of_protocol: pl.DataFrame) -> Iterator[LeaderboardRow]:
    """Yield the row of each list of one protocol, the best first; the others by their comparison with it.

    Args:
        of_protocol: the columns and the order of `publish/main_table`.
    """
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
        )


# A list that is compared: its value, its model, the p-value of its test, and the sentence if it is significant.
Candidate = tuple[float, str, float, str]


def add_weaknesses(
    table: list[LeaderboardRow],
    popularity_tests: Mapping[tuple[str, ...], float | None],
    known_ranks: Mapping[tuple[str, ...], Mean],
) -> list[LeaderboardRow]:
    """Add the `weaknesses` to rows.

    A model is weak under a protocol if its mean rank of known items (`average_known_ranks`) is surely below 0.5, that
    of random scores, or its nDCG surely below that of `popularity` on the same users, if the table has it: by one-sided
    t-tests and by paired t-tests, corrected over the models by Holm's procedure. A model with several scores is
    compared by the best of them, since a plain `like` leaves popularity out on purpose. Popularity itself can only be
    worse than random scores.

    Args:
        popularity_tests: the plain p-value of a list's comparison with popularity, by protocol, metric, model, score.
        known_ranks: the mean of KNOWN_RANK, by protocol, model and score.
    """
    weak: dict[tuple[str, str], list[str]] = {}
    for protocol, rows in group_by_protocol(table).items():
        ndcg = [metric for metric in rows[0].cells if metric.startswith("ndcg")]
        families = [_compare_with_popularity(rows, metric, popularity_tests) for metric in ndcg]
        for family in [_compare_with_random(rows, known_ranks), *families]:
            best = {model: (p_value, sentence) for _, model, p_value, sentence in sorted(family)}
            adjusted = adjust_holm(np.array([p_value for p_value, _ in best.values()]))
            for (model, (_, sentence)), p_value in zip(best.items(), adjusted, strict=True):
                if p_value < ALPHA and sentence:
                    weak.setdefault((protocol, model), []).append(f"{model} on {protocol} {sentence}")
    return [replace(row, weaknesses=tuple(weak.get((row.protocol, row.model), ()))) for row in table]


def _compare_with_random(
    rows: list[LeaderboardRow], known_ranks: Mapping[tuple[str, ...], Mean]
) -> Iterator[Candidate]:
    """Test whether the lists of a protocol have a mean rank below that of random scores."""
    for row in rows:
        if rank := known_ranks.get((row.protocol, row.model, row.score)):
            p_value = float(rank.standard_error is None or rank.value >= RANDOM_MEAN_RANK)
            if rank.standard_error:
                p_value = float(stdtr(rank.users - 1, (rank.value - RANDOM_MEAN_RANK) / rank.standard_error))
            sentence = f"ranks worse than guessing: mean rank {rank.value:.4f} of known items, and guesses have 0.5"
            yield rank.value, row.model, p_value, sentence


def _compare_with_popularity(
    rows: list[LeaderboardRow], metric: str, tests: Mapping[tuple[str, ...], float | None]
) -> Iterator[Candidate]:
    """Test whether the lists of a protocol have a metric other than popularity's; only lower ones get a sentence."""
    lists = [(row.cells[metric][0], row) for row in rows if metric in row.cells]
    for popular in [value for value, row in lists if row.model == "popularity"]:
        for value, row in lists:
            p_value = tests.get((row.protocol, metric, row.model, row.score))
            sentence = f"is worse than popularity: {metric} {value:.4f}, and popularity has {popular:.4f}"
            if row.model != "popularity":
                yield value, row.model, 1.0 if p_value is None else p_value, sentence if value < popular else ""


def list_weaknesses(table: list[LeaderboardRow]) -> list[str]:
    """List the weaknesses of all models, each once, in the order of the rows."""
    return list(dict.fromkeys(sentence for row in table for sentence in row.weaknesses))


def group_by_protocol(table: list[LeaderboardRow]) -> dict[str, list[LeaderboardRow]]:
    """Group rows by protocol; protocols without rows are absent."""
    return {name: list(of_one) for name, of_one in groupby(table, lambda row: row.protocol)}


def format_markdown(table: list[LeaderboardRow], title: str) -> str:
    """Format the table as Markdown that a terminal can show too, with one section for each protocol."""
    lines = [f"# {title}", ""]
    for protocol, rows in group_by_protocol(table).items():
        names = [f"{row.model} {WEAK_MARK}" if row.weaknesses else row.model for row in rows]
        header = ["model", "score", *rows[0].cells, DIFFERENCE_LABEL]
        grid = [[name, row.score, *format_cells(row, "**", "**")] for name, row in zip(names, rows, strict=True)]
        lines += [f"## {protocol}", "", rows[0].described_users, "", *([FOLDS_NOTE, ""] if rows[0].folds > 1 else [])]
        widths = [max(map(len, column)) for column in zip(header, *grid, strict=True)]
        padded = (map(str.ljust, line, widths) for line in (header, ["-" * width for width in widths], *grid))
        lines += [f"| {' | '.join(line)} |" for line in padded]
        lines += ["", *(f"- {WEAK_MARK} {sentence}." for sentence in list_weaknesses(rows))]
        lines += [""] if list_weaknesses(rows) else []
    return "\n".join([*lines, LEGEND, ""] if table else [*lines, "No user had anything held out.", ""])


def format_cells(row: LeaderboardRow, begin_bold: str, end_bold: str) -> list[str]:
    """Format the metrics of a row and its difference from the best, with the marks of the legend."""
    first, *others = (_format_cell(*cell) for cell in row.cells.values())
    marked = {"best": f"{begin_bold}{first}{end_bold}", "level": f"{first} ="}.get(row.standing, first)
    compared = row.against_best
    return [marked, *others, _format_cell(compared.difference, compared.standard_error, "+") if compared else ""]


def _format_cell(value: float, error: float | None, sign: str = "") -> str:
    return f"{value:{sign}.4f}" if error is None else f"{value:{sign}.4f} ± {error:.4f}"
