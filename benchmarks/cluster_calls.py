"""What a cluster costs: the start of its workers, a call's way there and back, and Prefect's tasks on workers beside it.

    python -m benchmarks.cluster_calls [--workers 2] [--calls 50]

The executor hands plain functions to Dask, as a run does. `prefect-dask` runs each call as a Prefect task on a worker, with a
Prefect server for the workers to reach; that row needs the package prefect-dask, which the project does not use, and is
left out without it. Wall seconds, and CPU seconds of this process, its workers and the server together.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

PORT = 4748


@contextmanager
def server(folder: str) -> Iterator[None]:
    """A Prefect server, once it answers; the processes that start meanwhile find it."""
    os.environ |= {"PREFECT_HOME": folder, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(PORT), "--no-ui"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{PORT}/api"
    try:
        while True:
            try:
                urllib.request.urlopen(f"{os.environ['PREFECT_API_URL']}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def processor_seconds() -> float:
    """CPU seconds of this process and of all that it has started and that still run."""
    own = psutil.Process()
    times = [one.cpu_times() for one in [own, *own.children(recursive=True)]]
    return sum(one.user + one.system for one in times)


def measured(what: str, calls: int, work: Callable[[], object]) -> None:
    """Print a row."""
    wall, processor = time.perf_counter(), processor_seconds()
    work()
    wall, processor = time.perf_counter() - wall, processor_seconds() - processor
    print(f"| {what} | {1000 * wall / calls:.1f} | {1000 * processor / calls:.1f} |", flush=True)


def process() -> int:
    """A call with nothing to do."""
    return os.getpid()


def by_executor(workers: int, calls: int, folder: Path) -> None:
    """Calls as a run makes them."""
    from tasks.cluster import ClusterSettings, open_executor
    from tasks.stores.home import Home

    home = Home(folder, "none")
    wall, processor = time.perf_counter(), processor_seconds()
    with open_executor(ClusterSettings(workers=workers), home) as executor:
        executor.map(process, [()] * workers)
        wall, processor = time.perf_counter() - wall, processor_seconds() - processor
        print(
            f"the start of {workers} workers: {wall:.1f} s, {processor:.1f} CPU s\n\n| | ms a call | CPU ms |\n|---|---|---|"
        )
        measured("executor, one after another", calls, lambda: [executor.map(process, [()]) for _ in range(calls)])
        measured("executor, all at once", calls, lambda: executor.map(process, [()] * calls))


def by_prefect_dask(workers: int, calls: int) -> None:
    """The same as Prefect tasks on the workers of a Dask cluster."""
    from prefect import flow, task
    from prefect_dask import DaskTaskRunner

    nothing = task(process)
    runner = DaskTaskRunner(cluster_kwargs={"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None})

    @flow(task_runner=runner)
    def all_of_them() -> None:
        nothing.submit().result()
        measured("prefect-dask, one after another", calls, lambda: [nothing.submit().result() for _ in range(calls)])
        measured(
            "prefect-dask, all at once",
            calls,
            lambda: [one.result() for one in [nothing.submit() for _ in range(calls)]],
        )

    all_of_them()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_calls", description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        by_executor(options.workers, options.calls, Path(folder))
        try:
            import prefect_dask  # noqa: F401
        except ModuleNotFoundError:
            print("prefect-dask is not installed: not measured")
            return
        with server(folder):
            by_prefect_dask(options.workers, options.calls)


if __name__ == "__main__":
    main()
