"""Stage `ingest`: find new and changed logs, load them in one transaction, and log the changes."""

import contextlib
import hashlib
import logging
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from oneclass import sql
from oneclass.data_contracts import ContractBroken
from oneclass.tasks import anomalies
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.ingest import file_registry, landing
from oneclass.tasks.ingest.attributes import store_attributes
from oneclass.tasks.ingest.file_registry import IngestPlan
from oneclass.tasks.ingest.landing import FileRefused
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.query import land_query
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.sources import LogFile, SourceScanner, describe_expected_sources, is_log_name
from oneclass.tasks.orchestration import progress
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.stores import runs, stages, warehouse
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import count_things, escape_controls

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ingested:
    """The changes by a run of the stage, and the resulting warehouse.

    Attributes:
        file_ids: the id of every source, in the given order, whether ingested in this run or earlier.
        new: paths of the ingested logs, including changed ones.
        changed: paths of the logs that replaced others of the same name.
        skipped: paths of the logs whose bytes were in the warehouse.
        set_aside: original paths of the files moved to quarantine.
        events: events of the new logs.
        rejects: lines of the new logs that were rejected.
        events_before: events of the replaced logs.
        total_events: events in the warehouse.
        digest: of the set of all logs in the warehouse.
    """

    file_ids: tuple[int, ...]
    new: tuple[str, ...]
    changed: tuple[str, ...]
    skipped: tuple[str, ...]
    set_aside: tuple[str, ...]
    events: int
    rejects: int
    events_before: int
    total_events: int
    digest: str


def ingest(
    home: Home,
    dataset: Dataset,
    sources: Iterable[str | Path],
    run_id: str,
    settings: IngestSettings | None = None,
    *,
    replace: bool = False,
    scanner: SourceScanner | None = None,
) -> Ingested:
    """Ingest the new sources into `raw.events` and `raw.rejects`, all or none.

    A file of the landing folder that is unreadable, or exceeds the data set's share of rejects, is quarantined and the
    others are ingested; such a file that is named as a source, or with `replace`, stops the run.

    Args:
        sources: files, folders, patterns or archives; by default the files in `home.landing`.
        replace: delete all other logs from the warehouse first.
        scanner: of the data set, if it has scanned the sources before.

    Raises:
        InputError: a source is unreadable, or changed and must not; nothing was written.
        ContractBroken: the logs have more rejects than the data set allows.
    """
    settings, named = settings or IngestSettings(), list(sources)
    if dataset.source and not named:
        land_query(home, dataset, dataset.source, replace=replace)
    known_files = file_registry.load_known_files(home)
    waiting = landing.list_landing_files(home.landing) if home.landing.is_dir() and not named else []
    unread = _list_unread(home, dataset, waiting) if not named else {}
    nothing_new = not any(is_log_name(path.name, dataset) for path in waiting) and known_files and not replace
    paths = named or ([home.landing] if waiting and not nothing_new else [])
    if not paths and (replace or not known_files):
        raise InputError(describe_expected_sources(home, dataset))
    rejected: list[FileRefused] | None = None if named or replace else []
    known = {} if replace else {one.sha256: one.size for one in known_files}
    logs = (scanner or SourceScanner(dataset)).scan(paths, known, rejected)
    is_nightly = not named and not replace
    if replace and {log.sha256 for log in logs} == {one.sha256 for one in known_files}:
        replace = file_registry.has_stale_events(home, dataset)
    while True:
        if rejected and not logs and not known_files:
            landing.quarantine_files(home, rejected)
            raise InputError(_explain_no_input(home, rejected))
        refused: list[FileRefused] = []
        plan = file_registry.plan_ingest(home, [] if replace else known_files, logs, settings)
        try:
            _write_events(
                home,
                dataset,
                plan,
                run_id,
                settings,
                replace=replace,
                rejected=rejected,
                unread=unread,
                record_batch=is_nightly,
            )
            break
        except* FileRefused as errors:
            refused = [error for error in errors.exceptions if isinstance(error, FileRefused)]
        if rejected is None:
            raise refused[0]
        rejected = [*rejected, *refused]
        rejected_locations = {one.location for one in refused}
        logs = [log for log in logs if log.location not in rejected_locations]
    landing.quarantine_files(home, rejected or [])
    if not named:
        # The rows of a later query are compared with those that were landed.
        is_kept = settings.keep_files == "remove" and dataset.source and dataset.source.is_incremental
        keep_files = "move" if is_kept else settings.keep_files
        landing.archive_files(home, {log.location: log.signature for log in logs}, keep_files)
    return _log_changes(home, run_id, plan, tuple(plan.ids[log.sha256] for log in logs), rejected or [])


def _list_unread(home: Home, dataset: Dataset, waiting: Iterable[Path]) -> dict[str, list[FileRefused]]:
    """List and log the files that no run will read until somebody acts, by outcome in `operations.arrivals`."""
    tables = {Path(table.file).name for table in (dataset.titles, dataset.items, dataset.users) if table}
    unmatched = [path for path in waiting if not is_log_name(path.name, dataset) and path.name not in tables]
    patterns = f"its name matches none of the patterns {', '.join(dataset.files)}"
    advice = "rename it, take it out of the landing folder, or change `files` in the data set's file"
    unread = {
        "unmatched": [FileRefused(path, f"{patterns}; {advice}") for path in unmatched],
        "set aside": [
            FileRefused(
                path, f"in landing/{landing.QUARANTINE} since an earlier night; a note beside each file says why"
            )
            for path in landing.list_quarantined(home.landing)
        ],
    }
    for files in filter(None, unread.values()):
        names = ", ".join(escape_controls(file.location.name) for file in files[:3])
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        logger.warning("%s: not read: %s%s: %s", home.landing, names, more, files[0].shown_reason)
    return unread


def _write_events(
    home: Home,
    dataset: Dataset,
    plan: IngestPlan,
    run_id: str,
    settings: IngestSettings,
    *,
    replace: bool,
    rejected: Sequence[FileRefused] | None,
    unread: Mapping[str, Sequence[FileRefused]],
    record_batch: bool,
) -> None:
    """Load the new logs and delete those they replace. Without new logs, only check the contract."""
    parameters: dict[str, Any] = {
        "value_min": dataset.value_min,
        "value_max": dataset.value_max,
        "max_reject_share": dataset.max_reject_share,
        "max_future_days": dataset.max_future_days,
        "kinds": list(dataset.events),
    }
    with (
        _explain_broken_contract(plan, dataset),
        stages.run_stage(home, run_id, "ingest", parameters) as connection,
    ):
        for table in ("raw.events", "raw.places", "raw.rejects", "operations.log_files"):
            if replace:
                connection.execute(f"delete from {table}")
            elif plan.before:
                connection.execute(f"delete from {table} where file_id in ?", [[one.file_id for one in plan.before]])
        if plan.new:
            _load_files(connection, home.spill, dataset, plan.new)
        if rejected is not None:
            file_registry.check_reject_limit(connection, plan.new, dataset.max_reject_share)
        told = {**unread, "set aside": [*unread.get("set aside", ()), *(rejected or ())]}
        file_registry.record_changes(connection, home, run_id, plan, told)
        store_attributes(connection, run_id, dataset)
        if record_batch:
            bounds = {"hours_old": settings.fresh_within_hours, "reject_share": dataset.max_reject_share}
            anomalies.record_batch_stats(connection, run_id, bounds)


@contextlib.contextmanager
def _explain_broken_contract(plan: IngestPlan, dataset: Dataset) -> Generator[None]:
    """Add the lines of the data set's file that may help to the error of too many rejects."""
    try:
        yield
    except ContractBroken as error:
        raise _with_explanation(error, plan, dataset) from None


def _with_explanation(error: ContractBroken, plan: IngestPlan, dataset: Dataset) -> ContractBroken:
    samples = [sample for result in error.broken if result.rule == "share_of_rejects" for sample in result.samples]
    for sample in samples:
        for log in (log for _, log in plan.new if log.path == sample["file_with_most"]):
            explained = file_registry.explain_rejects(
                log,
                rejects=sample["rejects"],
                lines=sample["lines"],
                line=sample["line_number"],
                reason=sample["first_reason"],
                share=dataset.max_reject_share,
            )
            return ContractBroken(error.stage, error.broken, explained)
    return error


def _load_files(
    connection: duckdb.DuckDBPyConnection, spill: Path, dataset: Dataset, files: Sequence[tuple[int, LogFile]]
) -> None:
    try:
        spill.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="ingest-", dir=spill) as scratch:
            load_logs(connection, files, Path(scratch), dataset, progress.iterate_with_progress)
    except OSError as error:
        raise OneclassError(
            f"{spill}: logs cannot be unpacked here ({error.strerror}). Free some space or choose "
            "another --home, then run again."
        ) from error
    connection.execute(
        sql.statement("ingest/log_files"),
        {
            "file_ids": [file_id for file_id, _ in files],
            "paths": [log.path for _, log in files],
            "digests": [log.sha256 for _, log in files],
            "sizes": [log.size for _, log in files],
            "contents": [log.content_sha256 for _, log in files],
            "columns_named": [bool(log.layout and log.layout.names_columns) for _, log in files],
        },
    )


def _explain_no_input(home: Home, rejected: Sequence[FileRefused]) -> str:
    return (
        f"{home.landing}: none of its files can be read, and the warehouse is empty; they are in "
        f"{home.landing / landing.QUARANTINE} now, each with a note. The first: {rejected[0].shown_reason}"
    )


def _log_changes(
    home: Home, run_id: str, plan: IngestPlan, file_ids: tuple[int, ...], rejected: Sequence[FileRefused]
) -> Ingested:
    with warehouse.open_warehouse(home, read_only=True) as connection:
        logs = connection.execute("select file_id, sha256, events, rejects from operations.log_files").fetchall()
        alarm = anomalies.describe_night(connection, run_id)
    if alarm:
        runs.record_alarm(home, run_id, alarm)
    digest = hashlib.sha256("\n".join(sorted(sha256 for _, sha256, _, _ in logs)).encode()).hexdigest()
    ids = {file_id for file_id, _ in plan.new}
    ingested = Ingested(
        file_ids=file_ids,
        new=tuple(log.path for _, log in plan.new),
        changed=tuple(one.log.path for one in plan.arrivals if one.before),
        skipped=plan.skipped,
        set_aside=tuple(one.shown for one in rejected),
        events=sum(events for file_id, _, events, _ in logs if file_id in ids),
        rejects=sum(rejects for file_id, _, _, rejects in logs if file_id in ids),
        events_before=sum(one.events for one in plan.before),
        total_events=sum(events for _, _, events, _ in logs),
        digest=digest,
    )
    for path, layout in ((log.path, log.layout) for _, log in plan.new if log.layout):
        for doubt in layout.doubts:
            logger.warning("%s: %s", path, doubt)
        for line in layout.skipped:
            logger.warning("%s: a line is left out, as no event: %s", path, line.strip()[:80])
    if ingested.skipped:
        logger.info("%s: skipped, because the warehouse holds the same events already", _first_paths(ingested.skipped))
    if ingested.changed:
        ids = {one.file_id for one in plan.arrivals if one.is_new and one.before}
        replacing_events = sum(events for file_id, _, events, _ in logs if file_id in ids)
        message = "%s: changed under its name; %s earlier events were replaced by %s"
        logger.info(message, _first_paths(ingested.changed), f"{ingested.events_before:,}", f"{replacing_events:,}")
    numbers = {"new log": len(ingested.new), "event": ingested.events, "reject": ingested.rejects}
    counts = (count_things(number, noun) for noun, number in numbers.items())
    logger.info("%s with %s and %s; %d skipped", *counts, len(ingested.skipped))
    return ingested


def _first_paths(paths: Sequence[str]) -> str:
    first = escape_controls(paths[0])
    return f"{first} and {len(paths) - 1:,} more" if len(paths) > 1 else first


ingest_task = stage_task(ingest)
