"""Runs that ended without a word, because their process was killed: Prefect goes on showing them as running."""

import logging
from collections.abc import Iterable

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.states import Crashed

from tasks.orchestration import run_ids
from tasks.orchestration.artifacts import in_a_run

logger = logging.getLogger(__name__)

MESSAGE = "The run's process ended without a word; the next run of the data set found it."


@in_a_run
def settle(crashed: Iterable[str]) -> None:
    """Tell Prefect that these runs have crashed, where it takes them for running or knows them at all.

    Runs that were told of before are named again: the server may have been away then. The one that is at work now may
    be a crashed one that was begun once more.
    """
    tell(one for one in crashed if str(run_ids.in_prefect(one)) != flow_run.id)


def tell(crashed: Iterable[str]) -> None:
    """As `settle`, outside of a run too."""
    crashed = list(crashed)
    if not crashed:
        return
    with get_client(sync_client=True) as client:
        for run_id in crashed:
            try:
                state = client.read_flow_run(run_ids.in_prefect(run_id)).state
            except ObjectNotFound:  # it ran with another server
                continue
            if state is not None and (state.is_running() or state.is_cancelling()):
                client.set_flow_run_state(run_ids.in_prefect(run_id), Crashed(message=MESSAGE), force=True)
                logger.warning("run %s: its process ended without a word; Prefect now shows it as crashed", run_id)
