"""How a run ended: shown in Prefect and on the home's page, and told to whom the settings name."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

from prefect.runtime import flow_run

from oneclass.flows import signals
from oneclass.flows.settings import RunSettings
from oneclass.tasks import home_page
from oneclass.tasks.errors import ModelsFailed
from oneclass.tasks.orchestration import artifacts, run_summary
from oneclass.tasks.orchestration.notifications import send_notifications
from oneclass.tasks.orchestration.progress import format_duration

logger = logging.getLogger(__name__)

MAX_DELAY = timedelta(hours=1)  # a night that begins so long after it was due is told of


@contextlib.contextmanager
def notify_on_end(run: RunSettings, run_id: str, flow_name: str) -> Iterator[None]:
    """Show the run's summary in Prefect, and tell whom the settings name, however it ended.

    A run that was completed, but began long after it was due, is told of as `late`.
    """
    late = _describe_delay(flow_run.scheduled_start_time)
    url = run.notify.report_url and run.notify.report_url.replace("{dataset}", run.dataset.name)
    try:
        yield
    except ModelsFailed as error:
        notify_outcome(
            run, run_id, "partly failed", partial(run_summary.summarize_success, run.home, run_id, url, error), url
        )
        raise
    except Exception as error:
        notify_outcome(
            run, run_id, "failed", partial(run_summary.summarize_failure, run.home, run_id, flow_name, error), None
        )
        raise
    completed = partial(run_summary.summarize_success, run.home, run_id, url, late=late)
    notify_outcome(run, run_id, "late" if late else "completed", completed, url)


def _describe_delay(due: datetime) -> str:
    """By how much a run begins late now, in words; empty where that is less than LATE."""
    behind = datetime.now(UTC) - due
    return format_duration(behind.total_seconds()) if behind > MAX_DELAY else ""


def notify_outcome(run: RunSettings, run_id: str, state: str, summary: Callable[[], str], url: str | None) -> None:
    """Show and tell how the run ended, on the home's own page too; where even its summary cannot be made, that is said."""
    try:
        text = summary()
    except Exception as error:  # noqa: BLE001  (the run has ended as it has; what is only told does not change that)
        logger.warning("the run's summary cannot be made: %s", error)
        text = f"{run.dataset.name}: run {run_id} {state}; its summary cannot be made: {error}"
    artifacts.publish_summary(run.dataset.name, text, url)
    # an error that a run meets while it is being ended is not a failure, and the process may be gone before `register_run` says so
    home_page.record_outcome(run.home, run_id, "cancelled" if signals.is_terminating() else state)
    send_notifications(run.notify, dataset=run.dataset.name, run_id=run_id, state=state, text=text)
