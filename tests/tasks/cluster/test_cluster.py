"""What a cluster's workers do and refuse, with a real scheduler and real processes."""

import asyncio
import ipaddress
import os
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import dask
import psutil
import pytest
from distributed import Client, Security
from distributed.comm import connect

from oneclass.tasks.cluster import dask as dask_executor
from oneclass.tasks.cluster import open_executor
from oneclass.tasks.errors import ClusterUnavailable, InputError, OneclassError
from oneclass.tasks.stores import resources
from tests.tasks.cluster import conftest as calls
from tests.tasks.cluster.conftest import ROOT

pytestmark = pytest.mark.slow


def wait_for_lines(file, count):
    until = time.monotonic() + 30
    while not file.exists() or len(file.read_text().splitlines()) < count:
        assert time.monotonic() < until
        time.sleep(0.05)
    return [int(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
def test_a_call_whose_worker_is_gone_is_made_by_another(own_cluster, home, tmp_path, sent):
    own_cluster.worker()
    own_cluster.worker()
    with open_executor(own_cluster.address, home) as executor:
        pending = executor.submit(calls.record_slowly, home, tmp_path / "began", 2.0, label="call")
        (first,) = wait_for_lines(tmp_path / "began", 1)
        os.kill(first, sent)
        assert pending.result() != first


def test_a_call_that_ends_each_process_is_given_up_with_what_to_do(home):
    once = dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with once, open_executor(1, home) as executor:
        pending = executor.submit(calls.ends_its_process, home, label="fit of wmf")
        with pytest.raises(OneclassError, match="fit of wmf: the worker died.*give each worker more"):
            pending.result()


def test_a_scheduler_that_dies_ends_the_run_in_seconds(own_cluster, home, tmp_path, monkeypatch):
    own_cluster.worker()
    monkeypatch.setattr(dask_executor, "CONNECT_SECONDS", 3.0)
    with open_executor(own_cluster.address, home) as executor:
        pending = executor.submit(calls.record_slowly, home, tmp_path / "began", 60.0, label="call")
        wait_for_lines(tmp_path / "began", 1)
        own_cluster.end(own_cluster.scheduler)
        with pytest.raises(ClusterUnavailable, match="the same command continues"):
            pending.result()


def test_a_worker_that_does_not_see_the_home_or_has_another_version_says_so(home):
    versions, worker = dask_executor.find_versions(), SimpleNamespace(address="tcp://somewhere")
    with pytest.raises(ClusterUnavailable, match=f"it does not see {home.folder}: mount the home there"):
        dask_executor.check_worker(versions, home, worker)
    home.folder.mkdir(parents=True)
    assert dask_executor.check_worker(versions, home, worker) == resources.available_cores()
    with pytest.raises(ClusterUnavailable, match="and the run 0.1: install the same versions"):
        dask_executor.check_worker({**versions, "numpy": "0.1"}, home, worker)


def test_a_cluster_without_workers_or_with_another_source_is_refused_and_ends_a_run(
    own_cluster, home, monkeypatch, tmp_path
):
    """The package of the worker that comes late has a comment more."""
    package = tmp_path / "other" / "oneclass"
    shutil.copytree(ROOT / "oneclass", package, ignore=shutil.ignore_patterns("__pycache__"))
    with (package / "models" / "popularity.py").open("a") as file:
        file.write("# another version\n")
    monkeypatch.setattr(dask_executor, "CONNECT_SECONDS", 1.0)
    with pytest.raises(InputError, match="Only 0/1 workers"), open_executor(own_cluster.address, home):
        pass
    first = own_cluster.worker()
    message = r"worker tcp://[\d.:]+ cannot be used: it has oneclass's source"
    with open_executor(own_cluster.address, home) as executor:
        own_cluster.end(first)
        own_cluster.worker(source=package.parent)
        pending = executor.submit(calls.identify_worker, home, label="call")
        with pytest.raises(ClusterUnavailable, match=message):
            pending.result()
    with pytest.raises(InputError, match=message), open_executor(own_cluster.address, home):
        pass


def test_a_worker_has_the_memory_that_dask_says_it_has(own_cluster, home):
    with open_executor(2, home) as executor:
        assert executor.worker_memory == int(0.8 * resources.memory_limit() / 2)
    for size in ("3GB", "2GB"):
        own_cluster.worker("--nthreads", "1", "--memory-limit", size)
    with open_executor(own_cluster.address, home) as executor:
        assert executor.worker_memory == 2 * 10**9


def test_the_workers_of_a_run_end_with_it_however_it_ends(home, tmp_path):
    (file := tmp_path / "run.py").write_text(
        "import sys, time; from pathlib import Path; from oneclass.tasks.cluster import open_executor;"
        "from oneclass.tasks.stores.home import Home; import psutil\n"
        "if __name__ == '__main__':\n"
        "    with open_executor(2, Home(Path(sys.argv[1]), 'small')):\n"
        "        print(*[one.pid for one in psutil.Process().children()], flush=True); time.sleep(60)"
    )
    command, environment = [sys.executable, str(file), str(home.root)], {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        workers = [int(pid) for pid in process.stdout.readline().split()]
        assert len([pid for pid in workers if psutil.pid_exists(pid)]) >= 2
        process.kill()
    until = time.monotonic() + 20
    while any(psutil.pid_exists(pid) for pid in workers):
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("10.0.0.1:8786", "Write tls://HOST:PORT, or tcp://127.0.0.1:PORT"),
        ("tcp://10.0.0.1:8786", "port that is not encrypted"),
        ("tls://127.0.0.1:8786", "check your TLS configuration"),
        ("tcp://127.0.0.1:1", "Timed out trying to connect"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_refused(home, monkeypatch, address, message):
    monkeypatch.setattr(dask_executor, "CONNECT_SECONDS", 1.0)
    with pytest.raises(InputError, match=message), open_executor(address, home):
        pass


def find_listeners():
    """The addresses on which this process and all that it started accept connections, by any network."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    open_sockets = [one for process in processes for one in process.net_connections(kind="inet")]
    return {one.laddr for one in open_sockets if one.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)}


async def connect_without_certificate(address):
    await connect(address.replace("tls://", "tcp://"), timeout=2)


def test_only_the_run_itself_can_use_its_cluster(home):
    before = find_listeners()
    with open_executor(1, home) as executor:
        assert executor.submit(calls.identify_worker, home, label="call").result() != os.getpid()
        listeners = find_listeners() - before
        assert all(ipaddress.ip_address(address.ip).is_loopback for address in listeners)
        scheduler = executor._client.scheduler.address
        ((worker, facts),) = executor._client.scheduler_info()["workers"].items()
        addresses = {scheduler, worker, facts["nanny"]}
        assert {int(address.rpartition(":")[2]) for address in addresses} < {address.port for address in listeners}
        for security in (None, Security.temporary()):
            address = scheduler if security else scheduler.replace("tls://", "tcp://")
            with pytest.raises(OSError):
                Client(address, security=security, timeout=2, set_as_default=False)
        for address in addresses:
            with pytest.raises(OSError):
                asyncio.run(connect_without_certificate(address))
        assert executor.map(len, [([1, 2],), ([],)]) == [2, 0]
