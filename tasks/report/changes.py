"""The page's section on what changed since the last run: a sentence, and the tables behind it."""

from dataclasses import dataclass, field

import polars as pl

from oneclass.tasks.html import numbers
from oneclass.tasks.report.plotting import Row, join_words
from oneclass.tasks.report.tables import Column, Table
from oneclass.tasks.run_diff import PreviousRun, RunDiff


@dataclass(frozen=True)
class RunDiffSection:
    """What the page says of the difference of two runs.

    Attributes:
        previous: the earlier run; None where this is the first one.
        sentence: the difference in one or two sentences.
        judging: the rows of every list by the metric that judges its protocol.
        tables: metrics, log files, contracts, settings; those with rows.
    """

    previous: PreviousRun | None
    sentence: str
    tables: list[Table]
    judging: list[Row] = field(default_factory=list)


def build_diff_section(changes: RunDiff | None) -> RunDiffSection:
    """The section; `changes` is None where no run came before."""
    if changes is None:
        sentence = "No run of the data set was completed before this one; the next is held against it."
        return RunDiffSection(None, sentence, [])
    judging = changes.metrics.filter(pl.col("place") == 0)
    tables = [_metric_tables(judging), *_other_tables(changes)]
    sentence = _summarize_diff(judging.to_dicts(), tables)
    shown = [table for table in tables if len(table.frame)]
    return RunDiffSection(changes.previous, sentence, shown, judging.to_dicts())


def _metric_tables(rows: pl.DataFrame) -> Table:
    columns = [
        Column("protocol", "protocol"), Column("metric", "metric"), Column("model", "model"),
        Column("score", "score", "score"),
        Column("before", "before", "metric"), Column("now", "now", "metric"),
        Column("change", "change", "change", "standard error as if the two runs' users were independent",
               error="standard_error"),
        Column("verdict", "verdict", "text", "better or worse: by more than two standard errors"),
    ]  # fmt: skip
    return Table("metric_changes", "Main metric of every list, then and now", "evaluation.metrics", columns, rows)


def _other_tables(changes: RunDiff) -> list[Table]:
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
    """What a reader should know: models, metrics beyond the noise, files, rules, settings."""
    said = [f"{heading}: {join_words(models)}" for heading, verdict in (("New", "new"), ("Gone", "gone"))
            if (models := _models_with_verdict(metrics, verdict))]  # fmt: skip
    moved = [row for row in metrics if row["verdict"] in ("better", "worse")]
    same = sum(row["verdict"] == "the same" for row in metrics)
    if moved:
        best = max(moved, key=lambda row: abs(row["change"]))
        said.append(
            f"{len(moved)} of {len(metrics)} main metrics moved beyond two standard errors, most of all "
            f"{best['metric']} of {best['model']} on {best['protocol']} ({numbers.format_fixed(best['change'], 4, signed=True)})"
        )
    elif metrics:
        said.append("Every main metric is the same" if same == len(metrics) else
                    "No main metric moved beyond two standard errors")  # fmt: skip
    counted = (("log file", "came in"), ("rule", "met by one run only"), ("setting", "changed"))
    for table, (thing, happened) in zip(tables[1:], counted, strict=True):
        if count := len(table.frame):
            said.append(f"{count} {thing}{'' if count == 1 else 's'} {happened}")
    return ". ".join(said) + "." if said else "Nothing that this page shows."


def _models_with_verdict(metrics: list[Row], verdict: str) -> list[str]:
    """Models all of whose lists are new, or gone."""
    verdicts: dict[str, set[str]] = {}
    for row in metrics:
        verdicts.setdefault(row["model"], set()).add(row["verdict"])
    return sorted(model for model, found in verdicts.items() if found == {verdict})
