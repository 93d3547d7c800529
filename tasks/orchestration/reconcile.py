"""Reconcile Prefect with the records of runs: end runs there whose process was killed, and delete runs."""

import logging
import uuid
from collections.abc import Collection, Mapping

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Crashed, Failed

from oneclass.tasks.orchestration.artifacts import publish_artifact

logger = logging.getLogger(__name__)

RUN_ID_LENGTH = 36  # of Prefect's ids
PAGE_ROWS = 200  # the server's maximum


def current_run_id() -> str:
    """Return the id of the current run.

    A retry of an ended flow run keeps Prefect's id. It gets its own id here, since the records of the earlier run stay.
    """
    if flow_run.id is None:
        return str(uuid.uuid4())
    return flow_run.id if flow_run.run_count < 2 else f"{flow_run.id}-{flow_run.run_count}"


def prefect_run_id(run_id: str) -> uuid.UUID:
    """Return the Prefect id of a run."""
    return uuid.UUID(run_id[:RUN_ID_LENGTH])


PREFECT_STATES = {
    "completed": Completed,
    "partly_failed": Failed,
    "failed": Failed,
    "cancelled": Cancelled,
    "crashed": Crashed,
}
CRASH_MESSAGE = "The run's process was killed; the next run of the data set recorded it."


@publish_artifact
def reconcile_runs(ended_runs: Mapping[str, str]) -> None:
    """Sync earlier runs (`sync_run_states`) except those with the current run's Prefect id, which may be a crashed
    run's retry.
    """
    sync_run_states(
        {run_id: state for run_id, state in ended_runs.items() if str(prefect_run_id(run_id)) != flow_run.id}
    )


def sync_run_states(ended_runs: Mapping[str, str]) -> None:
    """Set the final states of runs that Prefect shows as running.

    The warehouse may have marked a run as crashed long ago, if the run that did so was killed before it updated Prefect
    or had no server. A run that was killed after recording its completion counts as completed.

    Args:
        ended_runs: the state in `operations.runs` by run id, the newest first.
    """
    latest = {}
    for run_id, state in ended_runs.items():
        latest.setdefault(prefect_run_id(run_id), state)
    if not latest:
        return
    by_id = FlowRunFilter(id=FlowRunFilterId(any_=list(latest)))
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=by_id):  # runs of another server are not found
            if run.state is None or run.state.is_final():
                continue
            state = latest[run.id]
            client.set_flow_run_state(run.id, PREFECT_STATES[state](message=CRASH_MESSAGE), force=True)
            logger.warning("run %s: its process was killed; Prefect shows it as %s", run.id, state)


def delete_runs(run_ids: Collection[str]) -> None:
    """Delete what the configured server stores of these runs of `operations.runs`; others are not known there.

    The server deletes a run's logs a moment later.
    """
    with get_client(sync_client=True) as client:
        for run_id in {prefect_run_id(run_id) for run_id in run_ids}:
            by_id = FlowRunFilter(id=FlowRunFilterId(any_=[run_id]))
            while artifacts := client.read_artifacts(flow_run_filter=by_id, limit=PAGE_ROWS):
                for artifact in artifacts:
                    client.delete_artifact(artifact.id)
            for run in client.read_flow_runs(flow_run_filter=by_id):
                client.delete_flow_run(run.id)
                logger.info("run %s: deleted in Prefect, as it named a forgotten user", run.id)
