"""What a run shows in the Prefect UI: progress, contracts, the evaluation, a summary with links.

Outside of a run nothing is shown. What cannot be shown, because the server is away say, is logged and no more:
the stage is done, or has failed for a reason of its own.
"""

import functools
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

COLUMNS_RULE = "the columns are as declared"  # the rule that every contract has
SECONDS_TO_FIRST_PROGRESS, SECONDS_BETWEEN_PROGRESS = 3.0, 5.0


def publish_artifact(show: Callable[..., None]) -> Callable[..., None]:
    """Show within a run of Prefect only, and log what goes wrong instead of raising it."""

    @functools.wraps(show)
    def shown(*args: Any) -> None:
        if TaskRunContext.get() is None and FlowRunContext.get() is None:
            return
        try:
            show(*args)
        except Exception as error:  # noqa: BLE001  (what is only shown must not end a run)
            logger.warning("%s cannot be shown in Prefect: %s", show.__name__.replace("_", " "), error)

    return shown


@publish_artifact
def publish_contract_results(home: Home, run_id: str, stage: str, task: str) -> None:
    """A table of the rules that a task's run was checked against; nothing where the stage never got that far.

    Args:
        task: the name of the task's run, such as `train slim on leave_one_out`; each has an artifact of its own.
    """
    if not home.warehouse.exists():
        return
    with warehouse.open_warehouse(home, read_only=True) as connection:
        found = warehouse.select(connection, "publish/contract_results", run_id=run_id, stage=stage)
    if len(found):
        told = {(contract.table, rule.name): rule.description for contract in load() for rule in contract.rules}
        rules = [
            {
                "holds": "yes" if one["success"] else "NO",
                "table": one["contract"],
                "what must hold": told.get((one["contract"], one["rule"]), COLUMNS_RULE),
                "found instead": "" if one["success"] else one["observed"],
                "severity": one["severity"],
                "rule": one["rule"],
            }
            for one in found.iter_rows(named=True)
        ]
        broken = sum(one["holds"] == "NO" for one in rules)
        said = f"{broken} of {len(rules)} rules do **not** hold" if broken else f"all {len(rules)} rules hold"
        create_table_artifact(
            table=rules,
            key=artifact_key(home.dataset, "contracts", task),
            description=f"What must hold of the data once `{task}` is done: {said}.",
        )


@publish_artifact
def publish_evaluation(home: Home, table: list[leaderboard.LeaderboardRow]) -> None:
    """The evaluation: a table for each protocol."""
    for protocol, rows in leaderboard.group_by_protocol(table).items():
        about = PROTOCOLS[protocol]
        description = " ".join(
            [
                f"{about.title}: {about.meaning} The models on {rows[0].users:,} users, the best by {about.main_metric}",
                "first; ± is one standard error.",
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
    """The decision on what is published, as a table; none where the run made no recommendations."""
    if decision:
        description = f"{home.dataset}: {decision.sentence}"
        row = {**asdict(decision), "decided_at": f"{decision.decided_at:%Y-%m-%d %H:%M:%S}"}
        create_table_artifact(table=[row], key=artifact_key(home.dataset, "promotion"), description=description)


@publish_artifact
def publish_summary(dataset: str, text: str, report_url: str | None) -> None:
    """The run's summary in Markdown, and a link to the report where that is served."""
    what = f"What a run on {dataset} read, found and published, and what changed since the one before"
    create_markdown_artifact(text, key=artifact_key(dataset, "summary"), description=what)
    if report_url:
        create_link_artifact(
            report_url,
            link_text=f"Report on {dataset}",
            key=artifact_key(dataset, "report"),
            description="The page with all figures and tables of the last run",
        )


@publish_artifact
def publish_cluster_link(home: Home, url: str) -> None:
    """A link to the page of the cluster that works for the run."""
    what = "Dask's own page of the cluster: which call each worker makes, and how long the others took"
    create_link_artifact(
        url, link_text="What the workers do", key=artifact_key(home.dataset, "workers"), description=what
    )


class ProgressArtifact:
    """The progress of one piece of work that takes more than a few seconds, moved every few seconds.

    After a failure it is given up, so that a server that does not answer holds the work up once.
    """

    def __init__(self, key: str, what: str) -> None:
        self._key, self._what = key, what
        self._due = time.monotonic() + SECONDS_TO_FIRST_PROGRESS
        self._id: Any = None

    def show(self, share: float) -> None:
        """Show that this share, 0 to 1, is done."""
        now = time.monotonic()
        last = share >= 1 and self._id is not None
        if last or (now >= self._due and share < 1):
            self._due = float("inf")  # until it has been shown
            send_progress(self, 100 * min(share, 1.0))

    def put(self, percent: float) -> None:
        """Send it to the server."""
        if self._id is None:
            self._id = create_progress_artifact(percent, key=self._key, description=self._what)
        else:
            update_progress_artifact(self._id, percent)
        self._due = time.monotonic() + SECONDS_BETWEEN_PROGRESS


@publish_artifact
def send_progress(artifact: ProgressArtifact, percent: float) -> None:
    """Send what `artifact` has come to."""
    artifact.put(percent)


def artifact_key(*parts: str) -> str:
    """An artifact's key: lower case letters, numbers and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")
