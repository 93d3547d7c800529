"""Publish a run's artifacts in Prefect: progress, contracts, the evaluation, and a summary with links.

Outside of a run nothing is published. An error, such as an unreachable server, is logged and does not affect the stage.
"""

import functools
import hashlib
import logging
import re
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.context import FlowRunContext, TaskRunContext

from oneclass.data_contracts.contracts import load
from oneclass.tasks import leaderboard
from oneclass.tasks.promotion_log import Decision
from oneclass.tasks.protocols import PROTOCOLS
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home

logger = logging.getLogger(__name__)

COLUMNS_RULE = "the columns are as declared"
DIGEST_LENGTH = 8  # characters in a key
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
            logger.warning("%s cannot be shown in Prefect: %s", show.__name__.replace("_", " "), error)

    return wrapper


@publish_artifact
def publish_contract_results(home: Home, run_id: str, stage: str, task: str) -> None:
    """Publish a table of the rules checked in a task run; nothing if the stage failed before the check.

    Args:
        task: name of the task run, such as `train slim on leave_one_out`; each has its own artifact.
    """
    if not home.warehouse.exists():
        return
    with warehouse.open_warehouse(home, read_only=True) as connection:
        results = warehouse.select(connection, "publish/contract_results", run_id=run_id, stage=stage)
    if len(results):
        descriptions = {(contract.table, rule.name): rule.description for contract in load() for rule in contract.rules}
        rules = [
            {
                "holds": "yes" if result["success"] else "NO",
                "table": result["contract"],
                "what must hold": descriptions.get((result["contract"], result["rule"]), COLUMNS_RULE),
                "found instead": "" if result["success"] else result["observed"],
                "severity": result["severity"],
                "rule": result["rule"],
            }
            for result in results.iter_rows(named=True)
        ]
        broken = sum(rule["holds"] == "NO" for rule in rules)
        outcome = f"{broken} of {len(rules)} rules do **not** hold" if broken else f"all {len(rules)} rules hold"
        create_table_artifact(
            table=rules,
            key=artifact_key(home.dataset, "contracts", task),
            description=f"The contracts of the data after `{task}`: {outcome}.",
        )


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
    create_markdown_artifact(text, key=artifact_key(dataset, "summary"), description=description)
    if report_url:
        create_link_artifact(
            report_url,
            link_text=f"Report on {dataset}",
            key=artifact_key(dataset, "report"),
            description="All figures and tables of the last run",
        )


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
