"""Cut the power once in each of a shop's nights, and check that no event is lost and the lists are right and new.

    python -m benchmarks.reliability.power_cut_nights [--nights 365] [--minutes 1440] [--seed 1] [--events 6000]

The home lies on an ext4 file system of its own, on a loop device. Every night a log of the shop
(`benchmarks/reliability/year.py`) is put into the landing folder and the nightly run starts. At a drawn time, from its
start to the duration of the night before, the run is stopped and the image behind the device copied: what a power cut
leaves. The run is killed, the copy takes the image's place, and the nightly run is started again until its end. Then,
by counts in plain Python over all logs: `raw.events` has each line once; the lists published are this night's, name
every user, and have no item that the user has, nor one that is less popular than an item left out; the cut run is
recorded as ended, if it is recorded. Ends with status 1 at the first difference. Needs root, losetup and mkfs.ext4.
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

from benchmarks.reliability.power_cuts import IMAGE_BYTES, copy_image, mounted
from benchmarks.reliability.year import FIRST_DAY, Shop
from oneclass.tasks.stores.home import Home

DECLARED = "[binarize]\nthreshold = 1\n"
RUN = "from oneclass.flows import commands; import sys; sys.exit(commands.main('nightly_retrain', sys.argv[1:]))"
Events = list[tuple[str, str]]
LOG = "run.log"


def main() -> int:
    """Run the nights and print how many there were, and where in the run the power was cut."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--minutes", type=float, default=1440, help="no night begins after these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", type=int, default=6000, help="of the first night, about")
    given = parser.parse_args()
    drawn, shop, ends = random.Random(given.seed), Shop(given.seed, given.events), time.monotonic() + 60 * given.minutes
    events: Events = []
    left: Counter[str] = Counter()
    seconds, recorded = 60.0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "image").open("wb") as image:
            image.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", folder / "image"], check=True)
        for night in range(given.nights):
            if time.monotonic() > ends:
                break
            log = shop.day(FIRST_DAY + timedelta(days=night))
            lines = [(f"u{user}", f"i{item}") for user, item in zip(log.user, log.item, strict=True)]
            events += lines
            with mounted(folder / "image", folder / "home"):
                deliver(Home(folder / "home", "shop"), night, lines)
                cut_run(folder, drawn.uniform(0, seconds))
            os.replace(folder / "copy", folder / "image")
            with mounted(folder / "image", folder / "home"):
                home, began = Home(folder / "home", "shop"), time.monotonic()
                run = start(home, folder / LOG)
                if status := run.wait():
                    print(f"night {night}: the run after the cut ended with {status}")
                    print(*(folder / LOG).read_text(errors="replace").splitlines()[-40:], sep="\n")
                    return 1
                seconds = time.monotonic() - began
                recorded, state, problems = look(home, events, recorded)
            left[state] += 1
            print(f"night {night}: {len(lines)} events, the cut run {state}, {seconds:.0f} s", flush=True)
            for problem in problems:
                print(f"night {night}, cut run {state}: {problem}")
            if problems:
                return 1
    print(f"{left.total()} nights, {left.total()} power cuts, {len(events):,} events; nothing lost, stale or wrong")
    for state, nights in left.most_common():
        print(f"{nights:4} cut runs {state}")
    return 0


def deliver(home: Home, night: int, lines: Events) -> None:
    """Put a night's log into the landing folder, on the disk for sure."""
    home.landing.mkdir(parents=True, exist_ok=True)
    (home.root / "datasets").mkdir(exist_ok=True)
    (home.root / "datasets" / "shop.toml").write_text(DECLARED)
    text = "".join(f"{user},{item}\n" for user, item in lines)
    (home.landing / f"night-{night:03}.csv").write_text(f"user_id,item_id\n{text}")
    os.sync()


def start(home: Home, log: Path) -> subprocess.Popen:
    """Start the nightly run as a process of its own, which writes what it says into a file."""
    words = [sys.executable, "-c", RUN, "--dataset", "shop", "--home", str(home.root), "--models", "popularity"]
    words += ["--set", "train.tune=off", "publish.margin=1e9", "publish.min_size_ratio=0"]
    with log.open("wb") as said:
        return subprocess.Popen(words, stdout=said, stderr=said, start_new_session=True)


def cut_run(folder: Path, after: float) -> None:
    """Start a run, copy the image after so many seconds, and kill the run."""
    run = start(Home(folder / "home", "shop"), folder / LOG)
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(after)
    copy_image(folder / "image", folder / "copy", run)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    run.wait()


def look(home: Home, events: Events, recorded: int) -> tuple[int, str, list[str]]:
    """Return the number of recorded runs, the cut run's state, and what is lost, stale or wrong after the next run.

    Args:
        recorded: the number of recorded runs before the night.
    """
    with duckdb.connect(str(home.warehouse), read_only=True) as connection:
        read = connection.execute("select user_id, item_id from raw.events").fetchall()
        rows = connection.execute("select user_id, item_id from published.recommendations order by all").fetchall()
        runs = connection.execute("select run_id, state from operations.runs order by started_at").fetchall()
        [(current,)] = connection.execute("select run_id from operations.publications where is_current").fetchall()
    problems = [] if Counter(read) == Counter(events) else ["raw.events are not the lines of all logs"]
    popularity, liked, lists = Counter(item for _, item in set(events)), defaultdict(set), defaultdict(list)
    for user, item in events:
        liked[user].add(item)
    for user, item in rows:
        lists[user].append(item)
    if set(lists) != set(liked):
        problems.append("the lists name other users than the logs")
    for user, items in lists.items():
        had_or_listed = liked[user] | set(items)
        rest = max((count for item, count in popularity.items() if item not in had_or_listed), default=0)
        if liked[user] & set(items) or rest > min(popularity[item] for item in items):
            problems.append(f"the list of {user} is not of the most popular items that it has not")
    states = Counter(state for _, state in runs)
    cut = runs[-2][1] if len(runs) == recorded + 2 else "not recorded"
    if current not in [run_id for run_id, state in runs[-2:] if state == "completed"]:
        problems.append(f"what is published is of the run {current}, not of this night")
    if states["running"]:
        problems.append(f"{states['running']} runs are recorded as running")
    return len(runs), cut, problems


if __name__ == "__main__":
    sys.exit(main())
