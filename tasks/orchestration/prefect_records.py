"""Delete runs from Prefect, with their artifacts and logs."""

import logging
from collections.abc import Collection

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

from oneclass.tasks.orchestration.reconcile import prefect_run_id

logger = logging.getLogger(__name__)

RUNS_PER_REQUEST = 100
PAGE_ROWS = 200  # the server's maximum


def delete_runs(run_ids: Collection[str]) -> None:
    """Delete what the configured server stores of these runs of `operations.runs`; others are not known there.

    The server deletes a run's logs a moment later.
    """
    ids = list({prefect_run_id(run_id) for run_id in run_ids})
    with get_client(sync_client=True) as client:
        for first in range(0, len(ids), RUNS_PER_REQUEST):
            by_id = FlowRunFilter(id=FlowRunFilterId(any_=ids[first : first + RUNS_PER_REQUEST]))
            while artifacts := client.read_artifacts(flow_run_filter=by_id, limit=PAGE_ROWS):
                for artifact in artifacts:
                    client.delete_artifact(artifact.id)
            for run in client.read_flow_runs(flow_run_filter=by_id):
                client.delete_flow_run(run.id)
                logger.info("run %s: deleted in Prefect, as it named a forgotten user", run.id)
