"""Remove users from a home: files, warehouse, and everything that was computed from them but the publications.

Order, so that a command that was cut off can be repeated at any moment:

1. `forgotten/pending.json` has the ids and the counts;
2. the rewritten files lie in `landing/.forget-*`, and the copied warehouse in `.forget-warehouse.duckdb`;
3. the copy replaces the warehouse, and knows the digests of the rewritten files;
4. these replace the files, and equal the ones that a second try would write;
5. matrices, fits, reports and the rest are deleted;
6. a certificate replaces the ids.

Publications stay until the rebuilt one is published, so that the shop is served meanwhile.
"""

import json
import logging
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.forget.rewrite import rewrite_log
from oneclass.tasks.forget.search import FoundFile, Query, find_users
from oneclass.tasks.forget.tables import RewrittenLog, check_tables, copy_remaining_rows
from oneclass.tasks.ingest import file_registry
from oneclass.tasks.ingest.landing import NOTE_SUFFIX
from oneclass.tasks.ingest.scan import hash_file
from oneclass.tasks.stores import checksums, durable, erasures, publication_records, runs
from oneclass.tasks.stores import warehouse as warehouses
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

COPY_FILE = ".forget-warehouse.duckdb"
STAGED_FOLDER = ".forget-"
DERIVED = (
    "matrices",
    "models",
    "report",
    "spill",
    "sums",
    "data_docs",
    "tuning/study.db*",
    "warehouse.duckdb.wal.*",
)
"""What is made from the warehouse, except publications; and what damage left of its log."""
SET_ASIDE = "published.*.set-aside"


@dataclass(frozen=True)
class _StagedFile:
    """A rewritten file that waits to replace the original; `path` is None if this is deleted."""

    location: Path
    path: Path | None
    record: dict[str, Any]


def remove_users(
    home: Home,
    dataset: Dataset,
    users: Sequence[str],
    delete_run_records: Callable[[Collection[str]], None] = lambda _: None,
) -> None:
    """Remove every trace of users from the home, except from its publications.

    Args:
        delete_run_records: deletes outside of the home what is stored of runs whose contracts named a user.

    Raises:
        InputError: a user is in no log, another run holds the data set, the warehouse is absent or has other tables,
            or a file of the landing folder is being written to; nothing was changed.
    """
    if not home.warehouse.exists():
        raise InputError(f"{home.warehouse}: does not exist, so {home.folder} has nobody to forget.")
    with runs.lock_data_set(home):
        pending = erasures.load_pending(home)
        query = Query(sorted({*pending["users"], *users}))
        with warehouses.open_warehouse(home) as connection:
            runs.remove_partial_files(home)
            check_tables(connection, home)
            found, known = find_users(connection, home, dataset, query)
            if unknown := set(query.users) - known - set(pending["users"]):
                if not erasures.list_unfinished(home) or known:
                    raise InputError(_explain_unknown(home, sorted(unknown)))
                return
            erasures.save_pending(home, {**pending, "users": query.users})
            staged, rewritten = _stage_files(home, found)
            rows = copy_remaining_rows(
                connection,
                home,
                home.folder / COPY_FILE,
                users=query.users,
                pattern=query.pattern,
                rewritten=rewritten,
            )
            elsewhere = _list_logs_elsewhere(connection, home, found)
            elsewhere += warehouses.select(connection, "forget/described_users", users=query.users)["path"].to_list()
            named_in = _list_naming_runs(connection, query.users)
        # A second try finds only what the first left, which noted the rest.
        pending: dict[str, Any] = {
            **pending,
            "users": query.users,
            "rows": {**rows, **pending["rows"]},
            "files": {**{file.record["name"]: file.record for file in staged}, **pending["files"]},
            "logs_elsewhere": sorted({*elsewhere, *pending["logs_elsewhere"]}),
            "runs": sorted({*named_in, *pending["runs"]}),
        }
        erasures.save_pending(home, pending)
        durable.install_file(home.folder / COPY_FILE, home.warehouse)
        for file in staged:
            _install(file)
        _delete_derived(home)
        delete_run_records(pending["runs"])
        runs.remove_partial_files(home)
        erasures.certify_removal(home, {**pending, "files": list(pending["files"].values())})
    for path in pending["logs_elsewhere"]:
        logger.warning("%s: is outside of the home and holds them: delete their lines, or the file", path)


def _explain_unknown(home: Home, users: Sequence[str]) -> str:
    return (
        f"--user {' '.join(users)}: no log of {home.dataset} has such a user, neither in the warehouse nor in "
        f"{home.landing}; nothing was changed. Write ids as they stand in the logs."
    )


def _stage_files(home: Home, found: Sequence[FoundFile]) -> tuple[list[_StagedFile], list[RewrittenLog]]:
    """Write the files without their lines of forgotten users beside the landing folder's."""
    staged, rewritten = [], []
    for number, file in enumerate(found, 1):
        record: dict[str, Any] = {"name": str(file.location.relative_to(home.folder)), "sha256": None}
        path = None
        if file.lines is not None and not file.is_left_empty:
            path = home.landing / f"{STAGED_FOLDER}{number}" / file.location.name
            path.parent.mkdir()
            digests = rewrite_log(
                file.location,
                path,
                file.lines,
                container=file.container,
                encoding=file.encoding,
                in_place_of_line=file.in_place_of_line,
            )
            shutil.copymode(file.location, path)
            rewritten += [
                RewrittenLog(file_id, sha256, digests[member]) for member, (file_id, sha256) in file.known.items()
            ]
            record["sha256"] = hash_file(str(path))
        record["lines_removed"] = sum(map(len, file.lines.values())) if file.lines is not None else None
        staged.append(_StagedFile(file.location, path, record))
    return staged, rewritten


def _install(file: _StagedFile) -> None:
    if file.path is None:
        file.location.unlink()
        file.location.with_name(file.location.name + NOTE_SUFFIX).unlink(missing_ok=True)
        durable.sync_path(file.location.parent)
    else:
        durable.install_file(file.path, file.location)


def _list_logs_elsewhere(connection: duckdb.DuckDBPyConnection, home: Home, found: Sequence[FoundFile]) -> list[str]:
    """List the logs with forgotten users that were read outside of the landing folder, and targets of its links."""
    ids = {file_id for (file_id,) in connection.execute("select distinct file_id from forgotten_lines").fetchall()}
    logs = file_registry.list_known_files(connection, home)
    elsewhere = [log.path for log in logs if log.file_id in ids and Path(log.name).is_absolute()]
    return elsewhere + [str(file.location.resolve()) for file in found if file.location.is_symlink()]


def _list_naming_runs(connection: duckdb.DuckDBPyConnection, users: Sequence[str]) -> list[str]:
    """List the runs in which a row that broke a contract named a user; error messages and summaries show such rows."""
    query = "select run_id, samples::varchar from operations.contract_results where samples::varchar <> '[]'"
    return [
        run_id
        for run_id, samples in connection.execute(query).fetchall()
        for sample in json.loads(samples)
        if {*map(str, sample.values() if isinstance(sample, dict) else [sample])} & set(users)
    ]


def _delete_derived(home: Home) -> None:
    for pattern in DERIVED:
        for path in home.folder.glob(pattern):
            checksums.remove_path(path)
    durable.sync_path(home.folder)


def remove_earlier_publications(home: Home, run_id: str | None) -> None:
    """Delete all publications but the current one, which the rebuild made, and complete the certificates.

    Args:
        run_id: the run that rebuilt; None if nothing had been published.

    Raises:
        InputError: another run holds the data set.
    """
    with runs.lock_data_set(home):
        current = home.published.resolve() if home.published.is_symlink() else None
        for path in [*home.publications.glob("*"), *home.folder.glob(SET_ASIDE)]:
            if path != current and path.resolve() != current:
                checksums.remove_path(path)
        if home.publications.is_dir():
            durable.sync_path(home.publications)
        if current is not None:
            with warehouses.open_warehouse(home) as connection:
                publication_records.record_current(connection, home)
        for certificate in erasures.certify_publication(home, run_id):
            logger.info("certificate: %s", certificate)
