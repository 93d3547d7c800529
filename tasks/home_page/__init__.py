"""Write the overview of a home's data sets, `<home>/index.html`: a row each, with state, dates, champion and trend.

It is built from each data set's `report/summary.json` and `published/`, never from a warehouse, which a run may lock.
"""

import contextlib
import json
import logging
import os
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from oneclass.tasks.html import numbers
from oneclass.tasks.html.sparkline import draw_sparkline
from oneclass.tasks.html.templates import load_template
from oneclass.tasks.stores import durable, publications
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import truncate

logger = logging.getLogger(__name__)
# A run that is terminated has two threads that record it, which would write the same temporary file.
_write_lock = threading.Lock()

SUMMARY_FILE = "summary.json"
MAX_NAMES = 3  # of files that were not read
MAX_REASON_LENGTH = 240  # characters
STATE_MOODS = {
    "completed": "good",
    "late": "good",
    "files unread": "fair",
    "stale": "fair",
    "partly failed": "fair",
}  # all others are bad


@dataclass(frozen=True)
class DatasetRow:
    """The row of one data set.

    Attributes:
        report: relative URL of its report; None without one.
        state, ended_at: of the last run.
        reason: why it failed, its first line; empty if it did not.
        champion: the published model.
        published_at: time of the publication.
        quality: main metric of the published model in the last evaluated run.
        metric: name of that metric.
        trend: sparkline of the metric over the last nights.
        warnings: number of warnings in its report.
        unread: the first files of the landing folder that its last run did not read, and how many more.
        error: why the data set cannot be read; empty if it can.
    """

    name: str
    report: str | None = None
    state: str = "never ended"
    ended_at: str = ""
    reason: str = ""
    champion: str = ""
    published_at: str = ""
    quality: str = ""
    metric: str = ""
    trend: Markup = field(default_factory=Markup)
    warnings: int = 0
    unread: str = ""
    error: str = ""

    @property
    def mood(self) -> str:
        """`good`, `fair` or `bad`."""
        return "bad" if self.error else STATE_MOODS.get(self.state, "bad")


def store_run_facts(home: Home, **facts: Any) -> None:
    """Store facts of a data set's last run beside its report, replacing earlier facts of the same names."""
    file = home.report / SUMMARY_FILE
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        stored = {}
    durable.make_folder(file.parent)
    _replace_file(home, file, json.dumps(stored | facts, indent=1, sort_keys=True) + "\n")


def record_outcome(home: Home, run_id: str, state: str, reason: str = "") -> None:
    """Store how a run ended, with the first line of the reason if it failed, and rewrite the page of its home."""
    ended = {"run_id": run_id, "state": state, "at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    if reason:
        ended["reason"] = truncate(reason.strip().split("\n")[0], MAX_REASON_LENGTH)
    if home.folder.is_dir():  # it does not exist if the run was refused at its start
        with _write_lock:
            with _log_errors(home), home.writing():
                store_run_facts(home, ended=ended)
            write_home_page(home)


def write_home_page(home: Home) -> None:
    """Write `<root>/index.html` atomically."""
    with _log_errors(home), home.writing():
        now = datetime.now(UTC)
        rows = [load_dataset_row(home.root, name) for name in list_used_datasets(home.root)]
        page = load_template("oneclass.tasks.home_page", "page.html").render(rows=rows, now=now)
        _replace_file(home, home.root / "index.html", page)


@contextlib.contextmanager
def _log_errors(home: Home) -> Generator[None]:
    """Log an error instead of raising it, since the page must fail neither a run nor a promotion."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (a failing display must not end a run)
        logger.warning("%s: the page of all data sets cannot be written: %s", home.root, error)


def list_used_datasets(root: Path) -> list[str]:
    """List the data sets of a home that have been run."""
    traces = ("warehouse.duckdb", "published", f"report/{SUMMARY_FILE}")
    return sorted(folder.name for folder in root.iterdir() if any(os.path.lexists(folder / name) for name in traces))


def load_dataset_row(root: Path, name: str) -> DatasetRow:
    """Load the row of a data set; if its files are damaged, a row with the error."""
    report = f"{quote(name)}/report/index.html" if (root / name / "report" / "index.html").is_file() else None
    try:
        return _build_dataset_row(Home(root, name), report)
    except Exception as error:  # noqa: BLE001  (a damaged data set must not hide the others)
        return DatasetRow(name, report, error=f"{type(error).__name__}: {error}")


def _build_dataset_row(home: Home, report: str | None) -> DatasetRow:
    file = home.report / SUMMARY_FILE
    facts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    publication = publications.load_current(home)
    shown, ended = facts.get("shown") or {}, facts.get("ended") or {}
    ended_at = datetime.fromisoformat(ended["at"]) if ended else None
    trend = shown.get("trend") or []
    value, error = shown.get("value"), shown.get("standard_error")
    quality = "" if value is None else " ".join(filter(None, numbers.format_with_error(value, error)))
    label = f"{shown.get('metric')} of {len(trend)} nights"
    published_at = datetime.fromisoformat(publication["published_at"]) if publication else None
    return DatasetRow(
        home.dataset,
        report,
        state=ended.get("state", DatasetRow.state),
        ended_at=numbers.format_minute(ended_at) if ended_at else "",
        reason=ended.get("reason", ""),
        champion=_format_champion(publication.get("recommended") or {}),
        published_at=numbers.format_minute(published_at) if published_at else "",
        quality=quality,
        metric=shown.get("metric") or "",
        trend=draw_sparkline([night[1] for night in trend], label, [night[2] for night in trend]),
        warnings=shown.get("look", 0),
        unread=_format_unread(shown.get("unread") or []),
    )


def _format_unread(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def _format_champion(recommended: dict[str, Any]) -> str:
    if not recommended:
        return ""
    model, score = recommended["model"], recommended["score"]
    return model if score == "score" else f"{model} ({score})"


def _replace_file(home: Home, file: Path, text: str) -> None:
    """Write a file atomically."""
    durable.write_text(file.with_name(f".{home.dataset}-{file.name}"), file, text)
