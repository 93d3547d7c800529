"""A signalled command ends in seconds, with one message and the exit status that shells expect."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from oneclass.flows import prefect_server
from tests.flows.conftest import query_rows

ROOT = Path(__file__).parents[2]
STUCK = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from oneclass.flows import signals
signals.SHUTDOWN_SECONDS = 0.5
with signals.handle_signals():
    while True:
        try:
            print("ready", flush=True)
            time.sleep(60)
        except BaseException:
            pass  # as a library does that asks a dead server again and again
"""


def said_when_told(program, number, status):
    """What a program that has said "ready" says on stderr when it gets a signal; it ends with that status."""
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == status
    return said


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_does_not_end_in_its_own_time_is_ended(number, status):
    said = said_when_told(STUCK, number, status)
    assert said.count("Interrupted by") == 1 and signal.Signals(number).name in said


DROPPED = """
import gc, signal, weakref
from oneclass.flows import signals
signals.SHUTDOWN_SECONDS = 0.5

class Kept: pass

def collected(reference):  # Python drops errors raised in here, and says so
    signal.raise_signal(signal.SIGTERM)
    for _ in range(10**6):
        pass

with signals.handle_signals():
    kept = Kept()
    reference = weakref.ref(kept, collected)
    print("ready", flush=True)
    del kept
    import time
    time.sleep(60)
"""


def test_a_signal_that_comes_while_memory_is_freed_ends_the_process_with_one_message():
    ended = subprocess.run(
        [sys.executable, "-c", DROPPED], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 143
    assert ended.stderr.strip().splitlines() == [ended.stderr.strip()] and "SIGTERM" in ended.stderr


def at_work_in(group):
    """The processes of a group, without zombies."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(one.pid) == group and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one.cmdline())
    return found


def kill_the_rest_of(group):
    """What a test that failed would leave at work, for hours."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--workers", "2"]], ids=["alone", "with workers"])
def test_a_run_signalled_with_its_whole_group_leaves_no_server_and_its_true_state(
    tmp_path, prefect_home, request, more
):
    environment = {**os.environ, "ONECLASS_HOME": str(tmp_path / "home"), "PREFECT_HOME": str(prefect_home)}
    environment.pop("PREFECT_API_URL", None)
    sizes = ["demo.users=300", "demo.items=100", "demo.likes=5000"]
    models = ["--models", "mrf_dense", *more]
    command = [sys.executable, "-m", "flows.backfill", "--dataset", "demo", *models, "--set", *sizes]
    with open(tmp_path / "said", "w") as said:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=said, start_new_session=True)
    request.addfinalizer(lambda: kill_the_rest_of(process.pid))
    deadline = time.monotonic() + 300  # a busy machine takes minutes to start the server and the workers
    while "new log" not in (tmp_path / "said").read_text():
        assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "said").read_text()
        time.sleep(0.2)
    children = psutil.Process(process.pid).children()
    workers = [one for one in children if "spawn_main" in " ".join(one.cmdline())]
    assert len(workers) == (2 if more else 0)
    servers = [one for one in children if "create_app" in " ".join(one.cmdline())]
    assert len(servers) == 1
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(60) == 143
    assert (
        time.monotonic() - began < 10
    )  # as the README promises; it takes the 4 s of `signals.SHUTDOWN_SECONDS` and little more
    said = (tmp_path / "said").read_text()
    assert said.splitlines()[-1].startswith("Interrupted by SIGTERM") and "Traceback" not in said, said
    _, left = psutil.wait_procs(
        [*workers, *servers], 15
    )  # which are groups of their own, and find that the run is gone
    assert not left
    while more and at_work_in(process.pid):
        assert time.monotonic() - began < 15, at_work_in(process.pid)
        time.sleep(0.2)
    assert not at_work_in(process.pid)
    assert query_rows(tmp_path / "home", "select state from operations.runs", "demo") == [("cancelled",)]
    page = (tmp_path / "home" / "index.html").read_text()
    assert "demo" in page and "cancelled" in page


SERVED = """
from oneclass.flows import prefect_server
prefect_server.start_server()
with prefect_server.ensure_server():
    print("ready", flush=True)
    import time
    time.sleep(600)
"""


@pytest.mark.slow
def test_three_servers_start_at_once_on_a_fresh_prefect_home(tmp_path):
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path / "prefect")}
    environment.pop("PREFECT_API_URL", None)
    options = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with contextlib.ExitStack() as stack:
        processes = []
        for _ in range(3):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", SERVED], **options))
            stack.callback(process.kill)
            processes.append(process)
        assert [process.stdout.readline() for process in processes] == [b"ready\n"] * 3


def test_a_run_that_is_killed_leaves_no_server(prefect_home):
    environment = {**os.environ, "PREFECT_HOME": str(prefect_home)}
    environment.pop("PREFECT_API_URL", None)
    with subprocess.Popen([sys.executable, "-c", SERVED], cwd=ROOT, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        (server,) = psutil.Process(process.pid).children()
        process.kill()
    assert not psutil.wait_procs([server], 15)[1]


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("profiles.toml", 'active = "a"\n[profiles.a]\nPREFECT_LOGGING_LEVEL = "INFO"', False),
        ("profiles.toml", 'active = "a"\n[profiles.a]\nPREFECT_API_URL = "http://host/api"', True),
        ("prefect.toml", (ROOT / "prefect.toml").read_text(), False),
        ("pyproject.toml", (ROOT / "pyproject.toml").read_text(), False),
        ("prefect.toml", '[api]\nurl = "http://host/api"', True),
        ("pyproject.toml", "[tool.prefect.api]\nurl = 'http://host/api'", True),
        (".env", "PREFECT_API_URL=http://host/api", True),
    ],
)
def test_a_server_that_a_file_may_name_is_left_to_prefect(tmp_path, monkeypatch, file, text, named):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_PROFILES_PATH", raising=False)
    monkeypatch.delenv("PREFECT_PROFILE", raising=False)
    assert not prefect_server.has_configured_server()
    (tmp_path / file).write_text(text)
    assert prefect_server.has_configured_server() == named
