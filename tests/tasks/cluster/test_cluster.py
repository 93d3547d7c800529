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
import numpy as np
import psutil
import pytest
from distributed import Client, Security
from distributed.comm import connect

from oneclass.tasks.cluster import dask as dask_executor
from oneclass.tasks.cluster import open_executor
from oneclass.tasks.errors import ClusterUnavailable, InputError, OneclassError
from oneclass.tasks.stores import resources
from tests.tasks.cluster import conftest as calls
from tests.tasks.cluster.conftest import ROOT, start_cluster

pytestmark = pytest.mark.slow


def open_cluster(cluster, home):
    return open_executor(cluster.address, home)


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
    with open_cluster(own_cluster, home) as executor:
        pending = executor.submit(calls.record_slowly, home, tmp_path / "began", 2.0, label="call")
        (first,) = wait_for_lines(tmp_path / "began", 1)
        os.kill(first, sent)
        assert pending.result() != first


def test_a_call_that_ends_each_process_is_given_up_with_what_to_do(home):
    once = dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with once, open_executor(1, home) as executor:
        pending = executor.submit(calls.ends_its_process, home, label="fit of wmf")
        with pytest.raises(
            OneclassError, match="fit of wmf: the worker died in each of 1 attempts.*give each worker more"
        ):
            pending.result()


def test_a_scheduler_that_dies_ends_the_run_in_seconds(own_cluster, home, tmp_path, monkeypatch):
    own_cluster.worker()
    monkeypatch.setattr(dask_executor, "CONNECT_SECONDS", 3.0)
    with open_cluster(own_cluster, home) as executor:
        pending = executor.submit(calls.record_slowly, home, tmp_path / "began", 60.0, label="call")
        wait_for_lines(tmp_path / "began", 1)
        own_cluster.end(own_cluster.scheduler)
        with pytest.raises(ClusterUnavailable, match="the same command continues"):
            pending.result()


def test_a_worker_that_does_not_see_the_home_or_has_another_version_says_so(home):
    versions, worker = dask_executor.find_versions(), SimpleNamespace(address="tcp://somewhere")
    said = f"worker tcp://somewhere cannot be used: it does not see {home.folder}: mount the home there"
    with pytest.raises(ClusterUnavailable, match=said):
        dask_executor.check_worker(versions, home, worker)
    home.folder.mkdir(parents=True)
    assert dask_executor.check_worker(versions, home, worker) == resources.available_cores()
    said = f"it has numpy {np.__version__}, and the run 0.1: install the same versions"
    with pytest.raises(ClusterUnavailable, match=said):
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
    with pytest.raises(InputError, match="Only 0/1 workers"), open_cluster(own_cluster, home):
        pass
    first = own_cluster.worker()
    message = r"worker tcp://[\d.:]+ cannot be used: it has oneclass's source"
    with open_cluster(own_cluster, home) as executor:
        own_cluster.end(first)
        own_cluster.worker(source=package.parent)
        pending = executor.submit(calls.identify_worker, home, label="call")
        with pytest.raises(ClusterUnavailable, match=message):
            pending.result()
    with pytest.raises(InputError, match=message), open_cluster(own_cluster, home):
        pass


def test_a_worker_has_the_memory_that_dask_says_it_has(own_cluster, home):
    with open_executor(2, home) as executor:
        assert executor.worker_memory == int(0.8 * resources.memory_limit() / 2)
    for size in ("3GB", "2GB"):
        own_cluster.worker("--nthreads", "1", "--memory-limit", size)
    with open_cluster(own_cluster, home) as executor:
        assert executor.worker_memory == 2 * 10**9
    own_cluster.worker("--nthreads", "1", "--memory-limit", "0")
    with open_cluster(own_cluster, home) as executor:
        assert executor.worker_memory is None


def test_the_workers_of_a_run_end_with_it_however_it_ends(home):
    script = (
        "import sys, time; from pathlib import Path; from oneclass.tasks.cluster import open_executor;"
        "from oneclass.tasks.stores.home import Home; import psutil\n"
        "if __name__ == '__main__':\n"
        "    with open_executor(2, Home(Path(sys.argv[1]), 'small')):\n"
        "        print(*[one.pid for one in psutil.Process().children()], flush=True); time.sleep(60)"
    )
    file = home.root / "run.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(file), str(home.root)], env=environment, stdout=subprocess.PIPE, text=True
    )
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len([pid for pid in workers if psutil.pid_exists(pid)]) >= 2
    process.kill()
    process.wait()
    process.stdout.close()
    until = time.monotonic() + 20
    while any(psutil.pid_exists(pid) for pid in workers):
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.fixture
def certificates(tmp_path, monkeypatch):
    """A certificate that vouches for itself, named to Dask as its configuration wants, here and in every process."""
    made = Security.temporary()
    (tmp_path / "cert.pem").write_text(made.tls_ca_file)
    (tmp_path / "key.pem").write_text(made.tls_client_key)
    named = {"ca-file": tmp_path / "cert.pem"}
    for role in ("scheduler", "worker", "client"):
        named |= {f"{role}.cert": tmp_path / "cert.pem", f"{role}.key": tmp_path / "key.pem"}
    for what, file in named.items():
        variable = what.replace(".", "__").replace("-", "_").upper()
        monkeypatch.setenv(f"DASK_DISTRIBUTED__COMM__TLS__{variable}", str(file))
    with dask.config.set({f"distributed.comm.tls.{what}": str(file) for what, file in named.items()}):
        yield


def test_a_cluster_that_speaks_tls_is_used_where_there_are_certificates(certificates, home, tmp_path):
    with start_cluster(tmp_path / "cluster", "tls") as cluster:
        cluster.worker()
        assert cluster.address.startswith("tls://")
        with open_cluster(cluster, home) as executor:
            assert executor.submit(calls.identify_worker, home, label="call").result()[0] != os.getpid()


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
    own = psutil.Process()
    processes = [own, *own.children(recursive=True)]
    open_sockets = [one for process in processes for one in process.net_connections(kind="inet")]
    return {one.laddr for one in open_sockets if one.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)}


async def connect_without_certificate(address):
    await connect(address.replace("tls://", "tcp://"), timeout=2)


@pytest.mark.slow
def test_only_the_run_itself_can_use_its_cluster(home):
    before = find_listeners()
    with open_executor(1, home) as executor:
        assert executor.submit(calls.identify_worker, home, label="call").result()[0] != os.getpid()
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
        assert executor.map(calls.double_number, [(1,), (2,)]) == [2, 4]
