"""The stage: which logs are new, the transaction that reads them in, and what is told of it."""

import hashlib
import logging
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sql
from tasks.datasets import Dataset
from tasks.errors import InputError, OneclassError
from tasks.ingest.load import load
from tasks.ingest.sources import LogFile, expected_sources, inspect
from tasks.stores import warehouse
from tasks.stores.home import Home

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ingested:
    """What a run of the stage did, and what the warehouse holds after it.

    Attributes:
        file_ids: the id of every source, in the order given, whether it was read now or in an earlier run.
        new: paths of the logs that were read in.
        skipped: paths of the logs whose bytes were in the warehouse already.
        events: events of the new logs.
        rejects: lines of the new logs that could not be read.
        total_events: events in the warehouse.
        digest: of the set of all logs in the warehouse.
    """

    file_ids: tuple[int, ...]
    new: tuple[str, ...]
    skipped: tuple[str, ...]
    events: int
    rejects: int
    total_events: int
    digest: str


def ingest(
    home: Home, dataset: Dataset, sources: Iterable[str | Path], run_id: str, *, replace: bool = False
) -> Ingested:
    """Read the sources that are new into `raw.events` and `raw.rejects`, all of them or none.

    Args:
        sources: files, folders, patterns or archives; the files in `home.landing` where there are none.
        replace: make the sources all that the warehouse holds; what other logs left is deleted first.

    Raises:
        InputError: a source cannot be read; nothing was written.
        ContractBroken: the logs hold more rejects than the data set allows, or values outside its bounds.
    """
    present = _known(home)
    paths = _sources(home, dataset, sources, may_be_none=bool(present) and not replace)
    logs = inspect(dataset, paths, known={} if replace else {digest: size for digest, (_, size) in present.items()})
    replace = replace and {log.sha256 for log in logs} != set(present)
    ids = {} if replace else {digest: file_id for digest, (file_id, _) in present.items()}
    new: dict[str, LogFile] = {}
    skipped: list[str] = []
    first = max(ids.values(), default=0) + 1
    for log in logs:
        if log.sha256 in ids:
            skipped.append(log.path)
        else:
            new[log.sha256] = log
            ids[log.sha256] = first + len(new) - 1
    if skipped:
        more = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        logger.info("%s%s: skipped, because the warehouse holds the same bytes already", skipped[0], more)
    _write(home, dataset, [(ids[log.sha256], log) for log in new.values()], run_id, replace)
    file_ids = tuple(ids[log.sha256] for log in logs)
    return _told(home, file_ids, first, tuple(log.path for log in new.values()), tuple(skipped))


def _sources(home: Home, dataset: Dataset, sources: Iterable[str | Path], may_be_none: bool) -> Sequence[str | Path]:
    given = list(sources)
    if given:
        return given
    if home.landing.is_dir() and any(home.landing.iterdir()):
        return [home.landing]
    if may_be_none:
        return []
    raise InputError(expected_sources(home, dataset))


def _write(home: Home, dataset: Dataset, files: Sequence[tuple[int, LogFile]], run_id: str, replace: bool) -> None:
    """Read the files in; where there are none, only check what the warehouse holds."""
    parameters: dict[str, Any] = {
        "value_min": dataset.value_min,
        "value_max": dataset.value_max,
        "max_reject_share": dataset.max_reject_share,
    }
    with warehouse.stage(home, run_id, "ingest", parameters) as connection:
        spill = home.folder / "spill"
        for left in spill.glob("ingest-*"):  # of a run that was killed: the warehouse has one writer at a time
            shutil.rmtree(left, ignore_errors=True)
        if replace:
            for table in ("raw.events", "raw.rejects", "operations.log_files"):
                connection.execute(f"delete from {table}")
        if not files:
            return
        try:
            spill.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="ingest-", dir=spill) as scratch:
                load(connection, files, Path(scratch))
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
            },
        )


def _known(home: Home) -> dict[str, tuple[int, int]]:
    """Digest -> (file_id, bytes) of every log in the warehouse."""
    if not home.warehouse.exists():
        return {}
    with warehouse.connect(home, read_only=True) as connection:
        logs = connection.execute("select sha256, file_id, bytes from operations.log_files").fetchall()
    return {digest: (file_id, size) for digest, file_id, size in logs}


def _told(
    home: Home, file_ids: tuple[int, ...], first: int, new: tuple[str, ...], skipped: tuple[str, ...]
) -> Ingested:
    with warehouse.connect(home, read_only=True) as connection:
        logs = connection.execute("select file_id, sha256, events, rejects from operations.log_files").fetchall()
    digest = hashlib.sha256("\n".join(sorted(of_file for _, of_file, _, _ in logs)).encode()).hexdigest()
    read = [(events, rejects) for file_id, _, events, rejects in logs if file_id >= first]
    told = Ingested(
        file_ids=file_ids,
        new=new,
        skipped=skipped,
        events=sum(events for events, _ in read),
        rejects=sum(rejects for _, rejects in read),
        total_events=sum(events for _, _, events, _ in logs),
        digest=digest,
    )
    logger.info(
        "%d new logs with %d events and %d rejects; %d skipped",
        len(new),
        told.events,
        told.rejects,
        len(skipped),
    )
    return told
