"""Nights that no run can tell of: a real server that watches for them, and a real receiver of its webhook."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed, Pending, Scheduled

from flows import automations, deployments
from flows.parameters import Deploy

QUICK = {  # seconds; the server's own are 15, 5 and 5
    "PREFECT_SERVER_SERVICES_LATE_RUNS_AFTER_SECONDS": "1",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "1",
    "PREFECT_EVENTS_PROACTIVE_GRANULARITY": "PT1S",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
LEAST = timedelta(seconds=10)  # that Prefect lets such an automation wait


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


@pytest.fixture
def receiver():
    """An address, and what was posted to it."""
    posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook", posted
        server.shutdown()


def there_are(client):
    return sorted(client.request("POST", "/automations/filter").json(), key=lambda one: one["name"])


def test_the_server_tells_of_nights_that_do_not_begin_or_crash(watching_server, receiver, tmp_path, monkeypatch):
    address, posted = receiver
    monkeypatch.setattr(automations, "LATE", LEAST)
    given = Deploy(dataset="ml-1m", home=str(tmp_path), settings={"notify.webhook": address})
    with get_client(sync_client=True) as client:
        deployments.deploy(given)
        before = there_are(client)
        assert [one["name"] for one in before] == ["nightly-retrain-ml-1m: crashed", "nightly-retrain-ml-1m: not begun"]
        deployments.deploy(given)
        assert there_are(client) == before  # not even the time of their last change
        time.sleep(3)  # until the server has loaded them
        deployment = client.read_deployment_by_name("nightly-retrain/nightly-retrain-ml-1m").id
        past = Scheduled(scheduled_time=datetime.now(UTC) - timedelta(minutes=5))
        missed, begun, died = (client.create_flow_run_from_deployment(deployment, state=past).id for _ in range(3))
        wait_for(lambda: all(client.read_flow_run(one).state.name == "Late" for one in (missed, begun, died)))
        client.set_flow_run_state(begun, Pending(), force=True)
        client.set_flow_run_state(died, Crashed(message='killed by "-9"'), force=True)
        wait_for(lambda: {one["state"] for one in posted} == {"not begun", "crashed"})
        time.sleep(3)
        told = {one["state"]: one for one in posted}
        assert all(one == told[one["state"]] for one in posted)  # the server may say it twice, and says nothing else
        assert told["not begun"]["run_id"] == str(missed) and told["crashed"]["run_id"] == str(died)
        assert told["not begun"]["dataset"] == "ml-1m"
        assert "prefect worker start --pool oneclass" in told["not begun"]["text"]
        assert "ended without a word" in told["crashed"]["text"] and str(died) in told["crashed"]["text"]
        deployments.deploy(given.model_copy(update={"settings": {}}))
        assert there_are(client) == []


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come")
