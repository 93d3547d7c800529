"""The figures of the page as SVG: those of an earlier page, if their rows are the same, or drawn anew.

Drawing them takes longer than all else of the report, and matplotlib, which draws them, a second to load.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from oneclass.models import fingerprint
from oneclass.tasks.html.templates import DARK_COLOURS, css_variables
from oneclass.tasks.leaderboard import LeaderboardRow
from oneclass.tasks.report.run_tables import Row, RunTables
from oneclass.tasks.report.tables import Figure
from oneclass.tasks.stores import checksums, durable
from oneclass.tasks.stores.home import Home

QUERIES = (
    "ranks_by_degree",
    "ranks_by_both_degrees",
    "like_by_degree",
    "dislike_by_degree",
    "calibration",
    "degrees",
    "laws",
    "hidden_graph_ratios",
)
"""Queries of `sql/report.sql` whose rows are drawn."""
STORE = "figures.json"  # in the folder of the report
LIBRARIES = ("matplotlib", "numpy")
_TASKS = Path(__file__).parent.parent
_SOURCES = (
    *(_TASKS / "report").glob("*.py"),
    *(_TASKS / "html").glob("*.py"),
    _TASKS / "recommend/like_calibration.py",
)


def load_or_draw(tables: RunTables, home: Home, main: dict[str, list[LeaderboardRow]]) -> dict[str, list[Figure]]:
    """Return every figure by section, drawn if its rows, or the code that draws, differ from those of the last page.

    Args:
        main: the leaderboards by protocol.
    """
    rows = {name: tables.as_rows(name) for name in QUERIES}
    scores = best_score_per_model(main.get("leave_one_out") or next(reversed(main.values()), []))
    digest, file = _digest_input(rows, scores), home.report / STORE
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        if stored["digest"] == digest:
            return {section: [Figure(**figure) for figure in figures] for section, figures in stored["figures"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none is stored, or it is damaged: drawn anew
    figures = render_figures(rows, scores)
    plain = {section: [asdict(figure) for figure in drawn] for section, drawn in figures.items()}
    durable.make_folder(home.report)
    text = json.dumps({"digest": digest, "figures": plain})
    durable.write_text(file.with_name(f".{file.name}"), file, text)
    return figures


def _digest_input(rows: Mapping[str, list[Row]], scores: Mapping[str, str]) -> str:
    """Return the digest of all that the figures depend on."""
    sources = [fingerprint.fingerprint_file(file) for file in sorted(_SOURCES)]
    versions = [checksums.library_version(name) for name in LIBRARIES]
    return hashlib.sha256(repr((rows, list(scores.items()), sources, versions)).encode()).hexdigest()


def render_figures(rows: Mapping[str, list[Row]], scores: dict[str, str]) -> dict[str, list[Figure]]:
    """Draw every figure, by section, and render its panels. Imports matplotlib."""
    from oneclass.tasks.report import plotting

    def render(figure: Figure) -> Figure:
        drawings = {panel.name: plotting.render_svg(panel) for panel in figure.panels}
        return replace(figure, panels=(), drawings=drawings)

    with plotting.plot_style():
        by_section = draw_figures(rows, scores)
        return {section: [render(figure) for figure in figures] for section, figures in by_section.items()}


def draw_figures(rows: Mapping[str, list[Row]], scores: dict[str, str]) -> dict[str, list[Figure]]:
    """Draw every figure, by section; call it under `plotting.plot_style`.

    Args:
        rows: of each of `QUERIES`.
        scores: the best score of each model, the best model first.
    """
    from oneclass.tasks.report import figures_graph, figures_ranks

    ranks, likes = rows["ranks_by_degree"], rows["like_by_degree"]
    dislikes = rows["dislike_by_degree"]  # empty without explicit negatives
    return {
        "for_whom": [
            figures_ranks.draw_rank_overview(ranks, scores),
            figures_ranks.draw_score_variants(ranks, scores),
            figures_ranks.draw_percentiles(ranks, scores),
            figures_ranks.draw_both_degrees(rows["ranks_by_both_degrees"], scores),
        ],
        "certainty": [
            figures_graph.draw_errors(likes),
            *([figures_graph.draw_errors(dislikes, figures_graph.DISLIKE_CLASS)] if dislikes else []),
            figures_graph.draw_histograms(likes),
            *([figures_graph.draw_histograms(dislikes, figures_graph.DISLIKE_CLASS)] if dislikes else []),
            figures_graph.draw_calibration(rows["calibration"]),
        ],
        "degrees": [
            figures_graph.draw_degree_distributions(rows["degrees"], rows["laws"]),
            figures_graph.draw_hidden_graph_ratios(rows["hidden_graph_ratios"]),
        ],
    }


def best_score_per_model(table: list[LeaderboardRow]) -> dict[str, str]:
    """Return the best score of each model, best model first; the rows of `table` are sorted, best first."""
    scores: dict[str, str] = {}
    for row in table:
        scores.setdefault(row.model, row.score)
    return scores


def render_svg_file(element: str) -> str:
    """Return the text of a separate file: the element with the colours of the reader's theme."""
    rules = f"svg {{background: {DARK_COLOURS['paper']}; {css_variables(DARK_COLOURS)}}}"
    rules = f"*{{stroke-linejoin: round}} @media (prefers-color-scheme: dark) {{{rules}}}"
    opening = element.index(">") + 1
    return f'<?xml version="1.0" encoding="utf-8"?>\n{element[:opening]}<style>{rules}</style>{element[opening:]}\n'
