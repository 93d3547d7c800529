"""Notifications of a run's end, by a real command and a real webhook; the tasks of stages, and keys of artifacts."""

import json
import logging
import re
import sys
import time

import psutil
import pytest
from prefect.states import Failed

from oneclass.data_contracts import ContractBroken
from oneclass.tasks.errors import InputError, OneclassError
from oneclass.tasks.orchestration import notifications, progress
from oneclass.tasks.orchestration.artifacts import artifact_key
from oneclass.tasks.orchestration.notifications import NotifySettings, send_notifications
from oneclass.tasks.orchestration.progress import iterate_with_progress
from oneclass.tasks.run_summary import MAX_LINES, RunDescription, describe_failure
from oneclass.tasks.settings import validate_settings
from oneclass.tasks.train import train_task

RUN = {"dataset": "shop", "run_id": "r1", "text": "# shop: nightly-retrain failed\n\nAll of it."}


def test_a_command_and_a_webhook_get_the_summary_and_what_it_is_of(receiver, tmp_path):
    variables = "[os.environ['ONECLASS_' + name] for name in ('DATASET', 'RUN_ID', 'STATE')]"
    code = f"import os,sys,json; json.dump([sys.stdin.read(), *{variables}], open('{tmp_path}/notified', 'w'))"
    settings = {"command": f'{sys.executable} -c "{code}"', "webhook": "env:HOOK"}
    send_notifications(NotifySettings(**settings), state="completed", **RUN)
    assert not receiver.bodies and not (tmp_path / "notified").exists()  # only failures, unless configured
    send_notifications(NotifySettings(**settings), state="failed", **RUN)
    assert json.loads((tmp_path / "notified").read_text()) == [RUN["text"], "shop", "r1", "failed"]
    assert receiver.headers[0]["Content-Type"] == "application/json"
    send_notifications(NotifySettings(**settings, when="always"), state="completed", **RUN)
    assert receiver.bodies == [{**RUN, "state": state} for state in ("failed", "completed")]


def test_a_command_that_is_too_slow_ends_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(notifications, "NOTIFY_TIMEOUT_SECONDS", 1)
    command = f"sh -c 'sleep 60 & echo $! > {tmp_path}/child; wait'"
    found = notifications.deliver(NotifySettings(command=command), state="failed", **RUN)
    assert found == {"command": "it did not end within 1 s"}
    child, until = int((tmp_path / "child").read_text()), time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_no_message_shows_a_target_or_an_argument(receiver, caplog, tmp_path, monkeypatch):
    address = receiver.address
    (tmp_path / "echo.py").write_text("import sys; sys.exit(f'{sys.argv} cannot be sent' + 400 * '.')")
    program = f"{sys.executable} {tmp_path / 'echo.py'} --header 'Bearer s3cr3t+word' https://user:pa55word@host/"
    monkeypatch.setenv("HOOK", f"{address}/s3cr3t\u00e9?key=pa55word")
    send_notifications(NotifySettings(command=program, webhook="env:HOOK"), state="failed", **RUN)
    monkeypatch.setenv("HOOK", "ftp://s3cr3t")
    monkeypatch.setenv("PROGRAM", "mail 's3cr3t")
    send_notifications(NotifySettings(command="env:PROGRAM", webhook="env:HOOK"), state="failed", **RUN)
    assert caplog.text.count("the notification failed") == 4
    notifications.warn_of_missing_targets(NotifySettings(command="no-such-program --password=s3cr3t"))
    assert "notify.command = env:PROGRAM: is no command line" in caplog.text
    assert "notify.webhook = env:HOOK: is no address" in caplog.text
    assert "notify.command: the program no-such-program is not found" in caplog.text
    for secret in ("s3cr3t", "pa55word", "Bearer", "t+word"):
        assert secret not in caplog.text


WRONG_URLS = [("report_url", "https://user:s3cr3t@host/"), ("report_url", "https://host/?token=s3cr3t")]
WRONG_TARGETS = [("webhook", "https://host/s3cr3t"), ("webhook", "file:s3cr3t"), ("command", "mail 's3cr3t")]


@pytest.mark.parametrize(("key", "value"), [*WRONG_URLS, *WRONG_TARGETS, ("command", "  "), ("when", "s3cr3t")])
def test_a_wrong_setting_is_refused_without_being_shown(key, value):
    with pytest.raises(InputError, match="^setting notify") as error:
        validate_settings("notify", {key: value})
    assert "s3cr3t" not in str(error.value)


@pytest.mark.parametrize("place", ["env:NO_HOOK", "file:/nowhere/hook", "file:/dev/null"])
def test_an_absent_place_is_warned_of_before_and_after(caplog, place):
    settings = NotifySettings(command="cat", webhook=place)
    notifications.warn_of_missing_targets(settings)
    send_notifications(settings, state="failed", **RUN)
    warned, failed = [record.getMessage() for record in caplog.records]
    assert f"notify.webhook = {place}: the" in failed and "Store an address such as https" in failed
    assert warned.startswith(failed.removeprefix("notify.webhook: the notification failed: "))


@pytest.mark.parametrize("webhook", ["file:///etc/passwd", "https://", "http://host:port/", "http://a b/"])
def test_an_address_that_is_none_is_refused(webhook, monkeypatch):
    monkeypatch.setenv("HOOK", webhook)
    with pytest.raises(InputError, match="notify.webhook = env:HOOK: is no address"):
        NotifySettings(webhook="env:HOOK").read_target("webhook")


def test_what_would_fail_in_the_same_way_is_not_tried_again():
    refused = ContractBroken("train", []), InputError("no such file"), OneclassError("cannot be fitted")
    for error in (OSError("the network's folder is away"), *refused):
        again = train_task.retry_condition_fn(train_task, None, Failed(data=error))
        assert again is (error not in refused), error


def test_names_that_differ_by_case_or_marks_have_keys_of_their_own():
    names = ["my-data", "my_data", "my.data", "My-Data", "MY_DATA", "my--data", "my-data-", "my-data_", "my-data.2"]
    keys = [artifact_key(name, "summary") for name in names]
    assert len({*keys}) == len(names)
    assert all(re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", key) for key in keys)


def test_slow_steps_have_a_line_each_with_the_time_that_is_left_and_quick_ones_share_a_line(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    assert list(iterate_with_progress(range(1000), "bpr")) == [*range(1000)]
    assert "bpr: 100 %" in caplog.text and len(caplog.records) < 10
    caplog.clear()
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    assert list(iterate_with_progress([1, 3, 4], "reading", lambda piece: piece)) == [1, 3, 4]
    lines = [record.getMessage() for record in caplog.records]
    assert [re.match(r"reading: (\d+) %", line)[1] for line in lines] == ["12", "50", "100"] and "s left" in lines[1]


def test_a_notification_has_five_lines_whatever_happened():
    facts = ["2 new files with 9 events.", "Report: https://reports.example/"]
    for count in range(9):
        problems = [f"Alarm: {number}{'x' * 999}\nmore" for number in range(count)]
        ended = RunDescription("alarm", "shop: Published: slim", problems, facts)
        lines = ended.text.splitlines()
        assert len(lines) == 3 + min(count, 2) <= MAX_LINES and max(map(len, lines)) < 500
        assert lines[0] == "shop: Published: slim" and lines[-1].startswith("Report")
        assert ("And 3 more." in ended.text) == (count == 5)
        assert all(problem in ended.markdown for problem in problems)


def test_a_failure_says_what_is_published_and_how_to_go_on(home):
    ended = describe_failure(home, "nightly-retrain", ValueError("no such luck\n\nline 2\nline 3\nline 4"))
    first, reason, _, _, last = ended.text.splitlines()
    assert first == "small: nightly-retrain failed; nothing is published" and reason == "ValueError: no such luck"
    assert last.startswith("The same run, started again, continues")
