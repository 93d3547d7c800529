"""The page: every section's data put into the template, with its style and its one script inside."""

import base64
import hashlib
from importlib.resources import files

import jinja2
from markupsafe import Markup

from tasks import changes, main_table
from tasks.decisions import decisions
from tasks.protocols import PROTOCOLS
from tasks.report import (
    content,
    figures_degrees,
    figures_intervals,
    figures_likes,
    figures_ranks,
    figures_sweeps,
)
from tasks.report.answers import answers
from tasks.report.changes import changes_section
from tasks.report.drawing import DARK, LIGHT, svg, variables
from tasks.report.figures import Figure
from tasks.report.run_tables import RunTables
from tasks.report.tables import cell
from tasks.report.words import METRICS, SCORES


def page(tables: RunTables, dataset: str) -> tuple[str, dict[str, str]]:
    """The page's text, and every panel as an `<svg>` element by its name."""
    main = main_table.by_protocol(main_table.rows(tables.connection, tables.run_id))
    changed = changes_section(changes.since_previous(tables.connection, tables.run_id))
    overview = tables("overview").row(0, named=True)
    figures = {figure.name: figure for figure in drawn(tables, main)}
    panels = {panel.name: svg(panel) for figure in figures.values() for panel in figure.panels}
    log, contracts = content.log_tables(tables), content.contract_tables(tables)
    beyond = tables("beyond_accuracy")
    text = _template().render(
        dataset=dataset,
        overview=overview,
        facts=content.run_facts(overview),
        answers=answers(overview, contracts["contracts"].frame, tables.to_draw("laws"), main, changed.sentence),
        changes=changed,
        decision=next(iter(decisions(tables.connection, tables.run_id)), None),
        figures=figures,
        panels={name: Markup(element) for name, element in panels.items()},
        log=log,
        contracts=contracts,
        laws=content.laws_table(tables("laws")),
        main=content.main_tables(main, tables("fits")),
        settings=content.settings_table(tables("model_settings")),
        leads=content.leads(tables("against_best")),
        beyond=content.pivots("beyond", "The first 20 for test users", "evaluation.beyond_accuracy", beyond, main),
        shown=content.shown(beyond),
        metrics=content.pivots("metrics", "Every metric", "evaluation.metrics", tables("metrics"), main),
    )
    return text, panels


def drawn(tables: RunTables, main: dict[str, list[main_table.MainRow]]) -> list[Figure]:
    """Every figure; call it, and `svg`, under `drawing.style`."""
    rows = tables.to_draw
    ranks, likes, refits = rows("ranks_by_degree"), rows("like_by_degree"), rows("sweeps")
    scores = figures_ranks.main_scores(main.get("leave_one_out") or next(reversed(main.values()), []))
    return [
        figures_degrees.degrees(rows("degrees"), rows("laws")),
        figures_degrees.hidden_graph_ratios(rows("hidden_graph_ratios")),
        figures_intervals.intervals(main),
        figures_ranks.overview(ranks, scores),
        figures_ranks.others(ranks, scores),
        figures_ranks.of_each_score(ranks, scores),
        figures_ranks.percentiles(ranks, scores),
        figures_ranks.both_degrees(rows("ranks_by_both_degrees"), scores),
        figures_likes.errors(likes),
        figures_likes.histograms(likes),
        figures_likes.calibration(rows("calibration")),
        figures_sweeps.by_rate(refits),
        figures_sweeps.trade_off(refits),
    ]


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    script = _text("sort.js")
    environment.globals |= {
        "cell": cell,
        "protocols": PROTOCOLS,
        "scores": SCORES,
        "meanings": METRICS,
        "style": Markup(_text("style.css")),
        "light": Markup(variables(LIGHT)),
        "dark": Markup(variables(DARK)),
        "script": Markup(script),
        "script_digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return environment.from_string(_text("page.html"))


def _text(name: str) -> str:
    return files("tasks.report").joinpath(name).read_text(encoding="utf-8")
