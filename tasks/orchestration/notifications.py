"""Telling someone how a run ended: a command that gets the run's summary, or a webhook that it is sent to."""

import json
import logging
import os
import shlex
import subprocess
import urllib.request
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

logger = logging.getLogger(__name__)

NOTIFY_TIMEOUT_SECONDS = 30  # that a command or a webhook gets


class NotifySettings(BaseModel):
    """Who is told of a run's end, and when."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str | None = Field(
        None,
        description="a program and its arguments; it gets the run's summary on standard input, and ONECLASS_DATASET, "
        "ONECLASS_RUN_ID and ONECLASS_STATE in its environment",
    )
    webhook: str | None = Field(
        None,
        description="an address that gets a POST of JSON: text (the run's summary), dataset, run_id, state. Given to "
        "flows.deploy, Prefect's server calls it too, for nights that do not begin, fail before they can tell, or crash",
        pattern="^https?://",
    )
    when: Literal["failure", "always"] = Field(
        "failure", description="tell of runs that failed, were late or were cancelled, or of every run"
    )
    report_url: str | None = Field(
        None,
        description="the address at which the folder of reports is served; the run's artifacts link to it. {dataset} "
        "stands for the data set's name",
        pattern="^https?://",
    )


def send_notifications(settings: NotifySettings, *, dataset: str, run_id: str, state: str, text: str) -> None:
    """Tell of a run's end in the ways that are set. What goes wrong with that is logged, and does not end the run.

    Args:
        state: how the run ended: `completed`, `late` (completed, but begun long after it was due), `partly failed`,
            `failed`, or `cancelled` (a night with nothing to do, for another run did its work or was at it).
        text: the run's summary, Markdown.
    """
    if state == "completed" and settings.when == "failure":
        return
    about = {"dataset": dataset, "run_id": run_id, "state": state}
    ways = (("command", settings.command, _run_command), ("webhook", settings.webhook, _post_webhook))
    for name, value, tell in ways:
        if value is None:
            continue
        try:
            tell(value, about, text)
        except Exception as error:  # noqa: BLE001  (the run has ended as it has, told or not)
            logger.warning("notify.%s = %s: nobody was told: %s", name, value, error)


def _run_command(command: str, about: dict[str, str], text: str) -> None:
    variables = {f"ONECLASS_{name.upper()}": value for name, value in about.items()}
    ended = subprocess.run(
        shlex.split(command),
        input=text,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=NOTIFY_TIMEOUT_SECONDS,
        check=False,
    )
    if ended.returncode:
        raise OSError(f"it ended with status {ended.returncode}. {ended.stderr.strip()[-500:]}".strip())


def _post_webhook(address: str, about: dict[str, str], text: str) -> None:
    body = json.dumps({"text": text, **about}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=NOTIFY_TIMEOUT_SECONDS).close()
