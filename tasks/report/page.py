"""Render the report: every section's data in the template, with inline style and script; and the page that searches."""

import base64
import hashlib
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from oneclass.tasks import anomalies, leaderboard, run_diff
from oneclass.tasks.html.templates import load_template
from oneclass.tasks.leaderboard import FOLDS_NOTE, LeaderboardRow
from oneclass.tasks.promotion_log import load_decisions
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.report import content, model_tables, strata_tables
from oneclass.tasks.report.changes import build_diff_section
from oneclass.tasks.report.figures import load_or_draw
from oneclass.tasks.report.headline import (
    Headline,
    build_change_card,
    build_contracts_card,
    build_headline,
    build_quality_card,
    build_volume_card,
    describe_best,
)
from oneclass.tasks.report.run_tables import Row, RunTables, group_rows
from oneclass.tasks.report.tables import Figure, render_cell
from oneclass.tasks.report.warnings import collect_warnings
from oneclass.tasks.stores import published_model, runs
from oneclass.tasks.stores.home import Home


@dataclass(frozen=True)
class ExampleItem:
    """An item: its title, or `item` and its id if it has none; and the number of users who like it."""

    name: str
    users: int


@dataclass(frozen=True)
class ExampleUser:
    """A user: the number of their likes, the newest likes, and the best recommendations."""

    user_id: str
    likes: int
    newest: list[ExampleItem]
    recommended: list[ExampleItem]


def load_example_users(tables: RunTables, home: Home, items: int) -> list[ExampleUser]:
    """Load up to five users spread over the lengths of history, the shortest first."""
    rows = tables.as_rows("sample_users", items=items)
    titles = published_model.load_titles(home, {row["item_id"] for row in rows})
    users = []
    for (user_id, likes), of_user in group_rows(rows, "user_id", "likes").items():
        of_list = {
            name: [ExampleItem(titles.get(row["item_id"], f"item {row['item_id']}"), row["users"]) for row in of_name]
            for name, of_name in group_rows(of_user, "list").items()
        }
        users.append(ExampleUser(user_id, likes, of_list["likes"], of_list["recommended"]))
    return users


ITEMS_PER_EXAMPLE = 5  # likes, and recommendations, of an example user
MOST_SEARCHED = 20_000  # users, and items: those with the most likes, so that the page stays below a few MB


@dataclass(frozen=True)
class Page:
    """The rendered report.

    Attributes:
        name: when the run began, which names its page among those of earlier runs: `2026-11-20T030000`.
        panels: every drawing as an `<svg>` element, by its name.
        shown: plain data for the home page.
    """

    name: str
    text: str
    panels: dict[str, str]
    shown: dict[str, Any]


def build_page(tables: RunTables, home: Home, earlier: list[str]) -> Page:
    """Build the page of a run, with links to `earlier` runs' pages."""
    main = leaderboard.group_by_protocol(leaderboard.load_leaderboard(tables.connection, tables.run_id))
    overview = tables("overview").row(0, named=True)
    by_section = load_or_draw(tables, home, main)
    figures = [figure for section_figures in by_section.values() for figure in section_figures]
    panels = {name: element for figure in figures for name, element in figure.drawings.items()}
    headline, first_screen = _build_first_screen(tables, home, main, overview)
    name = f"{overview['started_at']:%Y-%m-%dT%H%M%S}"
    text = _render(
        "page",
        dataset=home.dataset,
        cell=render_cell,
        protocols=PROTOCOLS,
        folds_note=FOLDS_NOTE,
        earlier=[run for run in earlier if run != name],
        overview=overview,
        panels={name: Markup(element) for name, element in panels.items()},
        absent=_group_missing_figures([figure for figure in figures if not figure.drawings]),
        **{section: [figure for figure in drawn if figure.drawings] for section, drawn in by_section.items()},
        **first_screen,
        **_build_tables(tables, main, overview, headline.row),
    )
    return Page(name, text, panels, build_summary(headline, first_screen))


def _build_first_screen(
    tables: RunTables, home: Home, main: dict[str, list[LeaderboardRow]], overview: Row
) -> tuple[Headline, dict[str, Any]]:
    decision = next(iter(load_decisions(tables.connection, tables.run_id)), None)
    standing = next(iter(tables.as_rows("standing")), None)
    headline = build_headline(main, standing, decision, overview["started_at"])
    changed = build_diff_section(run_diff.diff_with_previous(tables.connection, tables.run_id))
    row = headline.row
    nights = tables("quality", protocol=row.protocol, metric=next(iter(row.cells))) if row else None
    cards = [
        build_quality_card(row, nights) if row and nights is not None else None,
        build_change_card(headline, changed, decision),
        build_contracts_card(tables("contracts")),
        build_volume_card(overview, tables("events_by_night"), tables("likes_by_day")),
    ]
    unusual, unread = anomalies.load_anomalies(tables.connection, tables.run_id), tables.as_rows("unread_files")
    return headline, {
        "headline": headline,
        "kpi_cards": [card for card in cards if card],
        "nights": [] if nights is None else nights.to_dicts(),
        "warnings": collect_warnings(
            overview,
            tables.as_rows("broken_rules"),
            unusual,
            main,
            decision,
            unread,
            runs.load_alarms(tables.connection, tables.run_id),
        ),
        "unread": [file["name"] for file in unread],
        "examples": load_example_users(tables, home, ITEMS_PER_EXAMPLE) if decision else [],
        "changes": changed,
    }


def _build_tables(
    tables: RunTables, main: dict[str, list[LeaderboardRow]], overview: Row, published: LeaderboardRow | None
) -> dict[str, Any]:
    contracts, fits, beyond = content.build_contract_tables(tables), tables("fits"), tables("beyond_accuracy")
    strata = tables("strata")
    return {
        "facts": content.list_run_facts(overview),
        "input_summary": content.describe_input(overview),
        "log": content.build_log_tables(tables),
        "contracts": contracts,
        "contracts_summary": content.describe_contracts(contracts["contracts"].frame),
        "laws": content.build_distribution_table(tables("laws")),
        "best": {protocol: describe_best(rows) for protocol, rows in main.items()},
        "main": model_tables.build_leaderboards(main, fits),
        "folded": [protocol for protocol, rows in main.items() if rows[0].folds > 1],
        "costs": model_tables.build_cost_table(fits),
        "settings": model_tables.build_settings_table(tables("model_settings")),
        "leads": model_tables.build_lead_table(next(iter(main.values()), [])),
        "beyond": model_tables.build_pivot_tables(
            "beyond", "The first 20 for test users", "evaluation.beyond_accuracy", beyond, main
        ),
        "coverage_summary": model_tables.describe_coverage(beyond),
        "strata": strata_tables.build_strata_tables(strata, main, published),
        "strata_summary": strata_tables.describe_strata(strata, main, published),
        "list_hits": content.build_list_hits_table(list_hits := tables("list_hits")),
        "list_hits_summary": content.describe_list_hits(list_hits),
        "surest": content.build_certainty_table(surest := tables("surest_lists")),
        "certainty_summary": content.describe_certainty(surest, tables.as_rows("certainty_by_history")),
        "exploration": content.build_exploration_table(tables("exploring_list")),
        "considered": content.build_explicit_feedback_table(tables("considered")),
        "metrics": model_tables.build_pivot_tables(
            "metrics", "Every metric", "evaluation.metrics", tables("metrics"), main
        ),
    }


def _group_missing_figures(figures: list[Figure]) -> dict[str, list[str]]:
    """Group the headings of missing figures by reason."""
    headings: dict[str, list[str]] = {}
    for figure in figures:
        headings.setdefault(figure.absent, []).append(figure.heading)
    return {reason: names for reason, names in headings.items() if reason}


def build_summary(headline: Headline, first_screen: dict[str, Any]) -> dict[str, Any]:
    """Build the facts of the run for the home page."""
    metric, (value, error) = next(iter(headline.row.cells.items())) if headline.row else ("", (None, None))
    return {
        "metric": metric,
        "value": value,
        "standard_error": error,
        "look": len(first_screen["warnings"]),
        "unread": first_screen["unread"],
        "trend": [[str(row["night"]), row["value"], row["standard_error"]] for row in first_screen["nights"]],
    }


def build_search_page(tables: RunTables, home: Home) -> str:
    """Build the page that finds a user's published list or an item by id or title."""
    items = tables.as_rows("searched_items", most=MOST_SEARCHED)
    users = tables.as_rows("searched_users", most=MOST_SEARCHED)
    position = {row["item_id"]: at for at, row in enumerate(items)}
    for item in dict.fromkeys(item for row in users for item in row["items"] if item not in position):
        position[item] = len(items)
        items.append({"item_id": item, "likes": None, "lists": None})
    titles = published_model.load_titles(home, set(position))
    data = {
        "items": [[row["item_id"], titles.get(row["item_id"], ""), row["likes"], row["lists"]] for row in items],
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
