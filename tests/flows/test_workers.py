"""The command with worker processes of its own: its tables are those of a plain run."""

import threading
import time

import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter
from prefect.client.schemas.sorting import LogSort

from tests.flows.test_backfill import query_rows, read_contents, run_backfill


@pytest.fixture(autouse=True)
def server(prefect_server):
    return prefect_server


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
