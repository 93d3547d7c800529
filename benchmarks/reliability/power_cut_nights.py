"""Cut the power once in each night of a shop, and check that no event is lost and the lists are right and new.

    python -m benchmarks.reliability.power_cut_nights [--nights 365] [--minutes 1440] [--seed 1] [--events 6000]

The home is on an ext4 file system of its own, on a loop device. Every night a log of the shop
(`benchmarks/reliability/year.py`) goes into the landing folder and the nightly run starts. At a drawn time, up to the
duration of the night before, the run is stopped and the image behind the device copied: what a power cut would leave.
The run is killed, the copy replaces the image, and the nightly run starts again and ends. Counts in plain Python over
all logs then check that `raw.events` has each line once; that the published lists are this night's, name every user,
and hold the most popular items that the user does not have; and that the cut run, if recorded, is recorded as ended.
Ends with status 1 at the first difference. Needs root, losetup and mkfs.ext4.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path

import duckdb

from benchmarks.reliability.power_cuts import PUBLISH_ALWAYS, RUN_COMMAND, copy_image, create_image, mount_image
from benchmarks.reliability.year import FIRST_DAY, Shop
from oneclass.tasks.stores.home import Home

DATASET = "[binarize]\nthreshold = 1\n"
LOG_LINES = 40  # of a failed run that are printed
FIRST_NIGHT_SECONDS = 60.0  # bounds the first cut
Events = list[tuple[str, str]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--minutes", type=float, default=1440, help="start no night after these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=6000, help="of the first night, about")
    options = parser.parse_args()
    generator, shop = random.Random(options.seed), Shop(options.seed, options.events)
    until = time.monotonic() + 60 * options.minutes
    events: Events = []
    states: Counter[str] = Counter()
    seconds, recorded = FIRST_NIGHT_SECONDS, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        image, home, log = create_image(folder), Home(folder / "home", "shop"), folder / "run.log"
        for night in range(options.nights):
            if time.monotonic() > until:
                break
            day = shop.draw_day(FIRST_DAY + timedelta(days=night))
            lines = [(f"u{user}", f"i{item}") for user, item in zip(day.user, day.item, strict=True)]
            events += lines
            with mount_image(image, home.root):
                write_log(home, night, lines)
                cut_run(home, log, image, folder / "copy", generator.uniform(0, seconds))
            os.replace(folder / "copy", image)
            with mount_image(image, home.root):
                began = time.monotonic()
                if status := start_run(home, log).wait():
                    print(f"night {night}: the run after the cut ended with {status}")
                    print(*log.read_text(errors="replace").splitlines()[-LOG_LINES:], sep="\n")
                    return 1
                seconds = time.monotonic() - began
                recorded, state, problems = check_home(home, events, recorded)
            states[state] += 1
            print(f"night {night}: {len(lines)} events, the cut run {state}, {seconds:.0f} s", flush=True)
            for problem in problems:
                print(f"night {night}, cut run {state}: {problem}")
            if problems:
                return 1
    print(f"{states.total()} nights, {states.total()} power cuts, {len(events):,} events; nothing lost, stale or wrong")
    for state, nights in states.most_common():
        print(f"{nights:4} cut runs {state}")
    return 0


def write_log(home: Home, night: int, lines: Events) -> None:
    """Write a night's log into the landing folder, and sync it."""
    home.landing.mkdir(parents=True, exist_ok=True)
    (home.root / "datasets").mkdir(exist_ok=True)
    (home.root / "datasets" / "shop.toml").write_text(DATASET)
    text = "".join(f"{user},{item}\n" for user, item in lines)
    (home.landing / f"night-{night:03}.csv").write_text(f"user_id,item_id\n{text}")
    os.sync()


def start_run(home: Home, log: Path) -> subprocess.Popen:
    """Start the nightly run in a process of its own."""
    program = RUN_COMMAND.format(flow="nightly_retrain")
    command = [sys.executable, "-c", program, "--dataset", "shop", "--home", str(home.root), "--models", "popularity"]
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, "--set", "train.tune=off", *PUBLISH_ALWAYS], stdout=output, stderr=output, start_new_session=True
        )


def cut_run(home: Home, log: Path, image: Path, copy: Path, seconds: float) -> None:
    """Start a run, copy the image after some seconds, and kill the run."""
    run = start_run(home, log)
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(seconds)
    copy_image(image, copy, run)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    run.wait()


def check_home(home: Home, events: Events, recorded: int) -> tuple[int, str, list[str]]:
    """Compare a home with all logs; returns the number of recorded runs, the cut run's state, and the problems.

    Args:
        recorded: the number of recorded runs before the night.
    """
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        ingested = connection.execute("select user_id, item_id from raw.events").fetchall()
        rows = connection.execute("select user_id, item_id from published.recommendations order by all").fetchall()
        runs = connection.execute("select run_id, state from operations.runs order by started_at").fetchall()
        [(current,)] = connection.execute("select run_id from operations.publications where is_current").fetchall()
    problems = [] if Counter(ingested) == Counter(events) else ["raw.events are not the lines of all logs"]
    popularity, liked, lists = Counter(item for _, item in set(events)), defaultdict(set), defaultdict(list)
    for user, item in events:
        liked[user].add(item)
    for user, item in rows:
        lists[user].append(item)
    if set(lists) != set(liked):
        problems.append("the lists name other users than the logs")
    for user, items in lists.items():
        liked_or_listed = liked[user] | set(items)
        left_out = max((count for item, count in popularity.items() if item not in liked_or_listed), default=0)
        if liked[user] & set(items) or left_out > min(popularity[item] for item in items):
            problems.append(f"the list of {user} does not hold the most popular items that the user does not have")
    cut_state = runs[-2][1] if len(runs) == recorded + 2 else "not recorded"
    if current not in [run_id for run_id, state in runs[-2:] if state == "completed"]:
        problems.append(f"the publication is of the run {current}, not of this night")
    if running := sum(state == "running" for _, state in runs):
        problems.append(f"{running} runs are recorded as running")
    return len(runs), cut_state, problems


if __name__ == "__main__":
    sys.exit(main())
