"""Notify of a run's outcome: by a command that reads the run's summary, or by a webhook."""

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator, model_validator

from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.secrets import PLACES, hide_secrets, read_secret

logger = logging.getLogger(__name__)

NOTIFY_TIMEOUT_SECONDS = 30  # for a command or a webhook


class NotifySettings(BaseModel):
    """Settings of notifications: the targets, and which outcomes are reported."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    command: SecretStr | None = Field(
        None,
        description="a program and its arguments; it gets the run's summary on standard input, and ONECLASS_DATASET, "
        "ONECLASS_RUN_ID and ONECLASS_STATE in its environment",
    )
    command_env: str | None = Field(None, description="the environment variable that holds `command`")
    command_file: str | None = Field(None, description="the whole path of the file that holds `command`", pattern="^/")
    command_block: str | None = Field(None, description="the Secret block on the Prefect server that holds `command`")
    webhook: SecretStr | None = Field(
        None,
        description="an address that gets a POST of JSON: text (the run's summary), dataset, run_id, state. Given to "
        "flows.deploy, Prefect's server calls it too, for nights that do not start, fail at once, or crash",
    )
    webhook_env: str | None = Field(None, description="the environment variable that holds `webhook`")
    webhook_file: str | None = Field(None, description="the whole path of the file that holds `webhook`", pattern="^/")
    webhook_block: str | None = Field(None, description="the Secret block on the Prefect server that holds `webhook`")
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

    @field_validator("command", "webhook")
    @classmethod
    def _check_literal(cls, value: SecretStr | None, field: ValidationInfo) -> SecretStr | None:
        if value is not None:
            TARGETS[str(field.field_name)].check(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _targets_have_one_place(self) -> Self:
        for target in TARGETS:
            if len(self.list_places(target)) > 1:
                raise ValueError(f"give one of {', '.join(self.list_places(target))}")
        return self

    def list_places(self, target: str) -> list[str]:
        """List the settings that say what a target is: `webhook` itself, or `webhook_env` and so on."""
        return [
            name for name in (target, *(f"{target}_{place}" for place in PLACES)) if getattr(self, name) is not None
        ]

    def read_target(self, target: str) -> str | None:
        """Return the value of `command` or `webhook`, from where the settings name it, or None without one.

        Raises:
            InputError: the named place cannot be read, or holds no such value.
        """
        value: SecretStr | None = getattr(self, target)
        if value is not None:
            return value.get_secret_value()
        if not (names := self.list_places(target)):
            return None
        places = {place: getattr(self, f"{target}_{place}") for place in PLACES}
        text = read_secret(f"notify.{target}", TARGETS[target].content, **places)
        try:
            TARGETS[target].check(text)
        except ValueError as error:
            raise InputError(f"notify.{names[0]}: {error}.") from None
        return text


def _check_command(command: str) -> None:
    try:
        names_program = bool(shlex.split(command))
    except ValueError as error:
        raise ValueError(f"is no command line ({error})") from error
    if not names_program:
        raise ValueError("names no program")


def _check_webhook(webhook: str) -> None:
    try:
        parts = urllib.parse.urlsplit(webhook)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or any(not character.isprintable() or character == " " for character in webhook):
        raise ValueError("is no address that begins with https:// or http://, or its host or port cannot be read")


def warn_of_missing_targets(settings: NotifySettings) -> None:
    """Log a warning for each target that cannot be read, and if the program of `notify.command` is not found."""
    for target in TARGETS:
        try:
            value = settings.read_target(target)
        except InputError as error:
            logger.warning("%s Until then it will notify of nothing.", error)
            continue
        if value and target == "command" and shutil.which(program := shlex.split(value)[0]) is None:
            logger.warning(
                "notify.command: the program %s is not found, so it will notify of nothing. Install it, or give its "
                "whole path",
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
    outcomes = {}
    for name, target in TARGETS.items():
        value = None
        try:
            if value := settings.read_target(name):
                target.send(value, facts, text)
                outcomes[name] = ""
        except TimeoutError as error:  # whose message has no part of the target
            outcomes[name] = str(error)
        except Exception as error:  # noqa: BLE001  (a failing notification must not change the outcome of the run)
            outcomes[name] = hide_secrets(str(error), _list_secrets(name, value))
    return outcomes


def _list_secrets(name: str, value: str | None) -> list[str]:
    """Return the parts of a target that no message may show: a whole address, or the arguments of a program."""
    if value is None or name == "webhook":
        return [value or ""]
    return [value.partition(" ")[2], *shlex.split(value)[1:]]


def list_targets(settings: NotifySettings) -> list[str]:
    """List the settings that name a target.

    Raises:
        InputError: none does.
    """
    targets = [f"notify.{name}" for target in TARGETS for name in settings.list_places(target)]
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
    program, secrets = shlex.split(command), _list_secrets("command", command)
    run_program(program, facts, timeout=NOTIFY_TIMEOUT_SECONDS, text=text, secrets=secrets)


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


@dataclass(frozen=True)
class _Target:
    """A way to notify.

    Attributes:
        content: its value as a noun phrase.
        check: raises `ValueError` for a text that is no such value.
        send: sends facts and text to the target with this value.
    """

    content: str
    check: Callable[[str], None]
    send: Callable[[str, dict[str, str], str], None]


TARGETS = {
    "command": _Target("a program and its arguments", _check_command, _run_command),
    "webhook": _Target("an address such as https://chat.example/hooks/abc", _check_webhook, _post_webhook),
}
