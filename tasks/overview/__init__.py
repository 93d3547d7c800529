"""The page over all data sets of a home, `<home>/index.html`: a line each, with state, age, champion and trend.

It is made from what each run leaves in `report/summary.json` and in `published/`, never from a warehouse, which a
run may hold.
"""

import contextlib
import json
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from tasks.pages import numbers
from tasks.pages.sparkline import sparkline
from tasks.pages.templates import template
from tasks.stores import publications
from tasks.stores.home import Home

logger = logging.getLogger(__name__)
_one_at_a_time = threading.Lock()  # a run that is told to end has two threads that say so, through one half-made file

SUMMARY = "summary.json"
STATES = {"completed": "good", "late": "good", "partly failed": "fair"}  # all others are bad


@dataclass(frozen=True)
class Line:
    """One data set.

    Attributes:
        report: where its report lies, from the page; None where it has none.
        state, when, age: of the last run; the age is that at which the page was written.
        champion: what is published, and since when its recommendations are.
        quality: the metric that judges, of what stood after the last evaluated run, and its last nights as a line.
        look: how many things its report says to look at.
        wrong: why nothing can be said of it.
    """

    name: str
    report: str | None = None
    state: str = "never ended"
    when: str = ""
    age: str = ""
    champion: str = ""
    published: str = ""
    quality: str = ""
    metric: str = ""
    trend: Markup = field(default_factory=Markup)
    look: int = 0
    wrong: str = ""

    @property
    def mood(self) -> str:
        """`good`, `fair` or `bad`."""
        return "bad" if self.wrong else STATES.get(self.state, "bad")


def note(home: Home, **facts: Any) -> None:
    """Keep facts of a data set's runs beside its report, each in place of the earlier one of that name."""
    file = home.report / SUMMARY
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    file.parent.mkdir(parents=True, exist_ok=True)
    _put(home, file, json.dumps(known | facts, indent=1, sort_keys=True) + "\n")


def after_run(home: Home, run_id: str, state: str) -> None:
    """Note how a run ended, and write the page of its home anew."""
    if home.folder.is_dir():  # it is not where a run was refused before it began
        with _one_at_a_time:
            with _only_shown(home), home.writing():
                note(home, ended={"run_id": run_id, "state": state, "at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"})
            rewrite(home)


def rewrite(home: Home) -> None:
    """Write `<root>/index.html` in one step."""
    with _only_shown(home), home.writing():
        now = datetime.now(UTC)
        lines = [line(home.root, name, now) for name in data_sets(home.root)]
        _put(home, home.root / "index.html", template("tasks.overview", "page.html").render(lines=lines, now=now))


@contextlib.contextmanager
def _only_shown(home: Home) -> Iterator[None]:
    """What goes wrong is logged: it must fail neither a run nor a promotion."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (what is only shown must not end a run)
        logger.warning("%s: the page over all data sets cannot be written: %s", home.root, error)


def data_sets(root: Path) -> list[str]:
    """The names of the folders in a home in which a run has worked."""
    left = ("warehouse.duckdb", "published", f"report/{SUMMARY}")
    return sorted(one.name for one in root.iterdir() if any(os.path.lexists(one / name) for name in left))


def line(root: Path, name: str, now: datetime) -> Line:
    """What can be said of a data set; where something of it is damaged, that."""
    report = f"{quote(name)}/report/index.html" if (root / name / "report" / "index.html").is_file() else None
    try:
        return _line(Home(root, name), now, report)
    except Exception as error:  # noqa: BLE001  (whatever is wrong with one data set, the others have their lines)
        return Line(name, report, wrong=f"{type(error).__name__}: {error}")


def _line(home: Home, now: datetime, report: str | None) -> Line:
    file = home.report / SUMMARY
    facts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    stands = publications.standing(home)
    made_of, shown, ended = stands.get("recommended") or {}, facts.get("shown") or {}, facts.get("ended") or {}
    at = datetime.fromisoformat(ended["at"]) if ended else None
    trend = shown.get("trend") or []
    value, error = shown.get("value"), shown.get("standard_error")
    label = f"{shown.get('metric')} of {len(trend)} nights"
    return Line(
        home.dataset,
        report,
        state=ended.get("state", Line.state),
        when=numbers.minute(at) if at else "",
        age=numbers.span(now - at) if at else "",
        champion=_name(made_of),
        published=numbers.minute(datetime.fromisoformat(stands["published_at"])) if stands else "",
        quality="" if value is None else numbers.fixed(value, 4) + (f" ± {numbers.fixed(error, 4)}" if error else ""),
        metric=shown.get("metric") or "",
        trend=sparkline([one[1] for one in trend], label, [one[2] for one in trend]),
        look=shown.get("look", 0),
    )


def _name(made_of: dict[str, Any]) -> str:
    if not made_of:
        return ""
    return made_of["model"] if made_of["score"] == "score" else f"{made_of['model']} ({made_of['score']})"


def _put(home: Home, file: Path, text: str) -> None:
    fresh = file.with_name(f".{home.dataset}-{file.name}")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, file)
