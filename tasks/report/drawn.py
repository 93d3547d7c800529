"""The figures of the page as SVG: those of an earlier page, if their rows are the same, or drawn anew.

Drawing them takes longer than all else of the report, and matplotlib, which draws them, a second to load.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from oneclass.models import fingerprint
from oneclass.tasks.html.templates import DARK_COLOURS, css_variables
from oneclass.tasks.leaderboard import LeaderboardRow
from oneclass.tasks.report.rows import Row
from oneclass.tasks.report.run_tables import RunTables
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


@dataclass(frozen=True)
class DrawnFigure:
    """A figure of the page, or the reason why it is missing.

    Attributes:
        name: its anchor in the page, and the prefix of its panels' names.
        see, how, table, absent, size: as in `plotting.Figure`.
        panels: the `<svg>` elements by name.
    """

    name: str
    heading: str
    see: str
    how: str
    table: str
    absent: str
    size: str
    panels: dict[str, str]

    @property
    def grids(self) -> list[list[str]]:
        """The panels' names, those by user and those by item apart where there are several of both."""
        sides = [[name for name in self.panels if f"-{side}-" in name] for side in ("user", "item")]
        return sides if all(sides) else [list(self.panels)]


def load_or_draw(tables: RunTables, home: Home, main: dict[str, list[LeaderboardRow]]) -> dict[str, list[DrawnFigure]]:
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
            return {
                section: [DrawnFigure(**figure) for figure in figures] for section, figures in stored["figures"].items()
            }
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none is stored, or it is damaged: drawn anew
    from oneclass.tasks.report.figures import render_figures

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
