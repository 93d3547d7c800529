"""Build the tables of the models: leaderboards with dot plots, costs of fits, leads, settings, and other metrics."""

from dataclasses import replace
from typing import Any

import polars as pl

from oneclass.tasks.html.numbers import format_percent
from oneclass.tasks.leaderboard import LeaderboardRow
from oneclass.tasks.protocols import PROTOCOLS, describe_folds
from oneclass.tasks.report.tables import METRIC_LABELS, SIGNIFICANCE_LABELS, Column, Table, fit_scale

MODEL_AND_SCORE = (Column("model", "model"), Column("score", "score", "score"))


def build_leaderboards(tables: dict[str, list[LeaderboardRow]], fits: pl.DataFrame) -> dict[str, Table]:
    """Build a leaderboard per protocol, with a dot plot of the main metric and the time of each fit."""
    tables_by_protocol = {}
    for protocol, chosen in tables.items():
        metrics = [metric for metric in PROTOCOLS[protocol].main_metrics if metric in chosen[0].cells]
        frame = pl.DataFrame([_flatten_row(row) for row in chosen], infer_schema_length=None)
        columns = [
            *MODEL_AND_SCORE,
            Column("standing", "standing", explain="the best, or level: cannot be told from it; weak: worse than "
                   "guesses, or than popularity"),
            *(Column(metric, metric, "metric", METRIC_LABELS[metric], error=f"{metric} error") for metric in metrics),
            Column("difference", "minus the best", "change", f"{metrics[0]} less that of the best, over the same users",
                   error="difference error"),
            Column("seconds", "training, s", "seconds", "wall time of the fit, when it was made"),
        ]  # fmt: skip
        main_cells = [row.cells[metrics[0]] for row in chosen]
        popular = next((row.cells[metrics[0]][0] for row in chosen if row.model == "popularity"), None)
        columns[3] = replace(columns[3], scale=fit_scale(main_cells, popular))
        seconds = fits.filter(protocol=protocol).select("model", "seconds")
        tables_by_protocol[protocol] = Table(
            f"main-{protocol}",
            f"Models on {protocol}, {chosen[0].users:,} test users{describe_folds(chosen[0].folds)}",
            "evaluation.metrics",
            columns, frame.join(seconds, on="model", how="left", maintain_order="left"),
            sorted_by=(metrics[0], "descending"),
        )  # fmt: skip
    return tables_by_protocol


def build_cost_table(fits: pl.DataFrame) -> Table:
    """Build the table of each fit's time, memory and disk space."""
    return Table(
        "costs", "What each fit cost", "operations.model_fits",
        [Column("protocol", "protocol"), Column("model", "model"),
         Column("seconds", "training, s", "seconds", "wall time of the fit, when it was made"),
         Column("peak_bytes", "peak, MB", "megabytes", "the process's peak memory in the fit"),
         Column("saved_bytes", "disk, MB", "megabytes", "size of the fit in the store")],
        fits, empty="Nothing was fitted.",
    )  # fmt: skip


def _flatten_row(row: LeaderboardRow) -> dict[str, Any]:
    cells: dict[str, float | None] = {}
    for metric, (value, error) in row.cells.items():
        cells |= {metric: value, f"{metric} error": error}
    compared = row.against_best
    cells |= {"difference": compared and compared.difference, "difference error": compared and compared.standard_error}
    return {"model": row.model, "score": row.score, "standing": _significance_label(row)} | cells


def _significance_label(row: LeaderboardRow) -> str:
    """Return the row's standing, with `weak` for a model worse than a trivial one; also the row's CSS classes."""
    return " ".join(filter(None, [SIGNIFICANCE_LABELS[row.standing], "weak" if row.weaknesses else ""]))


def build_lead_table(rows: list[LeaderboardRow]) -> Table | None:
    """Build the table of the best list's paired lead over every other of one protocol; None without others."""
    columns = [
        *MODEL_AND_SCORE,
        Column("lead", "lead of the best", "change", "the best list's mean minus this one's", error="standard_error"),
        Column("p_value", "p", "p_value", "corrected by Holm's procedure, since the best was picked by the same users"),
        Column("users", "users", "count"),
    ]
    leads = [
        {"model": row.model, "score": row.score, "lead": -row.against_best.difference,
         "standard_error": row.against_best.standard_error, "p_value": row.against_best.p_value, "users": row.users}
        for row in rows if row.against_best
    ]  # fmt: skip
    if not leads:
        return None
    protocol = rows[0].protocol
    caption = f"Lead of the best list by {PROTOCOLS[protocol].main_metric} on {protocol}, over the same users"
    frame = pl.DataFrame(leads, infer_schema_length=None)
    return Table("leads", caption, "evaluation.comparisons", columns, frame, sorted_by=("lead", "ascending"))


def build_settings_table(choices: pl.DataFrame) -> Table:
    """Build the table of the origin of each model's settings, and the gain of their search."""
    return Table(
        "model_settings", "Where the models' settings come from", "operations.model_settings",
        [Column("model", "model"), Column("origin", "from"), Column("metric", "validation metric"),
         Column("at_start", "before", "metric", "of the settings that the search began at, on its sample"),
         Column("reached", "found", "metric", "of the best settings, on the same users"),
         Column("gain", "worth", "metric"), Column("trials", "trials", "count"),
         Column("reason", "what was found and spent, or why there was no search", "prose")],
        choices, empty="No model of this run has settings to search.",
    )  # fmt: skip


def build_pivot_tables(
    name: str, caption: str, source: str, values: pl.DataFrame, order: dict[str, list[LeaderboardRow]]
) -> dict[str, Table]:
    """Build a table per protocol, a row per model and score in the leaderboard's order."""
    tables_by_protocol = {}
    for protocol in PROTOCOLS:
        chosen = values.filter(protocol=protocol)
        if chosen.is_empty():
            continue
        metrics = sorted(chosen["metric"].unique(), key=lambda metric: (_metric_position(metric), metric))
        wide = chosen.pivot("metric", index=["model", "score"], values=["value", "standard_error"])
        wide = wide.rename(
            {f"value_{metric}": metric for metric in metrics}
            | {f"standard_error_{metric}": f"{metric} error" for metric in metrics}
        )
        lists = [(row.model, row.score) for row in order.get(protocol, [])]
        ordered = pl.DataFrame(lists, schema={"model": pl.String, "score": pl.String}, orient="row")
        columns = [Column(metric, metric, "metric", METRIC_LABELS.get(metric, ""), error=f"{metric} error")
                   for metric in metrics]  # fmt: skip
        tables_by_protocol[protocol] = Table(
            f"{name}-{protocol}",
            f"{caption}, {protocol}",
            source,
            [*MODEL_AND_SCORE, *columns],
            ordered.join(wide, on=["model", "score"], how="inner", maintain_order="left"),
            cards=False,
        )
    return tables_by_protocol


def _metric_position(metric: str) -> int:
    """Return a metric's position among the labelled ones; others come last."""
    return list(METRIC_LABELS).index(metric) if metric in METRIC_LABELS else len(METRIC_LABELS)


def describe_coverage(beyond: pl.DataFrame) -> str:
    """Describe the models with the largest and the smallest coverage of the items, by protocol."""
    sentences = []
    for protocol in PROTOCOLS:
        covered = beyond.filter(protocol=protocol, metric="coverage@20").sort("value", "model")
        if len(covered):
            (least, narrow), (most, wide) = (covered["value", "model"].row(index) for index in (0, -1))
            sentences.append(
                f"On {protocol}, {wide} shows {format_percent(most)} of the items, {narrow} {format_percent(least)}."
            )
    return " ".join(sentences)
