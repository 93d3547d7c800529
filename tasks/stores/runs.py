"""The record of runs, and the lock that lets one run at a time work on a data set."""

import contextlib
import fcntl
import importlib.metadata
import json
import logging
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import duckdb

import sql
from tasks.errors import InputError, PartlyFailed
from tasks.stores import leftovers, warehouse
from tasks.stores.home import Home

logger = logging.getLogger(__name__)

LOOKED_AT = 50  # runs before, of which Prefect may not have been told how they ended


class HeldByAnother(InputError):
    """Another run is at work on the data set."""


@contextlib.contextmanager
def recorded(home: Home, run_id: str, flow: str, settings: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Hold the data set for one run, and keep its row in `operations.runs`: running, then completed, partly_failed,
    failed or cancelled.

    A run that was killed leaves its row at `running`; the next one marks it `crashed`.

    Yields:
        How each of the latest runs before this one ended, by its id.

    Raises:
        InputError: another run holds the data set, or the home cannot be written to.
    """
    with exclusive(home):
        with warehouse.connect(home) as connection:
            leftovers.remove(home)
            connection.execute("update operations.runs set state = 'crashed' where state = 'running'")
            earlier = connection.execute(sql.statement("runs/latest"), {"runs": LOOKED_AT}).fetchall()
            connection.execute(
                "insert into operations.runs values (?, ?, ?, ?, null, 'running', ?, ?)",
                [run_id, flow, home.dataset, _now(), json.dumps(settings, default=str, sort_keys=True), code_version()],
            )
        try:
            yield dict(earlier)
        except PartlyFailed:
            end(home, run_id, "partly_failed")
            raise
        except BaseException as error:
            with contextlib.suppress(Exception):  # what stopped the run is the news, not that it cannot be noted
                end(home, run_id, "failed" if isinstance(error, Exception) else "cancelled")
            raise
        end(home, run_id, "completed")


@contextlib.contextmanager
def exclusive(home: Home) -> Iterator[None]:
    """Hold the lock file of a data set; the system lets go of it when the process ends, however it ends.

    What is written meanwhile can be read by those of the setting `files.readable_by`.
    """
    with home.writing(), _lock_file(home) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HeldByAnother(
                f"{home.folder}: another run holds this data set. Wait for it to end, or choose another --home."
            ) from error
        yield


def _lock_file(home: Home) -> IO[str]:
    try:
        home.folder.mkdir(parents=True, exist_ok=True)
        return open(home.folder / ".lock", "w")
    except OSError as error:
        raise InputError(f"{home.folder}: cannot be written to ({error.strerror}). Choose another --home.") from error


def completed_since(home: Home, moment: datetime, flow: str) -> str | None:
    """The newest run of a flow that began after `moment` and was completed; None where there is none.

    The caller holds the data set. The warehouse is opened for writing: it may be the first time since a crash.

    Args:
        moment: with its time zone.
    """
    if not home.warehouse.exists():
        return None
    after = moment.astimezone(UTC).replace(tzinfo=None)
    with warehouse.connect(home) as connection:
        found = warehouse.select(connection, "runs/completed_since", moment=after, flow=flow)
    return found["run_id"].item() if len(found) else None


def latest_evaluated(connection: duckdb.DuckDBPyConnection) -> str | None:
    """The newest completed run that evaluated anything; None where there is none."""
    found = connection.execute("select max_by(run_id, place) from operations.evaluated_runs").fetchall()
    return found[0][0]


def code_version() -> str:
    """The package's version, with the commit where it runs from a checkout."""
    version = importlib.metadata.version("oneclass")
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        commit = subprocess.run(command, check=False, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        commit = ""
    return f"{version}+{commit}" if commit else version


def end(home: Home, run_id: str, state: str) -> None:
    """Note that a run has ended: completed, partly_failed, failed or cancelled."""
    with warehouse.connect(home) as connection:
        connection.execute(
            "update operations.runs set state = ?, ended_at = ? where run_id = ?", [state, _now(), run_id]
        )


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
