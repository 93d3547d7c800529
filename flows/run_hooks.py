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
from oneclass.tasks.orchestration import artifacts
from oneclass.tasks.orchestration.notifications import send_notifications, warn_of_missing_targets
from oneclass.tasks.orchestration.progress import format_duration
from oneclass.tasks.run_summary import RunDescription, describe_failure, describe_success

logger = logging.getLogger(__name__)

# A night that starts later than this after its scheduled time is reported as late.
MAX_DELAY = timedelta(hours=1)


@contextlib.contextmanager
def notify_on_end(run: RunSettings, run_id: str, flow_name: str) -> Generator[None]:
    """Publish the run's summary in Prefect and send notifications, whatever the outcome."""
    warn_of_missing_targets(run.notify)
    late = _describe_delay(flow_run.scheduled_start_time)
    url = run.notify.report_url and run.notify.report_url.replace("{dataset}", run.dataset.name)
    report = f"Report: {url or (run.home.report / 'index.html').resolve()}"

    def describe_end(error: ModelsFailed | None = None) -> RunDescription:
        max_age = run.publish.max_age
        return describe_success(run.home, run_id, report=report, late=late, max_age=max_age, error=error)

    try:
        yield
    except ModelsFailed as error:
        notify_outcome(run, run_id, "partly failed", partial(describe_end, error), str(error))
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        notify_outcome(run, run_id, "failed", partial(describe_failure, run.home, flow_name, error), reason)
        raise
    notify_outcome(run, run_id, "completed", describe_end)


def _describe_delay(due: datetime) -> str:
    """Format by how much a run starts late now; empty below `MAX_DELAY`."""
    delay = datetime.now(UTC) - due
    return format_duration(delay.total_seconds()) if delay > MAX_DELAY else ""


def notify_outcome(
    run: RunSettings, run_id: str, state: str, describe: Callable[[], RunDescription], reason: str = ""
) -> None:
    """Publish and send how the run ended, and why. If it cannot be described, the notification says so."""
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
