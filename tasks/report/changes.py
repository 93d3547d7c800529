"""Build the page's section on changes since the previous run: a summary and its tables."""

from dataclasses import dataclass, field

import polars as pl

from oneclass.tasks.html import numbers
from oneclass.tasks.report.run_tables import Row, join_words
from oneclass.tasks.report.tables import Column, Table
from oneclass.tasks.run_diff import PreviousRun, RunDiff


@dataclass(frozen=True)
class RunDiffSection:
    """The difference of two runs, as the page shows it.

    Attributes:
        previous: the earlier run; None if this is the first one.
        summary: the difference in one or two sentences.
        tables: the tables with rows among metrics, log files, contracts and settings.
        main_metrics: the rows of every ranked list by its protocol's main metric.
    """

    previous: PreviousRun | None
    summary: str
    tables: list[Table]
    main_metrics: list[Row] = field(default_factory=list)


def build_diff_section(changes: RunDiff | None) -> RunDiffSection:
    """Build the section; `changes` is None for the first run."""
    if changes is None:
        summary = "No run of the data set was completed before this one; the next is compared with it."
        return RunDiffSection(None, summary, [])
    main_metrics = changes.metrics.filter(pl.col("place") == 0)
    tables = [_build_metric_table(main_metrics), *_build_other_tables(changes)]
    summary = _summarize_diff(main_metrics.to_dicts(), tables)
    nonempty = [table for table in tables if len(table.frame)]
    return RunDiffSection(changes.previous, summary, nonempty, main_metrics.to_dicts())


def _build_metric_table(rows: pl.DataFrame) -> Table:
    columns = [
        Column("protocol", "protocol"), Column("metric", "metric"), Column("model", "model"),
        Column("score", "score", "score"),
        Column("before", "before", "metric"), Column("now", "now", "metric"),
        Column("change", "change", "change", "standard error as if the two runs' users were independent",
               error="standard_error"),
        Column("verdict", "verdict", "text", "better or worse: by more than two standard errors"),
    ]  # fmt: skip
    return Table("metric_changes", "Main metric of every list, then and now", "evaluation.metrics", columns, rows)


def _build_other_tables(changes: RunDiff) -> list[Table]:
    files = [Column("file", "file"), Column("events", "events", "count"), Column("rejects", "rejects", "count"),
             Column("ingested_at", "ingested, UTC", "time")]  # fmt: skip
    rules = [Column("contract", "contract"), Column("rule", "rule"), Column("change", "change")]
    settings = [Column("setting", "setting"), Column("before", "before", "prose"), Column("now", "now", "prose")]
    return [
        Table("new_log_files", "Log files ingested since", "operations.log_files", files, changes.log_files),
        Table("rule_changes", "Rules met then and not now, or now and not then", "operations.contract_results", rules,
              changes.rules),
        Table("setting_changes", "Settings that differ", "operations.runs", settings, changes.settings),
    ]  # fmt: skip


def _summarize_diff(metrics: list[Row], tables: list[Table]) -> str:
    """Summarize the changes of models, metrics beyond the noise, files, rules and settings."""
    sentences = [f"{heading}: {join_words(models)}" for heading, verdict in (("New", "new"), ("Gone", "gone"))
            if (models := _models_with_verdict(metrics, verdict))]  # fmt: skip
    moved = [row for row in metrics if row["verdict"] in ("better", "worse")]
    same = sum(row["verdict"] == "the same" for row in metrics)
    if moved:
        best = max(moved, key=lambda row: abs(row["change"]))
        sentences.append(
            f"{len(moved)} of {len(metrics)} main metrics moved beyond two standard errors, most of all "
            f"{best['metric']} of {best['model']} on {best['protocol']} "
            f"({numbers.format_fixed(best['change'], 4, signed=True)})"
        )
    elif metrics:
        sentences.append("Every main metric is the same" if same == len(metrics) else
                    "No main metric moved beyond two standard errors")  # fmt: skip
    counted = (("log file", "came in"), ("rule", "met by one run only"), ("setting", "changed"))
    for table, (thing, happened) in zip(tables[1:], counted, strict=True):
        if count := len(table.frame):
            sentences.append(f"{count} {thing}{'' if count == 1 else 's'} {happened}")
    return ". ".join(sentences) + "." if sentences else "Nothing that this page shows."


def _models_with_verdict(metrics: list[Row], verdict: str) -> list[str]:
    """List the models whose ranked lists all have this verdict."""
    verdicts: dict[str, set[str]] = {}
    for row in metrics:
        verdicts.setdefault(row["model"], set()).add(row["verdict"])
    return sorted(model for model, verdict_set in verdicts.items() if verdict_set == {verdict})
