"""The record of runs, and the lock that lets one run at a time work on a data set."""

import contextlib
import fcntl
import importlib.metadata
import json
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import duckdb

from oneclass import sql
from oneclass.tasks.errors import InputError, ModelsFailed
from oneclass.tasks.stores import checksums, publications, warehouse
from oneclass.tasks.stores.home import Home

PARTIAL_FILES = (
    "spill/*",
    "matrices/partial-*",
    "models/*/partial-*",
    "models/*/*/partial-*",
    ".demo-*",
    ".published-next",
    "report/.*.html",
    "report/.*.json",
    "report/figures/.*.svg",
)
"""Patterns in a data set's folder: what is made under such a name is moved or deleted by whoever made it."""
COMPILED_FOLDERS = "oneclass-numba-*"
"""Kernels of a process that had nowhere else to keep them, in the system's folder of temporary files."""
MAX_AGE_HOURS = 24  # a process may still be at work with them


def remove_partial_files(home: Home) -> int:
    """Delete them; the number of files and folders that went.

    The caller holds the data set (`runs.exclusive`) and has the warehouse open for writing, so nobody else spills.
    """
    found = [path for pattern in PARTIAL_FILES for path in home.folder.glob(pattern)]
    found += [*publications.list_unfinished(home), *_is_stale_kernel_folder(Path(tempfile.gettempdir()))]
    for path in found:
        checksums.remove_path(path)
    if found:
        logger.info("%d files and folders that runs before had left half made were deleted", len(found))
    return len(found)


def _is_stale_kernel_folder(folder: Path) -> list[Path]:
    oldest = time.time() - 3600 * MAX_AGE_HOURS
    found = []
    for path in folder.glob(COMPILED_FOLDERS):
        status = path.lstat()
        if status.st_uid == os.getuid() and status.st_mtime < oldest:
            found.append(path)
    return found


logger = logging.getLogger(__name__)

MAX_RECENT_RUNS = 50  # runs before, of which Prefect may not have been told how they ended


class DataSetLocked(InputError):
    """Another run is at work on the data set."""


@contextlib.contextmanager
def record_run(home: Home, run_id: str, flow: str, settings: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Hold the data set for one run, and keep its row in `operations.runs`: running, then completed, partly_failed,
    failed or cancelled.

    A run that was killed leaves its row at `running`; the next one marks it `crashed`.

    Yields:
        How each of the latest runs before this one ended, by its id.

    Raises:
        InputError: another run holds the data set, or the home cannot be written to.
    """
    with lock_data_set(home):
        with warehouse.open_warehouse(home) as connection:
            remove_partial_files(home)
            connection.execute("update operations.runs set state = 'crashed' where state = 'running'")
            earlier = connection.execute(sql.statement("runs/latest"), {"runs": MAX_RECENT_RUNS}).fetchall()
            connection.execute(
                "insert into operations.runs values (?, ?, ?, ?, null, 'running', ?, ?)",
                [
                    run_id,
                    flow,
                    home.dataset,
                    _utc_now(),
                    json.dumps(settings, default=str, sort_keys=True),
                    get_code_version(),
                ],
            )
        try:
            yield dict(earlier)
        except ModelsFailed:
            end_run(home, run_id, "partly_failed")
            raise
        except BaseException as error:
            with contextlib.suppress(Exception):  # what stopped the run is the news, not that it cannot be noted
                end_run(home, run_id, "failed" if isinstance(error, Exception) else "cancelled")
            raise
        end_run(home, run_id, "completed")


@contextlib.contextmanager
def lock_data_set(home: Home) -> Iterator[None]:
    """Hold the lock file of a data set; the system lets go of it when the process ends, however it ends.

    What is written meanwhile can be read by those of the setting `files.readable_by`.
    """
    with home.writing(), _lock_path(home) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataSetLocked(
                f"{home.folder}: another run holds this data set. Wait for it to end, or choose another --home."
            ) from error
        yield


def _lock_path(home: Home) -> IO[str]:
    try:
        home.folder.mkdir(parents=True, exist_ok=True)
        return open(home.folder / ".lock", "w")
    except OSError as error:
        raise InputError(f"{home.folder}: cannot be written to ({error.strerror}). Choose another --home.") from error


def find_completed_since(home: Home, moment: datetime, flow: str) -> str | None:
    """The newest run of a flow that began after `moment` and was completed; None where there is none.

    The caller holds the data set. The warehouse is opened for writing: it may be the first time since a crash.

    Args:
        moment: with its time zone.
    """
    if not home.warehouse.exists():
        return None
    after = moment.astimezone(UTC).replace(tzinfo=None)
    with warehouse.open_warehouse(home) as connection:
        found = warehouse.select(connection, "runs/completed_since", moment=after, flow=flow)
    return found["run_id"].item() if len(found) else None


def find_latest_evaluated(connection: duckdb.DuckDBPyConnection) -> str | None:
    """The newest completed run that evaluated anything; None where there is none."""
    found = connection.execute("select max_by(run_id, place) from operations.evaluated_runs").fetchall()
    return found[0][0]


def get_code_version() -> str:
    """The package's version, with the commit where it runs from a checkout."""
    version = importlib.metadata.version("oneclass")
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        commit = subprocess.run(command, check=False, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        commit = ""
    return f"{version}+{commit}" if commit else version


def end_run(home: Home, run_id: str, state: str) -> None:
    """Note that a run has ended: completed, partly_failed, failed or cancelled."""
    with warehouse.open_warehouse(home) as connection:
        connection.execute(
            "update operations.runs set state = ?, ended_at = ? where run_id = ?", [state, _utc_now(), run_id]
        )


def _utc_now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
