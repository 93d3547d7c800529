"""Notify of a run's outcome: by a command that reads a text of a few lines, or by a webhook."""

import contextlib
import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.secrets import check_reference, hide_secrets, is_reference, read_secret

logger = logging.getLogger(__name__)

NOTIFY_TIMEOUT_SECONDS = 30  # for a command or a webhook
TARGETS = {
    "command": "a program and its arguments",
    "webhook": "an address such as https://chat.example/hooks/abc",
}


def parse_command(command: str) -> list[str]:
    """Split a command line into its program and arguments; raise `ValueError` if it is none."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"is no command line ({error})") from error
    if not words:
        raise ValueError("names no program")
    return words


def check_command(value: str) -> str:
    """Return a command line, or the name of its place; raise `ValueError` if it is neither."""
    if not is_reference(value):
        parse_command(value)
    return value


def check_address(webhook: str) -> None:
    """Raise `ValueError` if a text is no address of a webhook."""
    try:
        parts = urllib.parse.urlsplit(webhook)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or any(not character.isprintable() or character == " " for character in webhook):
        raise ValueError("is no address that begins with https:// or http://, or its host or port cannot be read")


class NotifySettings(BaseModel, frozen=True, extra="forbid", hide_input_in_errors=True):
    """Settings of notifications: the targets, and which outcomes are reported."""

    command: Annotated[str, AfterValidator(check_command)] | None = Field(
        None,
        description="a program and its arguments; it gets the notification on standard input, and ONECLASS_DATASET, "
        "ONECLASS_RUN_ID and ONECLASS_STATE in its environment. If an argument is a secret, name where the command is: "
        "env:NAME, file:PATH or block:NAME",
    )
    webhook: Annotated[str, AfterValidator(check_reference)] | None = Field(
        None,
        description="where the address is that gets a POST of JSON (text, dataset, run_id, state): env:NAME, an "
        "environment variable; file:PATH; or block:NAME, a Secret block on the Prefect server",
    )
    when: Literal["failure", "always"] = Field(
        "failure",
        description="notify of runs that failed, raised an alarm, were late, left files unread or stale "
        "recommendations, or were cancelled; or of every run",
    )
    report_url: str | None = Field(
        None,
        description="the address at which the folder of reports is served, without a password or a token, since "
        "everybody sees it; the run's artifacts link to it. {dataset} stands for the data set's name",
        pattern=r"^https?://[^@?#\s]+$",
    )

    def read_target(self, target: str) -> str | None:
        """Return the value of `command` or `webhook`, or None without one.

        Raises:
            InputError: the named place cannot be read, or holds no such value.
        """
        value: str | None = getattr(self, target)
        if value is None or not is_reference(value):
            return value
        text = read_secret(f"notify.{target}", TARGETS[target], value)
        try:
            (parse_command if target == "command" else check_address)(text)
        except ValueError as error:
            raise InputError(f"notify.{target} = {value}: {error}.") from None
        return text


def warn_of_missing_targets(settings: NotifySettings) -> None:
    """Log a warning for each target that cannot be read, and if the program of `notify.command` is not found."""
    for target in TARGETS:
        try:
            value = settings.read_target(target)
        except InputError as error:
            logger.warning("%s Until then it will notify of nothing.", error)
            continue
        if value and target == "command" and shutil.which(program := parse_command(value)[0]) is None:
            logger.warning(
                "notify.command: the program %s is not found, so it will notify of nothing. Install it, or give its "
                "whole path",
                program,
            )


def send_notifications(settings: NotifySettings, *, dataset: str, run_id: str, state: str, text: str) -> None:
    """Send a run's outcome to all targets. An error is logged and does not change the outcome.

    Args:
        state: `failed`, `partly failed`, `cancelled` (a night without work, since another run did it or is at work), or
            of a completed run the first that holds of `alarm` (something in the home was damaged or wrong, or the night
            unusual), `stale` (what is published is older than `publish.max_age`), `late` (it started long after it was
            due), `files unread` (files of the landing folder were set aside or match no name), `completed`.
        text: a few lines.
    """
    if state == "completed" and settings.when == "failure":
        return
    for name, error in deliver(settings, dataset=dataset, run_id=run_id, state=state, text=text).items():
        if error:
            logger.warning("notify.%s: the notification failed: %s", name, error)


def deliver(settings: NotifySettings, *, dataset: str, run_id: str, state: str, text: str) -> dict[str, str]:
    """Send a message to all targets. Returns each target's error, which is empty if the target took the message."""
    facts = {"dataset": dataset, "run_id": run_id, "state": state}
    outcomes = {}
    for name in TARGETS:
        value = None
        try:
            if value := settings.read_target(name):
                if name == "command":
                    program, *arguments = parse_command(value)
                    limit = NOTIFY_TIMEOUT_SECONDS
                    run_program([program, *arguments], facts, timeout=limit, text=text, secrets=arguments)
                else:
                    _post_webhook(value, facts, text)
                outcomes[name] = ""
        except TimeoutError as error:  # whose message has no part of the target
            outcomes[name] = str(error)
        except Exception as error:  # noqa: BLE001  (a failing notification must not change the outcome of the run)
            outcomes[name] = hide_secrets(str(error), [value] if value and name == "webhook" else [])
    return outcomes


def send_test(settings: NotifySettings, dataset: str) -> str:
    """Send a message to all targets, and return where it went.

    Raises:
        OneclassError: a target did not take it.
    """
    text = f"{dataset}: a test. `flows.deploy --test-notifications` sent this message; no run failed."
    outcomes = deliver(settings, dataset=dataset, run_id="", state="test", text=text)
    results = {name: f"the notification failed: {error}" if error else "sent" for name, error in outcomes.items()}
    lines = "\n".join(f"notify.{name}: {result}" for name, result in results.items())
    if any(outcomes.values()):
        raise OneclassError(lines)
    return lines


def list_targets(settings: NotifySettings) -> list[str]:
    """List the settings that name a target.

    Raises:
        InputError: none does.
    """
    targets = [f"notify.{target}" for target in TARGETS if getattr(settings, target)]
    if not targets:
        raise InputError(
            "notify.command and notify.webhook: neither is set, so nobody is notified. Set one with --set, or in a "
            'file of --config:\n\n[notify]\nwebhook = "env:ONECLASS_WEBHOOK"'
        )
    return targets


def run_program(
    program: Sequence[str], facts: Mapping[str, str], *, timeout: float, text: str = "", secrets: Iterable[str] = ()
) -> None:
    """Run a program with each fact in its environment, as `ONECLASS_` and the fact's name in capitals.

    Args:
        program: with its arguments.
        timeout: seconds after which the program is killed, with the processes that it started.
        text: its standard input.
        secrets: texts that no message may show.

    Raises:
        OSError: the program cannot be started, runs too long (`TimeoutError`), or ends with another status than 0; the
            message has the end of its standard error.
    """
    variables = {f"ONECLASS_{name.upper()}": value for name, value in facts.items()}
    with subprocess.Popen(
        program,
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            _, said = process.communicate(text, timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError(f"it did not end within {timeout} s") from None
            raise
    if process.returncode:
        # Masked before it is cut, which would leave a part of a secret.
        output = hide_secrets(said.strip(), secrets)
        raise OSError(f"it ended with status {process.returncode}. {output[-500:]}".strip())


def _post_webhook(address: str, facts: dict[str, str], text: str) -> None:
    body = json.dumps({"text": text, **facts}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=NOTIFY_TIMEOUT_SECONDS).close()
