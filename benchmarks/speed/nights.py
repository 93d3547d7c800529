"""What a run of the demo costs beside the fits: a first one, and nights with nothing new, in processor seconds.

    python -m benchmarks.speed.nights [--repeats 3]

Each is the command of the README in a process of its own, in a home of its own. A run before them compiles the kernels.
Processor seconds are those of the run with all processes that it starts: Prefect's temporary server, unless one that
stays is used, which is started here and not counted. Prints the least and the median of the repeats.
"""

import argparse
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AIMS = {"first": 30, "nothing new": 8, "nothing new, a server that stays": 4}  # processor seconds


def run_demo(home: Path, environment: dict[str, str]) -> float:
    """Run the demo's backfill; returns its processor seconds."""
    command = [sys.executable, "-m", "flows.backfill", "--dataset", "demo", "--home", str(home)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def serve_prefect(environment: dict[str, str]) -> Iterator[str]:
    """Start a Prefect server for the block; yields the address of its API."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as server:
        try:
            for _ in range(120):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health").close()
                    break
                except urllib.error.URLError:
                    time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/api"
        finally:
            server.terminate()


def main() -> None:
    """Print a line for each kind of run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = range(parser.parse_args().repeats)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"}
        environment["PREFECT_HOME"] = str(folder / "prefect")
        run_demo(folder / "before", environment)
        costs = {
            "first": [run_demo(folder / f"home-{number}", environment) for number in repeats],
            "nothing new": [run_demo(folder / "home-0", environment) for _ in repeats],
        }
        with serve_prefect(environment) as address:
            with_address = environment | {"PREFECT_API_URL": address}
            costs["nothing new, a server that stays"] = [run_demo(folder / "home-0", with_address) for _ in repeats]
    print("processor seconds                       least  median     aim")
    for kind, seconds in costs.items():
        print(f"{kind:40} {min(seconds):4.1f} {statistics.median(seconds):7.1f} {AIMS[kind]:7}")


if __name__ == "__main__":
    main()
