"""The test of notifications, and failures before a run knows its settings: real receivers, programs and flows."""

import sys

import pytest
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow

from oneclass.flows import commands, pipeline

SECRET = "hooks-secret"


def send_test(tmp_path, *arguments):
    words = ["--dataset", "ml-1m", "--home", str(tmp_path / "var"), "--test-notifications"]
    return commands.main("deploy", [*words, *arguments])


def test_a_test_reaches_both_targets(receiver, tmp_path, capsys):
    posted = receiver.bodies
    kept = tmp_path / "kept"
    settings = tmp_path / "settings.toml"
    settings.write_text(f'[notify]\ncommand = "tee {kept}"\nwebhook = "env:HOOK"\n')
    assert send_test(tmp_path, "--config", str(settings)) == 0
    printed = capsys.readouterr().out
    assert printed.split("\n")[1:3] == ["notify.command: sent", "notify.webhook: sent"]
    assert kept.read_text() == posted[0]["text"]
    assert (posted[0]["dataset"], posted[0]["state"]) == ("ml-1m", "test")
    assert not (tmp_path / "var").exists()


@pytest.mark.parametrize(
    ("settings", "status", "message"),
    [
        ([], 2, "neither is set"),
        (["notify.command=grep nothing-of-it"], 1, "notify.command: the notification failed: it ended with status 1."),
        (["notify.command=no-such-program"], 1, "notify.command: the notification failed"),
        (["notify.command=cat 'secret"], 2, "setting notify.command: is no command line (No closing quotation)."),
        (["notify.webhook=http://host/secret/"], 2, "setting notify.webhook: may hold a token: write env:NAME"),
        (["notify.webhok=http://host"], 2, "Did you mean notify.webhook?"),
    ],
)
def test_a_test_that_does_not_arrive_ends_with_the_reason(tmp_path, capsys, settings, status, message):
    assert send_test(tmp_path, *(["--set", *settings] if settings else [])) == status
    printed = capsys.readouterr().err
    assert message in printed and "secret" not in printed


def test_one_refusal_does_not_hide_the_other_target(receiver, tmp_path, capsys, monkeypatch):
    address, posted, *_ = receiver
    monkeypatch.setenv("HOOK", f"{address}/refused/{SECRET}")
    settings = ["notify.command=cat", "notify.webhook=env:HOOK"]
    assert send_test(tmp_path, "--set", *settings) == 1
    printed = capsys.readouterr().err
    assert "notify.command: sent" in printed and "notify.webhook: the notification failed: HTTP Error 500" in printed
    assert len(posted) == 1 and SECRET not in printed


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"settings": {"publish.top_n": "few"}}, "publish.top_n"),
        ({"config": ["absent.toml"]}, "absent.toml"),
        ({"dataset": "no-such"}, "no-such"),
    ],
)
def test_a_night_whose_settings_are_wrong_notifies_once(prefect_server, receiver, tmp_path, wrong, message):
    posted = receiver.bodies
    given = {"dataset": "ml-1m", "home": str(tmp_path), "models": ["popularity"], **wrong}
    given["settings"] = {"notify.webhook": "env:HOOK", **given.get("settings", {})}
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(pipeline.nightly_retrain, parameters=given)
    state = run_flow(pipeline.nightly_retrain, flow_run=run, parameters=given, return_type="state")
    assert state.is_failed()
    (body,) = posted
    assert (body["dataset"], body["run_id"], body["state"]) == (given["dataset"], str(run.id), "failed")
    assert message in body["text"]


def test_a_command_whose_input_is_missing_notifies(receiver, tmp_path, capsys):
    posted = receiver.bodies
    arguments = ["--dataset", "ml-1m", "--home", str(tmp_path), "--set", "notify.webhook=env:HOOK"]
    assert commands.main("nightly_retrain", arguments) == 2
    assert "holds no raw files" in capsys.readouterr().err and "holds no raw files" in posted[0]["text"]


@pytest.mark.slow
def test_a_missing_program_is_warned_of_at_the_start_of_a_run(prefect_server, ratings, tmp_path, caplog):
    script = tmp_path / "notify"
    script.write_text(f"#!{sys.executable}\n")  # not executable
    arguments = ["--dataset", "ml-latest-small", "--home", str(tmp_path / "var"), "--source", str(ratings)]
    wanted = ["--models", "popularity", "--protocols", "leave_one_out", "--set", f"notify.command={script} --all"]
    assert commands.main("backfill", [*arguments, *wanted]) == 0
    warning = f"notify.command: the program {script} is not found"
    assert caplog.text.count(warning) == 1
    assert caplog.text.index(warning) < caplog.text.index("new log with")
