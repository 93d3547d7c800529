"""What changed since the previous completed run of the data set."""

from dataclasses import dataclass

from tasks.report.figures import listed
from tasks.report.tables import Column, Table
from tasks.report.warehouse_rows import Row, Rows


@dataclass(frozen=True)
class Changes:
    """The difference of two runs.

    Attributes:
        previous: the earlier run; None where this is the first one.
        sentence: the difference in one or two sentences.
        tables: metrics, log files, contracts, settings; those with rows.
    """

    previous: Row | None
    sentence: str
    tables: list[Table]


def since_the_last_run(rows: Rows) -> Changes:
    """Compare this run with the previous one; see `Changes`."""
    earlier = rows("previous_run")
    if not earlier:
        return Changes(None, "No run of the data set was completed before this one; the next is held against it.", [])
    rows = Rows(rows.connection, rows.run_id, earlier[0]["run_id"])
    metrics = [row | {"verdict": _verdict(row)} for row in rows("metric_changes")]
    tables = [_metrics(metrics), *_others(rows)]
    return Changes(earlier[0], _sentence(metrics, tables), [table for table in tables if table.rows])


def _metrics(rows: list[Row]) -> Table:
    columns = [
        Column("protocol", "protocol"), Column("metric", "metric"), Column("model", "model"), Column("score", "score"),
        Column("before", "before", "metric"), Column("now", "now", "metric"),
        Column("change", "change", "change", "standard error as if the two runs' users were independent",
               error="standard_error"),
        Column("verdict", "verdict", "text", "better or worse: by more than two standard errors"),
    ]  # fmt: skip
    return Table("metric_changes", "Main metric of every list, then and now", "evaluation.metrics", columns, rows)


def _others(rows: Rows) -> list[Table]:
    files = [Column("file", "file"), Column("events", "events", "count"), Column("rejects", "rejects", "count"),
             Column("ingested_at", "ingested, UTC", "time")]  # fmt: skip
    rules = [Column("contract", "contract"), Column("rule", "rule"), Column("change", "change")]
    settings = [Column("setting", "setting"), Column("before", "before", "prose"), Column("now", "now", "prose")]
    return [
        Table("new_log_files", "Log files ingested since", "operations.log_files", files, rows("new_log_files")),
        Table("rule_changes", "Rules met then and not now, or now and not then", "operations.contract_results", rules,
              rows("rule_changes")),
        Table("setting_changes", "Settings that differ", "operations.runs", settings, rows("setting_changes")),
    ]  # fmt: skip


def _verdict(row: Row) -> str:
    if row["before"] is None:
        return "new"
    if row["now"] is None:
        return "gone"
    if not row["change"]:
        return "the same"
    if not row["beyond"]:
        return "within the noise" if row["beyond"] is not None else "no standard error"
    return "better" if row["change"] > 0 else "worse"


def _sentence(metrics: list[Row], tables: list[Table]) -> str:
    """What a reader should know: models, metrics beyond the noise, files, rules, settings."""
    said = [f"{heading}: {listed(models)}" for heading, verdict in (("New", "new"), ("Gone", "gone"))
            if (models := _models(metrics, verdict))]  # fmt: skip
    moved = [row for row in metrics if row["verdict"] in ("better", "worse")]
    same = sum(row["verdict"] == "the same" for row in metrics)
    if moved:
        best = max(moved, key=lambda row: abs(row["change"]))
        said.append(
            f"{len(moved)} of {len(metrics)} main metrics moved beyond two standard errors, most of all "
            f"{best['metric']} of {best['model']} on {best['protocol']} ({best['change']:+.4f})"
        )
    elif metrics:
        said.append("Every main metric is the same" if same == len(metrics) else
                    "No main metric moved beyond two standard errors")  # fmt: skip
    counted = (("log file", "came in"), ("rule", "met by one run only"), ("setting", "changed"))
    for table, (thing, happened) in zip(tables[1:], counted, strict=True):
        if table.rows:
            said.append(f"{len(table.rows)} {thing}{'' if len(table.rows) == 1 else 's'} {happened}")
    return ". ".join(said) + "." if said else "Nothing that this page shows."


def _models(metrics: list[Row], verdict: str) -> list[str]:
    """Models all of whose lists are new, or gone."""
    verdicts: dict[str, set[str]] = {}
    for row in metrics:
        verdicts.setdefault(row["model"], set()).add(row["verdict"])
    return sorted(model for model, found in verdicts.items() if found == {verdict})
