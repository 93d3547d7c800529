"""What the page says below its verdict: its tables, section by section, all from one run's tables."""

from dataclasses import replace
from typing import Any

import polars as pl

from tasks.main_table import MainRow
from tasks.pages.numbers import percent, significant
from tasks.protocols import PROTOCOLS
from tasks.report.alarms import told
from tasks.report.dots import scale
from tasks.report.figures import Row, listed
from tasks.report.run_tables import RunTables
from tasks.report.tables import Column, Table, text
from tasks.report.words import METRICS, STANDINGS

MODEL_AND_SCORE = (Column("model", "model"), Column("score", "score", "score"))


def log_tables(tables: RunTables) -> dict[str, Table]:
    """What came in."""
    files = Table(
        "log_files", "Log files, newest first", "operations.log_files",
        [Column("file", "file"), Column("events", "events", "count", "lines read, or items of an adjacency line"),
         Column("rejects", "rejects", "count", "lines that could not be read"),
         Column("bytes", "size, MB", "megabytes"), Column("sha256", "SHA-256, first 12"),
         Column("ingested_at", "ingested, UTC", "time")],
        tables("log_files"), empty="No log file was read.",
    )  # fmt: skip
    reasons = Table(
        "reject_reasons", "Why lines could not be read, the twenty commonest reasons", "raw.rejects",
        [Column("file", "file"), Column("reason", "reason", "prose"), Column("lines", "lines", "count"),
         Column("first_line", "first line", "count")],
        tables("reject_reasons"), empty="Every line could be read.",
    )  # fmt: skip
    return {"log_files": files, "reject_reasons": reasons}


def contract_tables(tables: RunTables) -> dict[str, Table]:
    """Was it sound."""
    contracts = Table(
        "contracts", "Contracts checked in this run", "operations.contract_results",
        [Column("stage", "stage"), Column("contract", "contract, by its table"), Column("rules", "rules", "count"),
         Column("broken", "broken", "count", "rules of severity error that were not met"),
         Column("warnings", "warnings", "count", "rules of severity warning that were not met")],
        tables("contracts"), empty="This run checked no contract.",
    )  # fmt: skip
    broken = Table(
        "broken_rules", "Rules that were not met", "operations.contract_results",
        [Column("severity", "severity"), Column("stage", "stage"), Column("contract", "contract"),
         Column("rule", "rule"), Column("observed", "observed", "prose"), Column("told", "for example", "prose")],
        told(tables("broken_rules")), empty="Every rule was met.",
    )  # fmt: skip
    return {"contracts": contracts, "broken_rules": broken}


def sound(contracts: pl.DataFrame) -> str:
    """How many rules were met, in a sentence."""
    rules, broken, warnings = (contracts[key].sum() for key in ("rules", "broken", "warnings"))
    if not rules:
        return "No contract was checked."
    if not broken + warnings:
        return f"All {rules:,} rules of {len(contracts):,} contracts were met."
    counts = ((broken, "broken"), (warnings, "not met, which is a warning"))
    parts = [f"{count:,} {word}" for count, word in counts if count]
    return f"Of {rules:,} rules, {listed(parts)}; the others were met."


def laws_table(laws: pl.DataFrame) -> Table:
    return Table(
        "laws", "Laws fitted to the degrees, the closest of each side first", "diagnostics.power_law_fits",
        [Column("side", "side"), Column("family", "law"),
         Column("exponent", "exponent", "number", "μ of log degree for the log-normal"),
         Column("cutoff", "cut-off", "number", "σ of log degree for the log-normal; empty where infinite"),
         Column("d_min", "from", "count", "smallest degree of the support"),
         Column("d_max", "to", "count", "largest degree of the support"),
         Column("log_likelihood", "log likelihood", "number"), Column("aic", "AIC", "number", "less is better"),
         Column("ks", "KS distance", "metric", "the largest gap between the law's cumulative share and the data's"),
         Column("p_value", "p", "bootstrap_p", "below 0.05 the law is rejected")],
        laws, empty="No law was fitted.", cards=False,
    )  # fmt: skip


def main_tables(tables: dict[str, list[MainRow]], fits: pl.DataFrame) -> dict[str, Table]:
    """The main table, one a protocol: the first metric as a dot plot too, and how long each fit took."""
    found = {}
    for protocol, chosen in tables.items():
        metrics = [metric for metric in PROTOCOLS[protocol].main_metrics if metric in chosen[0].cells]
        frame = pl.DataFrame([_flat(row) for row in chosen], infer_schema_length=None)
        columns = [
            *MODEL_AND_SCORE,
            Column("standing", "standing", explain="the best, or not significantly worse; weak: worse than guesses, or "
                   "than popularity"),
            *(Column(metric, metric, "metric", METRICS[metric], error=f"{metric} error") for metric in metrics),
            Column("seconds", "training, s", "seconds", "wall time of the fit, when it was made"),
        ]  # fmt: skip
        judged = [row.cells[metrics[0]] for row in chosen]
        popular = next((row.cells[metrics[0]][0] for row in chosen if row.model == "popularity"), None)
        columns[3] = replace(columns[3], scale=scale(judged, popular))
        seconds = fits.filter(protocol=protocol).select("model", "seconds")
        found[protocol] = Table(
            f"main-{protocol}", f"Models on {protocol}, {chosen[0].users:,} test users", "evaluation.metrics",
            columns, frame.join(seconds, on="model", how="left", maintain_order="left"),
            sorted_by=(metrics[0], "descending"),
        )  # fmt: skip
    return found


def costs_table(fits: pl.DataFrame) -> Table:
    """What each fit took of time, memory and disk."""
    return Table(
        "costs", "What each fit cost", "operations.model_fits",
        [Column("protocol", "protocol"), Column("model", "model"),
         Column("seconds", "training, s", "seconds", "wall time of the fit, when it was made"),
         Column("peak_bytes", "peak, MB", "megabytes", "the process's peak memory in the fit"),
         Column("saved_bytes", "disk, MB", "megabytes", "size of the fit in the store")],
        fits, empty="Nothing was fitted.",
    )  # fmt: skip


def settings_table(settled: pl.DataFrame) -> Table:
    """Where the settings of each model come from, and what a search for them was worth."""
    return Table(
        "model_settings", "Where the models' settings come from", "operations.model_settings",
        [Column("model", "model"), Column("origin", "from"), Column("metric", "validation metric"),
         Column("at_start", "before", "metric", "of the settings that the search began at, on its sample"),
         Column("reached", "found", "metric", "of the best settings, on the same users"),
         Column("gain", "worth", "metric"), Column("trials", "trials", "count"),
         Column("reason", "what was found, or why there was no search", "prose")],
        settled, empty="No model of this run has settings to search.",
    )  # fmt: skip


def _flat(row: MainRow) -> dict[str, Any]:
    cells: dict[str, float | None] = {}
    for metric, (value, error) in row.cells.items():
        cells |= {metric: value, f"{metric} error": error}
    return {"model": row.model, "score": row.score, "standing": _standing(row)} | cells


def _standing(row: MainRow) -> str:
    """Among the other lists, and `weak` where the model is worse than a trivial one; also the classes of the row."""
    return " ".join(filter(None, [STANDINGS[row.standing], "weak" if row.weaknesses else ""]))


def pivots(
    name: str, caption: str, source: str, values: pl.DataFrame, order: dict[str, list[MainRow]]
) -> dict[str, Table]:
    """One table a protocol, one row a model and score in the order of the main table, one column a metric."""
    found = {}
    for protocol in PROTOCOLS:
        chosen = values.filter(protocol=protocol)
        if chosen.is_empty():
            continue
        metrics = sorted(chosen["metric"].unique(), key=lambda metric: (_place(metric), metric))
        wide = chosen.pivot("metric", index=["model", "score"], values=["value", "standard_error"])
        wide = wide.rename(
            {f"value_{metric}": metric for metric in metrics}
            | {f"standard_error_{metric}": f"{metric} error" for metric in metrics}
        )
        lists = [(row.model, row.score) for row in order.get(protocol, [])]
        ordered = pl.DataFrame(lists, schema={"model": pl.String, "score": pl.String}, orient="row")
        columns = [Column(metric, metric, "metric", METRICS.get(metric, ""), error=f"{metric} error")
                   for metric in metrics]  # fmt: skip
        found[protocol] = Table(
            f"{name}-{protocol}",
            f"{caption}, {protocol}",
            source,
            [*MODEL_AND_SCORE, *columns],
            ordered.join(wide, on=["model", "score"], how="inner", maintain_order="left"),
            cards=False,
        )
    return found


def _place(metric: str) -> int:
    """Where a metric stands among the words of the page; those without one come last."""
    return list(METRICS).index(metric) if metric in METRICS else len(METRICS)


def shown(beyond: pl.DataFrame) -> str:
    """How much of the catalogue the most and the least varied models show, by protocol."""
    said = []
    for protocol in PROTOCOLS:
        covered = beyond.filter(protocol=protocol, metric="coverage@20").sort("value", "model")
        if len(covered):
            (least, narrow), (most, wide) = (covered["value", "model"].row(at) for at in (0, -1))
            said.append(f"On {protocol}, {wide} shows {percent(most)} of the items, {narrow} {percent(least)}.")
    return " ".join(said)


def leads(every: pl.DataFrame) -> dict[str, Table]:
    """The best list's lead over every other, user by user, one table a protocol."""
    columns = [
        *MODEL_AND_SCORE,
        Column("lead", "lead of the best", "change", "the best list's mean minus this one's", error="standard_error"),
        Column("p_value", "p", "p_value", "how often chance alone would give as large a lead"),
        Column("users", "users", "count"),
    ]
    found = {}
    for protocol, declared in PROTOCOLS.items():
        chosen = every.filter(protocol=protocol)
        if len(chosen):
            caption = f"Lead of the best list by {declared.judged_by} on {protocol}, over the same users"
            found[protocol] = Table(f"leads-{protocol}", caption, "evaluation.comparisons", columns, chosen,
                                    sorted_by=("lead", "ascending"))  # fmt: skip
    return found


def came_in(overview: Row) -> str:
    """How much was read and kept; lines that could not be read are a footnote here, and an alarm where they are many."""
    files = f"{overview['files']:,} log file{'' if overview['files'] == 1 else 's'}"
    rejected = f"{overview['rejects']:,} lines could not be read" if overview["rejects"] else "no line was rejected"
    return (
        f"{overview['events']:,} events from {files}, {rejected}; {overview['edges']:,} likes of "
        f"{overview['users']:,} users and {overview['items']:,} items were kept."
    )


def run_facts(overview: Row) -> list[tuple[str, str]]:
    """Sizes of the observed graph, as pairs of a label and a text."""
    facts = [("events read", text(overview["events"], "count"))]
    if overview["edges"]:
        edges, users, items = (overview[name] for name in ("edges", "users", "items"))
        facts += [
            ("likes kept", text(edges, "count")),
            ("users", text(users, "count")),
            ("items", text(items, "count")),
            ("likes a user", significant(edges / users)),
            ("likes an item", significant(edges / items)),
            ("of all pairs liked", percent(edges / users / items)),
        ]
    if overview["first_at"]:
        facts.append(("first and last like", f"{overview['first_at']:%Y-%m-%d} to {overview['last_at']:%Y-%m-%d}"))
    return facts
