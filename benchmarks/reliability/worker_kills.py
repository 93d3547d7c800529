"""Workers that get `kill -9` while a run hands them work: it must end with the tables of a run that has none.

    python -m benchmarks.reliability.worker_kills [--workers 1 2 7] [--runs 4] [--seed 1]

A backfill of a small demo log searches and trains all models that a run trains by default, judges them and publishes;
those that can be fitted by blocks of users have three. It runs once without workers and, for each number of workers,
once undisturbed and `--runs` times with KILLS kills at drawn times, each of a worker that is drawn then. Dask begins
another process in the place of one that is gone. The rows of the tables, and the bytes of the published files, are held
against those of the first run. Prints kills by the stage that was done last.

Exit status: 0 where all ended as the first, else 1.
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

from benchmarks.reliability.crashes import commands
from benchmarks.reliability.crashes.commands import DEFAULT, FLOWS, HOME
from oneclass.models.registry import MODELS

KILLS = 3  # of a run: where four workers die on the same call, its model is left out
IN_BLOCKS = [name for name in DEFAULT.split(",") if "blocks" in MODELS[name].Settings.model_fields]
FLOW = FLOWS["tuned"]


class Failed(Exception):
    """A run that ended with another status than 0; its last lines."""


def run(folder: Path, workers: int, kills: list[float], drawn: random.Random) -> tuple[Counter, float]:
    """One run in a process of its own; the kills by stage, and the seconds from its first worker to its end.

    Args:
        workers: processes of its cluster; none at 0.
        kills: seconds after the first worker was there, in their order; those after the run's end do not come.
    """
    folder.mkdir()
    settings = [*FLOW.settings, *(f"{name}.blocks=3" for name in IN_BLOCKS)]
    words = ["--dataset", FLOW.dataset, "--home", HOME, "--threads", str(max(1, workers)), "--models", DEFAULT]
    words += ["--workers", str(workers)] if workers else []
    command = [sys.executable, "-m", f"flows.{FLOW.module}", *words, "--set", *settings]
    killed, began, waiting = Counter(), None, list(kills)
    with open(folder / "log", "w") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said)
    while process.poll() is None:
        found = _workers(process.pid)
        began = began or (time.monotonic() if found else None)
        if found and waiting and time.monotonic() - began > waiting[0]:
            waiting.pop(0)
            drawn.choice(found).kill()
            killed[_stage((folder / "log").read_text())] += 1
        time.sleep(0.02)
    if process.returncode:
        raise Failed(f"status {process.returncode}\n{(folder / 'log').read_text()[-3000:]}")
    return killed, time.monotonic() - (began or time.monotonic())


def _workers(run_id: int) -> list[psutil.Process]:
    try:
        children = psutil.Process(run_id).children()
        return [one for one in children if "spawn_main" in " ".join(one.cmdline())]
    except psutil.Error:  # it has just ended
        return []


def _stage(said: str) -> str:
    """The stage that was done last, by what a run has said."""
    return "after " + ["no stage", *re.findall(r"stage_task - (\w+)[^\n]*: done in", said)][-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 7])
    parser.add_argument("--runs", type=int, default=4, help="with kills, for each number of workers")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    drawn, equal = random.Random(given.seed), True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
        run(folder / "plain", 0, [], drawn)
        expected = commands.left(folder / "plain", "tuned")
        print("| workers | runs | kills | when | ended equal |\n|---|---|---|---|---|", flush=True)
        for workers in given.workers:
            killed, alike = Counter(), 0
            _, seconds = run(folder / f"{workers}", workers, [], drawn)
            alike += commands.left(folder / f"{workers}", "tuned") == expected
            for number in range(given.runs):
                at = sorted(drawn.uniform(0, seconds) for _ in range(KILLS))
                killed += run(folder / f"{workers}-{number}", workers, at, drawn)[0]
                alike += commands.left(folder / f"{workers}-{number}", "tuned") == expected
            stages = ", ".join(f"{count} {stage}" for stage, count in killed.items())
            print(f"| {workers} | {given.runs + 1} | {killed.total()} | {stages} | {alike} |", flush=True)
            equal &= alike == given.runs + 1
    return int(not equal)


if __name__ == "__main__":
    sys.exit(main())
