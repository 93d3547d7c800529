"""Kill Dask workers during runs, and compare the tables with those of a run without workers.

    python -m benchmarks.reliability.worker_kills [--workers 1 2 7] [--runs 4] [--seed 1]

A backfill of a small demo log searches, trains, evaluates and publishes all default models; those that can be fitted by
blocks of users have three. It runs once without workers and, for each number of workers, once undisturbed and `--runs`
times with three kills (`kill -9`) at drawn times, each of a worker drawn then. Dask replaces a killed worker. The rows
of the tables and the bytes of the published files are compared with those of the first run. Prints kills by the stage
that was done last.

Exit status: 0 if all ended like the first, else 1.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from benchmarks.reliability.crashes.commands import DEFAULT_MODELS, FLOWS, HOME, digest_flow
from oneclass.models.registry import MODELS

KILLS_PER_RUN = 3  # a model on whose call four workers die is left out
BLOCK_MODELS = [name for name in DEFAULT_MODELS.split(",") if "blocks" in MODELS[name].Settings.model_fields]
FLOW = FLOWS["tuned"]


def run_flow(folder: Path, workers: int, kills: list[float], generator: random.Random) -> tuple[Counter, float]:
    """Run the flow in a process of its own; returns the kills by stage, and the seconds from the first worker on.

    Args:
        workers: processes of its cluster; 0 for none.
        kills: seconds after the first worker, ascending; those after the run's end do not happen.

    Raises:
        SystemExit: the run ends with another status than 0.
    """
    folder.mkdir()
    settings = [*FLOW.settings, *(f"{name}.blocks=3" for name in BLOCK_MODELS)]
    words = ["--dataset", FLOW.dataset, "--home", HOME, "--threads", str(max(1, workers)), "--models", DEFAULT_MODELS]
    words += ["--workers", str(workers)] if workers else []
    command = [sys.executable, "-m", f"flows.{FLOW.module}", *words, "--set", *settings]
    stages, began, waiting, log = Counter(), None, list(kills), folder / "log"
    with open(log, "w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    while process.poll() is None:
        running = _list_workers(process.pid)
        began = began or (time.monotonic() if running else None)
        if running and waiting and time.monotonic() - began > waiting[0]:
            waiting.pop(0)
            generator.choice(running).kill()
            done = re.findall(r"stage_task - (\w+)[^\n]*: done in", log.read_text())
            stages["after " + ["no stage", *done][-1]] += 1
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"a run ended with status {process.returncode}\n{log.read_text()[-3000:]}")
    return stages, time.monotonic() - (began or time.monotonic())


def _list_workers(pid: int) -> list[psutil.Process]:
    try:
        children = psutil.Process(pid).children()
        return [one for one in children if "spawn_main" in " ".join(one.cmdline())]
    except psutil.Error:  # the run has just ended
        return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 7])
    parser.add_argument("--runs", type=int, default=4, help="with kills, for each number of workers")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    generator, all_equal = random.Random(options.seed), True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
        run_flow(folder / "plain", 0, [], generator)
        expected = digest_flow("tuned", folder / "plain")
        print("| workers | runs | kills | when | ended equal |\n|---|---|---|---|---|", flush=True)
        for workers in options.workers:
            _, seconds = run_flow(folder / f"{workers}", workers, [], generator)
            equal, stages = int(digest_flow("tuned", folder / f"{workers}") == expected), Counter()
            for number in range(options.runs):
                kills = sorted(generator.uniform(0, seconds) for _ in range(KILLS_PER_RUN))
                run_folder = folder / f"{workers}-{number}"
                stages += run_flow(run_folder, workers, kills, generator)[0]
                equal += digest_flow("tuned", run_folder) == expected
            when = ", ".join(f"{count} {stage}" for stage, count in stages.items())
            print(f"| {workers} | {options.runs + 1} | {stages.total()} | {when} | {equal} |", flush=True)
            all_equal &= equal == options.runs + 1
    return int(not all_equal)


if __name__ == "__main__":
    sys.exit(main())
