"""Publish a run's artifacts in Prefect: progress, contracts, the evaluation, and a summary with links.

Outside of a run nothing is published. An error, such as an unreachable server, is logged and does not affect the stage.
"""

import functools
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.context import FlowRunContext, TaskRunContext

from oneclass.data_contracts.contracts import load
from oneclass.tasks import leaderboard
from oneclass.tasks.promotion_log import Decision
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

COLUMNS_RULE = "The columns are as declared."
DIGEST_LENGTH = 8  # characters in a key
STATE_TAG = "state:"
SECONDS_TO_FIRST_PROGRESS, SECONDS_BETWEEN_PROGRESS = 3.0, 5.0


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


@dataclass
class _StageContracts:
    """The artifact of the contracts of one stage of a run, to which each task of the stage adds its rows."""

    run_id: str
    stage: str
    artifact_id: Any = None
    rows: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)


_contracts: dict[str, _StageContracts] = {}


@publish_artifact
def publish_contract_results(home: Home, run_id: str, stage: str, task: str) -> None:
    """Add the rules checked in a task run to the table of its stage; nothing if the stage failed before the check.

    Args:
        task: name of the task run, such as `train slim on leave_one_out`.
    """
    if not home.warehouse.exists():
        return
    with warehouse.open_warehouse(home, read_only=True) as connection:
        results = warehouse.select(connection, "publish/contract_results", run_id=run_id, stage=stage)
    if results.is_empty():
        return
    if stage not in _contracts or _contracts[stage].run_id != run_id:
        _contracts[stage] = _StageContracts(run_id, stage)
    shown = _contracts[stage]
    for (contract,), rules in results.group_by(["contract"], maintain_order=True):
        shown.rows[task, contract] = _contract_row(task, contract, rules.to_dicts())
    broken = sum(row["holds"] == "NO" for row in shown.rows.values())
    rows = sorted(shown.rows.values(), key=lambda row: row["holds"] != "NO")
    outcome = f"{broken} of {len(rows)} contracts do **not** hold" if broken else f"all {len(rows)} contracts hold"
    description = f"The contracts of the data after `{stage}`: {outcome}."
    if shown.artifact_id is None:
        key = artifact_key(home.dataset, "contracts", stage)
        shown.artifact_id = create_table_artifact(table=rows, key=key, description=description)
    else:
        with get_client(sync_client=True) as client:
            update = ArtifactUpdate(data=json.dumps(rows), description=description)
            client.update_artifact(shown.artifact_id, update)


def _contract_row(task: str, contract: str, results: list[dict[str, Any]]) -> dict[str, str]:
    """Return the row of one contract after one task: whether it holds, and its broken rules in words."""
    descriptions = {rule.name: rule.description for one in load() if one.table == contract for rule in one.rules}
    broken = [
        f"{result['severity']}: {descriptions.get(result['rule'], COLUMNS_RULE)} Found: {result['observed']}"
        for result in results
        if not result["success"]
    ]
    return {
        "holds": "NO" if broken else "yes",
        "task": task,
        "table": contract,
        "rules": f"{len(results) - len(broken)} of {len(results)}",
        "what does not hold": "\n".join(broken),
    }


@publish_artifact
def publish_evaluation(home: Home, table: list[leaderboard.LeaderboardRow]) -> None:
    """Publish the evaluation: a table per protocol."""
    for protocol, rows in leaderboard.group_by_protocol(table).items():
        declared = PROTOCOLS[protocol]
        description = " ".join(
            [
                f"{declared.title}: {declared.meaning} The models on {rows[0].users:,} users, the best by",
                f"{declared.main_metric} first. {leaderboard.COMPARISON_LEGEND}",
                *(f"{leaderboard.WEAK_MARK} {sentence}." for sentence in leaderboard.list_weaknesses(rows)),
            ]
        )
        create_table_artifact(
            table=leaderboard.to_records(rows),
            key=artifact_key(home.dataset, "evaluation", protocol),
            description=description,
        )


@publish_artifact
def publish_decision(home: Home, decision: Decision | None) -> None:
    """Publish the promotion decision as a table; nothing if the run made no recommendations."""
    if decision:
        description = f"{home.dataset}: {decision.sentence}"
        row = {**asdict(decision), "decided_at": f"{decision.decided_at:%Y-%m-%d %H:%M:%S}"}
        create_table_artifact(table=[row], key=artifact_key(home.dataset, "promotion"), description=description)


@publish_artifact
def publish_summary(dataset: str, text: str, report_url: str | None) -> None:
    """Publish the run's summary in Markdown, and a link to the report if it is served."""
    description = f"Input, results and publication of a run on {dataset}, and the changes since the previous one"
    if report_url:
        create_link_artifact(
            report_url,
            link_text=f"Report on {dataset}",
            key=artifact_key(dataset, "report"),
            description="All figures and tables of the last run",
        )
    # Last, because a run's timeline ends with the newest artifact.
    create_markdown_artifact(text, key=artifact_key(dataset, "summary"), description=description)


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


@publish_artifact
def mask_flow_run(settings: Mapping[str, Any]) -> None:
    """Replace the settings among the flow run's parameters, which the server keeps and shows, by these masked ones."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    with get_client(sync_client=True) as client:
        parameters = client.read_flow_run(context.flow_run.id).parameters
        client.update_flow_run(context.flow_run.id, parameters={**parameters, "settings": dict(settings)})


@publish_artifact
def publish_cluster_link(home: Home, url: str) -> None:
    """Publish a link to the dashboard of the run's cluster."""
    create_link_artifact(
        url,
        link_text="Dask dashboard",
        key=artifact_key(home.dataset, "workers"),
        description="Dask's dashboard: the call that each worker runs, and the durations of earlier ones",
    )


class ProgressArtifact:
    """The progress of work that takes more than a few seconds, updated every few seconds.

    After a failed update no more are sent, so that an unreachable server delays the work only once.
    """

    def __init__(self, key: str, description: str) -> None:
        self._key, self._description = key, description
        self._next_update = time.monotonic() + SECONDS_TO_FIRST_PROGRESS
        self._id: Any = None

    def show(self, share: float) -> None:
        """Show that this share of the work, 0 to 1, is done, if an update is due."""
        now = time.monotonic()
        last = share >= 1 and self._id is not None
        if last or (now >= self._next_update and share < 1):
            self._next_update = float("inf")  # until the update has succeeded
            send_progress(self, 100 * min(share, 1.0))

    def send(self, percent: float) -> None:
        """Send the progress to the server."""
        if self._id is None:
            self._id = create_progress_artifact(percent, key=self._key, description=self._description)
        else:
            update_progress_artifact(self._id, percent)
        self._next_update = time.monotonic() + SECONDS_BETWEEN_PROGRESS


@publish_artifact
def send_progress(artifact: ProgressArtifact, percent: float) -> None:
    """Send the progress of `artifact`; an error is logged."""
    artifact.send(percent)


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
