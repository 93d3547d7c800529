"""Compare a run's logs with the warehouse: new, known by their bytes, or changed under their names.

A log's name is its absolute path, or in the landing folder its path relative to it, so that a home may be moved. The
name of an archive's member is the archive's name followed by the member's.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import containers, statements
from oneclass.tasks.ingest.landing import DONE, QUARANTINE, FileRefused
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.sources import LogFile
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home

MAX_SUGGESTED_SHARE = 0.5
"""Where more lines are rejected, the log is misread rather than damaged."""


def check_reject_limit(
    connection: duckdb.DuckDBPyConnection, files: Sequence[tuple[int, LogFile]], share: float
) -> None:
    """Compare the share of rejects of each file with the limit; an archive's members count together.

    Args:
        files: (file_id, log) of each log that this run ingested.
        share: `max_reject_share` of the data set.

    Raises:
        ExceptionGroup: of a `FileRefused` for each file that exceeds it.
    """
    ids = [file_id for file_id, _ in files]
    counts = {row[0]: row[1:] for row in connection.execute(sql.statement("ingest/reject_shares"), [ids]).fetchall()}
    by_location: dict[Path, list[tuple[LogFile, int, int, int, str]]] = defaultdict(list)
    for file_id, log in files:
        by_location[log.location].append((log, *counts[file_id]))
    rejected = []
    for location, logs in by_location.items():
        rejects, lines = sum(log[1] for log in logs), sum(log[2] for log in logs)
        if rejects > share * lines:
            worst, _, _, line, reason = max(logs, key=lambda log: log[1])
            rejected.append(FileRefused(location, explain_rejects(worst, rejects, lines, line, reason, share)))
    if rejected:
        raise ExceptionGroup("more rejects than max_reject_share", rejected)


def explain_rejects(log: LogFile, rejects: int, lines: int, line: int, reason: str, share: float) -> str:
    """Return the refusal of a log with too many rejects, with lines of the data set's file that may help.

    Args:
        line, reason: of its first reject.
        share: `max_reject_share` of the data set.
    """
    advice = "Mend the lines, convert the log to CSV or Parquet, or name another."
    if "not UTF-8" in reason and not log.member:
        if encoding := containers.guess_encoding(log.location, log.container):
            advice = f'State the encoding in the data set\'s file, which may be\n\nencoding = "{encoding}"'
    elif rejects <= MAX_SUGGESTED_SHARE * lines:
        allowed = math.ceil(1000 * rejects / lines) / 1000
        advice = f"Mend the lines; or, to leave them out, allow for them:\n\nmax_reject_share = {allowed:g}"
    return (
        f"{log.path}, line {line}: {reason}. In all {rejects:,} of {lines:,} lines could not be taken in "
        f"({rejects / lines:.1%}), more than max_reject_share = {share:g} of the data set's file allows. {advice}"
    )


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
class FileChange:
    """A log to ingest, or one whose name now belongs to bytes that the warehouse already has.

    Attributes:
        file_id: of its bytes.
        is_new: whether its bytes must be ingested.
        before: the logs in the warehouse under its name, which are deleted.
    """

    log: LogFile
    file_id: int
    is_new: bool
    before: tuple[KnownFile, ...] = ()


@dataclass(frozen=True)
class IngestPlan:
    """The changes that a run of the stage makes.

    Attributes:
        ids: digest -> file_id of every log of the run.
        arrivals: the logs to ingest or delete, in the order of the sources.
        skipped: paths of the logs whose events are in the warehouse, or come with another log of the run.
    """

    ids: dict[str, int]
    arrivals: tuple[FileChange, ...]
    skipped: tuple[str, ...]

    @property
    def new(self) -> list[tuple[int, LogFile]]:
        """(file_id, log) of each log to ingest."""
        return [(change.file_id, change.log) for change in self.arrivals if change.is_new]

    @property
    def before(self) -> list[KnownFile]:
        """The logs to delete because their names have other bytes."""
        return [known for change in self.arrivals for known in change.before]


def load_known_files(home: Home) -> list[KnownFile]:
    """Load every log in the warehouse."""
    if not home.warehouse.exists():
        return []
    with warehouse.open_warehouse(home) as connection:  # for writing, to migrate an older warehouse
        return list_known_files(connection, home)


def list_known_files(connection: duckdb.DuckDBPyConnection, home: Home) -> list[KnownFile]:
    """List every log in the warehouse of a home."""
    rows = connection.execute(sql.statement("ingest/known_files")).fetchall()
    return [KnownFile(file_id, name or known_name(home, path), path, *rest) for file_id, name, path, *rest in rows]


def find_file_ids(home: Home, paths: Iterable[Path]) -> tuple[int, ...]:
    """Return the ids of logs in the warehouse by the paths that they were read at.

    Raises:
        InputError: a log is not there.
    """
    known = {log.path: log.file_id for log in load_known_files(home)}
    if missing := [str(path) for path in paths if str(path) not in known]:
        raise InputError(f"{missing[0]}: is not in the warehouse by this path. Run flows.backfill with it first.")
    return tuple(known[str(path)] for path in paths)


def has_stale_events(home: Home, dataset: Dataset) -> bool:
    """Whether logs in the warehouse were read by other kinds of events or bounds than the data set's file declares."""
    with warehouse.open_warehouse(home) as connection:
        reasons = [f"unknown kind of event {kind}" for kind in dataset.events]
        values = {"kinds": list(dataset.events), "reasons": reasons}
        stale_events = sql.statement("ingest/stale_events", **statements.event_bounds(dataset))
        return warehouse.fetch_row(connection, stale_events, values)[0]


def known_name(home: Home, path: str) -> str:
    """Return the name of a log at `path`; for a quarantined or archived log, its original name."""
    absolute = Path(path).parent.resolve() / Path(path).name
    landing = home.landing.resolve()
    for folder in (landing / QUARANTINE, landing / DONE, landing):
        if absolute.is_relative_to(folder):
            return absolute.relative_to(folder).as_posix()
    return str(absolute)


def plan_ingest(
    home: Home, known_files: Iterable[KnownFile], logs: Sequence[LogFile], settings: IngestSettings
) -> IngestPlan:
    """Decide which logs are new, and which replace logs in the warehouse.

    A log that replaces another takes over its file_id, so that the tables equal those of the later bytes alone. A log
    whose content is still among the run's logs, under any name, packed or not, is not replaced: its file was renamed or
    packed anew.

    Raises:
        InputError: a log changed, and `ingest.changed_file` is `refuse`.
    """
    digests, contents = {log.sha256 for log in logs}, {log.content_sha256 for log in logs}
    ids: dict[str, int] = {}
    ids_by_content: dict[str, int] = {}
    by_name: defaultdict[str, list[KnownFile]] = defaultdict(list)
    for known in known_files:
        ids[known.sha256] = known.file_id
        ids_by_content[known.content_sha256] = known.file_id
        if known.sha256 not in digests and known.content_sha256 not in contents:
            by_name[known.name].append(known)
    next_id = max(ids.values(), default=0) + 1
    changes, skipped = [], []
    for log in logs:
        before = tuple(by_name.pop(known_name(home, log.path), ())) if settings.changed_file != "add" else ()
        if before and settings.changed_file == "refuse":
            raise InputError(_changed_file_error(log, before))
        if log.content_sha256 in ids_by_content:
            ids.setdefault(log.sha256, ids_by_content[log.content_sha256])
        is_new = log.sha256 not in ids
        if is_new and before:
            ids[log.sha256] = min(known.file_id for known in before)
        elif is_new:
            ids[log.sha256], next_id = next_id, next_id + 1
        else:
            skipped.append(log.path)
        ids_by_content[log.content_sha256] = ids[log.sha256]
        if is_new or before:
            changes.append(FileChange(log, ids[log.sha256], is_new, before))
    return IngestPlan({digest: ids[digest] for digest in digests}, tuple(changes), tuple(skipped))


def record_changes(
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    run_id: str,
    plan: IngestPlan,
    unread: Mapping[str, Sequence[FileRefused]],
) -> None:
    """Write the changes, and the files that were not read, to `operations.arrivals`, inside the stage's transaction.

    Args:
        unread: the files by outcome, `set aside` or `unmatched`.
    """
    counts = {
        file_id: (events, rejects)
        for file_id, events, rejects in connection.execute(
            "select file_id, events, rejects from operations.log_files"
        ).fetchall()
    }
    rows = []
    for one in plan.arrivals:
        events, rejects = counts[one.file_id] if one.is_new else (0, 0)
        before, rejects_before = sum(old.events for old in one.before), sum(old.rejects for old in one.before)
        outcome = "new" if not one.before else "changed" if one.is_new else "withdrawn"
        rows.append((one.log.path, outcome, one.file_id, one.log.sha256, events, rejects, before, rejects_before, None))
    for outcome, files in unread.items():
        rows += [(file.shown, outcome, None, None, 0, 0, 0, 0, file.shown_reason) for file in files]
    columns = {
        "path": pl.String, "outcome": pl.String, "file_id": pl.Int64, "sha256": pl.String, "events": pl.Int64,
        "rejects": pl.Int64, "events_before": pl.Int64, "rejects_before": pl.Int64, "reason": pl.String,
    }  # fmt: skip
    frame = pl.DataFrame(rows, schema=columns, orient="row").with_columns(
        run_id=pl.lit(run_id), name=pl.col("path").map_elements(lambda path: known_name(home, path), pl.String)
    )
    warehouse.insert(connection, "operations.arrivals", frame)


def _changed_file_error(log: LogFile, before: Sequence[KnownFile]) -> str:
    events = sum(one.events for one in before)
    return (
        f"{log.path}: has other bytes than when it was read in with {events:,} events, and the setting "
        "ingest.changed_file = refuse does not allow that. Give the new bytes a name of their own, or set "
        "ingest.changed_file=replace (the earlier events go) or add (they stay beside the new ones)."
    )
