"""Nights that no run can tell of: a real server that watches for them, and a real receiver of its webhook."""

import asyncio
import contextlib
import fnmatch
import os
import socket
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
from prefect.client.orchestration import PrefectClient, get_client
from prefect.flow_engine import run_flow
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed, Failed, Pending, Running, Scheduled

from oneclass.flows import deploy_flow, pipeline
from oneclass.flows.parameters import DeployParameters
from oneclass.flows.prefect_plugin import setup_environment

QUICK = {  # seconds; the server's own are 15, 5 and 5
    "PREFECT_SERVER_SERVICES_LATE_RUNS_AFTER_SECONDS": "1",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "1",
    "PREFECT_EVENTS_PROACTIVE_GRANULARITY": "PT1S",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
BEFORE_IT_CAN_TELL = (
    "Validation of flow parameters failed with error:",
    "Flow run encountered an exception: SettingsError:",
)
TOLD_BY_THE_RUN = "Flow run encountered an exception: InputError:"
SOON = timedelta(seconds=15)  # Prefect lets such an automation wait 10 at the least


@pytest.fixture
def watching_server(prefect_home):
    """The address of a server that marks late runs within a second."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--no-ui", "--port", str(port)]
    environment = {**os.environ, **QUICK, "PREFECT_HOME": str(prefect_home)}
    for name in ("PREFECT_API_URL", "PREFECT_API_DATABASE_CONNECTION_URL"):
        environment.pop(name, None)
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process,
        temporary_settings({PREFECT_API_URL: address}),
    ):
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/health", timeout=1).close()
                break
            time.sleep(0.2)
        yield address
        process.terminate()


def there_are(client):
    return sorted(client.request("POST", "/automations/filter").json(), key=lambda one: one["name"])


def test_names_that_differ_by_marks_have_addresses_of_their_own(prefect_server, tmp_path, monkeypatch):
    for name in ("my_data", "my-data", "my.data"):
        (tmp_path / name / "landing").mkdir(parents=True)
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:1/{name}")
        deploy_flow.deploy(DeployParameters(dataset=name, home=str(tmp_path), settings={"notify.webhook": "env:HOOK"}))
    with get_client(sync_client=True) as client:
        for name in ("my_data", "my-data", "my.data"):
            deployment = client.read_deployment_by_name(f"nightly-retrain/nightly-retrain-{name}")
            assert deployment.parameters["settings"] == {"notify.webhook": "env:HOOK"}
            (automation,) = client.read_automations_by_name(f"nightly-retrain-{name}: crashed")
            webhook = client.read_block_document(automation.actions[0].block_document_id)
            assert webhook.data["url"] == f"http://127.0.0.1:1/{name}"
    for name in ("my_data", "my-data", "my.data"):  # the session's server keeps none of them
        deploy_flow.deploy(DeployParameters(dataset=name, home=str(tmp_path)))


@pytest.mark.slow
def test_the_server_tells_of_nights_that_do_not_begin_or_crash_or_fail_before_they_can_tell(
    watching_server, receiver, tmp_path, monkeypatch
):
    posted = receiver.bodies
    monkeypatch.setattr(deploy_flow, "MAX_DELAY", SOON)
    given = DeployParameters(dataset="ml-1m", home=str(tmp_path), settings={"notify.webhook": "env:HOOK"})
    with get_client(sync_client=True) as client:
        deploy_flow.deploy(given)
        before = there_are(client)
        assert [one["name"] for one in before] == [
            "nightly-retrain-ml-1m: crashed",
            "nightly-retrain-ml-1m: failed before it could tell",
            "nightly-retrain-ml-1m: not begun",
        ]
        deploy_flow.deploy(given)
        assert there_are(client) == before  # not even the time of their last change
        time.sleep(3)  # until the server has loaded them
        deployment = client.read_deployment_by_name("nightly-retrain/nightly-retrain-ml-1m").id
        later = Scheduled(scheduled_time=datetime.now(UTC) + timedelta(days=1))
        past = Scheduled(scheduled_time=datetime.now(UTC) - timedelta(minutes=5))
        missed, begun, died = (client.create_flow_run_from_deployment(deployment, state=past).id for _ in range(3))
        wrong, given_wrongly, alone = (
            client.create_flow_run_from_deployment(deployment, state=later).id for _ in range(3)
        )
        for run, message in zip((wrong, given_wrongly, alone), (*BEFORE_IT_CAN_TELL, TOLD_BY_THE_RUN), strict=True):
            client.set_flow_run_state(run, Failed(message=message), force=True)
        for run, state in ((begun, Pending()), (died, Crashed(message='killed by "-9"'))):
            wait_for(lambda run=run: client.read_flow_run(run).state.name == "Late")
            client.set_flow_run_state(run, state, force=True)
        time.sleep(3)  # the server may take in Pending before Late, which came just before; a run goes on
        client.set_flow_run_state(begun, Running(), force=True)
        wait_for(lambda: len({one["run_id"] for one in posted}) == 4)
        time.sleep(3)
        by_run = {one["run_id"]: one for one in posted}
        assert all(one == by_run[one["run_id"]] for one in posted)  # the server may post it twice, but nothing else
        states = {missed: "not begun", died: "crashed", wrong: "failed", given_wrongly: "failed"}
        assert {run: one["state"] for run, one in by_run.items()} == {str(run): state for run, state in states.items()}
        assert {one["dataset"] for one in posted} == {"ml-1m"}
        assert "prefect worker start --pool oneclass" in by_run[str(missed)]["text"]
        assert "ended without a word" in by_run[str(died)]["text"] and str(died) in by_run[str(died)]["text"]
        for run in (wrong, given_wrongly):
            assert "before its first stage" in by_run[str(run)]["text"] and str(run) in by_run[str(run)]["text"]
        deploy_flow.deploy(given.model_copy(update={"settings": {}}))
        assert there_are(client) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": "many"}, BEFORE_IT_CAN_TELL[0]),
        ({"until": "no day"}, BEFORE_IT_CAN_TELL[0]),
        ({"a_parameter_of_an_earlier_version": 1}, BEFORE_IT_CAN_TELL[0]),
        ({"settings": {"publish.top_n": "few"}}, BEFORE_IT_CAN_TELL[1]),
        ({"config": ["absent.toml"]}, BEFORE_IT_CAN_TELL[1]),
        ({}, TOLD_BY_THE_RUN),  # no log is there, of which the night itself tells
    ],
)
def test_the_server_is_to_look_for_what_prefect_says_of_a_night_that_cannot_tell(
    prefect_server, tmp_path, wrong, message
):
    given = {"dataset": "ml-1m", "home": str(tmp_path), "models": ["popularity"], **wrong}
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(pipeline.nightly_retrain, parameters=given)
    said = run_flow(pipeline.nightly_retrain, flow_run=run, parameters=given, return_type="state").message
    assert said.startswith(message)
    looked_for = (fnmatch.fnmatchcase(said, pattern) for pattern in deploy_flow.STARTUP_FAILURES)
    assert any(looked_for) == (message in BEFORE_IT_CAN_TELL)


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come")


@pytest.fixture
def deployments(prefect_server, monkeypatch):
    """`alone` of one flow, `shared` of two; the client's method is Prefect's own, unless a test wraps it."""
    read = PrefectClient.read_deployment_by_name
    monkeypatch.setattr(PrefectClient, "read_deployment_by_name", getattr(read, "__wrapped__", read))

    async def make():
        async with get_client() as client:
            one, other = [await client.create_flow_from_name(name) for name in ("one", "other")]
            for flow, name in ((one, "alone"), (one, "shared"), (other, "shared")):
                await client.create_deployment(flow_id=flow, name=name)

    asyncio.run(make())


def read_deployment_name(name: str) -> str:
    async def look():
        async with get_client() as client:
            return (await client.read_deployment_by_name(name)).name

    return asyncio.run(look())


def test_a_name_that_one_deployment_bears_is_enough(deployments):
    with pytest.raises(ValueError, match="Invalid deployment name"):  # Prefect alone wants the flow's name too
        read_deployment_name("alone")
    setup_environment(ctx=None)
    assert read_deployment_name("alone") == read_deployment_name("one/alone") == "alone"


def test_other_names_are_left_to_prefect(deployments):
    setup_environment(ctx=None)
    setup_environment(ctx=None)  # a second time wraps nothing
    assert not hasattr(PrefectClient.read_deployment_by_name.__wrapped__, "__wrapped__")
    for name in ("shared", "absent"):
        with pytest.raises(ValueError, match="Invalid deployment name"):
            read_deployment_name(name)
    assert read_deployment_name("other/shared") == "shared"
