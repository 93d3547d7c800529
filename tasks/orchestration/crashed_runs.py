"""Runs that ended without a word, because their process was killed: Prefect goes on showing them as running."""

import logging
from collections.abc import Iterable
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from tasks.orchestration.artifacts import in_a_run

logger = logging.getLogger(__name__)

MESSAGE = "The run's process ended without a word; the next run of the data set found it."


@in_a_run
def settle(run_ids: Iterable[str]) -> None:
    """Tell Prefect that these runs have crashed, where it takes them for running or knows them at all.

    Runs that were told of before are named again: the server may have been away then.
    """
    tell(run_ids)


def tell(run_ids: Iterable[str]) -> None:
    """As `settle`, outside of a run too."""
    run_ids = list(run_ids)
    if not run_ids:
        return
    with get_client(sync_client=True) as client:
        for run_id in run_ids:
            try:
                state = client.read_flow_run(UUID(run_id)).state
            except ObjectNotFound:  # it ran with another server
                continue
            if state is not None and not state.is_final():
                client.set_flow_run_state(UUID(run_id), Crashed(message=MESSAGE), force=True)
                logger.warning("run %s: its process ended without a word; Prefect now shows it as crashed", run_id)
