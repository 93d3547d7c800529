"""The command with workers that share no folder with it: matrices and fits lie at a URL, of the S3 protocol."""

import threading
import time
from pathlib import Path

import pytest

from tests import s3_server
from tests.flows.test_backfill import contents, run
from tests.tasks.cluster import conftest

HIDES = Path(conftest.__file__).with_name("hidden_home.py")
MODELS = ["--models", "popularity,random_graph,mrf_dense", "--protocols", "leave_one_out"]
SETTINGS = ["train.tune=off", "random_graph.blocks=2", "random_graph.iterations=12", "random_graph.factors=5"]


@pytest.fixture(autouse=True)
def server(prefect_server):
    return prefect_server


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with s3_server.started(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """A folder for homes that no worker sees."""
    return tmp_path_factory.mktemp("coordinator") / "homes"


@pytest.fixture(scope="module")
def cluster(s3, hidden, tmp_path_factory):
    with pytest.MonkeyPatch.context() as environment, conftest.started(tmp_path_factory.mktemp("cluster")) as cluster:
        environment.setenv("HIDDEN", str(hidden))
        for _ in range(3):
            add_worker(cluster, tmp_path_factory)
        yield cluster


def add_worker(cluster, folders):
    own = "--local-directory", str(folders.mktemp("worker")), "--preload", str(HIDES)
    cluster.worker("--nthreads", "1", *own)


@pytest.fixture(scope="module")
def alone(prefect_server, ratings, tmp_path_factory):
    """What a plain run makes."""
    home = tmp_path_factory.mktemp("alone")
    assert run(home, "--source", ratings, *MODELS, "--set", *SETTINGS) == 0
    return contents(home)


def during_the_blocks(s3, what):
    """Do something once users of a fit by blocks lie at the URL; a thread that has done it when it ends."""

    def watch():
        until = time.monotonic() + 120
        while not any("block-1-3" in name for name in s3.names()):
            assert time.monotonic() < until
            time.sleep(0.02)
        what()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_workers_that_do_not_see_the_home_give_the_tables_of_a_plain_run(s3, cluster, hidden, alone, ratings):
    first = cluster.processes[1]
    killer = during_the_blocks(s3, first.kill)
    by_url = ["--dask", cluster.address, "--store", s3.url]
    assert run(hidden / "home", "--source", ratings, *MODELS, "--set", *SETTINGS, *by_url) == 0
    killer.join()
    assert first.wait() == -9
    assert contents(hidden / "home") == alone
    assert not hidden.with_suffix(".tried").exists()
    print(s3.names())
