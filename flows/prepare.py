"""Check a run before anything is written: in a command before Prefect is loaded, else inside the flow.

The logs come first, as scanning them needs neither Prefect nor the models, whose settings load numba.
"""

import contextlib
from collections.abc import Generator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from oneclass.flows.parameters import BackfillParameters, RunParameters
from oneclass.tasks import datasets
from oneclass.tasks.attributes import Attributes, Side, convert_columns
from oneclass.tasks.errors import InputError, SettingsError
from oneclass.tasks.ingest.attributes import read_attributes, read_titles
from oneclass.tasks.ingest.sources import describe_expected_sources, scan_logs
from oneclass.tasks.stores import home

if TYPE_CHECKING:
    from oneclass.flows.settings import RunSettings

_prepared: ContextVar["RunSettings | None"] = ContextVar("prepared", default=None)


def prepare_run(given: BackfillParameters) -> "RunSettings":
    """Scan the sources of a run, resolve its settings and check its home.

    Raises:
        InputError: as `scan_sources`, `resolve_settings` and `check_home`.
    """
    scan_sources(given)
    from oneclass.flows.settings import resolve_settings

    run = resolve_settings(given)
    check_home(run)
    return run


@contextlib.contextmanager
def notify_startup_failure(given: RunParameters, run_id: str = "") -> Generator[None]:
    """Notify of an error in the block, before a run knows its settings, if its parameters name a readable target.

    Raises:
        SettingsError: instead of an `InputError` of which nobody was notified.
    """
    try:
        yield
    except Exception as error:
        if _send_startup_failure(given, run_id, error) or not isinstance(error, InputError):
            raise
        raise SettingsError(str(error)) from error


def _send_startup_failure(given: RunParameters, run_id: str, error: Exception) -> bool:
    """Notify of an error and return whether a target took the message."""
    if not (given.config or given.settings):
        return False  # without loading the models, which takes seconds
    from oneclass.flows.settings import find_notify_settings
    from oneclass.tasks.orchestration import notifications
    from oneclass.tasks.stores import runs

    lines = [f"{given.dataset}: the run ended before its first stage", *str(error).strip().splitlines()]
    text = "\n".join(lines[:5])
    state = "cancelled" if isinstance(error, runs.DataSetLocked) else "failed"
    settings = find_notify_settings(given)
    outcomes = notifications.deliver(settings, dataset=given.dataset, run_id=run_id, state=state, text=text)
    return not all(outcomes.values())


def scan_sources(given: BackfillParameters) -> None:
    """Scan the logs that the parameters name.

    Raises:
        InputError: the data set is unknown, or a log is absent or unreadable.
    """
    sources = given.split_files or given.source
    root = home.resolve_root(given.home)
    dataset = datasets.load_dataset(given.dataset, root, with_logs=bool(sources), columns=given.columns)
    scan_logs(sources, dataset)


def check_run(run: "RunSettings") -> None:
    """Check the sources and the home of a run that no command has prepared.

    Raises:
        InputError: a source is absent or unreadable, or as `check_home`.
    """
    scan_logs(run.split_files or run.sources, run.dataset)
    check_home(run)


def check_home(run: "RunSettings") -> None:
    """Check that a run has logs, its tables are readable, its rules fit them, and its home can be written.

    Raises:
        InputError: one of these does not hold, a user is being forgotten, or another run holds the data set.
    """
    from oneclass.tasks.stores import erasures, runs, warehouse

    erasures.require_finished(run.home)
    named = run.split_files or run.sources
    has_input = named or run.is_demo or run.dataset.source or any(run.home.landing.glob("*"))
    if not has_input and not _warehouse_has_events(run):
        raise InputError(describe_expected_sources(run.home, run.dataset))
    if run.publish.titles:
        read_titles(Path(run.publish.titles), run.dataset)
    attributes: Attributes = {
        side: convert_columns(*read_attributes(side, table, run.dataset))
        for side in get_args(Side)
        if (table := getattr(run.dataset, f"{side}s"))
    }
    if not (declared := run.dataset.declared_rules).are_empty:
        from oneclass.tasks.rules.lists import check_rules

        check_rules(declared, attributes)
    with runs.lock_data_set(run.home), warehouse.open_warehouse(run.home):
        pass


def _warehouse_has_events(run: "RunSettings") -> bool:
    from oneclass.tasks.stores import warehouse

    if not run.home.warehouse.exists():
        return False
    # Open for writing: a run that was killed may have left no tables.
    with warehouse.open_warehouse(run.home) as connection:
        return warehouse.fetch_row(connection, "select count(*) > 0 from operations.log_files")[0]


@contextlib.contextmanager
def hand_over(run: "RunSettings") -> Generator[None]:
    """Pass a prepared run to the flow that is called in the block, beside the parameters that Prefect shows."""
    token = _prepared.set(run)
    try:
        yield
    finally:
        _prepared.reset(token)


def prepared_run() -> "RunSettings | None":
    """Return the run that the flow's caller has prepared, or None."""
    return _prepared.get()
