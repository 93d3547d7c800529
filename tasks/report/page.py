"""The page: every section's data put into the template, with its style and its one script inside."""

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from tasks import changes, main_table, nights
from tasks.decisions import decisions
from tasks.main_table import MainRow
from tasks.pages.templates import template
from tasks.protocols import PROTOCOLS
from tasks.report import (
    content,
    figures_degrees,
    figures_likes,
    figures_papers,
    figures_ranks,
    figures_sweeps,
    model_tables,
    tiles,
)
from tasks.report.alarms import alarms
from tasks.report.changes import changes_section
from tasks.report.drawing import svg
from tasks.report.figures import Figure, Row
from tasks.report.run_tables import RunTables
from tasks.report.samples import samples
from tasks.report.tables import cell
from tasks.report.verdict import Verdict, best, verdict
from tasks.report.words import METRICS, SCORES
from tasks.stores.home import Home

SAMPLE_ITEMS = 5  # of a sample user's likes, and of what is recommended to them


@dataclass(frozen=True)
class Page:
    """What is written of a run.

    Attributes:
        panels: every drawing as an `<svg>` element, by its name.
        shown: for the page over all data sets, as plain data.
    """

    text: str
    panels: dict[str, str]
    shown: dict[str, Any]


def page(tables: RunTables, home: Home) -> Page:
    """The page of a run; call it under `drawing.style`."""
    main = main_table.by_protocol(main_table.rows(tables.connection, tables.run_id))
    overview = tables("overview").row(0, named=True)
    by_section = drawn(tables, main)
    panels = {panel.name: svg(panel) for of_one in by_section.values() for one in of_one for panel in one.panels}
    found, first_screen = _first_screen(tables, home, main, overview)
    text = template("tasks.report", "page.html").render(
        dataset=home.dataset,
        overview=overview,
        panels={name: Markup(element) for name, element in panels.items()},
        absent=_absent([one for of_one in by_section.values() for one in of_one if not one.panels]),
        **{section: [one for one in of_one if one.panels] for section, of_one in by_section.items()},
        **first_screen,
        **_tables(tables, main, overview),
        **_constants(),
    )
    return Page(text, panels, summary(found, first_screen))


def _first_screen(
    tables: RunTables, home: Home, main: dict[str, list[MainRow]], overview: Row
) -> tuple[Verdict, dict[str, Any]]:
    decision = next(iter(decisions(tables.connection, tables.run_id)), None)
    standing = next(iter(tables.to_draw("standing")), None)
    found = verdict(main, tables.to_draw("against_best"), standing, decision)
    changed = changes_section(changes.since_previous(tables.connection, tables.run_id))
    line = tables("quality", protocol=found.row.protocol, metric=next(iter(found.row.cells))) if found.row else None
    shown = [
        found.row and tiles.quality(found, line),
        tiles.change(found, changed, decision),
        tiles.soundness(tables("contracts")),
        tiles.volume(overview, tables("events_by_night"), tables("likes_by_day")),
    ]
    unusual = nights.unusual(tables.connection, tables.run_id)
    return found, {
        "verdict": found,
        "tiles": [tile for tile in shown if tile],
        "nights": [] if line is None else line.to_dicts(),
        "alarms": alarms(overview, tables.to_draw("broken_rules"), unusual, main, decision),
        "samples": samples(tables, home, SAMPLE_ITEMS) if decision else [],
        "changes": changed,
    }


def _tables(tables: RunTables, main: dict[str, list[MainRow]], overview: Row) -> dict[str, Any]:
    contracts, fits, beyond = content.contract_tables(tables), tables("fits"), tables("beyond_accuracy")
    return {
        "facts": content.run_facts(overview),
        "came_in": content.came_in(overview),
        "log": content.log_tables(tables),
        "contracts": contracts,
        "sound": content.sound(contracts["contracts"].frame),
        "laws": content.laws_table(tables("laws")),
        "best": {protocol: best(rows) for protocol, rows in main.items()},
        "main": model_tables.main_tables(main, fits),
        "costs": model_tables.costs_table(fits),
        "settings": model_tables.settings_table(tables("model_settings")),
        "leads": model_tables.leads(tables("against_best")),
        "beyond": model_tables.pivots(
            "beyond", "The first 20 for test users", "evaluation.beyond_accuracy", beyond, main
        ),
        "shown": model_tables.shown(beyond),
        "considered": content.considered_table(tables("considered")),
        "metrics": model_tables.pivots("metrics", "Every metric", "evaluation.metrics", tables("metrics"), main),
    }


def drawn(tables: RunTables, main: dict[str, list[MainRow]]) -> dict[str, list[Figure]]:
    """Every figure by its section; call it, and `svg`, under `drawing.style`."""
    rows = tables.to_draw
    ranks, likes, refits = rows("ranks_by_degree"), rows("like_by_degree"), rows("sweeps")
    dislikes = rows("dislike_by_degree")  # none, unless the run kept what was considered and not liked
    scores = figures_ranks.main_scores(main.get("leave_one_out") or next(reversed(main.values()), []))
    return {
        "for_whom": [
            figures_ranks.overview(ranks, scores),
            figures_ranks.others(ranks, scores),
            figures_ranks.of_each_score(ranks, scores),
            figures_ranks.percentiles(ranks, scores),
            figures_ranks.both_degrees(rows("ranks_by_both_degrees"), scores),
        ],
        "certainty": [
            figures_likes.errors(likes),
            *([figures_likes.errors(dislikes, figures_likes.DISLIKES)] if dislikes else []),
            figures_likes.histograms(likes),
            *([figures_likes.histograms(dislikes, figures_likes.DISLIKES)] if dislikes else []),
            figures_likes.calibration(rows("calibration")),
        ],
        "degrees": [
            figures_degrees.degrees(rows("degrees"), rows("laws")),
            figures_degrees.hidden_graph_ratios(rows("hidden_graph_ratios")),
        ],
        "sweeps": [
            figures_sweeps.by_rate(refits),
            figures_sweeps.trade_off(refits),
            *figures_papers.figures(refits, ranks),
        ],
    }


def _absent(figures: list[Figure]) -> dict[str, list[str]]:
    """The headings of figures that are missing, by the reason why."""
    found: dict[str, list[str]] = {}
    for figure in figures:
        found.setdefault(figure.absent, []).append(figure.heading)
    return {reason: headings for reason, headings in found.items() if reason}


def summary(found: Verdict, first_screen: dict[str, Any]) -> dict[str, Any]:
    """What the page over all data sets says of the run."""
    metric, (value, error) = next(iter(found.row.cells.items())) if found.row else ("", (None, None))
    return {
        "metric": metric,
        "value": value,
        "standard_error": error,
        "look": len(first_screen["alarms"]),
        "trend": [[str(row["night"]), row["value"], row["standard_error"]] for row in first_screen["nights"]],
    }


def _constants() -> dict[str, Any]:
    script = files("tasks.report").joinpath("sort.js").read_text(encoding="utf-8")
    return {
        "cell": cell,
        "protocols": PROTOCOLS,
        "scores": SCORES,
        "meanings": METRICS,
        "script": Markup(script),
        "script_digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
