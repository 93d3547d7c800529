"""What the page says: its tables, section by section, and the answers at its head, all from one run's rows."""

from typing import Any

from tasks.main_table import MAIN_METRICS
from tasks.main_table import Row as MainRow
from tasks.report.figures import percent
from tasks.report.tables import Column, Table, text
from tasks.report.warehouse_rows import Row, Rows
from tasks.report.words import METRICS, STANDINGS

MODEL_AND_SCORE = (Column("model", "model"), Column("score", "score"))


def log_tables(rows: Rows) -> dict[str, Table]:
    """What came in."""
    files = Table(
        "log_files", "Log files, newest first", "operations.log_files",
        [Column("file", "file"), Column("events", "events", "count", "lines read, or items of an adjacency line"),
         Column("rejects", "rejects", "count", "lines that could not be read"),
         Column("bytes", "size, MB", "megabytes"), Column("sha256", "SHA-256, first 12"),
         Column("ingested_at", "ingested, UTC", "time")],
        rows("log_files"), empty="No log file was read.",
    )  # fmt: skip
    reasons = Table(
        "reject_reasons", "Why lines could not be read, the twenty commonest reasons", "raw.rejects",
        [Column("file", "file"), Column("reason", "reason", "prose"), Column("lines", "lines", "count"),
         Column("first_line", "first line", "count")],
        rows("reject_reasons"), empty="Every line could be read.",
    )  # fmt: skip
    return {"log_files": files, "reject_reasons": reasons}


def contract_tables(rows: Rows) -> dict[str, Table]:
    """Was it sound."""
    contracts = Table(
        "contracts", "Contracts checked in this run", "operations.contract_results",
        [Column("stage", "stage"), Column("contract", "contract, by its table"), Column("rules", "rules", "count"),
         Column("broken", "broken", "count", "rules of severity error that were not met"),
         Column("warnings", "warnings", "count", "rules of severity warning that were not met")],
        rows("contracts"), empty="This run checked no contract.",
    )  # fmt: skip
    broken = Table(
        "broken_rules", "Rules that were not met", "operations.contract_results",
        [Column("severity", "severity"), Column("stage", "stage"), Column("contract", "contract"),
         Column("rule", "rule"), Column("observed", "observed", "prose")],
        rows("broken_rules"), empty="Every rule was met.",
    )  # fmt: skip
    return {"contracts": contracts, "broken_rules": broken}


def laws_table(laws: list[Row]) -> Table:
    return Table(
        "laws", "Laws fitted to the degrees, the closest of each side first", "diagnostics.power_law_fits",
        [Column("side", "side"), Column("family", "law"),
         Column("exponent", "exponent", "number", "μ of log degree for the log-normal"),
         Column("cutoff", "cut-off", "number", "σ of log degree for the log-normal; empty where infinite"),
         Column("d_min", "from", "count", "smallest degree of the support"),
         Column("d_max", "to", "count", "largest degree of the support"),
         Column("log_likelihood", "log likelihood", "number"), Column("aic", "AIC", "number", "less is better"),
         Column("ks", "KS distance", "metric", "the largest gap between the law's cumulative share and the data's"),
         Column("p_value", "p", "p_value", "below 0.05 the law is rejected")],
        laws, empty="No law was fitted.",
    )  # fmt: skip


def main_tables(table: list[MainRow], fits: list[Row]) -> dict[str, Table]:
    """The main table, one a protocol, with what each fit cost."""
    cost = {(fit["protocol"], fit["model"]): fit for fit in fits}
    found = {}
    for protocol, metrics in MAIN_METRICS.items():
        chosen = [row for row in table if row.protocol == protocol]
        if not chosen:
            continue
        columns = [*MODEL_AND_SCORE, Column("standing", "standing", "text", "the best, or not significantly worse")]
        columns += [
            Column(metric, metric, "metric", METRICS[metric], error=f"{metric} error")
            for metric in metrics if metric in chosen[0].cells
        ]  # fmt: skip
        columns += [
            Column("seconds", "training, s", "seconds", "wall time of the fit, when it was made"),
            Column("peak_bytes", "peak, MB", "megabytes", "the process's peak memory in the fit"),
            Column("saved_bytes", "disk, MB", "megabytes", "size of the fit in the store"),
        ]
        found[protocol] = Table(
            f"main-{protocol}", f"Models on {protocol}, {chosen[0].users:,} test users", "evaluation.metrics",
            columns, [_main_row(row, cost.get((protocol, row.model), {})) for row in chosen],
            sorted_by=(metrics[0], "descending"),
        )  # fmt: skip
    return found


def _main_row(row: MainRow, cost: Row) -> Row:
    cells: dict[str, Any] = {}
    for metric, (value, error) in row.cells.items():
        cells |= {metric: value, f"{metric} error": error}
    costs = {key: cost.get(key) for key in ("seconds", "peak_bytes", "saved_bytes")}
    return {"model": row.model, "score": row.score, "standing": STANDINGS[row.standing]} | cells | costs


def pivots(name: str, caption: str, source: str, rows: list[Row], order: list[MainRow]) -> dict[str, Table]:
    """One table a protocol, one row a model and score in the order of the main table, one column a metric."""
    found = {}
    for protocol in MAIN_METRICS:
        chosen = [row for row in rows if row["protocol"] == protocol]
        cells: dict[tuple[str, str], Row] = {}
        for row in chosen:
            of_list = cells.setdefault((row["model"], row["score"]), {"model": row["model"], "score": row["score"]})
            of_list |= {row["metric"]: row["value"], f"{row['metric']} error": row["standard_error"]}
        metrics = sorted({row["metric"] for row in chosen}, key=lambda metric: (_place(metric), metric))
        ordered = [key for row in order if row.protocol == protocol and (key := (row.model, row.score)) in cells]
        columns = [Column(metric, metric, "metric", METRICS.get(metric, ""), error=f"{metric} error")
                   for metric in metrics]  # fmt: skip
        if chosen:
            found[protocol] = Table(
                f"{name}-{protocol}",
                f"{caption}, {protocol}",
                source,
                [*MODEL_AND_SCORE, *columns],
                [cells[key] for key in ordered],
            )
    return found


def _place(metric: str) -> int:
    """Where a metric stands among the words of the page; those without one come last."""
    return list(METRICS).index(metric) if metric in METRICS else len(METRICS)


def shown(rows: list[Row]) -> str:
    """How much of the catalogue the most and the least varied models show, by protocol."""
    said = []
    for protocol in MAIN_METRICS:
        covered = sorted((row["value"], row["model"]) for row in rows
                         if row["protocol"] == protocol and row["metric"] == "coverage@20")  # fmt: skip
        if covered:
            (least, narrow), (most, wide) = covered[0], covered[-1]
            said.append(f"On {protocol}, {wide} shows {percent(most)} of the items, {narrow} {percent(least)}.")
    return " ".join(said)


def leads(rows: Rows) -> dict[str, Table]:
    """The best list's lead over every other, user by user, one table a protocol."""
    every = rows("against_best")
    columns = [
        *MODEL_AND_SCORE,
        Column("lead", "lead of the best", "change", "the best list's mean minus this one's", error="standard_error"),
        Column("p_value", "p", "p_value", "how often chance alone would give as large a lead"),
        Column("users", "users", "count"),
    ]
    found = {}
    for protocol in MAIN_METRICS:
        if chosen := [row for row in every if row["protocol"] == protocol]:
            caption = f"Lead of the best list by {chosen[0]['metric']} on {protocol}, over the same users"
            found[protocol] = Table(f"leads-{protocol}", caption, "evaluation.comparisons", columns, chosen,
                                    sorted_by=("lead", "ascending"))  # fmt: skip
    return found


def run_facts(overview: Row) -> list[tuple[str, str]]:
    """Sizes of the observed graph, as pairs of a label and a text."""
    facts = [
        ("events read", text(overview["events"], "count")),
        ("lines rejected", text(overview["rejects"], "count")),
        ("likes kept", text(overview["edges"], "count")),
        ("users", text(overview["users"], "count")),
        ("items", text(overview["items"], "count")),
    ]
    if overview["edges"]:
        facts += [
            ("likes a user", f"{overview['edges'] / overview['users']:.1f}"),
            ("likes an item", f"{overview['edges'] / overview['items']:.1f}"),
            ("of all pairs liked", f"{100 * overview['edges'] / overview['users'] / overview['items']:.2g} %"),
        ]
    if overview["first_at"]:
        facts.append(("first and last like", f"{overview['first_at']:%Y-%m-%d} to {overview['last_at']:%Y-%m-%d}"))
    return facts
