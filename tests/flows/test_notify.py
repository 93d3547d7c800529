"""Notifications of runs, and of nights that no run can tell of; secrets, which nothing shows."""

import asyncio
import contextlib
import fnmatch
import os
import re
import sqlite3
import sys
import time
from datetime import UTC, datetime, timedelta

import duckdb
import pytest
from prefect.blocks.system import Secret
from prefect.client.orchestration import PrefectClient, get_client
from prefect.flow_engine import run_flow
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed, Failed, Pending, Running, Scheduled
from pydantic import SecretStr

from oneclass.flows import commands, pipeline
from oneclass.flows import prefect_server as servers
from oneclass.flows.prefect_plugin import setup_environment
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.sections import Source
from oneclass.tasks.ingest.query import fetch_rows
from oneclass.tasks.orchestration.notifications import NotifySettings, send_notifications
from oneclass.tasks.stores.home import Home
from tests.flows.conftest import end_server, launch_test_server
from tests.typed import read_page

SECRET = "hooks-secret"


def send_test(tmp_path, *arguments):
    words = ["--dataset", "ml-1m", "--home", str(tmp_path / "var"), "--test-notifications"]
    return commands.main("deploy", [*words, *arguments])


def test_a_test_reaches_both_targets(receiver, tmp_path, capsys):
    posted, kept = receiver.bodies, tmp_path / "kept"
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
        (["notify.command=no-such-program"], 1, "notify.command: the notification failed"),
        (["notify.command=sh -c 'echo $0 >&2; exit 3' secret"], 1, "it ended with status 3. ***"),
        (["notify.command=cat", "notify.webhook=env:NO_HOOK"], 1, "sent\nnotify.webhook: the notification failed"),
        (["notify.webhook=http://host/secret/"], 2, "setting notify.webhook: may hold a token: write env:NAME"),
    ],
)
def test_a_test_that_does_not_arrive_ends_with_the_reason(tmp_path, capsys, settings, status, message):
    assert send_test(tmp_path, *(["--set", *settings] if settings else [])) == status
    printed = capsys.readouterr().err
    assert message in printed and "secret" not in printed


@pytest.mark.parametrize("wrong", [{"config": ["absent.toml"]}, {"dataset": "no-such"}])
def test_a_night_whose_settings_are_wrong_notifies_once(prefect_server, receiver, tmp_path, wrong):
    given = {"dataset": "ml-1m", "home": str(tmp_path), "settings": {"notify.webhook": "env:HOOK"}, **wrong}
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(pipeline.nightly_retrain, parameters=given)
    state = run_flow(pipeline.nightly_retrain, flow_run=run, parameters=given, return_type="state")
    assert state.is_failed()
    (body,) = receiver.bodies
    assert (body["dataset"], body["run_id"], body["state"]) == (given["dataset"], str(run.id), "failed")


def test_a_command_whose_input_is_missing_notifies(receiver, tmp_path, capsys):
    arguments = ["--dataset", "ml-1m", "--home", str(tmp_path), "--set", "notify.webhook=env:HOOK"]
    assert commands.main("nightly_retrain", arguments) == 2
    assert "holds no raw files" in capsys.readouterr().err and "holds no raw files" in receiver.bodies[0]["text"]


SECRETS = ("hook-5f2c9Zq81x", "argument-77Qp03Lm")
SMALL = ["demo.users=60", "demo.items=30", "demo.likes=500"]
RUN = {"dataset": "shop", "run_id": "r1", "state": "failed", "text": "It failed."}


def all_bytes(folder):
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def all_cells(warehouse):
    """The rows of all tables as text, since DuckDB compresses what it stores."""
    with duckdb.connect(str(warehouse), read_only=True) as connection:
        tables = connection.execute("select table_schema, table_name from information_schema.tables").fetchall()
        return str([connection.execute(f'from "{schema}"."{name}"').fetchall() for schema, name in tables])


@pytest.mark.slow
def test_nothing_shows_the_secrets_of_a_run_and_of_a_deployment(
    prefect_server, server_home, receiver, tmp_path, monkeypatch, caplog, capfd
):
    address, paths = receiver.address, receiver.paths
    (tmp_path / "echo.py").write_text("import sys; sys.exit(f'{sys.argv} cannot be sent')")
    monkeypatch.setenv("HOOK", f"{address}/refused/{SECRETS[0]}")
    (tmp_path / "command").write_text(f"{sys.executable} {tmp_path / 'echo.py'} --token {SECRETS[1]}\n")
    secrets = ["notify.webhook=env:HOOK", f"notify.command=file:{tmp_path / 'command'}"]
    of_home = ["--dataset", "demo", "--home", str(tmp_path / "home")]
    given = [*of_home, "--set", *SMALL, "notify.when=always", *secrets]
    assert commands.main("nightly_retrain", [*given, "--models", "popularity"]) == 0
    assert paths == [f"/refused/{SECRETS[0]}"]
    assert commands.main("tune", [*of_home, "--model", "mrf_dense", "--trials", "1"]) == 0
    assert commands.main("deploy", given) == 0
    with get_client(sync_client=True) as client:
        deployed = client.read_deployment_by_name("nightly-retrain/nightly-retrain").parameters
    night = {**deployed, "models": ["popularity"]}
    assert pipeline.nightly_retrain(**night, return_state=True).is_completed()  # as a worker runs it
    assert paths == 2 * [f"/refused/{SECRETS[0]}"]
    said = caplog.text + "".join(capfd.readouterr())
    assert said.count("notify.webhook: the notification failed: HTTP Error 500") >= 2
    assert said.count("notify.command: the notification failed: it ended with status 1") >= 2
    cells = all_cells(tmp_path / "home" / "demo" / "warehouse.duckdb")
    for secret in SECRETS:
        assert secret not in said and secret not in cells
        assert secret.encode() not in all_bytes(tmp_path / "home")
        # The server has the address in a Webhook block, for its automations: encrypted.
        assert secret.encode() not in all_bytes(server_home)
    assert b"nightly-retrain" in all_bytes(server_home)


def test_a_target_and_a_databases_url_are_read_from_blocks(prefect_server, receiver, tmp_path, caplog):
    for name, value in (("a-hook", f"{receiver.address}/by-block"), ("a-database", f"sqlite://{tmp_path}/shop.db")):
        Secret(value=SecretStr(value)).save(name, overwrite=True)
    send_notifications(NotifySettings(webhook="block:a-hook"), **RUN)
    send_notifications(NotifySettings(webhook="block:no-block"), **RUN)
    assert receiver.paths == ["/by-block"]
    assert "notify.webhook = block:no-block: the Secret block no-block cannot be read" in caplog.text
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("create table orders as select 1 as id")
    source = Source(query="select * from orders", url="block:a-database")
    fetch_rows(Home(tmp_path, "shop"), Dataset(name="shop"), source, tmp_path / "rows.parquet")
    assert duckdb.sql(f"from '{tmp_path}/rows.parquet'").fetchall() == [(1,)]


QUICK = {  # seconds; the server's own are 15, 5 and 5
    "PREFECT_SERVER_SERVICES_LATE_RUNS_AFTER_SECONDS": "1",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "1",
    "PREFECT_EVENTS_PROACTIVE_GRANULARITY": "PT1S",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
}
PAGE = read_page("docs/how-to/nightly.md")
(SNIPPET,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
REFUSED = "Validation of flow parameters failed with error:"
SOON = "timedelta(seconds=15)"  # Prefect lets such an automation wait 10 at the least


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come")


@pytest.fixture
def watching_server(prefect_home, monkeypatch):
    """A server that marks late runs within a second, as a server of a run's own does not."""
    monkeypatch.setitem(servers._SERVER_SETTINGS, "PREFECT__SERVER_EPHEMERAL", "")
    server, address = launch_test_server(prefect_home, **QUICK)
    with temporary_settings({PREFECT_API_URL: address}):
        yield
    end_server(server)


@pytest.mark.slow
def test_the_server_tells_of_nights_that_do_not_begin_or_crash_or_are_refused(
    watching_server, receiver, tmp_path, monkeypatch
):
    posted = receiver.bodies
    monkeypatch.setenv("ONECLASS_WEBHOOK", os.environ["HOOK"])
    with get_client(sync_client=True) as client:
        assert commands.main("deploy", ["--dataset", "ml-1m", "--home", str(tmp_path)]) == 0
        exec(SNIPPET.replace("timedelta(hours=1)", SOON), {})  # noqa: S102
        time.sleep(3)  # until the server has loaded them
        deployment = client.read_deployment_by_name("nightly-retrain/nightly-retrain-ml-1m").id
        later = Scheduled(scheduled_time=datetime.now(UTC) + timedelta(days=1))
        past = Scheduled(scheduled_time=datetime.now(UTC) - timedelta(minutes=5))
        missed, begun, died = (client.create_flow_run_from_deployment(deployment, state=past).id for _ in range(3))
        wrong, alone = (client.create_flow_run_from_deployment(deployment, state=later).id for _ in range(2))
        for run, message in ((wrong, REFUSED), (alone, "Flow run encountered an exception: InputError:")):
            client.set_flow_run_state(run, Failed(message=message), force=True)
        for run, state in ((begun, Pending()), (died, Crashed(message='killed by "-9"'))):
            wait_for(lambda run=run: client.read_flow_run(run).state.name == "Late")
            client.set_flow_run_state(run, state, force=True)
        time.sleep(3)  # the server may take in Pending before Late, which came just before; a run goes on
        client.set_flow_run_state(begun, Running(), force=True)
        wait_for(lambda: len({one["run_id"] for one in posted}) == 3)
        time.sleep(3)
        by_run = {one["run_id"]: one for one in posted}
        assert all(one == by_run[one["run_id"]] for one in posted)  # the server may post it twice, but nothing else
        states = {missed: "not begun", died: "crashed", wrong: "failed"}
        assert {run: one["state"] for run, one in by_run.items()} == {str(run): state for run, state in states.items()}
        assert all(run in one["text"] for run, one in by_run.items())


@pytest.mark.slow
def test_the_server_is_to_look_for_what_prefect_says_of_a_night_that_it_refuses(prefect_server, tmp_path):
    given = {"dataset": "ml-1m", "home": str(tmp_path), "a_parameter_of_an_earlier_version": 1}
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(pipeline.nightly_retrain, parameters=given)
    said = run_flow(pipeline.nightly_retrain, flow_run=run, parameters=given, return_type="state").message
    (pattern,) = re.findall(r'"prefect.state-message": "(.*?)"', SNIPPET)
    assert fnmatch.fnmatchcase(said, pattern) and said.startswith(REFUSED)


def test_a_deployments_own_name_is_enough_where_one_deployment_bears_it(prefect_server, monkeypatch):
    read = PrefectClient.read_deployment_by_name
    monkeypatch.setattr(PrefectClient, "read_deployment_by_name", getattr(read, "__wrapped__", read))
    setup_environment(ctx=None)

    async def look_up():
        async with get_client() as client:
            one, other = [await client.create_flow_from_name(name) for name in ("one", "other")]
            for flow, name in ((one, "alone"), (one, "shared"), (other, "shared")):
                await client.create_deployment(flow_id=flow, name=name)
            for name in ("alone", "one/alone", "other/shared"):
                assert (await client.read_deployment_by_name(name)).name == name.rpartition("/")[2]
            with pytest.raises(ValueError, match="Invalid deployment name"):
                await client.read_deployment_by_name("shared")

    asyncio.run(look_up())
