"""The summary of a run as Markdown: what it read, what it found, and what changed since the run before."""

import json
from itertools import groupby
from typing import Any

import duckdb

import sql
from tasks import main_table
from tasks.main_table import MAIN_METRICS


def markdown(connection: duckdb.DuckDBPyConnection, run_id: str, dataset: str, links: dict[str, str]) -> str:
    """The summary of a run that has been evaluated.

    Args:
        links: addresses by the words to be shown.
    """
    facts = _rows(connection, "artifacts/facts", run_id=run_id)[0]
    changes = _rows(connection, "artifacts/changes", run_id=run_id, before_run_id=facts["before_run_id"])
    sections = [
        f"# {dataset}: {facts['flow']} of {facts['started_at']:%Y-%m-%d %H:%M} UTC",
        _facts(facts),
        " · ".join(f"[{words}]({address})" for words, address in links.items()),
        _changes(facts, changes),
        main_table.markdown(main_table.rows(connection, run_id), "Evaluation"),
    ]
    return "\n\n".join(section for section in sections if section)


def _facts(facts: dict[str, Any]) -> str:
    published = facts["published_model"]
    lines = [
        f"{facts['new_log_files']:,} new log files with {facts['new_events']:,} events",
        f"in all {facts['log_files']:,} files, {facts['events']:,} events, {facts['rejects']:,} rejected lines",
        f"{facts['edges']:,} edges of {facts['users']:,} users and {facts['items']:,} items",
        f"{facts['rules']:,} rules of contracts checked, {facts['not_met'] or 'none'} of them not met",
        f"{facts['fits']:,} fits that took {facts['fit_seconds']:,.0f} s together",
        f"published: {published}, fitted on every edge" if published else "no recommendations were made",
        f"version {facts['code_version']}, seed {json.loads(facts['settings']).get('seed', 0)}",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _changes(facts: dict[str, Any], changes: list[dict[str, Any]]) -> str:
    """The main metrics beside those of the run before, and what of its settings and version was another."""
    if facts["before_run_id"] is None:
        return "## Since the last run\n\nThis is the first run of this data set that was evaluated."
    parts = [f"## Since the last run, {facts['before_started_at']:%Y-%m-%d %H:%M} UTC"]
    others = _other_settings(json.loads(facts["before_settings"]), json.loads(facts["settings"]))
    if facts["before_code_version"] != facts["code_version"]:
        others.insert(0, f"version: {facts['before_code_version']} before, {facts['code_version']} now")
    parts += ["\n".join(f"- {other}" for other in others)] if others else ["Same settings, same version."]
    main = [row for row in changes if row["metric"] in MAIN_METRICS.get(row["protocol"], ())]
    if not any(_moved(row) for row in main):
        return "\n\n".join([*parts, "No main metric of any model has moved."])
    table = ["| protocol | model | score | metric | before | now | change |", "|---|---|---|---|---|---|---|"]
    for protocol, rows in groupby(main, lambda row: row["protocol"]):
        table += [_line(row) for row in rows if row["metric"] == MAIN_METRICS[protocol][0] or _moved(row)]
    return "\n\n".join([*parts, "\n".join(table)])


def _moved(row: dict[str, Any]) -> bool:
    return row["value"] is None or row["before_value"] is None or abs(row["value"] - row["before_value"]) >= 5e-5


def _line(row: dict[str, Any]) -> str:
    now, before = row["value"], row["before_value"]
    change = "new" if before is None else "left out" if now is None else f"{now - before:+.4f}"
    values = ["" if value is None else f"{value:.4f}" for value in (before, now)]
    return f"| {' | '.join([row['protocol'], row['model'], row['score'], row['metric'], *values, change])} |"


def _other_settings(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    earlier, later = _flat(before), _flat(now)
    names = sorted(name for name in earlier.keys() | later.keys() if earlier.get(name) != later.get(name))
    return [f"{name}: {earlier.get(name, 'absent')} before, {later.get(name, 'absent')} now" for name in names]


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _rows(connection: duckdb.DuckDBPyConnection, name: str, **values: Any) -> list[dict[str, Any]]:
    cursor = connection.execute(sql.statement(name), values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
