"""Notify of a run's outcome: by a command that reads the run's summary, or by a webhook."""

import json
import logging
import os
import shlex
import shutil
import subprocess
import urllib.parse
import urllib.request
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from oneclass.tasks.errors import InputError, OneclassError

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

    @field_validator("command")
    @classmethod
    def _check_command(cls, command: str | None) -> str | None:
        try:
            names_program = command is None or bool(shlex.split(command))
        except ValueError as error:
            raise ValueError(f"is no command line ({error})") from error
        if not names_program:
            raise ValueError("names no program")
        return command

    @field_validator("webhook")
    @classmethod
    def _check_webhook(cls, webhook: str | None) -> str | None:
        try:
            parts = urllib.parse.urlsplit(webhook or "http://host")
            is_address = bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or any(not character.isprintable() or character == " " for character in webhook or ""):
            raise ValueError("is no address: its host or port cannot be read, or it has blanks")
        return webhook


def warn_of_missing_program(settings: NotifySettings) -> None:
    """Log a warning if the program of `notify.command` is not found."""
    if settings.command and shutil.which(program := shlex.split(settings.command)[0]) is None:
        logger.warning(
            "notify.command: the program %s is not found, so it will notify of nothing. Install it, or give its whole "
            "path",
            program,
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
    for name, error in deliver(settings, dataset=dataset, run_id=run_id, state=state, text=text).items():
        if error:
            logger.warning("notify.%s: the notification failed: %s", name, error)


def deliver(settings: NotifySettings, *, dataset: str, run_id: str, state: str, text: str) -> dict[str, str]:
    """Send a message to all targets. Returns each target's error, which is empty if the target took the message."""
    facts = {"dataset": dataset, "run_id": run_id, "state": state}
    targets = (("command", settings.command, _run_command), ("webhook", settings.webhook, _post_webhook))
    outcomes = {}
    for name, target, send in targets:
        if target is None:
            continue
        try:
            send(target, facts, text)
            outcomes[name] = ""
        except subprocess.TimeoutExpired:  # whose message has the arguments
            outcomes[name] = f"it did not end within {NOTIFY_TIMEOUT_SECONDS} s"
        except Exception as error:  # noqa: BLE001  (a failing notification must not change the outcome of the run)
            outcomes[name] = str(error)
    return outcomes


def list_targets(settings: NotifySettings) -> list[str]:
    """List the settings that name a target.

    Raises:
        InputError: none does.
    """
    targets = [f"notify.{name}" for name in ("command", "webhook") if getattr(settings, name) is not None]
    if not targets:
        raise InputError(
            "notify.command and notify.webhook: neither is set, so nobody is notified. Set one with --set, or in a "
            'file of --config:\n\n[notify]\nwebhook = "https://ADDRESS"'
        )
    return targets


def send_test(settings: NotifySettings, dataset: str) -> str:
    """Send a message to all targets, and return where it went.

    Raises:
        InputError: there is no target.
        OneclassError: a target did not take it.
    """
    list_targets(settings)
    text = f"# {dataset}: a test\n\n`flows.notify --test` sent this message. No run failed."
    outcomes = deliver(settings, dataset=dataset, run_id="", state="test", text=text)
    results = {name: f"the notification failed: {error}" if error else "sent" for name, error in outcomes.items()}
    lines = "\n".join(f"notify.{name}: {result}" for name, result in results.items())
    if any(outcomes.values()):
        raise OneclassError(lines)
    return lines


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
        raise OSError(f"it ended with status {process.returncode}. {process.stderr.strip()[-500:]}".strip())


def _post_webhook(address: str, facts: dict[str, str], text: str) -> None:
    body = json.dumps({"text": text, **facts}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=NOTIFY_TIMEOUT_SECONDS).close()
