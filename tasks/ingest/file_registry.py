"""Compare a run's logs with the warehouse: new, known by their bytes, or changed under their names.

A log's name is its absolute path, or in the landing folder its path relative to it, so that a home may be moved.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.files import explain_encoding
from oneclass.tasks.ingest.landing import DONE, QUARANTINE, FileRefused
from oneclass.tasks.ingest.sources import LogFile
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home

MAX_SUGGESTED_SHARE = 0.5
"""Where more lines are rejected, the log is misread rather than damaged."""


@dataclass(frozen=True)
class KnownFile:
    """A log in the warehouse: its row of `operations.log_files`, and its name."""

    file_id: int
    name: str
    path: str
    sha256: str
    size: int
    events: int
    rejects: int
    content_sha256: str
    names_columns: bool


@dataclass(frozen=True)
class Arrival:
    """A log of a run, compared with the warehouse.

    Attributes:
        file_id: of its bytes.
        outcome: `new`; `changed`, as its name had other bytes; `withdrawn`, as its name goes over to bytes that are in
            the warehouse; `skipped`, as its bytes are there or in an earlier log of the run.
        before: the logs in the warehouse whose events go, as its name had their bytes.
    """

    log: LogFile
    file_id: int
    outcome: str
    before: Sequence[KnownFile]

    @property
    def is_new(self) -> bool:
        return self.outcome in ("new", "changed")


def load_known_files(home: Home) -> list[KnownFile]:
    """Load every log in the warehouse."""
    if not home.warehouse.exists():
        return []
    with warehouse.open_warehouse(home) as connection:  # for writing, to migrate an older warehouse
        return list_known_files(connection, home)


def list_known_files(connection: duckdb.DuckDBPyConnection, home: Home) -> list[KnownFile]:
    """List every log in the warehouse of a home."""
    rows = connection.execute(sql.statement("ingest/known_files")).fetchall()
    return [KnownFile(file_id, name or name_log(home, path), path, *rest) for file_id, name, path, *rest in rows]


def find_file_ids(home: Home, paths: Iterable[Path]) -> tuple[int, ...]:
    """Return the ids of logs in the warehouse by the paths that they were read at.

    Raises:
        InputError: a log is not there.
    """
    known = {log.path: log.file_id for log in load_known_files(home)}
    if missing := [str(path) for path in paths if str(path) not in known]:
        raise InputError(f"{missing[0]}: is not in the warehouse by this path. Run flows.backfill with it first.")
    return tuple(known[str(path)] for path in paths)


def name_log(home: Home, path: str) -> str:
    """Return the name of a log at `path`; for a quarantined or archived log, its original name."""
    absolute = Path(path).parent.resolve() / Path(path).name
    landing = home.landing.resolve()
    folders = [one for one in (landing / QUARANTINE, landing / DONE, landing) if absolute.is_relative_to(one)]
    return absolute.relative_to(folders[0]).as_posix() if folders else str(absolute)


def plan_ingest(
    home: Home, known_files: Iterable[KnownFile], logs: Sequence[LogFile], changed_file: Literal["replace", "add"]
) -> list[Arrival]:
    """Decide for each log, in the given order, whether it is new and which logs in the warehouse it replaces.

    A log that replaces another takes over its file_id, so that the tables equal those of the later bytes alone. A log
    whose content is still among the run's logs, under any name, packed or not, is not replaced: its file was renamed or
    packed anew.
    """
    present = {digest for log in logs for digest in (log.sha256, log.content_sha256)}
    ids: dict[str, int] = {}
    by_name: defaultdict[str, list[KnownFile]] = defaultdict(list)
    for known in known_files:
        ids[known.sha256] = ids[known.content_sha256] = known.file_id
        if present.isdisjoint((known.sha256, known.content_sha256)):
            by_name[known.name].append(known)
    next_id = max(ids.values(), default=0) + 1
    arrivals = []
    for log in logs:
        before = by_name.pop(name_log(home, log.path), []) if changed_file == "replace" else []
        file_id = ids.get(log.sha256, ids.get(log.content_sha256))
        outcome = "withdrawn" if before else "skipped"
        if file_id is None:
            outcome = "changed" if before else "new"
            file_id = min((one.file_id for one in before), default=next_id)
            next_id = max(next_id, file_id + 1)
        ids[log.sha256] = ids[log.content_sha256] = file_id
        arrivals.append(Arrival(log, file_id, outcome, before))
    return arrivals


def record_files(connection: duckdb.DuckDBPyConnection, new: Mapping[int, LogFile], share: float) -> list[FileRefused]:
    """Write loaded logs to `operations.log_files`, and return a refusal of each that has too many rejects.

    Args:
        new: file_id -> log.
        share: `max_reject_share` of the data set.
    """
    counted = connection.execute(sql.statement("ingest/counts"), {"file_ids": [*new]}).fetchall()
    counts = {file_id: row for file_id, *row in counted}
    rows, refused = [], []
    for file_id, log in new.items():
        events, rejects, lines, line, reason = counts.get(file_id, (0, 0, 0, 0, ""))
        names_columns = bool(log.layout and log.layout.names_columns)
        rows.append((file_id, log.path, log.sha256, log.size, events, rejects, log.content_sha256, names_columns))
        if rejects > share * lines:
            refused.append(FileRefused(log.location, explain_rejects(log, rejects, lines, line, reason, share)))
    names = "file_id", "path", "sha256", "bytes", "events", "rejects", "content_sha256", "names_columns"
    frame = pl.DataFrame(rows, names, orient="row").with_columns(ingested_at=datetime.now(UTC).replace(tzinfo=None))
    warehouse.insert(connection, "operations.log_files", frame)
    return refused


def explain_rejects(log: LogFile, rejects: int, lines: int, line: int, reason: str, share: float) -> str:
    """Return the refusal of a log with too many rejects, with lines of the data set's file that may help.

    Args:
        line, reason: of its first reject.
        share: `max_reject_share` of the data set.
    """
    if "not UTF-8" in reason:
        advice = explain_encoding(log.location, log.container)
    elif rejects <= MAX_SUGGESTED_SHARE * lines:
        allowed = math.ceil(1000 * rejects / lines) / 1000
        advice = f"Mend the lines; or, to leave them out, allow for them:\n\nmax_reject_share = {allowed:g}"
    else:
        advice = "Mend the lines, convert the log to CSV or Parquet, or name another."
        if "fields instead of" in reason:
            advice += " Where lines begin with a row's name, as R writes them, state row_names = true."
    return (
        f"{log.path}, line {line}: {reason}. In all {rejects:,} of {lines:,} lines could not be taken in "
        f"({rejects / lines:.1%}), more than max_reject_share = {share:g} of the data set's file allows. {advice}"
    )


def describe_repeated_events(
    connection: duckdb.DuckDBPyConnection, dataset: Dataset, file_ids: Sequence[int]
) -> str | None:
    """Describe the events that stand in two logs, if values of events add up and the new logs have some of them."""
    if not file_ids or not BinarizeSettings.model_validate(dataset.binarize_settings).adds_values:
        return None
    found = connection.execute(sql.statement("ingest/repeated"), {"file_ids": list(file_ids)}).fetchone()
    if found is None:
        return None
    path, other, lines, events = found
    return (
        f"{path}: {lines:,} of its {events:,} events are in {other} too, line for line, and count twice: leave them "
        "out of one of them"
    )


def record_changes(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    run_id: str,
    arrivals: Iterable[Arrival],
    unread: Iterable[FileRefused],
) -> dict[int, tuple[int, int]]:
    """Write a run's changes, and the files that it did not read, to `operations.arrivals`.

    Returns:
        file_id -> (events, rejects) of every log in the warehouse.
    """
    logs = connection.execute("select file_id, events, rejects from operations.log_files").fetchall()
    counts = {file_id: (events, rejects) for file_id, events, rejects in logs}
    rows: list[tuple[Any, ...]] = []
    for one in arrivals:
        now = counts[one.file_id] if one.is_new else (0, 0)
        before = sum(old.events for old in one.before), sum(old.rejects for old in one.before)
        rows.append((one.log.path, one.outcome, one.file_id, one.log.sha256, *now, *before, None))
    rows += [(file.shown, file.outcome, None, None, 0, 0, 0, 0, file.reason) for file in unread]
    names = "path", "outcome", "file_id", "sha256", "events", "rejects", "events_before", "rejects_before", "reason"
    frame = pl.DataFrame(rows, names, orient="row", infer_schema_length=None).with_columns(
        run_id=pl.lit(run_id), name=pl.col("path").map_elements(lambda path: name_log(home, path), pl.String)
    )
    warehouse.insert(connection, "operations.arrivals", frame.filter(pl.col("outcome") != "skipped"))
    return counts
