"""The tables of the page whose rows are those of the query of the same name; sentences on the input."""

import json
from collections.abc import Sequence

from oneclass.tasks.html.numbers import format_count, format_percent, format_significant
from oneclass.tasks.report.run_tables import Row, RunTables
from oneclass.tasks.report.tables import Column, Table

# The caption, the warehouse table and the columns of each, by the name of its query in `sql/report.sql`.
TABLES: dict[str, tuple[str, str, list[Column]]] = {
    "funnel": ("From the lines of all logs to the likes that models are trained on", "operations.funnel", [
        Column("reason", "what was lost, and why", "prose"), Column("lost", "lost", "count"),
        Column("remaining", "remain", "count", "lines at first, then events, then likes"),
        Column("users", "users", "count"), Column("items", "items", "count")]),
    "log_files": ("Log files, newest first", "operations.log_files", [
        Column("file", "file"), Column("events", "events", "count", "lines read, or items of an adjacency line"),
        Column("rejects", "rejects", "count", "lines that could not be read"),
        Column("bytes", "size, MB", "megabytes"), Column("sha256", "SHA-256, first 12"),
        Column("ingested_at", "ingested, UTC", "time")]),
    "reject_reasons": ("Why lines could not be read, the twenty commonest reasons", "raw.rejects", [
        Column("file", "file"), Column("reason", "reason", "prose"), Column("lines", "lines", "count"),
        Column("first_line", "first line", "count")]),
    "list_hits": ("Published lists and the likes that came after them", "diagnostics.list_hits", [
        Column("made_at", "lists of", "time"), Column("users", "users", "count", "with a list and a new like"),
        Column("likes", "later likes", "count"), Column("hits", "in the lists", "count"),
        Column("recall", "recall", "metric", "hits / min(length of the list, later likes)", error="recall_error"),
        Column("ndcg", "nDCG", "metric", "early hits count more; 1 is perfect", error="ndcg_error"),
        Column("gain", "above popularity", "change", "nDCG less that of the most popular items, over the same users",
               error="gain_error")]),
    "costs": ("What each fit cost", "operations.model_fits", [
        Column("protocol", "protocol"), Column("model", "model"),
        Column("seconds", "training, s", "seconds", "wall time of the fit, when it was made"),
        Column("peak_bytes", "peak, MB", "megabytes", "the process's peak memory in the fit"),
        Column("saved_bytes", "disk, MB", "megabytes", "size of the fit in the store")]),
    "model_settings": ("Where the models' settings come from", "operations.model_settings", [
        Column("model", "model"), Column("origin", "from"), Column("metric", "validation metric"),
        Column("at_start", "before", "metric", "of the settings that the search began at, on its sample"),
        Column("reached", "found", "metric", "of the best settings, on the same users"),
        Column("gain", "worth", "metric"), Column("trials", "trials", "count"),
        Column("reason", "what was found and spent, or why there was no search", "prose")]),
    "contracts": ("Contracts checked in this run", "operations.contract_results", [
        Column("stage", "stage"), Column("contract", "contract, by its table"), Column("rules", "rules", "count"),
        Column("broken", "broken", "count", "rules of severity error that were not met"),
        Column("warnings", "warnings", "count", "rules of severity warning that were not met")]),
    "considered": ("Of held-out items that were considered, which were liked?", "evaluation.considered", [
        Column("protocol", "protocol"),
        Column("model", "model", explain="popularity is the share of an item's considerers who liked it"),
        Column("auc", "AUC", "metric", "the chance that a like has the higher probability of a like and a dislike",
               error="auc_error"),
        Column("log_loss", "log loss", "metric", "in nats; less is better", error="log_loss_error"),
        Column("calibration_error", "calibration error", "metric", "of the probability from the share of likes, in "
               "ten bins"),
        Column("coin_error", "off the true coin", "metric", "the same from the true probability; the demo's alone"),
        Column("likes", "likes", "count"), Column("dislikes", "dislikes", "count")]),
}  # fmt: skip
SCROLLED = ("laws", "considered")  # on a narrow screen, instead of a card for each row


def load_table(tables: RunTables, name: str) -> Table:
    """Load a table of `TABLES`."""
    caption, source, columns = TABLES[name]
    return Table(name, caption, source, columns, tables.as_rows(name), cards=name not in SCROLLED)


def describe_list_hits(rows: Sequence[Row]) -> str:
    """Summarize what the newest published lists found."""
    if not rows:
        return ""
    last = rows[0]
    return f"The last lists found {last['hits']:,} of {last['likes']:,} later likes of {last['users']:,} users"


def describe_input(overview: Row) -> str:
    """Summarize how much was read and kept; many rejected lines also raise a warning."""
    rejected = f"{overview['rejects']:,} lines could not be read" if overview["rejects"] else "no line was rejected"
    return (
        f"{overview['events']:,} events from {format_count(overview['files'], 'log file')}, {rejected}; "
        f"{overview['likes']:,} likes of {overview['users']:,} users and {overview['items']:,} items were kept."
    )


def list_run_facts(overview: Row) -> list[tuple[str, str]]:
    """List what else is known of the observed graph as pairs of label and text."""
    facts = []
    if overview["likes"]:
        likes, users, items = (overview[name] for name in ("likes", "users", "items"))
        facts += [
            ("likes a user", format_significant(likes / users)),
            ("likes an item", format_significant(likes / items)),
            ("of all pairs liked", format_percent(likes / users / items)),
        ]
    if overview["first_at"]:
        facts.append(("first and last like", f"{overview['first_at']:%Y-%m-%d} to {overview['last_at']:%Y-%m-%d}"))
    if overview["seen_items"]:
        facts.append(("seen items", f"{overview['seen_items']}: {overview['seen_items_reason']}"))
    left_out: dict[str, str] = json.loads(overview["left_out"] or "{}")
    return [*facts, *((f"{model} left out", reason) for model, reason in left_out.items())]
