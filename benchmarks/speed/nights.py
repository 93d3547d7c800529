"""Measure the CPU seconds of whole runs of the demo: a first one, and nights with nothing new.

    python -m benchmarks.speed.nights [--repeats 3]

Each run is the README's command in a process of its own. A run before them compiles the kernels. CPU seconds are those
of the run with all processes that it starts, Prefect's temporary server among them; a permanent server, which this
command starts for the last row, is not counted. Prints the least and the median of the repeats.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.reliability.crashes.prefect_server import OwnServer

AIMS_CPU_SECONDS = {"first": 30, "nothing new": 8, "nothing new, a server that stays": 4}


def run_demo(home: Path, environment: dict[str, str]) -> float:
    """Run the demo's backfill; returns its CPU seconds."""
    command = [sys.executable, "-m", "flows.backfill", "--dataset", "demo", "--home", str(home)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
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
        server = OwnServer(folder / "prefect-server").wait_ready()
        try:
            with_server = environment | {"PREFECT_API_URL": server.url}
            costs["nothing new, a server that stays"] = [run_demo(folder / "home-0", with_server) for _ in repeats]
        finally:
            server.stop()
    print("CPU seconds                             least  median     aim")
    for kind, seconds in costs.items():
        print(f"{kind:40} {min(seconds):4.1f} {statistics.median(seconds):7.1f} {AIMS_CPU_SECONDS[kind]:7}")


if __name__ == "__main__":
    main()
