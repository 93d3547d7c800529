"""Runs that ended without a word, because their process was killed: Prefect goes on showing them as running."""

import logging
import uuid
from collections.abc import Mapping

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Crashed, Failed

from oneclass.tasks.orchestration.artifacts import publish_artifact

RUN_ID_LENGTH = 36  # of Prefect's own ids


def current_run_id() -> str:
    """The id of the run that is at work.

    `Retry` in the UI, and whoever else begins a flow run that has ended, keeps Prefect's id; what the earlier run noted
    under it stays, so this one is another run here.
    """
    if flow_run.id is None:
        return str(uuid.uuid4())
    return flow_run.id if flow_run.run_count < 2 else f"{flow_run.id}-{flow_run.run_count}"


def prefect_run_id(run_id: str) -> uuid.UUID:
    """The id in Prefect of a run."""
    return uuid.UUID(run_id[:RUN_ID_LENGTH])


logger = logging.getLogger(__name__)

PREFECT_STATES = {
    "completed": Completed,
    "partly_failed": Failed,
    "failed": Failed,
    "cancelled": Cancelled,
    "crashed": Crashed,
}
CRASH_MESSAGE = "The run's process ended without a word; the next run of the data set found it."


@publish_artifact
def reconcile_runs(ended_runs: Mapping[str, str]) -> None:
    """As `tell`, but not of earlier runs that have the id of the one at work: it may be a crashed one that was begun again."""
    sync_run_states(
        {run_id: state for run_id, state in ended_runs.items() if str(prefect_run_id(run_id)) != flow_run.id}
    )


def sync_run_states(ended_runs: Mapping[str, str]) -> None:
    """Tell Prefect how these runs ended, where it takes them for running and knows them at all.

    A run may have been marked as crashed long ago, by a run that was itself killed before it told Prefect, or that had no
    server. And a run that was killed after it had noted its end, or while it told Prefect of that, was completed.

    Args:
        ended: the state that `operations.runs` has, by the run's id, the newest first.
    """
    latest = {}
    for run_id, state in ended_runs.items():
        latest.setdefault(prefect_run_id(run_id), state)
    if not latest:
        return
    asked = FlowRunFilter(id=FlowRunFilterId(any_=list(latest)))
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=asked):  # without those that ran with another server
            if run.state is None or run.state.is_final():
                continue
            state = latest[run.id]
            client.set_flow_run_state(run.id, PREFECT_STATES[state](message=CRASH_MESSAGE), force=True)
            logger.warning("run %s: its process ended without a word; Prefect now shows it as %s", run.id, state)
