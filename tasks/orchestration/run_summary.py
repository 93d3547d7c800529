"""Summarize a run as Markdown: its input, results, and changes since the previous run; or why it failed."""

import json
import re
from datetime import UTC, datetime
from typing import Any

import duckdb
import polars as pl

from oneclass.data_contracts import ContractBroken
from oneclass.tasks import leaderboard
from oneclass.tasks.errors import ModelsFailed, OneclassError
from oneclass.tasks.orchestration.progress import format_duration
from oneclass.tasks.promotion_log import Decision, load_decisions
from oneclass.tasks.run_diff import RunDiff, diff_with_previous
from oneclass.tasks.stores import publications, runs, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import count_things

MIN_VISIBLE_CHANGE = 5e-5  # smallest change of a metric that four digits show
LONG_DECIMAL = re.compile(r"-?\d+\.\d{5,}(e-?\d+)?")
LEGEND = (
    "± is one standard error of the change, as of two independent means; a change of more than two is called better or "
    "worse."
)
REPORTED_CHANGES = ("better", "worse", "new", "gone")


def has_unread_files(home: Home, run_id: str) -> bool:
    """Whether the run left files of the landing folder, set aside or with names that do not match."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        return not warehouse.select(connection, "report/unread_files", run_id=run_id).is_empty()


def has_alarms(home: Home, run_id: str) -> bool:
    """Whether the run found something damaged or wrong in the home."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        return bool(runs.load_alarms(connection, run_id))


def summarize_success(
    home: Home, run_id: str, report_url: str | None, error: ModelsFailed | None = None, late: str = ""
) -> str:
    """Summarize an evaluated run.

    Args:
        error: the models that failed, if any.
        late: its delay, in words, if it started late.
    """
    with warehouse.open_warehouse(home, read_only=True) as connection:
        text = _format_summary(connection, run_id, home, _page_links(home, report_url))
    if late:
        text = f"**Late**: it began {late} after it was due.\n\n{text}"
    return f"{text}\n\n## Partly failed\n\n```\n{error}\n```" if error else text


def summarize_failure(home: Home, run_id: str, flow: str, error: Exception) -> str:
    """Summarize a failed run: the error that stopped it, with any broken rules."""
    message = str(error) if isinstance(error, OneclassError | ContractBroken) else f"{type(error).__name__}: {error}"
    sections = [
        f"# {home.dataset}: {flow} failed, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"```\n{message.strip()}\n```",
        f"{_describe_publication(home)}. The same run, started again, continues from the stage that failed.",
        f"- run {run_id}\n- home `{home.folder.resolve()}`",
    ]
    return "\n\n".join(sections)


def _describe_publication(home: Home) -> str:
    """Describe how old the published recommendations are."""
    age = publications.find_age(home)
    return f"published recommendations: {format_duration(age.total_seconds())} old" if age else "nothing is published"


def _page_links(home: Home, report_url: str | None) -> str:
    """Format the location of the report, as a link if it is served; empty if there is none."""
    if report_url:
        return f"[Report]({report_url})"
    page = home.report / "index.html"
    return f"Report: `{page.resolve()}`" if page.exists() else ""


def _format_summary(connection: duckdb.DuckDBPyConnection, run_id: str, home: Home, pages: str) -> str:
    facts = warehouse.select(connection, "artifacts/facts", run_id=run_id).row(0, named=True)
    sections = [
        f"# {home.dataset}: {facts['flow']} of {facts['started_at']:%Y-%m-%d %H:%M} UTC",
        "\n".join(f"- **alarm**: {alarm}" for alarm in runs.load_alarms(connection, run_id)),
        _format_facts(facts, load_decisions(connection, run_id)),
        f"- {_describe_publication(home)}",
        _format_funnel(warehouse.select(connection, "report/funnel", run_id=run_id)),
        pages,
        _describe_changes(diff_with_previous(connection, run_id), facts["code_version"]),
        leaderboard.format_markdown(leaderboard.load_leaderboard(connection, run_id), "Evaluation"),
    ]
    return "\n\n".join(section for section in sections if section)


def _format_facts(facts: dict[str, Any], decisions: list[Decision]) -> str:
    settings = json.loads(facts["settings"])
    lines = [
        f"{count_things(facts['new_log_files'], 'new log file')} with {count_things(facts['new_events'], 'event')}",
        *_describe_unusual_files(facts),
        "in all "
        + ", ".join(
            count_things(facts[key], noun)
            for key, noun in (("log_files", "file"), ("events", "event"), ("rejects", "rejected line"))
        ),
        "{} of {} and {}".format(*(count_things(facts[f"{noun}s"], noun) for noun in ("edge", "user", "item"))),
        f"{count_things(facts['rules'], 'rule')} of contracts checked, "
        + (f"**{facts['not_met']:,} of them not met**" if facts["not_met"] else "all of them met"),
        f"{count_things(facts['fits'], 'fit')}, {facts['fit_seconds']:,.0f} s in all",
        decisions[0].sentence if decisions else "no recommendations were made",
        *([f"seen items: {facts['seen_items']}; {facts['seen_items_reason']}"] if facts["seen_items"] else []),
        *(f"**{model} left out**: {reason}" for model, reason in settings.get("left_out", {}).items()),
        f"version {facts['code_version']}, seed {settings.get('seed', 0)}",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _format_funnel(steps: pl.DataFrame) -> str:
    """Format the steps from lines to likes as a Markdown table; nothing for a run that counted none."""
    if steps.is_empty():
        return ""
    rows = [
        f"| {row['reason'].replace('|', chr(92) + '|')} | "
        + " | ".join("" if row[name] is None else f"{row[name]:,}" for name in ("lost", "remaining", "users", "items"))
        + " |"
        for row in steps.iter_rows(named=True)
    ]
    head = [
        "## From lines to likes",
        "",
        "| what was lost, and why | lost | remain | users | items |",
        "|---|--:|--:|--:|--:|",
    ]
    return "\n".join([*head, *rows])


def _describe_unusual_files(facts: dict[str, Any]) -> list[str]:
    """Describe changed and quarantined log files."""
    lines = []
    if facts["changed_files"]:
        before, instead = f"{facts['events_before']:,}", f"{facts['events_instead']:,}"
        lines.append(
            f"{facts['changed_files']:,} of them changed under their names: {before} events before, {instead} now"
        )
    if facts["files_set_aside"]:
        lines.append(f"**{facts['files_set_aside']:,} set aside** in landing/quarantine: {facts['set_aside']}")
    if facts["unmatched"]:
        lines.append(f"**No pattern matches**, so they were not read: {facts['unmatched']}")
    return lines


def _describe_changes(changes: RunDiff | None, code_version: str) -> str:
    """Describe changed settings, version and metrics; the first main metric of each protocol is always shown."""
    if changes is None:
        return "## Since the last run\n\nThis is the first run of this data set that was evaluated."
    earlier = changes.previous
    parts = [f"## Since the last run, {earlier.started_at:%Y-%m-%d %H:%M} UTC"]
    changed = [("version", earlier.code_version, code_version)] if earlier.code_version != code_version else []
    changed += changes.settings.iter_rows()
    lines = [f"- {name}: {_format_setting(before)} before, {_format_setting(now)} now" for name, before, now in changed]
    parts += ["\n".join(lines) or "Same settings, same version."]
    # The change is null if the list is new, or gone.
    moved = (pl.col("change").abs() >= MIN_VISIBLE_CHANGE).fill_null(value=True)
    if changes.metrics.filter(moved).is_empty():
        return "\n\n".join([*parts, "No main metric of any model has moved."])
    table = ["| protocol | model/score | metric | before | now | change | |", "|---|---|---|---|---|---|---|"]
    table += map(_metric_line, changes.metrics.filter(moved | (pl.col("place") == 0)).iter_rows(named=True))
    return "\n\n".join([*parts, "\n".join(table), LEGEND])


def _metric_line(row: dict[str, Any]) -> str:
    change = "" if row["change"] is None else f"{row['change']:+.4f}"
    if row["change"] and row["standard_error"] is not None:
        change += f" ± {row['standard_error']:.4f}"
    values = ["" if row[key] is None else f"{row[key]:.4f}" for key in ("before", "now")]
    verdict = f"**{row['verdict']}**" if row["verdict"] in REPORTED_CHANGES else ""
    cells = [row["protocol"], f"{row['model']}/{row['score']}", row["metric"], *values, change, verdict]
    return f"| {' | '.join(cells)} |"


def _format_setting(value: str | None) -> str:
    """Shorten the value of a setting, in JSON, if it is a long decimal."""
    if value is None:
        return "absent"
    return f"{float(value):.4g}" if LONG_DECIMAL.fullmatch(value) else value
