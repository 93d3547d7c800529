"""Write the overview of a home's data sets, `<home>/index.html`: a row each, with state, dates, champion and trend.

It is built from each data set's `report/summary.json` and `published/`, never from a warehouse, which a run may lock.
"""

import contextlib
import json
import logging
import os
import threading
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from oneclass.tasks.html import numbers
from oneclass.tasks.html.templates import draw_sparkline, load_template
from oneclass.tasks.stores import durable, publications
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import truncate

logger = logging.getLogger(__name__)
# A run that is terminated has two threads that record it, which would write the same temporary file.
_write_lock = threading.Lock()

SUMMARY_FILE = "summary.json"
MAX_REASON_LENGTH = 240  # characters


@dataclass(frozen=True)
class DatasetRow:
    """The row of one data set, in words; `report` is the relative URL of its report, `error` why it cannot be read."""

    name: str
    report: str | None = None
    state: str = "never ended"
    ended_at: str = ""
    reason: str = ""
    champion: str = "nothing is recommended"
    published_at: str = ""
    quality: str = ""
    metric: str = ""
    trend: str = ""
    warnings: int = 0
    error: str = ""


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
        traces = ("warehouse.duckdb", "published", f"report/{SUMMARY_FILE}")  # of a data set that has been run
        used = (one.name for one in home.root.iterdir() if any(os.path.lexists(one / trace) for trace in traces))
        rows = [load_dataset_row(home.root, name) for name in sorted(used)]
        page = load_template("oneclass.tasks.home_page", "page.html").render(rows=rows, now=datetime.now(UTC))
        _replace_file(home, home.root / "index.html", page)


@contextlib.contextmanager
def _log_errors(home: Home) -> Generator[None]:
    """Log an error instead of raising it, since the page must fail neither a run nor a promotion."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (a failing display must not end a run)
        logger.warning("%s: the page of all data sets cannot be written: %s", home.root, error)


def load_dataset_row(root: Path, name: str) -> DatasetRow:
    """Load the row of a data set; if its files are damaged, a row with the error."""
    report = f"{quote(name)}/report/index.html" if (root / name / "report" / "index.html").is_file() else None
    try:
        return DatasetRow(name, report, **_describe_dataset(Home(root, name)))
    except Exception as error:  # noqa: BLE001  (a damaged data set must not hide the others)
        return DatasetRow(name, report, error=f"{type(error).__name__}: {error}")


def _describe_dataset(home: Home) -> dict[str, Any]:
    """Describe the last run of a data set, what is published, and its quality by the protocol that decided."""
    file = home.report / SUMMARY_FILE
    facts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    publication, described = publications.load_current(home), {}
    if publication:
        described["published_at"] = numbers.format_minute(datetime.fromisoformat(publication["published_at"]))
    if recommended := publication.get("recommended"):
        described["champion"] = numbers.format_list(recommended["model"], recommended["score"])
    if ended := facts.get("ended"):
        described["ended_at"] = numbers.format_minute(datetime.fromisoformat(ended["at"]))
        described |= {"state": ended["state"], "reason": ended.get("reason", "")}
    if (shown := facts.get("shown") or {}).get("value") is not None:
        described["quality"] = " ".join(numbers.format_with_error(shown["value"], shown["standard_error"])).strip()
        # A promotion by hand publishes a list that the last report did not describe.
        other = shown.get("list") not in (None, "", described.get("champion"))
        words = shown["metric"], shown.get("protocol"), f"of {shown['list']}" if other else ""
        described["metric"] = ", ".join(filter(None, words))
        values, errors = ([night[place] for night in shown["trend"]] for place in (1, 2))
        described["trend"] = draw_sparkline(values, f"{shown['metric']} of {len(values)} nights", errors)
    return described | {"warnings": shown.get("look", 0)}


def _replace_file(home: Home, file: Path, text: str) -> None:
    """Write a file atomically."""
    durable.write_text(file.with_name(f".{home.dataset}-{file.name}"), file, text)
