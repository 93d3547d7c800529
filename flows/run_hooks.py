"""Check a run before it begins, and report how it ended: in Prefect, on the home page and to the notification targets.

A command checks its run before Prefect is loaded. The logs come first, as scanning them needs neither Prefect nor the
models, whose settings load numba.
"""

import contextlib
import logging
from collections.abc import Callable, Generator
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from oneclass.flows.parameters import RunParameters
from oneclass.tasks import datasets
from oneclass.tasks.attributes import Attributes, Side, convert_columns
from oneclass.tasks.errors import InputError, ModelsFailed
from oneclass.tasks.ingest.attributes import read_attributes, read_titles
from oneclass.tasks.ingest.sources import describe_expected_sources, scan_logs
from oneclass.tasks.stores import home

if TYPE_CHECKING:
    from oneclass.flows.settings import RunSettings
    from oneclass.tasks.run_summary import RunDescription

logger = logging.getLogger(__name__)

# A night that starts later than this after its scheduled time is reported as late.
MAX_DELAY = timedelta(hours=1)
# The checked run that a command hands over to its flow, beside the parameters that Prefect shows.
prepared: ContextVar["RunSettings | None"] = ContextVar("prepared", default=None)


def prepare_run(given: RunParameters) -> "RunSettings":
    """Scan the logs of a run, resolve its settings and check its home; notify if one of these fails.

    Raises:
        InputError: a log is absent or unreadable, or as `resolve_settings` and `check_home`.
    """
    with notify_startup_failure(given):
        parameters = given.to_backfill()
        sources, root = parameters.split_files or parameters.source, home.resolve_root(given.home)
        declared = datasets.load_dataset(given.dataset, root, with_logs=bool(sources), columns=parameters.columns)
        scan_logs(sources, declared)
        from oneclass.flows.settings import resolve_settings

        run = resolve_settings(parameters)
        check_home(run)
        return run


def check_home(run: "RunSettings") -> None:
    """Check that a run has logs, its tables are readable, its rules fit them, and its home can be written.

    Raises:
        InputError: one of these does not hold, a user is being forgotten, or another run holds the data set.
    """
    from oneclass.tasks.stores import erasures, runs, warehouse

    erasures.require_finished(run.home)
    named = run.split_files or run.sources
    has_input = bool(named or run.is_demo or run.dataset.source or any(run.home.landing.glob("*")))
    missing = InputError(describe_expected_sources(run.home, run.dataset))
    if not has_input and not run.home.warehouse.exists():
        raise missing
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
    with runs.lock_data_set(run.home), warehouse.open_warehouse(run.home) as connection:
        has_events = warehouse.fetch_row(connection, "select count(*) > 0 from operations.log_files")[0]
    if not has_input and not has_events:
        raise missing


@contextlib.contextmanager
def notify_startup_failure(given: RunParameters, run_id: str = "") -> Generator[None]:
    """Notify of an error in the block, before a run knows its settings, if its parameters name a readable target."""
    try:
        yield
    except Exception as error:
        # Otherwise there is no target, and the models, which take seconds, are not loaded.
        if given.config or given.settings:
            from oneclass.flows.settings import find_notify_settings
            from oneclass.tasks.orchestration import notifications
            from oneclass.tasks.stores import runs

            lines = [f"{given.dataset}: the run ended before its first stage", *str(error).strip().splitlines()]
            state = "cancelled" if isinstance(error, runs.DataSetLocked) else "failed"
            told = {"dataset": given.dataset, "run_id": run_id, "state": state, "text": "\n".join(lines[:5])}
            notifications.deliver(find_notify_settings(given), **told)
        raise


@contextlib.contextmanager
def notify_on_end(run: "RunSettings", run_id: str, flow_name: str) -> Generator[None]:
    """Publish the run's summary in Prefect and send notifications, whatever the outcome."""
    from prefect.runtime import flow_run

    from oneclass.tasks.orchestration.notifications import warn_of_missing_targets
    from oneclass.tasks.orchestration.progress import format_duration
    from oneclass.tasks.run_summary import describe_failure, describe_success

    warn_of_missing_targets(run.notify)
    delay = datetime.now(UTC) - flow_run.scheduled_start_time
    late = format_duration(delay.total_seconds()) if delay > MAX_DELAY else ""
    url = run.notify.report_url and run.notify.report_url.replace("{dataset}", run.dataset.name)
    report = f"Report: {url or (run.home.report / 'index.html').resolve()}"
    success = partial(describe_success, run.home, run_id, report=report, late=late, max_age=run.publish.max_age)
    try:
        yield
    except ModelsFailed as error:
        notify_outcome(run, run_id, "partly failed", partial(success, error=error), str(error))
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        notify_outcome(run, run_id, "failed", partial(describe_failure, run.home, flow_name, error), reason)
        raise
    notify_outcome(run, run_id, "completed", success)


def notify_outcome(
    run: "RunSettings", run_id: str, state: str, describe: "Callable[[], RunDescription]", reason: str = ""
) -> None:
    """Publish and send how the run ended, and why. If it cannot be described, the notification says so."""
    from oneclass.flows import signals
    from oneclass.tasks import home_page
    from oneclass.tasks.orchestration import artifacts
    from oneclass.tasks.orchestration.notifications import send_notifications
    from oneclass.tasks.run_summary import RunDescription

    try:
        ended = describe()
    except Exception as error:  # noqa: BLE001  (a failing summary must not change the outcome of the run)
        logger.warning("the run's summary cannot be made: %s", error)
        ended = RunDescription(state, f"{run.dataset.name}: run {run_id} {state}", [f"No summary: {error}"], [])
    artifacts.publish_contract_results(run.home, run_id)
    artifacts.publish_summary(run.dataset.name, f"{ended.markdown}\n\nrun {run_id}")
    artifacts.tag_flow_run(run.dataset.name, ended.state)
    # During shutdown errors count as cancellation. Record it now, because the process may die first.
    shown = ("cancelled", "") if signals.is_terminating() else (ended.state, reason)
    home_page.record_outcome(run.home, run_id, *shown)
    send_notifications(run.notify, dataset=run.dataset.name, run_id=run_id, state=ended.state, text=ended.text)
