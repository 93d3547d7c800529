"""Report how a run ended: in Prefect, on the home page and to the notification targets."""

import contextlib
import logging
from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from functools import partial

from prefect.runtime import flow_run

from oneclass.flows import signals
from oneclass.flows.settings import RunSettings
from oneclass.tasks import home_page
from oneclass.tasks.errors import ModelsFailed
from oneclass.tasks.orchestration import artifacts, run_summary
from oneclass.tasks.orchestration.notifications import send_notifications, warn_of_missing_targets
from oneclass.tasks.orchestration.progress import format_duration
from oneclass.tasks.stores import publications

logger = logging.getLogger(__name__)

# A night that starts later than this after its scheduled time is reported as late.
MAX_DELAY = timedelta(hours=1)


@contextlib.contextmanager
def notify_on_end(run: RunSettings, run_id: str, flow_name: str) -> Generator[None]:
    """Publish the run's summary in Prefect and send notifications, whatever the outcome.

    A completed run that found something damaged in the home has the state `alarm`; one that leaves published
    recommendations older than `publish.max_age`, `stale`; one that started late (`MAX_DELAY`), `late`; one that left
    files of the landing folder, `files unread`.
    """
    warn_of_missing_targets(run.notify)
    late = _describe_delay(flow_run.scheduled_start_time)
    url = run.notify.report_url and run.notify.report_url.replace("{dataset}", run.dataset.name)
    try:
        yield
    except ModelsFailed as error:
        notify_outcome(
            run,
            run_id,
            "partly failed",
            partial(run_summary.summarize_success, run.home, run_id, url, error),
            url,
            str(error),
        )
        raise
    except Exception as error:
        notify_outcome(
            run,
            run_id,
            "failed",
            partial(run_summary.summarize_failure, run.home, run_id, flow_name, error),
            None,
            str(error) or type(error).__name__,
        )
        raise
    completed = partial(run_summary.summarize_success, run.home, run_id, url, late=late)
    notify_outcome(run, run_id, _find_state(run, run_id, late), completed, url)


def _find_state(run: RunSettings, run_id: str, late: str) -> str:
    if run_summary.has_alarms(run.home, run_id):
        return "alarm"
    age, limit = publications.find_age(run.home), run.publish.max_age
    if age and limit is not None and age > timedelta(days=limit):
        return "stale"
    if late:
        return "late"
    return "files unread" if run_summary.has_unread_files(run.home, run_id) else "completed"


def _describe_delay(due: datetime) -> str:
    """Format by how much a run starts late now; empty below `MAX_DELAY`."""
    delay = datetime.now(UTC) - due
    return format_duration(delay.total_seconds()) if delay > MAX_DELAY else ""


def notify_outcome(
    run: RunSettings, run_id: str, state: str, summary: Callable[[], str], url: str | None, reason: str = ""
) -> None:
    """Publish and send how the run ended, and why. If the summary cannot be built, the notification says so."""
    try:
        text = summary()
    except Exception as error:  # noqa: BLE001  (a failing summary must not change the outcome of the run)
        logger.warning("the run's summary cannot be made: %s", error)
        text = f"{run.dataset.name}: run {run_id} {state}; its summary cannot be made: {error}"
    artifacts.publish_summary(run.dataset.name, text, url)
    artifacts.tag_flow_run(run.dataset.name, state)
    # During shutdown errors count as cancellation. Record it now, because the process may die first.
    ended = ("cancelled", "") if signals.is_terminating() else (state, reason)
    home_page.record_outcome(run.home, run_id, *ended)
    send_notifications(run.notify, dataset=run.dataset.name, run_id=run_id, state=state, text=text)
