"""Render the report: every section's data in the template, with inline style and script; and the page that searches."""

import base64
import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from markupsafe import Markup

from oneclass.models.fingerprint import digest_of, fingerprint_file
from oneclass.tasks.html import numbers
from oneclass.tasks.html.numbers import format_count, format_list, format_percent, format_significant
from oneclass.tasks.html.templates import load_template
from oneclass.tasks.protocols import list_main_metrics
from oneclass.tasks.report import headline, model_tables
from oneclass.tasks.report.headline import collect_warnings
from oneclass.tasks.report.tables import (
    Column,
    FigureRows,
    Row,
    RunTables,
    Table,
    group_rows,
    join_words,
    load_figure_rows,
    render_cell,
)
from oneclass.tasks.stores import durable, published_model, runs, warehouse
from oneclass.tasks.stores.checksums import compute_key, library_version
from oneclass.tasks.stores.home import Home

ITEMS_PER_EXAMPLE = 5  # likes, and recommendations, of an example user
MOST_SEARCHED = 20_000  # users, and items: those with the most likes, so that the page stays below a few MB
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
        Column("likes", "likes", "count"), Column("dislikes", "dislikes", "count")]),
}  # fmt: skip
SCROLLED = ("considered",)  # on a narrow screen, instead of a card for each row


@dataclass(frozen=True)
class Page:
    """The rendered report.

    Attributes:
        name: when the run began, which names its page among those of earlier runs: `2026-11-20T030000`.
        shown: plain data for the home page.
    """

    name: str
    text: str
    shown: dict[str, Any]


def build_page(tables: RunTables, home: Home, earlier: list[str]) -> Page:
    """Build the page of a run, with links to `earlier` runs' pages."""
    connection, run_id = tables.connection, tables.run_id
    [overview] = tables.as_rows("overview")
    main = headline.load_leaderboards(tables)
    verdict = headline.load_headline(tables, main, overview["started_at"])
    decision = verdict.decision
    changes = build_changes(connection, run_id)
    row, unread = verdict.row, tables.as_rows("unread_files")
    quality = tables("quality", protocol=row.protocol, metric=next(iter(row.cells))) if row else None
    shown = {name: load_table(tables, name) for name in TABLES}
    soundness = headline.build_contracts_card(shown["contracts"].rows)
    cards = [
        headline.build_quality_card(row, quality) if row and quality is not None else None,
        soundness,
        headline.build_volume_card(overview, tables("events_by_night")),
    ]
    warnings = collect_warnings(
        overview, broken=tables.as_rows("broken_rules"), decision=decision, unread=unread,
        alarms=runs.load_alarms(connection, run_id),
    )  # fmt: skip
    name = f"{overview['started_at']:%Y-%m-%dT%H%M%S}"
    text = _render(
        "page",
        dataset=home.dataset,
        cell=render_cell,
        headline=verdict,
        decision=decision,
        kpi_cards=[card for card in cards if card],
        soundness=soundness,
        warnings=warnings,
        examples=load_example_users(tables, home) if decision else [],
        overview=overview,
        tables=shown,
        sections=model_tables.build_protocol_sections(tables, main, row),
        changes=changes,
        figures=render_figures(load_figure_rows(tables, main), home),
        facts=list_run_facts(overview),
        input_summary=describe_input(overview),
        list_hits_summary=describe_list_hits(shown["list_hits"].rows),
        earlier=[run for run in earlier if run != name],
    )
    facts: dict[str, Any] = {"look": len(warnings)}
    if row and quality is not None:
        metric, (value, error) = next(iter(row.cells.items()))
        nights = quality.select("night", "value", "standard_error").rows()
        trend = [[str(night), *values] for night, *values in nights]
        facts |= {"protocol": row.protocol, "list": format_list(row.model, row.score), "metric": metric}
        facts |= {"value": value, "standard_error": error, "trend": trend}
    return Page(name, text, facts)


def render_figures(rows: FigureRows, home: Home) -> Markup:
    """Render the figures, or return those of the last run that had the same rows: matplotlib takes a second to load."""
    file, tasks = home.report / "figures.html", Path(__file__).parents[1]
    # Their words and colours come from several packages.
    sources = digest_of((one for one in tasks.rglob("*") if one.suffix in (".py", ".html", ".css")), tasks)
    key = compute_key(asdict(rows), library_version("matplotlib"), sources, fingerprint_file(Path(__file__)))
    made_from = f"{key}\n"
    if file.is_file() and (known := file.read_text(encoding="utf-8")).startswith(made_from):
        return Markup(known.removeprefix(made_from))
    from oneclass.tasks.report.figures import draw_figures

    macros = load_template("oneclass.tasks.report", "macros.html").make_module({"cell": render_cell})
    text = "".join(macros.figure(figure) for figure in draw_figures(rows))  # pyright: ignore[reportAttributeAccessIssue]
    durable.make_folder(home.report)
    durable.write_text(file.with_name(f".{file.name}"), file, made_from + text)
    return Markup(text)


def load_example_users(tables: RunTables, home: Home) -> list[Row]:
    """Load up to five users spread over the lengths of history, the shortest first.

    Each has `user_id`, the number of `likes`, and the items of the `newest` likes and `recommended`, the best first. An
    item has `name`, its title or id, `users` who like it, and `mark`: `pinned`, `new` or empty.
    """
    rows = tables.as_rows("sample_users", items=ITEMS_PER_EXAMPLE, pinned=load_pinned(home))
    titles = published_model.load_titles(home, {row["item_id"] for row in rows})
    for row in rows:
        row["name"] = titles.get(row["item_id"], f"item {row['item_id']}")
    return [
        {"user_id": user_id, "likes": likes, **group_rows(of_user, "list")}
        for (user_id, likes), of_user in group_rows(rows, "user_id", "likes").items()
    ]


def load_pinned(home: Home) -> list[str]:
    """Load the items that the rules of what is published pin; empty without rules."""
    with contextlib.suppress(OSError, ValueError):
        file = home.published / published_model.MODEL_FOLDER / published_model.RULES_FILE
        return json.loads(file.read_text(encoding="utf-8"))["rules"]["pinned"]
    return []


def build_search_page(tables: RunTables, home: Home) -> str:
    """Build the page that finds a user's published list or an item by id or title."""
    items = tables.as_rows("searched_items", most=MOST_SEARCHED, pinned=load_pinned(home))
    users = tables.as_rows("searched_users", most=MOST_SEARCHED)
    position = {row["item_id"]: at for at, row in enumerate(items)}
    for item in dict.fromkeys(item for row in users for item in row["items"] if item not in position):
        position[item] = len(items)
        items.append({"item_id": item, "likes": None, "lists": None, "mark": ""})
    titles = published_model.load_titles(home, set(position))
    data = {
        "items": [
            [row["item_id"], titles.get(row["item_id"], ""), row["likes"], row["lists"], row["mark"]] for row in items
        ],
        "users": [[row["user_id"], row["likes"], [position[item] for item in row["items"]]] for row in users],
    }
    # A closing tag in a title must not end the element.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    complete = max(len(users), len(items)) < MOST_SEARCHED
    return _render("search", dataset=home.dataset, data=Markup(text), complete=complete)


def _render(name: str, **values: Any) -> str:
    """Render a template with its script inside."""
    script = files("oneclass.tasks.report").joinpath(f"{name}.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = load_template("oneclass.tasks.report", f"{name}.html")
    return template.render(script=Markup(script), script_digest=digest, **values)


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
    earlier = warehouse.select(connection, "report/previous_run", run_id=run_id).to_dicts()
    if not earlier:
        summary = "No run of the data set was completed before this one; the next is compared with it."
        return Changes(None, summary, [])
    both = {"run_id": run_id, "previous_run_id": earlier[0]["run_id"]}
    of_all = warehouse.select(connection, "report/metric_changes", **both, main_metrics=list_main_metrics())
    metrics = of_all.filter(pl.col("place") == 0).to_dicts()
    settings = warehouse.select(connection, "report/setting_changes", **both).to_dicts()
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
