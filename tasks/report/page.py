"""The page: every section's data put into the template, with its style and its one script inside."""

import base64
import hashlib
from importlib.resources import files
from itertools import groupby
from typing import Any

import jinja2
from markupsafe import Markup

from tasks import main_table
from tasks.report import (
    content,
    figures_degrees,
    figures_intervals,
    figures_likes,
    figures_ranks,
    figures_sweeps,
)
from tasks.report.answers import answers
from tasks.report.changes import since_the_last_run
from tasks.report.drawing import DARK, LIGHT, svg, variables
from tasks.report.figures import Figure
from tasks.report.tables import cell
from tasks.report.warehouse_rows import Rows
from tasks.report.words import METRICS, PROTOCOLS, SCORES


def page(rows: Rows, dataset: str) -> tuple[str, dict[str, str]]:
    """The page's text, and every panel as an `<svg>` element by its name."""
    table = main_table.rows(rows.connection, rows.run_id)
    tables = {protocol: list(of_one) for protocol, of_one in groupby(table, lambda row: row.protocol)}
    laws, changes, overview = rows("laws"), since_the_last_run(rows), rows.one("overview")
    figures = {figure.name: figure for figure in drawn(rows, tables, laws)}
    panels = {panel.name: svg(panel) for figure in figures.values() for panel in figure.panels}
    log, contracts = content.log_tables(rows), content.contract_tables(rows)
    beyond, metrics = rows("beyond_accuracy"), rows("metrics")
    text = _template().render(
        dataset=dataset,
        overview=overview,
        facts=content.run_facts(overview),
        answers=answers(overview, contracts["contracts"].rows, laws, tables, changes),
        changes=changes,
        figures=figures,
        panels={name: Markup(element) for name, element in panels.items()},
        log=log,
        contracts=contracts,
        laws=content.laws_table(laws),
        main=content.main_tables(table, rows("fits")),
        leads=content.leads(rows),
        beyond=content.pivots("beyond", "The first 20 for test users", "evaluation.beyond_accuracy", beyond, table),
        shown=content.shown(beyond),
        metrics=content.pivots("metrics", "Every metric", "evaluation.metrics", metrics, table),
    )
    return text, panels


def drawn(rows: Rows, tables: dict[str, list[main_table.Row]], laws: list[dict[str, Any]]) -> list[Figure]:
    """Every figure; call it, and `svg`, under `drawing.style`."""
    ranks, likes, sweeps = rows("ranks_by_degree"), rows("like_by_degree"), rows("sweeps")
    scores = figures_ranks.main_scores(tables.get("leave_one_out") or next(reversed(tables.values()), []))
    return [
        figures_degrees.degrees(rows("degrees"), laws),
        figures_degrees.hidden_graph_ratios(rows("hidden_graph_ratios")),
        figures_intervals.intervals(tables),
        figures_ranks.overview(ranks, scores),
        figures_ranks.others(ranks, scores),
        figures_ranks.of_each_score(ranks, scores),
        figures_ranks.percentiles(ranks, scores),
        figures_ranks.both_degrees(rows("ranks_by_both_degrees"), scores),
        figures_likes.errors(likes),
        figures_likes.histograms(likes),
        figures_likes.calibration(rows("calibration")),
        figures_sweeps.by_rate(sweeps),
        figures_sweeps.trade_off(sweeps),
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
