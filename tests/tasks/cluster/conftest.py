"""A Dask scheduler and workers in processes of their own, and calls for them, which a worker imports from here."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oneclass.tasks.stores.home import Home
from tests.conftest import home_in

ROOT = Path(__file__).parents[3]
QUICKLY = {  # of a worker that says nothing more, by default 5 minutes; and of a scheduler that is gone
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s",  # less, and a busy machine loses workers that are well
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s",
}


class Cluster:
    """One scheduler, whose workers the tests start and end."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.processes = folder, []
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self._wait(lambda: self._file.exists())
        from distributed import Client  # here, since tests by default need none

        with Client(scheduler_file=str(self._file)) as client:
            self.address = client.scheduler.address

    def worker(self, *arguments: str, source: Path = ROOT) -> subprocess.Popen:
        from distributed import Client

        with Client(self.address) as client:
            before = len(client.scheduler_info(n_workers=-1)["workers"])
            words = "--host", "127.0.0.1", "--no-nanny", "--no-dashboard", *(arguments or ("--nthreads", "1"))
            process = self._start("worker", *words, source=source)
            self._wait(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) > before)
        return process

    def end(self, *processes: subprocess.Popen) -> None:
        for process in processes or self.processes:
            process.kill()
            process.wait()

    @property
    def _file(self) -> Path:
        return self._folder / "scheduler.json"

    def _start(self, *words: str, source: Path = ROOT) -> subprocess.Popen:
        command = [sys.executable, "-m", "dask", *words, "--scheduler-file", str(self._file)]
        environment = {**os.environ, **QUICKLY, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
        with (self._folder / "said").open("ab") as said:
            process = subprocess.Popen(command, env=environment, cwd=self._folder, stdout=said, stderr=said)
        self.processes.append(process)
        return process

    def _wait(self, there) -> None:
        until = time.monotonic() + 60
        while not there():
            assert time.monotonic() < until, (self._folder / "said").read_text()
            time.sleep(0.1)


@contextlib.contextmanager
def start_cluster(folder: Path) -> Iterator[Cluster]:
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def own_cluster(tmp_path) -> Iterator[Cluster]:
    with start_cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def home(tmp_path):
    return home_in(tmp_path / "var")


def identify_worker(home: Home) -> int:
    return os.getpid()


def record_slowly(home: Home, began: Path, seconds: float) -> int:
    """Note the process in a file, and take a while."""
    with began.open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return os.getpid()


def ends_its_process(home: Home) -> None:
    os._exit(9)
