"""Runs that ended without a word, because their process was killed: Prefect goes on showing them as running."""

import logging
from collections.abc import Mapping

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Crashed, Failed

from tasks.orchestration import run_ids
from tasks.orchestration.artifacts import in_a_run

logger = logging.getLogger(__name__)

ENDINGS = {
    "completed": Completed,
    "partly_failed": Failed,
    "failed": Failed,
    "cancelled": Cancelled,
    "crashed": Crashed,
}
MESSAGE = "The run's process ended without a word; the next run of the data set found it."


@in_a_run
def settle(ended: Mapping[str, str]) -> None:
    """As `tell`, but not of earlier runs that have the id of the one at work: it may be a crashed one that was begun again."""
    tell({run_id: state for run_id, state in ended.items() if str(run_ids.in_prefect(run_id)) != flow_run.id})


def tell(ended: Mapping[str, str]) -> None:
    """Tell Prefect how these runs ended, where it takes them for running and knows them at all.

    A run may have been marked as crashed long ago, by a run that was itself killed before it told Prefect, or that had no
    server. And a run that was killed after it had noted its end, or while it told Prefect of that, was completed.

    Args:
        ended: the state that `operations.runs` has, by the run's id, the newest first.
    """
    latest = {}
    for run_id, state in ended.items():
        latest.setdefault(run_ids.in_prefect(run_id), state)
    if not latest:
        return
    asked = FlowRunFilter(id=FlowRunFilterId(any_=list(latest)))
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=asked):  # without those that ran with another server
            if run.state is None or run.state.is_final():
                continue
            state = latest[run.id]
            client.set_flow_run_state(run.id, ENDINGS[state](message=MESSAGE), force=True)
            logger.warning("run %s: its process ended without a word; Prefect now shows it as %s", run.id, state)
