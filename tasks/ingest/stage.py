"""Stage `ingest`: find new and changed logs, load them in one transaction, and log the changes."""

import logging
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from oneclass.data_contracts import ContractBroken
from oneclass.tasks import anomalies
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import file_registry, landing
from oneclass.tasks.ingest.attributes import store_attributes
from oneclass.tasks.ingest.file_registry import Arrival
from oneclass.tasks.ingest.landing import FileRefused
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.query import land_query
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.sources import SourceScanner, describe_expected_sources, is_log_name
from oneclass.tasks.orchestration import progress
from oneclass.tasks.orchestration.stage_task import stage_task
from oneclass.tasks.stores import runs, stages
from oneclass.tasks.stores.home import Home
from oneclass.tasks.terminal import count_things

logger = logging.getLogger(__name__)

TABLES = ("raw.events", "raw.places", "raw.rejects", "operations.log_files")


@dataclass(frozen=True)
class Ingested:
    """What a run of the stage read and left: paths of logs, and numbers of events.

    Attributes:
        file_ids: the id of every source, in the given order, whether ingested in this run or earlier.
        events: of the new logs, including changed ones.
    """

    file_ids: tuple[int, ...]
    new: tuple[str, ...]
    changed: tuple[str, ...]
    skipped: tuple[str, ...]
    set_aside: tuple[str, ...]
    events: int
    total_events: int


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
        sources: files, folders or patterns; by default the files in `home.landing`.
        replace: read all sources anew, and delete all other logs from the warehouse.
        scanner: of the data set, if it has scanned the sources before.

    Raises:
        InputError: there is no source, or one is unreadable; nothing was written.
        ContractBroken: the logs have more rejects than the data set allows.
    """
    settings, named = settings or IngestSettings(), list(sources)
    if dataset.source and not named:
        land_query(home, dataset, dataset.source, replace=replace)
    known = [] if replace else file_registry.load_known_files(home)
    waiting = [] if named else landing.list_landing_files(home.landing)
    paths = named or [home.landing] * any(is_log_name(path.name, dataset) for path in waiting)
    if not paths and not known:
        raise InputError(describe_expected_sources(home, dataset))
    is_night = not named and not replace
    unread = [] if named else _list_unread(home, dataset, waiting)
    refused: list[FileRefused] = []
    scanner, columns_named = scanner or SourceScanner(dataset), any(one.names_columns for one in known)
    logs = scanner.scan(
        paths, {one.sha256 for one in known}, refused if is_night else None, columns_named=columns_named
    )
    while True:
        if refused and not logs and not known:
            landing.quarantine_files(home, refused)
            raise refused[0]
        arrivals = file_registry.plan_ingest(home, known, logs, settings.changed_file)
        found: list[FileRefused] = []
        try:
            told = [*unread, *refused]
            counts, alarms = _write_events(home, dataset, arrivals, run_id, settings, told, replace, is_night)
            break
        except* FileRefused as errors:
            found = [error for error in errors.exceptions if isinstance(error, FileRefused)]
        rest = [log for log in logs if log.location not in {file.location for file in found}]
        if not is_night or len(rest) == len(logs):
            raise found[0]
        refused, logs = [*refused, *found], rest
    landing.quarantine_files(home, refused)
    if not named:
        # The rows of a later query are compared with those that were landed.
        is_kept = settings.keep_files == "remove" and dataset.source and dataset.source.is_incremental
        keep_files = "move" if is_kept else settings.keep_files
        landing.archive_files(home, {log.location: log.signature for log in logs}, keep_files)
    for alarm in alarms:
        runs.record_alarm(home, run_id, alarm)
    return _log_changes(arrivals, counts, refused)


def _list_unread(home: Home, dataset: Dataset, waiting: Iterable[Path]) -> list[FileRefused]:
    """List and log the files that no run will read until somebody acts."""
    tables = {Path(table.file).name for table in (dataset.titles, dataset.items, dataset.users) if table}
    why = f"its name matches none of the patterns {', '.join(dataset.files)}; rename it, take it out, or change `files`"
    misfits = [path for path in waiting if not is_log_name(path.name, dataset) and path.name not in tables]
    unread = [FileRefused(path, why, "unmatched") for path in misfits]
    why = f"in landing/{landing.QUARANTINE} since an earlier night; a note beside it says why"
    unread += [FileRefused(path, why) for path in landing.list_quarantined(home.landing)]
    for file in {file.outcome: file for file in reversed(unread)}.values():
        number = sum(other.outcome == file.outcome for other in unread)
        logger.warning("%s: not read (%s in all): %s", file.shown, count_things(number, "file"), file.reason)
    return unread


def _write_events(
    home: Home,
    dataset: Dataset,
    arrivals: Sequence[Arrival],
    run_id: str,
    settings: IngestSettings,
    unread: Sequence[FileRefused],
    replace: bool,
    is_night: bool,
) -> tuple[dict[int, tuple[int, int]], list[str]]:
    """Load the new logs and delete those they replace, in one transaction. Without new logs, only check the contract.

    Returns:
        file_id -> (events, rejects) of every log in the warehouse, and the alarms to raise.

    Raises:
        FileRefused: a log cannot be read. Logs of a night with too many rejects come together in an ExceptionGroup.
    """
    new = {one.file_id: one.log for one in arrivals if one.is_new}
    gone = [known.file_id for one in arrivals for known in one.before]
    bounds = {"value_min", "value_max", "max_reject_share", "max_future_days"}
    parameters = {**dataset.model_dump(include=bounds), "kinds": list(dataset.events)}
    refused: list[FileRefused] = []
    try:
        with stages.run_stage(home, run_id, "ingest", parameters) as connection:
            for table in TABLES if replace or gone else ():
                connection.execute(
                    f"delete from {table} where $all or file_id in $gone", {"all": replace, "gone": gone}
                )
            if new:
                home.spill.mkdir(exist_ok=True)
                with tempfile.TemporaryDirectory(prefix="ingest-", dir=home.spill) as scratch:
                    load_logs(connection, [*new.items()], Path(scratch), dataset, progress.iterate_with_progress)
            refused = file_registry.record_files(connection, new, dataset.max_reject_share)
            if refused and is_night:
                raise ExceptionGroup("more rejects than max_reject_share", refused)
            counts = file_registry.record_changes(connection, home, run_id, arrivals, unread)
            store_attributes(connection, run_id, dataset)
            if is_night:
                limits = {"hours_old": settings.fresh_within_hours, "reject_share": dataset.max_reject_share}
                anomalies.record_batch_stats(connection, run_id, limits)
            alarms = [
                file_registry.describe_repeated_events(connection, dataset, [*new]),
                anomalies.describe_night(connection, run_id),
            ]
            return counts, [alarm for alarm in alarms if alarm]
    except ContractBroken as error:
        if refused and any(result.rule == "share_of_rejects" for result in error.broken):
            raise ContractBroken(error.stage, error.broken, str(refused[0])) from None
        raise


def _log_changes(
    arrivals: Sequence[Arrival], counts: dict[int, tuple[int, int]], refused: Sequence[FileRefused]
) -> Ingested:
    new = [one for one in arrivals if one.is_new]
    for path, layout in ((one.log.path, one.log.layout) for one in new if one.log.layout):
        for doubt in layout.doubts:
            logger.warning("%s: %s", path, doubt)
    events, rejects = (sum(counts[one.file_id][place] for one in new) for place in (0, 1))
    before = sum(known.events for one in arrivals for known in one.before)
    things = {"new log": len(new), "event": events, "reject": rejects}
    numbers = (count_things(number, noun) for noun, number in things.items())
    message = "%s with %s and %s, in place of %s; %d skipped, whose events the warehouse holds"
    logger.info(message, *numbers, count_things(before, "earlier event"), len(arrivals) - len(new))
    return Ingested(
        file_ids=tuple(one.file_id for one in arrivals),
        new=tuple(one.log.path for one in new),
        changed=tuple(one.log.path for one in arrivals if one.before),
        skipped=tuple(one.log.path for one in arrivals if not one.is_new),
        set_aside=tuple(file.shown for file in refused),
        events=events,
        total_events=sum(events for events, _ in counts.values()),
    )


ingest_task = stage_task(ingest)
