"""Build the section of each protocol: the leaderboard with dot plots, every metric, and strata of users and items."""

from dataclasses import dataclass, replace

from oneclass.tasks.evaluate.tables import ACTIVITY, POPULARITY, STRATUM_METRICS, THIRDS
from oneclass.tasks.html.numbers import format_list, format_significant
from oneclass.tasks.leaderboard import FOLDS_NOTE, LeaderboardRow
from oneclass.tasks.protocols import PROTOCOLS, Protocol, describe_folds
from oneclass.tasks.report.headline import describe_best
from oneclass.tasks.report.tables import METRIC_LABELS, Column, Row, RunTables, Table, fit_scale, group_rows

BASELINE = "popularity"
MODEL_AND_SCORE = (Column("model", "model"), Column("score", "score", "score"))
STRATA = {ACTIVITY: "users by their history", POPULARITY: "items by their likes"}


@dataclass(frozen=True)
class ProtocolSection:
    """What the page shows of one protocol.

    Attributes:
        best: a sentence on the best model.
        note: on its folds; empty without.
        board: the leaderboard.
        details: more tables.
    """

    name: str
    protocol: Protocol
    best: str
    note: str
    board: Table
    details: list[Table]


def build_protocol_sections(
    tables: RunTables, main: dict[str, list[LeaderboardRow]], published: LeaderboardRow | None
) -> list[ProtocolSection]:
    """Build a section per protocol, in the order of `main`.

    Args:
        main: the leaderboards.
        published: the row of the published list.
    """
    metrics, beyond, strata = (
        group_rows(tables.load_evaluation(name), "protocol") for name in ("metrics", "beyond_accuracy", "strata")
    )
    sections = []
    for protocol, board in main.items():
        details = [
            _build_pivot_table("metrics", "Every metric", "evaluation.metrics", metrics[protocol], board),
            _build_pivot_table(
                "beyond", "The first 20 for test users", "evaluation.beyond_accuracy", beyond.get(protocol, []), board
            ),
            _build_strata_table(strata.get(protocol, []), board, published),
        ]
        sections.append(
            ProtocolSection(
                protocol,
                PROTOCOLS[protocol],
                describe_best(board),
                FOLDS_NOTE if board[0].folds > 1 else "",
                build_leaderboard(board),
                details,
            )
        )
    return sections


def build_leaderboard(board: list[LeaderboardRow]) -> Table:
    """Build a leaderboard with a dot plot of the main metric."""
    protocol = board[0].protocol
    metrics = [metric for metric in PROTOCOLS[protocol].main_metrics if metric in board[0].cells]
    popular = next((row.cells[metrics[0]][0] for row in board if row.model == BASELINE), None)
    columns = [
        *MODEL_AND_SCORE,
        Column("standing", "standing", explain="level: cannot be told from the best; only here: not fitted "
               "under other protocols"),
        *(Column(metric, metric, "metric", METRIC_LABELS[metric], error=f"{metric} error") for metric in metrics),
        Column("difference", "minus the best", "change", f"{metrics[0]} less that of the best, over the same users",
               error="difference error"),
        Column("p_value", "p", "p_value", "of the difference, corrected by Holm's procedure, since the best was picked "
               "by the same users"),
    ]  # fmt: skip
    columns[3] = replace(columns[3], scale=fit_scale([row.cells[metrics[0]] for row in board], popular))
    rows = []
    for row in board:
        against = row.against_best
        rows.append({
            "model": row.model, "score": row.score,
            "standing": "only here" if row.is_left_out else row.standing,
            **{metric: value for metric, (value, _) in row.cells.items()},
            **{f"{metric} error": error for metric, (_, error) in row.cells.items()},
            "difference": against and against.difference, "difference error": against and against.standard_error,
            "p_value": against and against.p_value,
        })  # fmt: skip
    caption = f"Models on {protocol}, {board[0].users:,} test users{describe_folds(board[0].folds)}"
    return Table(f"main-{protocol}", caption, "evaluation.metrics", columns, rows, sorted_by=(metrics[0], "descending"))


def _build_pivot_table(name: str, caption: str, source: str, values: list[Row], board: list[LeaderboardRow]) -> Table:
    """Build a table with a row per model and score, in the leaderboard's order, and a column per metric."""
    found = {row["metric"] for row in values}
    metrics = [*(metric for metric in METRIC_LABELS if metric in found), *sorted(found - METRIC_LABELS.keys())]
    columns = [
        Column(metric, metric, "metric", METRIC_LABELS.get(metric, ""), error=f"{metric} error") for metric in metrics
    ]
    by_list = group_rows(values, "model", "score")
    rows = [
        {"model": row.model, "score": row.score}
        | {of["metric"]: of["value"] for of in by_list[row.model, row.score]}
        | {f"{of['metric']} error": of["standard_error"] for of in by_list[row.model, row.score]}
        for row in board
        if (row.model, row.score) in by_list
    ]
    protocol = board[0].protocol
    return Table(
        f"{name}-{protocol}", f"{caption}, {protocol}", source, [*MODEL_AND_SCORE, *columns], rows, cards=False
    )


def _build_strata_table(strata: list[Row], board: list[LeaderboardRow], published: LeaderboardRow | None) -> Table:
    """Build a table with a row per stratum, and a column each for the published list, the best and popularity."""
    protocol = board[0].protocol
    metric = next(metric for metric in PROTOCOLS[protocol].main_metrics if metric in STRATUM_METRICS)
    shown = [*filter(None, [published]), board[0], *(row for row in board if row.model == BASELINE)]
    lists = dict.fromkeys(format_list(row.model, row.score) for row in shown)
    rows: dict[tuple[str, str], Row] = {}
    of_metric = (row for row in strata if row["metric"] == metric)
    for row in sorted(of_metric, key=lambda row: (row["strata"], THIRDS.index(row["stratum"]))):
        ends = dict.fromkeys(format_significant(row[end]) for end in ("least", "most"))
        cells = rows.setdefault((row["strata"], row["stratum"]), {
            "strata": STRATA[row["strata"]], "stratum": row["stratum"], "range": " to ".join(ends),
            "users": row["users"], "targets": row["targets"],
        })  # fmt: skip
        name = format_list(row["model"], row["score"])
        cells |= {name: row["value"], f"{name} error": row["standard_error"]}
    columns = [
        Column("strata", "divided"), Column("stratum", "part", explain="thirds of the users or items"),
        Column("range", "from, to", explain="the lowest and the highest value in the part"),
        Column("users", "users", "count", "those the metric is over: of items, the users with a held-out one"),
        Column("targets", "to be found", "count"),
        *(Column(name, name, "metric", error=f"{name} error") for name in lists),
    ]  # fmt: skip
    caption = f"{metric} of the published list, the best and popularity, {protocol}"
    return Table(f"strata-{protocol}", caption, "evaluation.strata", columns, list(rows.values()), cards=False)
