"""The command with workers that share no folder with it: matrices and fits lie at a URL, of the S3 protocol."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter
from prefect.client.schemas.sorting import LogSort

from tests import s3_server
from tests.flows.test_artifacts import list_artifacts
from tests.flows.test_backfill import query_rows, read_contents, run_backfill
from tests.tasks.cluster import conftest
from tests.tasks.cluster.conftest import start_cluster

HIDES = Path(conftest.__file__).with_name("hidden_home.py")
MODELS = "popularity", "random_graph", "mrf_dense", "wmf", "slim"
IN_BLOCKS = ("random_graph",)
SHORT = "random_graph.iterations=4", "random_graph.factors=5"
SETTINGS = *(f"{model}.blocks=3" for model in IN_BLOCKS), *SHORT, "wmf.iterations=3", "wmf.factors=8"
WHAT = "--models", ",".join(MODELS), "--set", *SETTINGS


@pytest.fixture(autouse=True)
def server(prefect_server):
    return prefect_server


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with s3_server.start_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """A folder for homes that no worker sees."""
    return tmp_path_factory.mktemp("coordinator") / "homes"


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(scope="module")
def cluster(s3, hidden, caches):
    """Two workers with folders of their own, for which homes are on another machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIDDEN", str(hidden))
        # none hangs here, and where the machine is busy one is silent while it loads its modules
        patch.setitem(conftest.QUICKLY, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL", "60s")
        with start_cluster(caches / "cluster") as cluster:
            for name in ("one", "another"):
                own = "--local-directory", str(caches / name)
                cluster.worker("--nthreads", "1", "--preload", str(HIDES), *own)
            yield cluster


def once_there_is(s3, what, act):
    """A thread that acts once a file of a fit by blocks with such a name lies at the URL."""

    def watch():
        until = time.monotonic() + 240
        while not any(what in name for name in s3.names()):
            assert time.monotonic() < until
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_run_ends_with_its_server_and_goes_on_without_a_worker(
    s3, cluster, hidden, ratings, tmp_path, capsys, caplog
):
    """Workers share no folder with it, or with each other. Its tables are those of a plain run."""
    assert run_backfill(tmp_path / "alone", "--source", ratings, *WHAT) == 0
    command = [hidden / "home", "--source", ratings, *WHAT, "--dask", cluster.address, "--store", s3.url]
    ender = once_there_is(s3, "block-1-3", s3.end)
    assert run_backfill(*command) == 1
    ender.join()
    last_line = capsys.readouterr().err.strip().splitlines()[-1]
    assert last_line.startswith(f"{s3.url}: cannot be used (") and "the same command goes on from there" in last_line

    s3.start()  # with nothing of what was there
    caplog.clear()
    caplog.set_level(logging.INFO)
    worker = cluster.processes[1]
    killer = once_there_is(s3, "block-0-2", worker.kill)
    assert run_backfill(*command) == 0
    killer.join()
    assert worker.wait() == -signal.SIGKILL
    assert "strong_generalization: fitted before on these edges with these settings, taken from" in caplog.text
    assert read_contents(hidden / "home") == read_contents(tmp_path / "alone")
    assert not hidden.with_suffix(".tried").exists()
    kept = query_rows(hidden / "home", "select distinct model, digest from operations.model_fits")
    there = {tuple(name.split("/")[2:4]) for name in s3.names() if "/models/" in name}
    assert there == set(kept) and not any("/spill/" in name for name in s3.names())


@pytest.mark.slow
def test_a_worker_that_opened_the_home_would_be_seen(tmp_path):
    hidden = tmp_path / "homes"
    script = "import sys; sys.path.insert(0, sys.argv[1]); import hidden_home; open(sys.argv[2])"
    command = [sys.executable, "-c", script, str(HIDES.parent), str(hidden / "home" / "a file")]
    environment = {**os.environ, "HIDDEN": str(hidden)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "is on another machine" in ended.stderr
    assert hidden.with_suffix(".tried").read_text() == f"open {hidden}/home/a file\n"


def find_workers():
    """The worker processes of the run's own cluster."""
    return [one for one in psutil.Process().children() if "spawn_main" in " ".join(one.cmdline())]


def kill_one_after(folder, killed, pattern="*"):
    """Kill a worker once something of that name is in a folder."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if any(folder.glob(pattern)) and (found := find_workers()):
            found[0].kill()
            killed.append(found[0].pid)
            return
        time.sleep(0.01)


@pytest.mark.slow
def test_two_workers_one_of_which_is_killed_give_the_tables_of_a_plain_run(first, tmp_path, ratings):
    killed = []
    killer = threading.Thread(target=kill_one_after, args=(tmp_path / "ml-latest-small" / "models", killed))
    killer.start()
    assert run_backfill(tmp_path, "--source", ratings, "--workers", 2) == 0
    killer.join()
    assert killed and read_contents(tmp_path) == read_contents(first[0])
    assert re.fullmatch(
        r"\[Dask dashboard\]\(http://127.0.0.1:\d+/status\)", list_artifacts("ml-latest-small-workers")[-1].data
    )
    assert find_workers() == []
    said = read_run_log(tmp_path)
    assert any(line.startswith("2 workers with") for line in said)
    assert any(line.startswith("popularity (leave_one_out): fitted in") for line in said)  # by a worker


def read_run_log(home):
    """What the page of a home's run in Prefect says."""
    ((run_id,),) = query_rows(home, "select run_id from operations.runs")
    with get_client(sync_client=True) as client:
        for _ in range(100):  # lines reach the server a little later
            logs = client.read_logs(LogFilter(flow_run_id={"any_": [run_id]}), limit=200, sort=LogSort.TIMESTAMP_ASC)
            said = [one.message for one in logs]
            if any(line.startswith("popularity (leave_one_out): fitted in") for line in said):
                break
            time.sleep(0.1)
    return said


def test_an_address_without_a_scheduler_is_reported_before_any_stage(tmp_path, ratings, capsys, monkeypatch):
    monkeypatch.setattr("oneclass.tasks.cluster.dask.CONNECT_SECONDS", 1.0)
    assert run_backfill(tmp_path, "--source", ratings, "--dask", "tcp://127.0.0.1:1") == 2
    assert "--dask tcp://127.0.0.1:1: no scheduler answers there" in capsys.readouterr().err
    assert query_rows(tmp_path, "select state from operations.runs") == [("failed",)]
