"""The record of runs, the lock that admits one run at a time per data set, and the removal of partial files."""

import contextlib
import fcntl
import importlib.metadata
import json
import logging
import subprocess
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from oneclass import sql
from oneclass.tasks.errors import InputError, ModelsFailed
from oneclass.tasks.stores import checksums, durable, erasures, publications, warehouse
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

MAX_RECENT_RUNS = 50  # whose outcome may be missing in Prefect
MAX_SKEW = timedelta(minutes=1)  # by which the clocks of two machines with one home may differ
RUN_TIMES = [  # that the clock of a run gave
    ("operations.runs", "started_at"),
    ("operations.runs", "ended_at"),
    ("operations.arrivals", "arrived_at"),
    ("operations.log_files", "ingested_at"),
    ("operations.promotions", "decided_at"),
    ("operations.model_settings", "searched_on"),
    ("operations.nights", "night"),
]
PARTIAL_FILES = (
    "spill/*",
    "matrices/partial-*",
    "models/*/partial-*",
    "models/*/*/partial-*",
    ".demo-*",
    ".published-next",
    ".forget-*",
    "landing/.forget-*",
    "report/.*.html",
    "report/.*.json",
)
"""Patterns of temporary names in a data set's folder; their writer moves or deletes such files."""


def remove_partial_files(home: Home) -> int:
    """Delete partial files of earlier runs and return their number.

    The caller holds the data set's lock and has the warehouse open for writing, so that no other process spills.
    """
    partial = [path for pattern in PARTIAL_FILES for path in home.folder.glob(pattern)]
    partial += publications.list_unfinished(home)
    for path in partial:
        checksums.remove_path(path)
    if partial:
        logger.info("%d partial files and folders of earlier runs were deleted", len(partial))
    return len(partial)


class DataSetLocked(InputError):
    """Another run holds the data set's lock."""


@contextlib.contextmanager
def record_run(home: Home, run_id: str, flow: str, settings: dict[str, Any]) -> Generator[dict[str, str]]:
    """Lock the data set for one run, and record in `operations.runs` that it is running and then how it ended.

    A killed run leaves its row at `running`; the next run marks it `crashed`. Starts in the future and
    damaged publications are corrected and repaired first; each is a row in `operations.alarms`.

    Yields:
        The state of each of the latest earlier runs, by id.

    Raises:
        InputError: another run holds the data set, a user is being forgotten, or the home is not writable.
    """
    with lock_data_set(home):
        if flow != erasures.FLOW:
            erasures.require_finished(home)
        with warehouse.open_warehouse(home) as connection:
            alarms = _correct_future_times(connection)
            if flow != erasures.FLOW:  # which publishes anew, and fills no table with users who are forgotten
                alarms += publications.repair_publications(connection, home)
            remove_partial_files(home)
            connection.execute("update operations.runs set state = 'crashed' where state = 'running'")
            recent = "select run_id, state from operations.runs order by started_at desc limit ?"
            earlier = connection.execute(recent, [MAX_RECENT_RUNS]).fetchall()
            begun = json.dumps(settings, default=str, sort_keys=True), get_code_version()
            connection.execute(
                "insert into operations.runs values (?, ?, ?, ?, null, 'running', ?, ?)",
                [run_id, flow, home.dataset, _utc_now(), *begun],
            )
            for alarm in alarms:
                logger.warning("%s: %s", home.dataset, alarm)
                connection.execute("insert into operations.alarms values (?, ?)", [run_id, alarm])
        try:
            yield dict(earlier)
        except BaseException as error:
            state = "failed" if isinstance(error, Exception) else "cancelled"
            with contextlib.suppress(Exception):  # a failure to record must not hide the run's error
                end_run(home, run_id, "partly_failed" if isinstance(error, ModelsFailed) else state)
            raise
        end_run(home, run_id, "completed")


@contextlib.contextmanager
def lock_data_set(home: Home) -> Generator[None]:
    """Hold the lock file of a data set; the system releases it when the process ends for any reason.

    Files written meanwhile are readable as the setting `files.readable_by` says.
    """
    with home.writing(), contextlib.ExitStack() as opened:
        try:
            durable.make_folder(home.folder)
            lock = opened.enter_context(open(home.folder / ".lock", "w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataSetLocked(
                f"{home.folder}: another run holds this data set. Wait for it to end, or choose another --home."
            ) from error
        except OSError as error:
            raise InputError(
                f"{home.folder}: cannot be written to ({error.strerror}). Choose another --home."
            ) from error
        yield


def find_completed_since(home: Home, moment: datetime, flow: str) -> str | None:
    """Return the newest completed run of a flow that started after `moment`, and not in the future, or None.

    The caller holds the data set. The warehouse is opened for writing, since this may be the first access after a
    crash.

    Args:
        moment: with its time zone.
    """
    if not home.warehouse.exists():
        return None
    after = datetime.fromtimestamp(moment.timestamp(), UTC).replace(tzinfo=None)  # Prefect's moments are Pendulum's
    with warehouse.open_warehouse(home) as connection:
        values = {"moment": after, "latest": _utc_now() + MAX_SKEW, "flow": flow}
        found = connection.execute(sql.statement("runs/completed_since"), values).fetchall()
    return found[0][0] if found else None


def record_alarm(home: Home, run_id: str, alarm: str) -> None:
    """Record an alarm of a run, and log it as an error."""
    with warehouse.open_warehouse(home) as connection:
        connection.execute("insert into operations.alarms values (?, ?)", [run_id, alarm])
    logger.error("%s", alarm)


def load_alarms(connection: duckdb.DuckDBPyConnection, run_id: str) -> list[str]:
    """Load what a run found damaged or wrong in the home, with what it did about it."""
    rows = connection.execute("select alarm from operations.alarms where run_id = ? order by rowid", [run_id])
    return [alarm for (alarm,) in rows.fetchall()]


def find_latest_evaluated(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Return the newest completed run with an evaluation, or None."""
    found = connection.execute("select max_by(run_id, place) from operations.evaluated_runs").fetchall()
    return found[0][0]


def list_evaluated_settings(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """List the settings of the evaluated runs as JSON, the last run's first."""
    found = connection.execute("select settings from operations.evaluated_runs order by place desc").fetchall()
    return [settings for (settings,) in found]


def get_code_version() -> str:
    """Return the package's version, with the commit if it runs from a checkout."""
    version = importlib.metadata.version("oneclass")
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        commit = subprocess.run(command, check=False, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        commit = ""
    return f"{version}+{commit}" if commit else version


def end_run(home: Home, run_id: str, state: str) -> None:
    """Record the final state of a run: completed, partly_failed, failed or cancelled."""
    with warehouse.open_warehouse(home) as connection:
        connection.execute(
            "update operations.runs set state = ?, ended_at = ? where run_id = ?", [state, _utc_now(), run_id]
        )


def _utc_now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def _correct_future_times(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Move times that lie in the future to the start of the last run that does not; return a sentence for each run."""
    now, latest = _utc_now(), _utc_now() + MAX_SKEW
    ahead = connection.execute("select run_id, started_at from operations.runs where started_at > ?", [latest])
    found = ahead.fetchall()
    past = "select coalesce(max(started_at), ?) from operations.runs where started_at <= ?"
    (corrected,) = warehouse.fetch_row(connection, past, [now, latest])
    for table, column in RUN_TIMES:
        connection.execute(f"update {table} set {column} = ? where {column} > ?", [corrected, latest])
    return [
        f"run {run_id}: was recorded as begun at {started:%Y-%m-%d %H:%M} UTC, which is in the future: the machine's "
        f"clock was ahead. Its start is corrected to {corrected:%Y-%m-%d %H:%M} UTC, that of the run beside it"
        for run_id, started in found
    ]
