"""The command with a cluster of workers: the tables of a plain run, bit for bit, whatever becomes of a worker."""

import re
import threading
import time

import psutil
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter
from prefect.client.schemas.sorting import LogSort

from tests.flows.test_artifacts import shown
from tests.flows.test_backfill import contents, query, run
from tests.tasks.cluster.conftest import started

IN_BLOCKS = "random_graph", "wmf", "hpf", "paired_symbols", "binary_matrix", "mrf_dense", "mrf_sparse", "slim"
SHORT = (
    "random_graph.iterations=4",
    "random_graph.factors=5",
    "wmf.iterations=3",
    "wmf.factors=8",
    "hpf.max_iterations=4",
    "paired_symbols.iterations=3",
    "paired_symbols.factors=5",
    "binary_matrix.passes=3",
    "binary_matrix.factors=5",
)
BLOCKS = *(f"{model}.blocks=3" for model in IN_BLOCKS), *SHORT


@pytest.fixture(autouse=True)
def server(prefect_server):
    return prefect_server


def workers():
    """The worker processes of the run's own cluster."""
    return [one for one in psutil.Process().children() if "spawn_main" in " ".join(one.cmdline())]


def kill_one_after(folder, killed):
    """Kill a worker once something is in a folder."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if folder.is_dir() and any(folder.iterdir()) and (found := workers()):
            found[0].kill()
            killed.append(found[0].pid)
            return
        time.sleep(0.01)


def test_two_workers_one_of_which_is_killed_give_the_tables_of_a_plain_run(first, tmp_path, ratings):
    killed = []
    killer = threading.Thread(target=kill_one_after, args=(tmp_path / "ml-latest-small" / "models", killed))
    killer.start()
    assert run(tmp_path, "--source", ratings, "--workers", 2) == 0
    killer.join()
    assert killed and contents(tmp_path) == contents(first[0])
    assert re.fullmatch(
        r"\[What the workers do\]\(http://127.0.0.1:\d+/status\)", shown("ml-latest-small-workers")[-1].data
    )
    assert workers() == []


def test_a_cluster_that_is_there_gives_the_same_with_models_in_blocks(tmp_path, ratings, capsys):
    more = ["--source", ratings, "--models", ",".join(("popularity", *IN_BLOCKS)), "--set", *BLOCKS]
    assert run(tmp_path / "alone", *more) == 0
    with started(tmp_path / "cluster") as cluster:
        cluster.worker()
        cluster.worker()
        assert run(tmp_path / "many", *more, "--dask", cluster.address) == 0
    assert contents(tmp_path / "many") == contents(tmp_path / "alone")
    ((run_id,),) = query(tmp_path / "many", "select run_id from operations.runs")
    with get_client(sync_client=True) as client:
        for _ in range(100):  # lines reach the server a little later
            logs = client.read_logs(LogFilter(flow_run_id={"any_": [run_id]}), limit=200, sort=LogSort.TIMESTAMP_ASC)
            said = [one.message for one in logs]
            if any(line.startswith("popularity (leave_one_out): fitted in") for line in said):
                break
            time.sleep(0.1)
    assert any(line.startswith("2 workers with") for line in said)
    assert any(line.startswith("popularity (leave_one_out): fitted in") for line in said)  # by a worker


def test_an_address_where_nobody_answers_is_told_before_any_stage(tmp_path, ratings, capsys, monkeypatch):
    monkeypatch.setattr("tasks.cluster.dask_engine.SECONDS_TO_ANSWER", 1.0)
    assert run(tmp_path, "--source", ratings, "--dask", "tcp://127.0.0.1:1") == 2
    assert "--dask tcp://127.0.0.1:1: no scheduler answers there" in capsys.readouterr().err
    assert query(tmp_path, "select state from operations.runs") == [("failed",)]
