"""Notify of a run's outcome: by a command that reads the run's summary, or by a webhook."""

import json
import logging
import os
import shlex
import subprocess
import urllib.request
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

logger = logging.getLogger(__name__)

NOTIFY_TIMEOUT_SECONDS = 30  # for a command or a webhook


class NotifySettings(BaseModel):
    """Settings of notifications: the targets, and which outcomes are reported."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str | None = Field(
        None,
        description="a program and its arguments; it gets the run's summary on standard input, and ONECLASS_DATASET, "
        "ONECLASS_RUN_ID and ONECLASS_STATE in its environment",
    )
    webhook: str | None = Field(
        None,
        description="an address that gets a POST of JSON: text (the run's summary), dataset, run_id, state. Given to "
        "flows.deploy, Prefect's server calls it too, for nights that do not start, fail at once, or crash",
        pattern="^https?://",
    )
    when: Literal["failure", "always"] = Field(
        "failure",
        description="notify of runs that failed, raised an alarm, were late, left files unread or stale "
        "recommendations, or were cancelled; or of every run",
    )
    report_url: str | None = Field(
        None,
        description="the address at which the folder of reports is served; the run's artifacts link to it. {dataset} "
        "stands for the data set's name",
        pattern="^https?://",
    )


def send_notifications(settings: NotifySettings, *, dataset: str, run_id: str, state: str, text: str) -> None:
    """Send a run's outcome to all targets. An error is logged and does not change the outcome.

    Args:
        state: `completed`, `alarm` (completed, but something in the home was damaged or wrong), `stale` (completed, but
            what is published is older than `publish.max_age`), `late` (completed, but started long after it was due),
            `files unread` (completed, but files of the landing folder were set aside or match no name), `partly
            failed`, `failed`, or `cancelled` (a night without work, since another run did it or is at work).
        text: the run's summary, Markdown.
    """
    if state == "completed" and settings.when == "failure":
        return
    facts = {"dataset": dataset, "run_id": run_id, "state": state}
    targets = (("command", settings.command, _run_command), ("webhook", settings.webhook, _post_webhook))
    for name, target, send in targets:
        if target is None:
            continue
        try:
            send(target, facts, text)
        except Exception as error:  # noqa: BLE001  (a failing notification must not change the outcome of the run)
            logger.warning("notify.%s = %s: the notification failed: %s", name, target, error)


def _run_command(command: str, facts: dict[str, str], text: str) -> None:
    variables = {f"ONECLASS_{name.upper()}": value for name, value in facts.items()}
    process = subprocess.run(
        shlex.split(command),
        input=text,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=NOTIFY_TIMEOUT_SECONDS,
        check=False,
    )
    if process.returncode:
        raise OSError(f"it process with status {process.returncode}. {process.stderr.strip()[-500:]}".strip())


def _post_webhook(address: str, facts: dict[str, str], text: str) -> None:
    body = json.dumps({"text": text, **facts}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=NOTIFY_TIMEOUT_SECONDS).close()
