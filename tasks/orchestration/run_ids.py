"""The id of a run: that of its flow run in Prefect, and a number where Prefect begins the same flow run once more."""

import uuid

from prefect.runtime import flow_run

LENGTH = 36  # of Prefect's own ids


def current() -> str:
    """The id of the run that is at work.

    `Retry` in the UI, and whoever else begins a flow run that has ended, keeps Prefect's id; what the earlier run noted
    under it stays, so this one is another run here.
    """
    if flow_run.id is None:
        return str(uuid.uuid4())
    return flow_run.id if flow_run.run_count < 2 else f"{flow_run.id}-{flow_run.run_count}"


def in_prefect(run_id: str) -> uuid.UUID:
    """The id in Prefect of a run."""
    return uuid.UUID(run_id[:LENGTH])
