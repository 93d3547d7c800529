"""The table of several logs in Markdown and LaTeX, with corrected marks; used by `benchmarks.accuracy.libraries`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from oneclass.models.evaluation import metrics
from oneclass.models.evaluation.multiple_tests import ALPHA, adjust_against_best


@dataclass
class Cell:
    """A value of the table; `mark` is `best`, `level` (not shown to be worse than the best) or empty."""

    mean: float
    error: float
    mark: str


def fill_cells(log: dict[str, Any], metric: str) -> dict[str, Cell]:
    """Return the cells of one log's column by row."""
    values = {row["name"]: np.array(row["of_users"][metric]) for row in log["rows"]}
    means = {name: metrics.mean_and_error(of) for name, of in values.items()}
    best = max(means, key=lambda name: means[name].value)
    others = [name for name in values if name != best]
    raw = np.array([metrics.compare_paired(values[best], values[name]).p_value for name in others], dtype=float)
    adjusted = dict(zip(others, adjust_against_best(np.nan_to_num(raw, nan=1.0)), strict=True))
    marks = {name: "level" if adjusted[name] > ALPHA else "" for name in others} | {best: "best"}
    return {name: Cell(mean.value, mean.standard_error or 0.0, marks[name]) for name, mean in means.items()}


def list_origins(logs: list[dict[str, Any]]) -> dict[str, str]:
    """Return the origin of each row that any log has, in the order of the first appearance."""
    return {row["name"]: row["origin"] for log in logs for row in log["rows"]}


def list_metrics(logs: list[dict[str, Any]]) -> list[str]:
    """Return the first two metrics of the logs' protocol."""
    return list(logs[0]["rows"][0]["of_users"])[:2]


def format_markdown(logs: list[dict[str, Any]]) -> str:
    """Format a table for each metric, and one of processor seconds."""
    wraps, parts = {"best": "**{}**", "level": "<u>{}</u>", "": "{}"}, []
    head = f"| model | of | {' | '.join(log['log'] for log in logs)} |\n|---|---|{'---|' * len(logs)}"
    origins = list_origins(logs)
    for metric in list_metrics(logs):
        columns = [fill_cells(log, metric) for log in logs]
        lines = [f"{metric}, mean over test users ± its standard error\n", head]
        for name, origin in origins.items():
            cells = [
                wraps[cell.mark].format(f"{cell.mean:.4f} ± {cell.error:.4f}") if (cell := column.get(name)) else ""
                for column in columns
            ]
            lines.append(f"| {name} | {origin} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    lines = ["Processor seconds of the last fit, and of the search with its trials\n", head]
    for name, origin in origins.items():
        of = [next((row for row in log["rows"] if row["name"] == name), None) for log in logs]
        cells = [
            f"{row['fit_seconds']:.1f}; {row['search_seconds']:.0f} ({row['trials']})" if row else "" for row in of
        ]
        lines.append(f"| {name} | {origin} | {' | '.join(cells)} |")
    return "\n\n".join([*parts, "\n".join(lines)]) + "\n"


def format_latex(logs: list[dict[str, Any]]) -> str:
    """Format the same values for a paper: a table of booktabs with all metrics."""
    wraps = {"best": r"\textbf{{{}}}", "level": r"\underline{{{}}}", "": "{}"}

    def escape_latex(text: str) -> str:
        return text.replace("_", r"\_")

    users = "; ".join(f"{escape_latex(log['log'])} {log['test users']:,}" for log in logs)
    lines = [r"\begin{table}", r"\centering", r"\begin{tabular}{ll" + "r" * len(logs) + "}", r"\toprule"]
    for metric in list_metrics(logs):
        columns = [fill_cells(log, metric) for log in logs]
        lines += [f"{metric} & of & {' & '.join(escape_latex(log['log']) for log in logs)} \\\\", r"\midrule"]
        for name, origin in list_origins(logs).items():
            cells = [
                wraps[cell.mark].format(f"{cell.mean:.4f}") + rf" {{\tiny $\pm$ {cell.error:.4f}}}" if cell else "--"
                for cell in (column.get(name) for column in columns)
            ]
            lines.append(f"{escape_latex(name)} & {escape_latex(origin)} & {' & '.join(cells)} \\\\")
        lines.append(r"\midrule")
    lines[-1] = r"\bottomrule"
    caption = (
        f"{escape_latex(logs[0]['protocol'])}, test users: {users}. Mean $\\pm$ standard error. "
        f"Each row has the best of {logs[0]['trials']} settings on the validation part. Bold: the best. "
        f"Underlined: not worse by a paired t-test at {ALPHA:g}, corrected for the choice of the best."
    )
    return "\n".join([*lines, r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}"]) + "\n"
