"""Notifications of a run's end, by a real command and a real webhook; the tasks of stages, and keys of artifacts."""

import json
import re
import sys
import time

import psutil
import pytest
from prefect.states import Failed
from pydantic import ValidationError

from oneclass.data_contracts import ContractBroken
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.orchestration import notifications
from oneclass.tasks.orchestration.artifacts import artifact_key
from oneclass.tasks.orchestration.notifications import NotifySettings, send_notifications
from oneclass.tasks.settings import validate_settings
from oneclass.tasks.train import train_task

RUN = {"dataset": "shop", "run_id": "r1", "text": "# shop: nightly-retrain failed\n\nAll of it."}


def python_command(code):
    """A command line that runs Python code without double quotes."""
    return f'{sys.executable} -c "{code}"'


def test_a_command_gets_the_summary_and_what_it_is_of(tmp_path):
    code = (
        "import os,sys,json; json.dump([sys.stdin.read(), *[os.environ['ONECLASS_' + n] for n in "
        f"('DATASET', 'RUN_ID', 'STATE')]], open('{tmp_path}/notified', 'w'))"
    )
    send_notifications(NotifySettings(command=python_command(code)), state="failed", **RUN)
    assert json.loads((tmp_path / "notified").read_text()) == [RUN["text"], "shop", "r1", "failed"]


def test_a_webhook_gets_both_as_json(receiver):
    send_notifications(NotifySettings(webhook="env:HOOK"), state="failed", **RUN)
    assert receiver.bodies == [{**RUN, "state": "failed"}]
    assert receiver.headers[0]["Content-Type"] == "application/json"


def test_a_completed_run_notifies_only_if_configured(receiver):
    posted = receiver.bodies
    send_notifications(NotifySettings(webhook="env:HOOK"), state="completed", **RUN)
    assert not posted
    send_notifications(NotifySettings(webhook="env:HOOK", when="always"), state="completed", **RUN)
    assert len(posted) == 1


def test_a_command_that_is_too_slow_ends_with_what_it_started(tmp_path):
    command = ["sh", "-c", "sleep 60 & echo $! > $ONECLASS_FILE; wait"]
    with pytest.raises(TimeoutError, match="did not end within 1 s"):
        notifications.run_program(command, {"file": str(tmp_path / "child")}, timeout=1)
    child, until = int((tmp_path / "child").read_text()), time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_no_message_shows_a_target_or_an_argument(receiver, caplog, tmp_path, monkeypatch):
    address = receiver.address
    (tmp_path / "echo.py").write_text("import sys; sys.exit(f'{sys.argv} cannot be sent' + 490 * '.')")
    program = f"{sys.executable} {tmp_path / 'echo.py'} --header 'Bearer s3cr3t+word' https://user:pa55word@host/"
    monkeypatch.setattr(notifications, "NOTIFY_TIMEOUT_SECONDS", 5)
    monkeypatch.setenv("HOOK", f"{address}/s3cr3t\u00e9?key=pa55word")  # the library's message has it
    send_notifications(NotifySettings(command=program, webhook="env:HOOK"), state="failed", **RUN)
    monkeypatch.setenv("HOOK", "ftp://s3cr3t")
    monkeypatch.setenv("PROGRAM", "mail 's3cr3t")
    send_notifications(NotifySettings(command="env:PROGRAM", webhook="env:HOOK"), state="failed", **RUN)
    assert caplog.text.count("the notification failed") == 4
    assert "notify.command = env:PROGRAM: is no command line" in caplog.text
    assert "notify.webhook = env:HOOK: is no address" in caplog.text
    for secret in ("s3cr3t", "pa55word", "Bearer", "t+word"):
        assert secret not in caplog.text


@pytest.mark.parametrize(
    "section",
    [
        {"webhook": "https://host/s3cr3t"},
        {"when": "s3cr3t"},
        {"report_url": "https://user:s3cr3t@host/"},
        {"report_url": "https://host/?token=s3cr3t"},
        {"webhook": "file:s3cr3t"},
    ],
)
def test_a_secret_in_the_settings_is_refused_without_being_shown(section):
    with pytest.raises(InputError) as error:
        validate_settings("notify", section)
    assert "s3cr3t" not in str(error.value) and str(error.value).startswith("setting notify")


@pytest.mark.parametrize(
    ("place", "name", "advice"),
    [
        ("env", "NO_HOOK", "the environment variable NO_HOOK is empty or not set. Store an address such as https"),
        ("file", "/nowhere/hook", "the file /nowhere/hook cannot be read ([Errno 2] No such file or directory"),
        ("file", "/dev/null", "the file /dev/null is empty or not set. Store an address such as https"),
    ],
)
def test_an_absent_place_says_what_to_do(caplog, place, name, advice):
    send_notifications(NotifySettings(webhook=f"{place}:{name}"), state="failed", **RUN)
    assert f"notify.webhook: the notification failed: notify.webhook = {place}:{name}: {advice}" in caplog.text


@pytest.mark.parametrize(
    "webhook", ["file:///etc/passwd", "https://", "http://host:port/", "http://a b/", "http://[::1"]
)
def test_an_address_that_is_none_is_refused(webhook, monkeypatch):
    monkeypatch.setenv("HOOK", webhook)
    with pytest.raises(InputError, match="notify.webhook = env:HOOK: is no address"):
        NotifySettings(webhook="env:HOOK").read_target("webhook")


@pytest.mark.parametrize(("command", "reason"), [("mail 'ops", "No closing quotation"), ("  ", "names no program")])
def test_a_command_line_that_is_none_is_refused(command, reason):
    with pytest.raises(ValidationError, match=reason):
        NotifySettings(command=command)


def test_a_command_that_does_not_end_is_reported_without_its_arguments(monkeypatch):
    monkeypatch.setattr(notifications, "NOTIFY_TIMEOUT_SECONDS", 0.2)
    settings = NotifySettings(command=python_command("import time; time.sleep(60)") + " --password=secret")
    assert notifications.deliver(settings, state="failed", **RUN) == {"command": "it did not end within 0.2 s"}


def test_a_program_that_is_not_found_is_warned_of_without_its_arguments(caplog):
    notifications.warn_of_missing_targets(NotifySettings(command="cat --all"))
    assert not caplog.text
    notifications.warn_of_missing_targets(NotifySettings(command="no-such-program --password=secret"))
    assert "notify.command: the program no-such-program is not found" in caplog.text and "secret" not in caplog.text
    notifications.warn_of_missing_targets(NotifySettings(webhook="env:NO_HOOK"))
    assert "notify.webhook = env:NO_HOOK: the environment variable NO_HOOK is empty or not set" in caplog.text


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (OSError("the network's folder is away"), True),
        (ContractBroken("train", []), False),
        (InputError("no such file"), False),
        (OneclassError("cannot be fitted"), False),
    ],
    ids=repr,
)
def test_what_would_fail_in_the_same_way_is_not_tried_again(error, again):
    assert train_task.retry_condition_fn(train_task, None, Failed(data=error)) is again


NAMES = ["my-data", "my_data", "my.data", "My-Data", "MY_DATA", "my--data", "my-data-", "my-data_", "my-data.2"]


def test_names_that_differ_by_case_or_marks_have_keys_of_their_own():
    keys = [artifact_key(name, "summary") for name in NAMES]
    assert len({*keys}) == len(NAMES)
    assert all(re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", key) for key in keys)
