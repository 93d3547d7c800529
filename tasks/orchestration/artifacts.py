"""Show runs in Prefect: artifacts with contracts and summary, tags, and the states of runs that were killed.

Outside of a run nothing is shown. An error, such as an unreachable server, is logged and does not affect the stage.
"""

import functools
import hashlib
import logging
import re
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.context import FlowRunContext, TaskRunContext
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Crashed, Failed

from oneclass.data_contracts.contracts import STAGES, load
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)


COLUMNS_RULE = "The columns are as declared."
DIGEST_LENGTH = 8  # characters in a key
STATE_TAG = "state:"


def publish_artifact(show: Callable[..., None]) -> Callable[..., None]:
    """Make a function run within a Prefect run only, and log its errors instead of raising them."""

    @functools.wraps(show)
    def wrapper(*args: Any) -> None:
        if TaskRunContext.get() is None and FlowRunContext.get() is None:
            return
        try:
            show(*args)
        except Exception as error:  # noqa: BLE001  (a failing display must not end a run)
            what = show.__name__.partition("_")[2].replace("_", " ")
            logger.warning("%s cannot be shown in Prefect: %s", what, error)

    return wrapper


@publish_artifact
def publish_contract_results(home: Home, run_id: str) -> None:
    """Publish a table with the contracts that the run checked: how many rules hold, and in words those that do not."""
    with warehouse.open_warehouse(home, read_only=True) as connection:
        contracts = warehouse.select(connection, "report/contracts", run_id=run_id, stages=list(STAGES)).to_dicts()
        broken = warehouse.select(connection, "report/broken_rules", run_id=run_id).to_dicts()
    descriptions = {(one.table, rule.name): rule.description for one in load() for rule in one.rules}
    words: dict[str, list[str]] = {}
    for row in broken:
        meaning = descriptions.get((row["contract"], row["rule"]), COLUMNS_RULE)
        words.setdefault(row["contract"], []).append(f"{row['severity']}: {meaning} Found: {row['observed']}")
    rows = [
        {
            "stage": row["stage"],
            "table": row["contract"],
            "rules": f"{row['rules'] - row['broken'] - row['warnings']} of {row['rules']}",
            "what does not hold": "\n".join(words.get(row["contract"], [])),
        }
        for row in sorted(contracts, key=lambda row: not (row["broken"] or row["warnings"]))
    ]
    if rows:
        description = f"{len(broken):,} rules of {len(rows):,} tables' contracts do not hold"
        create_table_artifact(table=rows, key=artifact_key(home.dataset, "contracts"), description=description)


@publish_artifact
def publish_summary(dataset: str, text: str) -> None:
    """Publish the run's summary in Markdown. Call it last, because a run's timeline ends with the newest artifact."""
    create_markdown_artifact(text, key=artifact_key(dataset, "summary"), description=f"What came of a run on {dataset}")


@publish_artifact
def tag_flow_run(dataset: str, state: str) -> None:
    """Tag the flow run with its data set and how it ended, instead of how an earlier attempt did."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    with get_client(sync_client=True) as client:
        tags = client.read_flow_run(context.flow_run.id).tags
        kept = [tag for tag in tags if not tag.startswith(STATE_TAG)]
        client.update_flow_run(context.flow_run.id, tags=sorted({*kept, f"dataset:{dataset}", STATE_TAG + state}))


def artifact_key(dataset: str, *parts: str) -> str:
    """Return an artifact's key: lower case letters, numbers and dashes, different for each data set.

    The server keeps artifacts of one key as one history. A name that is no key itself gets a digest, since several
    names may have one form: `my_data` and `my-data`.
    """
    name = _to_key(dataset)
    if name != dataset:
        name = f"{name}-{hashlib.sha256(dataset.encode()).hexdigest()[:DIGEST_LENGTH]}"
    return "-".join([name, *map(_to_key, parts)])


def _to_key(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


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
    """Sync earlier runs (`sync_run_states`), but for that of the current Prefect id, which a retry shares with one."""
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
