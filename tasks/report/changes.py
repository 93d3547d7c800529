"""Build the page's section on changes since the data set's last evaluated run: a summary and its tables."""

from dataclasses import dataclass

import duckdb
import polars as pl

from oneclass.tasks.html import numbers
from oneclass.tasks.protocols import main_metric_parameters
from oneclass.tasks.report.run_tables import Row, join_words
from oneclass.tasks.report.tables import Column, Table
from oneclass.tasks.stores import warehouse


@dataclass(frozen=True)
class Changes:
    """The difference of two runs, as the page shows it.

    Attributes:
        previous: the earlier run's `run_id`, `started_at` and `code_version`; None if this is the first one.
        summary: the difference in one or two sentences.
        tables: of metrics and of settings.
    """

    previous: Row | None
    summary: str
    tables: list[Table]


def build_changes(connection: duckdb.DuckDBPyConnection, run_id: str) -> Changes:
    """Compare a run with the last evaluated run before it, and build the section."""
    earlier = warehouse.select(connection, "changes/previous_run", run_id=run_id).to_dicts()
    if not earlier:
        summary = "No run of the data set was completed before this one; the next is compared with it."
        return Changes(None, summary, [])
    both = {"run_id": run_id, "previous_run_id": earlier[0]["run_id"]}
    of_all = warehouse.select(connection, "changes/metrics", **both, **main_metric_parameters())
    metrics = of_all.filter(pl.col("place") == 0).to_dicts()
    settings = warehouse.select(connection, "changes/settings", **both).to_dicts()
    tables = [
        Table("metric_changes", "Main metric of every list, then and now", "evaluation.metrics", [
            Column("protocol", "protocol"), Column("metric", "metric"), Column("model", "model"),
            Column("score", "score", "score"),
            Column("before", "before", "metric"), Column("now", "now", "metric"),
            Column("change", "change", "change", "standard error as if the two runs' users were independent",
                   error="standard_error"),
            Column("verdict", "verdict", "text", "better or worse: by more than two standard errors")], metrics),
        Table("setting_changes", "Settings that differ", "operations.runs", [
            Column("setting", "setting"), Column("before", "before", "prose"), Column("now", "now", "prose")],
            settings),
    ]  # fmt: skip
    return Changes(earlier[0], _summarize_diff(metrics, settings), tables)


def _summarize_diff(metrics: list[Row], settings: list[Row]) -> str:
    """Summarize the changes of models, metrics beyond the noise, and settings."""
    sentences = [
        f"{heading}: {join_words(models)}"
        for heading, verdict in (("New", "new"), ("Gone", "gone"))
        if (models := _models_with_verdict(metrics, verdict))
    ]
    moved = [row for row in metrics if row["verdict"] in ("better", "worse")]
    if moved:
        best = max(moved, key=lambda row: abs(row["change"]))
        sentences.append(
            f"{len(moved)} of {len(metrics)} main metrics moved beyond two standard errors, most of all "
            f"{best['metric']} of {best['model']} on {best['protocol']} "
            f"({numbers.format_fixed(best['change'], 4, signed=True)})"
        )
    elif metrics:
        same = all(row["verdict"] == "the same" for row in metrics)
        sentences.append("Every metric is the same" if same else "No metric moved beyond two standard errors")
    if settings:
        sentences.append(f"{numbers.format_count(len(settings), 'setting')} changed")
    return ". ".join(sentences) + "." if sentences else "Nothing that this page shows."


def _models_with_verdict(metrics: list[Row], verdict: str) -> list[str]:
    """List the models whose ranked lists all have this verdict."""
    others = {row["model"] for row in metrics if row["verdict"] != verdict}
    return sorted({row["model"] for row in metrics} - others)
