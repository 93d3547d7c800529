"""What the logs of a run are to the warehouse: new, known by their bytes, or changed under their names.

A log's name is its path, made absolute; within the landing folder its path in there, so that a home may be moved.
The name of an archive's member is the archive's name with the member's after it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl

from oneclass import sql
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.landing import DONE, QUARANTINE, RejectedFile
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.sources import LogFile
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home


class RejectLimitExceeded(Exception):
    """Some files hold more rejects than the data set allows; the transaction that read them is taken back.

    Attributes:
        refused: those files.
    """

    def __init__(self, refused: Sequence[RejectedFile]) -> None:
        super().__init__("\n".join(one.reason for one in refused))
        self.refused = tuple(refused)


def check_reject_limit(
    connection: duckdb.DuckDBPyConnection, files: Sequence[tuple[int, LogFile]], share: float
) -> None:
    """Compare the rejects of each file, of an archive's members together, with the share that is allowed.

    Args:
        files: (file_id, log) of each log that this run read in.
        share: `max_reject_share` of the data set.

    Raises:
        TooManyRejects: some are above it.
    """
    ids = [file_id for file_id, log in files]
    found = {row[0]: row[1:] for row in connection.execute(sql.statement("ingest/reject_shares"), [ids]).fetchall()}
    together: dict[Path, list[tuple]] = defaultdict(list)
    for file_id, log in files:
        together[log.location].append((log.path, *found[file_id]))
    refused = []
    for location, logs in together.items():
        rejects, lines = sum(log[1] for log in logs), sum(log[2] for log in logs)
        if rejects > share * lines:
            path, _, _, line, reason = max(logs, key=lambda log: log[1])
            refused.append(RejectedFile(location, _reject_reason(path, rejects, lines, line, reason, share)))
    if refused:
        raise RejectLimitExceeded(refused)


def _reject_reason(path: str, rejects: int, lines: int, line: int, reason: str, share: float) -> str:
    return (
        f"{path}, line {line}: {reason}. In all {rejects:,} of {lines:,} lines could not be taken in "
        f"({rejects / lines:.1%}), more than max_reject_share = {share:g} of the data set's file allows. Mend the "
        "lines; or, where they are as they should be, raise max_reject_share, or widen value_min and value_max where "
        "the values are out of range."
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


@dataclass(frozen=True)
class FileChange:
    """A log whose events go into the warehouse, or whose name went over to bytes that the warehouse holds.

    Attributes:
        file_id: of its bytes.
        is_new: its bytes are to be read in.
        before: what the warehouse held under its name; it is deleted.
    """

    log: LogFile
    file_id: int
    is_new: bool
    before: tuple[KnownFile, ...] = ()


@dataclass(frozen=True)
class IngestPlan:
    """What a run of the stage is to do.

    Attributes:
        ids: digest -> file_id of every log of the run.
        arrivals: what is to be read in or deleted, in the order of the sources.
        skipped: paths of the logs whose bytes are in the warehouse already.
    """

    ids: dict[str, int]
    arrivals: tuple[FileChange, ...]
    skipped: tuple[str, ...]

    @property
    def new(self) -> list[tuple[int, LogFile]]:
        """(file_id, log) of each log to read."""
        return [(one.file_id, one.log) for one in self.arrivals if one.is_new]

    @property
    def before(self) -> list[KnownFile]:
        """What is deleted, because other bytes have its name now."""
        return [held for one in self.arrivals for held in one.before]


def load_known_files(home: Home) -> list[KnownFile]:
    """Every log in the warehouse."""
    if not home.warehouse.exists():
        return []
    with warehouse.open_warehouse(home) as connection:  # for writing: it makes the tables that an older warehouse lacks
        rows = connection.execute(sql.statement("ingest/held")).fetchall()
    return [KnownFile(file_id, name or known_name(home, path), path, *rest) for file_id, name, path, *rest in rows]


def known_name(home: Home, path: str) -> str:
    """The name of a log that lies at `path`; of one that was set aside or put away, the name that it came by."""
    absolute = Path(path).parent.resolve() / Path(path).name
    landing = home.landing.resolve()
    for folder in (landing / QUARANTINE, landing / DONE, landing):
        if absolute.is_relative_to(folder):
            return absolute.relative_to(folder).as_posix()
    return str(absolute)


def plan_ingest(
    home: Home, known_files: Iterable[KnownFile], logs: Sequence[LogFile], settings: IngestSettings
) -> IngestPlan:
    """Which logs are new, and which replace what is present.

    A log that replaces another takes over its file_id, so that the tables come out as from the later bytes alone. What
    another log of the run holds, under whatever name, is not replaced: its file was renamed.

    Raises:
        InputError: a log changed, and `ingest.changed_file` refuses that.
    """
    here = {log.sha256 for log in logs}
    ids, named = {}, defaultdict(list)
    for one in known_files:
        ids[one.sha256] = one.file_id
        if one.sha256 not in here:
            named[one.name].append(one)
    following = max(ids.values(), default=0) + 1
    arrivals, skipped = [], []
    for log in logs:
        before = tuple(named.pop(known_name(home, log.path), ())) if settings.changed_file != "add" else ()
        if before and settings.changed_file == "refuse":
            raise InputError(_changed_file_error(log, before))
        is_new = log.sha256 not in ids
        if is_new and before:
            ids[log.sha256] = min(one.file_id for one in before)
        elif is_new:
            ids[log.sha256], following = following, following + 1
        else:
            skipped.append(log.path)
        if is_new or before:
            arrivals.append(FileChange(log, ids[log.sha256], is_new, before))
    return IngestPlan({digest: ids[digest] for digest in here}, tuple(arrivals), tuple(skipped))


def record_changes(
    connection: duckdb.DuckDBPyConnection, home: Home, run_id: str, plan: IngestPlan, rejected: Sequence[RejectedFile]
) -> None:
    """Write what arrived into `operations.arrivals`, inside the stage's transaction."""
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
    rows += [(str(one.location), "set aside", None, None, 0, 0, 0, 0, one.reason) for one in rejected]
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
        "ingest.changed_file=replace (the events of before go) or add (they stay beside the new ones)."
    )
