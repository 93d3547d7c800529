"""Compare a run's logs with the warehouse: new, known by their bytes, or changed under their names.

A log's name is its absolute path, or in the landing folder its path relative to it, so that a home may be moved.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.files import explain_encoding, hash_file
from oneclass.tasks.ingest.landing import DONE, QUARANTINE, FileRefused
from oneclass.tasks.ingest.sources import LogFile
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home

LineCounts = tuple[int, int, int, int, str]
"""A log's events, rejects and lines, and the line and reason of its first reject."""


@dataclass(frozen=True)
class KnownFile:
    """A log in the warehouse: its row of `operations.log_files`, and its name."""

    file_id: int
    name: str
    path: str
    sha256: str
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
        before: the log in the warehouse whose events go, as its name had their bytes.
    """

    log: LogFile
    name: str
    file_id: int
    outcome: str
    before: KnownFile | None

    @property
    def is_new(self) -> bool:
        return self.outcome in ("new", "changed")


def load_known_files(home: Home) -> list[KnownFile]:
    """Load every log in the warehouse, in the order of their ids."""
    if not home.warehouse.exists():
        return []
    with warehouse.open_warehouse(home) as connection:  # for writing, to migrate an older warehouse
        rows = connection.execute(sql.statement("ingest/known_files")).fetchall()
    return [KnownFile(file_id, name or name_log(home, path), path, *rest) for file_id, name, path, *rest in rows]


def find_file_ids(home: Home, paths: Iterable[Path]) -> tuple[int, ...]:
    """Return the ids of logs in the warehouse by the paths that they were read at.

    Raises:
        InputError: a log is not there.
    """
    known = {log.path: log.file_id for log in load_known_files(home)}
    if missing := {*map(str, paths)} - known.keys():
        raise InputError(f"{min(missing)}: is not in the warehouse by this path. Run flows.backfill with it first.")
    return tuple(known[str(path)] for path in paths)


def holds_exactly(home: Home, paths: Iterable[Path]) -> bool:
    """Whether the logs in the warehouse are those of some files, with these bytes, and no others."""
    return sorted(one.sha256 for one in load_known_files(home)) == sorted(map(hash_file, paths))


def name_log(home: Home, path: str) -> str:
    """Return the name of a log at `path`; for a quarantined or archived log, its original name."""
    absolute, landing = Path(path).parent.resolve() / Path(path).name, home.landing.resolve()
    if not absolute.is_relative_to(landing):
        return str(absolute)
    folder, *rest = absolute.relative_to(landing).parts
    return "/".join(rest if folder in (QUARANTINE, DONE) else [folder, *rest])


def plan_ingest(home: Home, known_files: Sequence[KnownFile], logs: Sequence[LogFile]) -> list[Arrival]:
    """Decide for each log, in the given order, whether it is new and which log in the warehouse it replaces.

    A log that replaces the last one of its name takes over its file_id, so that the tables equal those of the later
    bytes alone. One whose content is still among the run's logs, under any name, packed or not, is not replaced: its
    file was renamed or packed anew.
    """
    ids = {digest: one.file_id for one in known_files for digest in (one.sha256, one.content_sha256)}
    present = {digest for log in logs for digest in (log.sha256, log.content_sha256)}
    by_name = {one.name: one for one in known_files}
    by_name = {name: one for name, one in by_name.items() if present.isdisjoint((one.sha256, one.content_sha256))}
    next_id = max(ids.values(), default=0) + 1
    arrivals = []
    for log in logs:
        name = name_log(home, log.path)
        before = by_name.pop(name, None)
        file_id = ids.get(log.sha256, ids.get(log.content_sha256))
        outcome = "withdrawn" if before else "skipped"
        if file_id is None:
            outcome = "changed" if before else "new"
            file_id = before.file_id if before else next_id
            next_id = max(next_id, file_id + 1)
        ids[log.sha256] = ids[log.content_sha256] = file_id
        arrivals.append(Arrival(log, name, file_id, outcome, before))
    return arrivals


def count_lines(connection: duckdb.DuckDBPyConnection, file_ids: Iterable[int]) -> dict[int, LineCounts]:
    """Count the events and rejects of logs, by their ids."""
    rows = connection.execute(sql.statement("ingest/counts"), {"file_ids": [*file_ids]}).fetchall()
    counts: dict[int, LineCounts] = dict.fromkeys(file_ids, (0, 0, 0, 0, ""))
    return counts | {row[0]: row[1:] for row in rows}


def refuse_rejects(logs: Mapping[int, LogFile], counts: Mapping[int, LineCounts], share: float) -> list[FileRefused]:
    """Return a refusal of each log with a larger share of rejects, with lines of the data set's file that may help."""
    refused = []
    for file_id, log in logs.items():
        _, rejects, lines, line, reason = counts[file_id]
        if rejects <= share * lines:
            continue
        advice = "Mend the lines, convert the log to CSV or Parquet, or name another."
        if "not UTF-8" in reason:
            advice = explain_encoding(log.location, log.container)
        # Where more are rejected, the log is misread rather than damaged.
        elif rejects <= lines / 2:
            allowed = math.ceil(1000 * rejects / lines) / 1000
            advice = f"Mend the lines; or, to leave them out, allow for them:\n\nmax_reject_share = {allowed:g}"
        elif "fields instead of" in reason:
            advice += " Where lines begin with a row's name, as R writes them, state row_names = true."
        text = (
            f"{log.path}, line {line}: {reason}. In all {rejects:,} of {lines:,} lines could not be taken in "
            f"({rejects / lines:.1%}), more than max_reject_share = {share:g} of the data set's file allows. {advice}"
        )
        refused.append(FileRefused(log.location, text))
    return refused


def describe_repeated_events(connection: duckdb.DuckDBPyConnection, dataset: Dataset, file_ids: Sequence[int]) -> str:
    """Describe the events that stand in two logs, if values of events add up and the new logs have some of them."""
    if not file_ids or not BinarizeSettings.model_validate(dataset.binarize_settings).adds_values:
        return ""
    found = connection.execute(sql.statement("ingest/repeated"), {"file_ids": list(file_ids)}).fetchone()
    text = (
        "{0}: {2:,} of its {3:,} events are in {1} too, line for line, and count twice: leave them out of one of them"
    )
    return text.format(*found) if found else ""


def record_arrivals(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    run_id: str,
    arrivals: Iterable[Arrival],
    counts: Mapping[int, LineCounts],
    unread: Iterable[FileRefused],
) -> None:
    """Write the new logs to `operations.log_files`; these, other changes and unread files to `operations.arrivals`."""
    logs, changes = [], []
    for one in arrivals:
        log, now = one.log, counts[one.file_id][:2] if one.is_new else (0, 0)
        before = (one.before.events, one.before.rejects) if one.before else (0, 0)
        if one.is_new:
            names_columns = bool(log.layout and log.layout.names_columns)
            logs.append((one.file_id, log.path, log.sha256, log.size, *now, log.content_sha256, names_columns))
        if one.outcome != "skipped":
            changes.append((log.path, one.name, one.outcome, one.file_id, log.sha256, *now, *before, None))
    for file in unread:
        changes.append((file.shown, name_log(home, file.shown), file.outcome, None, None, 0, 0, 0, 0, file.reason))
    names = ["file_id", "path", "sha256", "bytes", "events", "rejects", "content_sha256", "names_columns"]
    frame = pl.DataFrame(logs, names, orient="row").with_columns(ingested_at=datetime.now(UTC).replace(tzinfo=None))
    warehouse.insert(connection, "operations.log_files", frame)
    of_log = "path", "name", "outcome", "file_id", "sha256", "events", "rejects"
    names = [*of_log, "events_before", "rejects_before", "reason"]
    frame = pl.DataFrame(changes, names, orient="row", infer_schema_length=None)
    warehouse.insert(connection, "operations.arrivals", frame.with_columns(run_id=pl.lit(run_id)))
