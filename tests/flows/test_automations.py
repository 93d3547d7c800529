"""Nights that no run can tell of: a real server that watches for them, and a real receiver of its webhook."""

import asyncio
import contextlib
import fnmatch
import os
import re
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

from oneclass.flows import commands, pipeline
from oneclass.flows.prefect_plugin import setup_environment
from tests.typed import read_page

QUICK = {  # seconds; the server's own are 15, 5 and 5
    "PREFECT_SERVER_SERVICES_LATE_RUNS_AFTER_SECONDS": "1",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "1",
    "PREFECT_EVENTS_PROACTIVE_GRANULARITY": "PT1S",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
PAGE = read_page("docs/how-to/nightly.md")
(SNIPPET,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
SOON = "timedelta(seconds=15)"  # Prefect lets such an automation wait 10 at the least


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


REFUSED = "Validation of flow parameters failed with error:"


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"seed": "many"}, {"a_parameter_of_an_earlier_version": 1}])
def test_the_server_is_to_look_for_what_prefect_says_of_a_night_that_it_refuses(prefect_server, tmp_path, wrong):
    given = {"dataset": "ml-1m", "home": str(tmp_path), "models": ["popularity"], **wrong}
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(pipeline.nightly_retrain, parameters=given)
    said = run_flow(pipeline.nightly_retrain, flow_run=run, parameters=given, return_type="state").message
    (pattern,) = re.findall(r'"prefect.state-message": "(.*?)"', SNIPPET)
    assert fnmatch.fnmatchcase(said, pattern) and said.startswith(REFUSED)


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
