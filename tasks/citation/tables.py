"""Format a run's leaderboard for a paper: LaTeX with booktabs, and exact values as CSV."""

import polars as pl

from oneclass.tasks.leaderboard import LeaderboardRow, group_by_protocol
from oneclass.tasks.protocols import PROTOCOLS

ESCAPES = str.maketrans({character: f"\\{character}" for character in "_%&#$"})
CAPTION = (
    "{title}, {users}. Means over users with one standard error. Bold: the best by {metric}; $=$: cannot be told from "
    "it over the same users (paired tests, Holm's procedure over all lists, 5\\,\\%)."
)


def format_latex(table: list[LeaderboardRow], title: str) -> str:
    """Format a `table` environment per protocol; the package booktabs sets its rules."""
    return "\n".join(_format_protocol(rows, title) for rows in group_by_protocol(table).values())


def _format_protocol(rows: list[LeaderboardRow], title: str) -> str:
    protocol = rows[0].protocol
    metrics = [metric for metric in PROTOCOLS[protocol].main_metrics if metric in rows[0].cells]
    caption = CAPTION.format(
        title=f"{title}: {PROTOCOLS[protocol].title}".translate(ESCAPES),
        users=rows[0].described_users,
        metric=metrics[0].translate(ESCAPES),
    )
    head = " & ".join(["Model", "Score", *(metric.translate(ESCAPES) for metric in metrics)])
    lines = [
        " & ".join(
            [
                row.model.translate(ESCAPES),
                row.score.translate(ESCAPES),
                *(_format_cell(row, metric, is_main=metric == metrics[0]) for metric in metrics),
            ]
        )
        for row in rows
    ]
    return "\n".join(
        [
            "\\begin{table}",
            f"\\caption{{{caption}}}",
            f"\\label{{tab:{protocol}}}",
            f"\\begin{{tabular}}{{ll{'r' * len(metrics)}}}",
            "\\toprule",
            f"{head} \\\\",
            "\\midrule",
            *(f"{line} \\\\" for line in lines),
            "\\bottomrule",
            "\\end{tabular}",
            "\\end{table}",
            "",
        ]
    )


def _format_cell(row: LeaderboardRow, metric: str, *, is_main: bool) -> str:
    if metric not in row.cells:
        return "--"
    value, error = row.cells[metric]
    number = f"{value:.4f}"
    if is_main and row.standing == "best":
        number = f"\\textbf{{{number}}}"
    mark = "$^{=}$" if is_main and row.standing == "level" else ""
    return f"{number}{mark}" if error is None else f"{number}{mark} $\\pm$ {error:.4f}"


def format_csv(table: list[LeaderboardRow]) -> str:
    """Format a row per protocol, model, score and metric, with the digits that make the same double again."""
    rows = []
    for row in table:
        compared = row.against_best
        for metric, (value, error) in row.cells.items():
            is_main = metric == PROTOCOLS[row.protocol].main_metric
            rows.append(
                {
                    "protocol": row.protocol,
                    "model": row.model,
                    "score": row.score,
                    "metric": metric,
                    "value": value,
                    "standard_error": error,
                    "users": row.users,
                    "standing": (row.standing or "worse") if is_main else None,
                    "difference_from_best": compared.difference if compared and is_main else None,
                    "corrected_p_value": compared.p_value if compared and is_main else None,
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None).write_csv()
