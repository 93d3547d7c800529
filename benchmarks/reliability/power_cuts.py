"""Power cuts during a run and after it: what the block device of its home held at many moments, mounted and looked at.

    python -m benchmarks.reliability.power_cuts [--cuts 60] [--seed 1] [--without-sync]
    python -m benchmarks.reliability.power_cuts --cost [--dataset demo] [--source PATH] [--models MODEL,...]

A small demo home lies on an ext4 file system of its own, on a loop device. Backfills with seeds of their own run there,
one after another. At drawn times, while a run is at work and within seconds after its end, the run is stopped and the
image behind the device is copied: what a power cut at this moment leaves. Each copy is mounted, which replays the
journal. What is published must be whole; once a run has ended with status 0, it must be that run's, or a later one's.
The warehouse must open too. `--without-sync` does it with an `fsync` that does nothing, which shows what the benchmark
can see. Needs root, losetup and mkfs.ext4.

`--cost`: a backfill of a data set, by default with its default models; prints how often it synced and what that took,
in seconds of CPU time and of the wall, beside those of the run.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from oneclass.tasks.errors import OneclassError
from oneclass.tasks.stores import checksums, publications, warehouse
from oneclass.tasks.stores.home import Home

IMAGE_BYTES = 400 * 10**6
SIZES = ["demo.users=200", "demo.items=80", "demo.likes=3000"]
MAX_PAUSE_SECONDS = 6.0  # between two cuts; ext4 writes by itself after 5 s
WITHOUT_SYNC = "import os; os.fsync = lambda descriptor: None; "
COUNTED = "COUNTED_SYNCS"  # the variable that names the file for them
COUNTING = f"""
import atexit, json, os, time
fsync, taken = os.fsync, [0, 0.0, 0.0]
def counted(descriptor):
    cpu, wall = time.thread_time(), time.perf_counter()
    fsync(descriptor)
    taken[:] = taken[0] + 1, taken[1] + time.thread_time() - cpu, taken[2] + time.perf_counter() - wall
os.fsync = counted
atexit.register(lambda: open(os.environ["{COUNTED}"], "w").write(json.dumps(taken)))
"""
RUN = "from oneclass.flows import commands; import sys; sys.exit(commands.main('backfill', sys.argv[1:]))"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-sync", action="store_true")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--dataset", default="demo")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--models")
    given = parser.parse_args(words)
    if given.cost:
        return print_cost(given.dataset, given.source, given.models)
    with tempfile.TemporaryDirectory() as folder:
        program = WITHOUT_SYNC * given.without_sync + RUN
        return cut(Path(folder), given.cuts, random.Random(given.seed), program)


def cut(folder: Path, cuts: int, drawn: random.Random, program: str) -> int:
    """Copy the image at so many moments of runs of `program` and look at each copy; return the exit status."""
    image, point = folder / "image", folder / "mounted"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    outcomes: dict[str, int] = {}
    ended: list[int] = []  # the seeds of runs that have ended with status 0
    with mounted(image, point):
        number, run = 0, start(program, point, 0)
        for _ in range(cuts):
            time.sleep(drawn.uniform(0, MAX_PAUSE_SECONDS))
            if run.poll() is not None:
                if run.returncode:
                    raise SystemExit(f"the run ended with {run.returncode}")
                ended.append(number)
            copy_image(image, folder / "copy", run)
            outcome = look(folder, len(ended))
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if run.poll() is not None:
                number += 1
                run = start(program, point, number)
        run.kill()
        run.wait()
    for outcome, times in sorted(outcomes.items()):
        print(f"{times:4} {outcome}")
    print(f"{cuts} cuts, {len(ended)} runs ended meanwhile")
    return int(any(outcome.startswith("BROKEN") for outcome in outcomes))


def start(program: str, point: Path, seed: int) -> subprocess.Popen:
    command = ["--dataset", "demo", "--home", str(point), "--models", "popularity", "--seed", str(seed)]
    words = [sys.executable, "-c", program, *command, "--set", *SIZES, "publish.margin=1e9", "publish.min_size_ratio=0"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


@contextlib.contextmanager
def mounted(image: Path, point: Path) -> Iterator[None]:
    point.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)
        point.rmdir()


def copy_image(image: Path, copy: Path, run: subprocess.Popen) -> None:
    """Copy the image while the run is stopped and nothing is written to the device."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGSTOP)
    before = None
    while before != (before := image.stat().st_mtime_ns):  # the system wrote to it during the copy
        subprocess.run(["cp", "--sparse=always", str(image), str(copy)], check=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGCONT)


def look(folder: Path, ended: int) -> str:
    """Say what a copy of the image holds.

    Args:
        ended: how many runs have ended with status 0, each of which has published.
    """
    with mounted(folder / "copy", folder / "after"):
        home = Home(folder / "after", "demo")
        if not home.published.is_symlink():
            return "BROKEN: nothing is published" if ended else "nothing is published yet"
        try:
            facts = checksums.load_checked_facts(home.published.resolve(), publications.MANIFEST_FILE)
            with warehouse.open_warehouse(home) as connection:
                [(runs,)] = connection.execute("select count(*) from operations.runs").fetchall()
        except OneclassError as error:
            return f"BROKEN: {error}"
        if facts["place"] < ended:
            return "BROKEN: an earlier publication is published again"
        return f"a whole publication and warehouse, {facts['place']} published, {runs} runs"


def print_cost(dataset: str, source: Path | None, models: str | None) -> int:
    """Print what syncing takes of a backfill."""
    with tempfile.TemporaryDirectory() as folder:
        counted = Path(folder, "counted")
        words = [sys.executable, "-c", COUNTING + RUN, "--dataset", dataset, "--home", f"{folder}/home"]
        words += ["--source", str(source)] if source else []
        words += ["--models", models] if models else []
        before, began = os.times(), time.monotonic()
        subprocess.run(
            words,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, COUNTED: counted},
        )
        after, wall = os.times(), time.monotonic() - began
        calls, sync_cpu, sync_wall = json.loads(counted.read_text())
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    print(
        f"{dataset}: {calls} syncs took {sync_cpu:.2f} of {cpu:.1f} s of CPU time, and {sync_wall:.2f} of {wall:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
