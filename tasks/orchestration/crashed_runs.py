"""Runs that ended without a word, because their process was killed: Prefect goes on showing them as running."""

import logging
from collections.abc import Mapping
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.states import Cancelled, Completed, Crashed, Failed

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
    """Tell Prefect how these runs ended, where it takes them for running and knows them at all.

    A run may have been marked as crashed long before: by one that was killed before it told Prefect, or that had no
    server. And one that was killed after its own last word, or while it told Prefect of it, was completed.

    Args:
        ended: the state that `operations.runs` has, by the run's id.
    """
    if not ended:
        return
    asked = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(run_id) for run_id in ended]))
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(
            flow_run_filter=asked
        ):  # those that ran with another server are not among them
            if run.state is None or run.state.is_final():
                continue
            state = ended[str(run.id)]
            client.set_flow_run_state(run.id, ENDINGS[state](message=MESSAGE), force=True)
            logger.warning("run %s: its process ended without a word; Prefect now shows it as %s", run.id, state)
