"""Build the tables and summaries of the report's sections below the headline."""

import json

import polars as pl

from oneclass.tasks.html.numbers import format_percent, format_significant
from oneclass.tasks.report.run_tables import Row, RunTables, join_words
from oneclass.tasks.report.tables import Column, Table, format_value
from oneclass.tasks.report.warnings import describe_broken_rules


def build_log_tables(tables: RunTables) -> dict[str, Table]:
    """Build the tables of unread files, the funnel, log files and rejected lines."""
    funnel = Table(
        "funnel", "From the lines of all logs to the likes that models are trained on", "operations.funnel",
        [Column("reason", "what was lost, and why", "prose"), Column("lost", "lost", "count"),
         Column("remaining", "remain", "count", "lines at first, then events, then likes"),
         Column("users", "users", "count"), Column("items", "items", "count")],
        tables("funnel"), empty="This run counted no steps.",
    )  # fmt: skip
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
    unread = Table(
        "unread_files", "Files of the landing folder that were not read", "operations.arrivals",
        [Column("name", "file"), Column("outcome", "outcome"), Column("reason", "why", "prose")],
        tables("unread_files"), empty="Every file was read.",
    )  # fmt: skip
    return {"unread_files": unread, "funnel": funnel, "log_files": files, "reject_reasons": reasons}


def build_contract_tables(tables: RunTables) -> dict[str, Table]:
    """Build the tables of contracts and broken rules."""
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
         Column("rule", "rule"), Column("observed", "observed", "prose"), Column("examples", "for example", "prose")],
        describe_broken_rules(tables("broken_rules")), empty="Every rule was met.",
    )  # fmt: skip
    return {"contracts": contracts, "broken_rules": broken}


def describe_contracts(contracts: pl.DataFrame) -> str:
    """Summarize in a sentence how many rules were met."""
    rules, broken, warnings = (int(contracts[key].sum()) for key in ("rules", "broken", "warnings"))
    if not rules:
        return "No contract was checked."
    if not broken + warnings:
        return f"All {rules:,} rules of {len(contracts):,} contracts were met."
    counts = ((broken, "broken"), (warnings, "not met, which is a warning"))
    parts = [f"{count:,} {word}" for count, word in counts if count]
    return f"Of {rules:,} rules, {join_words(parts)}; the others were met."


def build_distribution_table(laws: pl.DataFrame) -> Table:
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


def build_exploration_table(rows: pl.DataFrame) -> Table | None:
    """Build the table of a list that explores; None if no such list is published."""
    return None if rows.is_empty() else Table(
        "exploration", f"A list that explores, for customer {rows['user_id'][0]} by {rows['policy'][0]}",
        "published.exploration",
        [Column("rank", "place", "count"), Column("item_id", "item"),
         Column("propensity", "propensity", "metric", "the chance that the list has it; 1 where nothing is drawn"),
         Column("like_mean", "like", "metric", "the mean of the posterior of a like", error="like_sd")],
        rows, cards=False,
    )  # fmt: skip


def build_list_hits_table(rows: pl.DataFrame) -> Table:
    """Build the table of what published lists found of the likes after them."""
    return Table(
        "list_hits", "Published lists and the likes that came after them", "diagnostics.list_hits",
        [Column("made_at", "lists of", "time"),
         Column("users", "users", "count", "with a list and a new like"),
         Column("likes", "new likes", "count"), Column("hits", "in the lists", "count"),
         Column("recall", "recall", "metric", "hits / min(length of the list, new likes)", error="recall_error"),
         Column("ndcg", "nDCG", "metric", "early hits count more; 1 is perfect", error="ndcg_error"),
         Column("gain", "above popularity", "change", "nDCG less that of the most popular items, over the same users",
                error="gain_error")],
        rows,
    )  # fmt: skip


def describe_list_hits(rows: pl.DataFrame) -> str:
    """Summarize what the newest published lists found."""
    if rows.is_empty():
        return ""
    last = rows.row(0, named=True)
    return f"The last lists found {last['hits']:,} of {last['likes']:,} new likes of {last['users']:,} users"


def build_certainty_table(rows: pl.DataFrame) -> Table:
    """Build the table of the surest and least sure published lists."""
    return Table(
        "surest", "Published lists of which the model is surest and least sure", "published.recommendations",
        [Column("certainty", "list"), Column("user_id", "user"), Column("likes", "likes", "count", "in the history"),
         Column("items", "items", "count", "in the list"),
         Column("like_mean", "like", "metric", "the mean over the list of the probability of a like"),
         Column("like_sd", "±", "metric", "the mean over the list of its posterior standard deviation")],
        rows, cards=False,
    )  # fmt: skip


def describe_certainty(rows: pl.DataFrame, correlations: list[Row]) -> str:
    """Summarize for whom the published lists are sure."""
    if rows.is_empty():
        return ""
    least, most = (format_significant(rows["like_sd"].to_numpy()[at], 2) for at in (0, -1))
    said = f"a like of the surest list is known to ± {least}, of the least sure one to ± {most}"
    if not correlations or correlations[0]["correlation"] > -0.5:
        return said[0].upper() + said[1:]
    return f"Long histories make sure: {said}"


def build_explicit_feedback_table(rows: pl.DataFrame) -> Table:
    """Build the table that evaluates `like` on explicit negatives."""
    return Table(
        "considered", "Of held-out items that were considered, which were liked?", "evaluation.considered",
        [Column("protocol", "protocol"),
         Column("model", "model", explain="popularity is the share of an item's considerers who liked it"),
         Column("auc", "AUC", "metric", "the chance that a like has the higher probability of a like and a dislike",
                error="auc_error"),
         Column("log_loss", "log loss", "metric", "in nats; less is better", error="log_loss_error"),
         Column("calibration_error", "calibration error", "metric", "of the probability from the share of likes, in "
             "ten bins"),
         Column("coin_error", "off the true coin", "metric", "the same from the true probability; the demo's alone"),
         Column("likes", "likes", "count"), Column("dislikes", "dislikes", "count")],
        rows, cards=False,
    )  # fmt: skip


def describe_input(overview: Row) -> str:
    """Summarize how much was read and kept; many rejected lines also raise a warning."""
    files = f"{overview['files']:,} log file{'' if overview['files'] == 1 else 's'}"
    rejected = f"{overview['rejects']:,} lines could not be read" if overview["rejects"] else "no line was rejected"
    return (
        f"{overview['events']:,} events from {files}, {rejected}; {overview['edges']:,} likes of "
        f"{overview['users']:,} users and {overview['items']:,} items were kept."
    )


def list_run_facts(overview: Row) -> list[tuple[str, str]]:
    """List the sizes of the observed graph as pairs of label and text."""
    facts = [("events read", format_value(overview["events"], "count"))]
    if overview["edges"]:
        edges, users, items = (overview[name] for name in ("edges", "users", "items"))
        facts += [
            ("likes kept", format_value(edges, "count")),
            ("users", format_value(users, "count")),
            ("items", format_value(items, "count")),
            ("likes a user", format_significant(edges / users)),
            ("likes an item", format_significant(edges / items)),
            ("of all pairs liked", format_percent(edges / users / items)),
        ]
    if overview["first_at"]:
        facts.append(("first and last like", f"{overview['first_at']:%Y-%m-%d} to {overview['last_at']:%Y-%m-%d}"))
    if overview["seen_items"]:
        facts.append(("seen items", f"{overview['seen_items']}: {overview['seen_items_reason']}"))
    left_out: dict[str, str] = json.loads(overview["left_out"] or "{}")
    return [*facts, *((f"{model} left out", reason) for model, reason in left_out.items())]
