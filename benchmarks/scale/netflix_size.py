"""The whole command at Netflix's size: a log of its shape, from raw lines to published tables, and what each stage
took.

    python -m benchmarks.scale.netflix_size --home DIR [--share 0.1] [--nights 3] [--kills 10] [--set KEY=VALUE ...]

The log is the demo's, by the random-graph paper's generative story, with the Netflix Prize's numbers of users, films,
ratings and likes, in its format: 100,587,242 lines, 2 GB in four files. `--share` makes a part of the users, with their
likes. The run is `python -m flows.backfill --dataset netflix` with the settings it ships. A second night has 1 % more
lines, drawn here: ratings by users who are there, of a later week. A third finds nothing new.

With `--kills` the last night is run once more in a copy of the home as it was before, and gets `kill -9` in so many of
its stages, which are drawn, each at a drawn moment; the rows of its tables and the bytes of its published files are
held against those of the night that was left alone. Exit status: 0 where all are equal, else 1.

Prints a row a stage, as the run's log tells it, and the most memory that the run's processes held together at a time:
pages of their own, without the files that they map. The logs are kept in DIR, which has 12 GB after one night; while it
runs, DuckDB spills beside that. It needs an idle machine.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.reliability.crashes.commands import left_in
from oneclass.tasks.demo.netflix_writer import write_ratings_log
from oneclass.tasks.demo.story import DemoSettings, make_demo
from oneclass.tasks.stores.home import Home

USERS, ITEMS, LIKES, LIKE_SHARE, HELD_OUT, SEED = 480_189, 17_770, 56_919_190, 0.5665, 40_000, 7
LATER = np.datetime64("2006-01-01")
DONE = re.compile(r"- ([\w ]+): done in ([\d a-z.]+)")
SECONDS = {"s": 1, "min": 60, "h": 3600}


def first_night(home: Path, share: float) -> None:
    """The log, in the landing folder of the data set `netflix`."""
    settings = DemoSettings(users=round(USERS * share), items=ITEMS, likes=round(LIKES * share), like_share=LIKE_SHARE)
    landing = Home(home, "netflix").landing
    landing.mkdir(parents=True)
    for log in make_demo(Home(home / "made", "demo"), settings, SEED):
        log.rename(landing / log.name)


def second_night(home: Path, share: float) -> None:
    """One per cent more lines, in a file of their own."""
    draws = np.random.default_rng(SEED)
    films = np.sort(draws.integers(0, ITEMS, round(1_005_872 * share)))
    users = draws.integers(0, round(USERS * share), len(films)).astype(np.int32)
    starts = np.searchsorted(films, np.arange(ITEMS + 1)).astype(np.int64)

    def rated(users: np.ndarray, items: np.ndarray, edges: slice) -> tuple[np.ndarray, np.ndarray]:
        return draws.integers(1, 6, len(users)).astype(np.uint8), LATER + draws.integers(0, 7, len(users))

    folder = home / "made"
    (name,) = write_ratings_log(folder, starts, users, rated)
    (folder / name).rename(Home(home, "netflix").landing / "combined_data_5.txt")


def run(
    home: Path, log: Path, share: float, more: list[str], kill: tuple[str, float] | None = None
) -> tuple[float, float, bool]:
    """One night: its seconds, its gigabytes, and whether it came to its end.

    Args:
        kill: it is killed so many seconds after a stage is done, or after it began where the stage is empty.
    """
    settings = [f"split.held_out_users={round(HELD_OUT * share)}", *more]
    command = [sys.executable, "-m", "flows.backfill", "--dataset", "netflix", "--home", home, "--set", *settings]
    environment = {**os.environ, "PREFECT_HOME": str(home / "prefect")}
    began, most, said = time.perf_counter(), 0, log.stat().st_size if log.exists() else 0
    after, since = kill or ("", float("inf"))
    reached = None if after else began
    with log.open("ab") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
        while process.poll() is None:
            time.sleep(0.1 if reached is not None and kill else 1)
            most = max(most, sum(map(own_bytes, family(process.pid))))
            if reached is None and after in stages_done(log, said):
                reached = time.perf_counter()
            if reached is not None and time.perf_counter() - reached > since:
                process.kill()
                process.wait()
                return time.perf_counter() - began, most / 1e9, False
    if process.returncode:
        sys.exit(f"the run ended with status {process.returncode}; see {log}")
    return time.perf_counter() - began, most / 1e9, True


def stages_done(log: Path, start: int = 0) -> dict[str, float]:
    """The stages that a log says are done from one of its bytes on, in their order, with the seconds that each took."""
    found = {}
    for stage, took in DONE.findall(log.read_bytes()[start:].decode()):
        numbers = took.split()
        found[stage] = sum(float(number) * SECONDS[unit] for number, unit in zip(numbers[::2], numbers[1::2]))
    return found


def killed(home: Path, took: dict[str, float], kills: int, share: float, more: list[str]) -> float:
    """A night that is killed in so many of its stages, the earlier ones first, then left to its end; its seconds in
    all.

    Args:
        took: seconds of each stage of the night, when it was left alone.
    """
    drawn, spent, log = random.Random(SEED), 0.0, home / "killed.log"
    stages, kills = list(took), min(kills, len(took))
    cuts = [len(took) * kill // kills for kill in range(kills + 1)]  # one stage of each of so many runs of them
    for number in [*(drawn.randrange(first, end) for first, end in pairwise(cuts)), None]:
        kill = None
        if number is not None:
            kill = stages[number - 1] if number else "", drawn.uniform(0, took[stages[number]])
        seconds, _, ended = run(home, log, share, more, kill)
        spent += seconds
        where = "ended" if ended else f"killed {kill[1]:.1f} s into {stages[number]}"
        print(f"{where}, after {seconds:.0f} s", flush=True)
        if ended:
            break
    return spent


def family(process: int) -> list[int]:
    """A process and all below it."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [process, *(one for child in children for one in family(int(child)))]


def own_bytes(process: int) -> int:
    """The memory of a process that is of no file."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return sum(1024 * int(size) for size in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.MULTILINE))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale.netflix_size", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--home", type=Path, required=True, help="a folder that is not there yet, on a disk with room")
    parser.add_argument("--share", type=float, default=1.0, help="of Netflix's users")
    parser.add_argument("--nights", type=int, choices=(1, 2, 3), default=1)
    parser.add_argument("--kills", type=int, default=0, help="of the last night, run once more")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings beside those it ships")
    given = parser.parse_args()
    home, before = given.home / "home", given.home / "killed"
    first_night(home, given.share)
    for night in range(1, given.nights + 1):
        if night == 2:
            second_night(home, given.share)
        if given.kills and night == given.nights:
            shutil.copytree(home, before, symlinks=True)
        log = given.home / f"night-{night}.log"
        seconds, gigabytes, _ = run(home, log, given.share, given.set)
        print(f"\nnight {night}\n{'stage':<50} took")
        for stage, took in DONE.findall(log.read_text()):
            print(f"{stage:<50} {took}")
        print(f"{'in all':<50} {seconds / 60:.1f} min, {gigabytes:.1f} GB", flush=True)
    if not given.kills:
        return 0
    print(f"\nnight {given.nights}, to be killed {given.kills} times")
    took = {stage: seconds for stage, seconds in stages_done(log).items() if stage != "netflix"}
    spent = killed(before, took, given.kills, given.share, given.set)
    expected, found = left_in(home / "netflix"), left_in(before / "netflix")
    differing = [name for name in expected if found[name] != expected[name]]
    print(
        f"{spent / 60:.1f} min; {len(expected)} tables and files,",
        "all equal" if not differing else f"not equal: {differing}",
    )
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
