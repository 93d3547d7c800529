"""Stage `ingest`: find new and changed logs, load them in one transaction, and log the changes."""

import logging
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from oneclass.data_contracts import ContractBroken
from oneclass.tasks import anomalies
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import file_registry, landing
from oneclass.tasks.ingest.attributes import store_attributes
from oneclass.tasks.ingest.file_registry import Arrival, LineCounts
from oneclass.tasks.ingest.files import sign_file
from oneclass.tasks.ingest.landing import FileRefused, IngestSettings
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.query import land_query
from oneclass.tasks.ingest.sources import LogFile, describe_expected_sources, is_log_name, scan_logs
from oneclass.tasks.orchestration import progress
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.stores import runs, stages
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import count_things

logger = logging.getLogger(__name__)

DEFAULTS = IngestSettings()
TABLES = ("raw.events", "raw.places", "raw.rejects", "operations.log_files")


def ingest(
    home: Home,
    dataset: Dataset,
    sources: Iterable[str | Path],
    run_id: str,
    settings: IngestSettings = DEFAULTS,
    *,
    replace: bool = False,
) -> list[Arrival]:
    """Ingest the new sources into `raw.events` and `raw.rejects`, all or none.

    A file of the landing folder that is unreadable, or exceeds the data set's share of rejects, is quarantined and the
    others are ingested; such a file that is named as a source, or with `replace`, stops the run.

    Args:
        sources: files, folders or patterns; by default the files in `home.landing`.
        replace: read all sources anew, and delete all other logs from the warehouse.

    Returns:
        What became of each log, in the given order; the pipeline reads their ids.

    Raises:
        InputError: there is no source, or one is unreadable; nothing was written.
        ContractBroken: the logs have more rejects than the data set allows.
    """
    named = list(sources)
    paths, unread = (named, list[FileRefused]()) if named else _find_landing_files(home, dataset, replace=replace)
    known = [] if replace else file_registry.load_known_files(home)
    if not paths and not known:
        raise InputError(describe_expected_sources(home, dataset))
    refused: list[FileRefused] = []
    limits = {"hours_old": settings.fresh_within_hours, "reject_share": dataset.max_reject_share}
    night = None if named or replace else limits
    digests, columns_named = {one.sha256 for one in known}, any(one.names_columns for one in known)
    logs = scan_logs(paths, dataset, digests, refused if night else None, columns_named=columns_named)
    while True:
        if refused and not logs and not known:
            landing.quarantine_files(home, refused)
            raise refused[0]
        arrivals = file_registry.plan_ingest(home, known, logs)
        try:
            alarms = _write_events(home, dataset, run_id, arrivals, [*unread, *refused], night, replace=replace)
            break
        except* FileRefused as errors:
            found = {error.location: error for error in errors.exceptions if isinstance(error, FileRefused)}
        refused += found.values()
        if not night:
            raise refused[0]
        logs = [log for log in logs if log.location not in found]
    landing.quarantine_files(home, refused)
    if not named and settings.keep_files == "move":
        _move_read_files(home, logs)
    for alarm in alarms:
        runs.record_alarm(home, run_id, alarm)
    return arrivals


def _move_read_files(home: Home, logs: Iterable[LogFile]) -> None:
    """Move the files aside, except those written to since they were read, which are left to the next run."""
    for log in logs:
        if sign_file(log.location) == log.signature:
            landing.move_file(home, log.location, landing.DONE)


def _find_landing_files(home: Home, dataset: Dataset, *, replace: bool) -> tuple[list[Path], list[FileRefused]]:
    """Land the data set's query, if any; return the landing folder, if it has logs, and its files that no run reads."""
    if dataset.source:
        land_query(home, dataset, dataset.source, replace=replace)
    waiting = landing.list_landing_files(home.landing)
    folders = [home.landing] * any(is_log_name(path.name, dataset) for path in waiting)
    tables = {Path(table.file).name for table in (dataset.titles, dataset.items, dataset.users) if table}
    why = f"its name matches none of the patterns {', '.join(dataset.files)}; rename it, take it out, or change `files`"
    misfits = [path for path in waiting if not is_log_name(path.name, dataset) and path.name not in tables]
    unread = [FileRefused(path, why, "unmatched") for path in misfits]
    why = f"in landing/{landing.QUARANTINE} since an earlier night; a note beside it says why"
    aside = landing.list_landing_files(home.landing / landing.QUARANTINE)
    unread += [FileRefused(path, why) for path in aside if not path.name.endswith(landing.NOTE_SUFFIX)]
    return folders, unread


def _write_events(
    home: Home,
    dataset: Dataset,
    run_id: str,
    arrivals: Sequence[Arrival],
    unread: Sequence[FileRefused],
    night: Mapping[str, float | None] | None,
    *,
    replace: bool,
) -> list[str]:
    """Load the new logs and delete those they replace, in one transaction, and return the alarms to raise.

    Raises:
        FileRefused: a log cannot be read. Logs of a night with too many rejects come together in an ExceptionGroup.
    """
    new = {one.file_id: one.log for one in arrivals if one.is_new}
    gone = [one.before.file_id for one in arrivals if one.before]
    bounds = {"value_min", "value_max", "max_reject_share", "max_future_days"}
    parameters = {**dataset.model_dump(include=bounds), "kinds": list(dataset.events)}
    refused: list[FileRefused] = []
    try:
        with stages.run_stage(home, run_id, "ingest", parameters) as connection:
            for table in TABLES if replace or gone else ():
                connection.execute(f"delete from {table} where ? or file_id in ?", [replace, gone])
            if new:
                home.spill.mkdir(exist_ok=True)
                label = f"reading {len(new):,} logs, {sum(log.size for log in new.values()) / 1e6:,.0f} MB"
                logs = progress.iterate_with_progress(new.items(), label, lambda one: one[1].size)
                with tempfile.TemporaryDirectory(prefix="ingest-", dir=home.spill) as scratch:
                    load_logs(connection, logs, Path(scratch), dataset)
            counts = file_registry.count_lines(connection, new)
            refused = file_registry.refuse_rejects(new, counts, dataset.max_reject_share)
            if refused and night:
                raise ExceptionGroup("more rejects than max_reject_share", refused)
            file_registry.record_arrivals(connection, home, run_id, arrivals, counts, unread)
            store_attributes(connection, run_id, dataset)
            if night:
                anomalies.record_batch_stats(connection, run_id, night)
            repeated = file_registry.describe_repeated_events(connection, dataset, [*new])
            alarms = [alarm for alarm in (repeated, anomalies.describe_night(connection, run_id)) if alarm]
    except ContractBroken as error:
        if refused and any(result.rule == "share_of_rejects" for result in error.broken):
            raise ContractBroken(error.stage, error.broken, str(refused[0])) from None
        raise
    _log_arrivals(new.values(), counts.values(), len(arrivals) - len(new))
    return alarms


def _log_arrivals(new: Collection[LogFile], counts: Collection[LineCounts], known: int) -> None:
    """Log the doubts about new logs, and how many events and rejects they have."""
    for log in new:
        for doubt in log.layout.doubts if log.layout else ():
            logger.warning("%s: %s", log.path, doubt)
    events, rejects = sum(count[0] for count in counts), sum(count[1] for count in counts)
    numbers = {"new log": len(new), "event": events, "reject": rejects, "known log": known}
    logger.info("%s with %s and %s; %s skipped", *(count_things(number, noun) for noun, number in numbers.items()))


ingest_task = stage_task(ingest)
