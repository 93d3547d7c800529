"""Render the report: every section's data in the template, with inline style and script; and the page that searches."""

import base64
import contextlib
import hashlib
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from oneclass.tasks.html.numbers import format_list
from oneclass.tasks.html.templates import load_template
from oneclass.tasks.report import content, headline, model_tables
from oneclass.tasks.report.content import build_changes
from oneclass.tasks.report.figures import draw_figures
from oneclass.tasks.report.headline import collect_warnings
from oneclass.tasks.report.tables import Row, RunTables, group_rows, render_cell
from oneclass.tasks.stores import published_model, runs
from oneclass.tasks.stores.home import Home

ITEMS_PER_EXAMPLE = 5  # likes, and recommendations, of an example user
MOST_SEARCHED = 20_000  # users, and items: those with the most likes, so that the page stays below a few MB


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
    shown = {name: content.load_table(tables, name) for name in content.TABLES}
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
        figures=draw_figures(tables, main),
        facts=content.list_run_facts(overview),
        input_summary=content.describe_input(overview),
        list_hits_summary=content.describe_list_hits(shown["list_hits"].rows),
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
