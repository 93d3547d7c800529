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

from oneclass.tasks.html import numbers
from oneclass.tasks.html.sparkline import draw_sparkline
from oneclass.tasks.html.templates import load_template
from oneclass.tasks.stores import publications
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)
_write_lock = threading.Lock()  # a run that is told to end has two threads that say so, through one half-made file

SUMMARY_FILE = "summary.json"
STATE_MOODS = {"completed": "good", "late": "good", "partly failed": "fair"}  # all others are bad


@dataclass(frozen=True)
class DatasetRow:
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
        return "bad" if self.wrong else STATE_MOODS.get(self.state, "bad")


def store_run_facts(home: Home, **facts: Any) -> None:
    """Keep facts of a data set's runs beside its report, each in place of the earlier one of that name."""
    file = home.report / SUMMARY_FILE
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    file.parent.mkdir(parents=True, exist_ok=True)
    _merge_summary(home, file, json.dumps(known | facts, indent=1, sort_keys=True) + "\n")


def record_outcome(home: Home, run_id: str, state: str) -> None:
    """Note how a run ended, and write the page of its home anew."""
    if home.folder.is_dir():  # it is not where a run was refused before it began
        with _write_lock:
            with _log_errors(home), home.writing():
                store_run_facts(
                    home, ended={"run_id": run_id, "state": state, "at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
                )
            write_home_page(home)


def write_home_page(home: Home) -> None:
    """Write `<root>/index.html` in one step."""
    with _log_errors(home), home.writing():
        now = datetime.now(UTC)
        lines = [load_dataset_row(home.root, name, now) for name in list_used_datasets(home.root)]
        _merge_summary(
            home,
            home.root / "index.html",
            load_template("oneclass.tasks.home_page", "page.html").render(lines=lines, now=now),
        )


@contextlib.contextmanager
def _log_errors(home: Home) -> Iterator[None]:
    """What goes wrong is logged: it must fail neither a run nor a promotion."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (what is only shown must not end a run)
        logger.warning("%s: the page over all data sets cannot be written: %s", home.root, error)


def list_used_datasets(root: Path) -> list[str]:
    """The names of the folders in a home in which a run has worked."""
    left = ("warehouse.duckdb", "published", f"report/{SUMMARY_FILE}")
    return sorted(one.name for one in root.iterdir() if any(os.path.lexists(one / name) for name in left))


def load_dataset_row(root: Path, name: str, now: datetime) -> DatasetRow:
    """What can be said of a data set; where something of it is damaged, that."""
    report = f"{quote(name)}/report/index.html" if (root / name / "report" / "index.html").is_file() else None
    try:
        return _build_dataset_row(Home(root, name), now, report)
    except Exception as error:  # noqa: BLE001  (whatever is wrong with one data set, the others have their lines)
        return DatasetRow(name, report, wrong=f"{type(error).__name__}: {error}")


def _build_dataset_row(home: Home, now: datetime, report: str | None) -> DatasetRow:
    file = home.report / SUMMARY_FILE
    facts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    stands = publications.load_current(home)
    made_of, shown, ended = stands.get("recommended") or {}, facts.get("shown") or {}, facts.get("ended") or {}
    at = datetime.fromisoformat(ended["at"]) if ended else None
    trend = shown.get("trend") or []
    value, error = shown.get("value"), shown.get("standard_error")
    label = f"{shown.get('metric')} of {len(trend)} nights"
    return DatasetRow(
        home.dataset,
        report,
        state=ended.get("state", DatasetRow.state),
        when=numbers.format_minute(at) if at else "",
        age=numbers.format_time_span(now - at) if at else "",
        champion=_configuration_name(made_of),
        published=numbers.format_minute(datetime.fromisoformat(stands["published_at"])) if stands else "",
        quality=""
        if value is None
        else numbers.format_fixed(value, 4) + (f" ± {numbers.format_fixed(error, 4)}" if error else ""),
        metric=shown.get("metric") or "",
        trend=draw_sparkline([one[1] for one in trend], label, [one[2] for one in trend]),
        look=shown.get("look", 0),
    )


def _configuration_name(made_of: dict[str, Any]) -> str:
    if not made_of:
        return ""
    return made_of["model"] if made_of["score"] == "score" else f"{made_of['model']} ({made_of['score']})"


def _merge_summary(home: Home, file: Path, text: str) -> None:
    fresh = file.with_name(f".{home.dataset}-{file.name}")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, file)
