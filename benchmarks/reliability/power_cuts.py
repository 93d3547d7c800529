"""Cut the power during runs and after them: copy the block device of a home at many moments, and check each copy.

    python -m benchmarks.reliability.power_cuts [--cuts 60] [--seed 1] [--without-sync]
    python -m benchmarks.reliability.power_cuts --cost [--dataset demo] [--source PATH] [--models MODEL,...]

A small demo home is on an ext4 file system of its own, on a loop device. Backfills run there one after another, each
with another seed. At drawn times, during a run and within seconds after its end, the run is stopped and the image
behind the device copied: what a power cut would leave. Each copy is mounted, which replays the journal. The publication
must be whole; once a run has ended with status 0, it must be that run's or a later one's. The warehouse must open.
`--without-sync` replaces `fsync` by a function that does nothing, to show that the benchmark sees the difference. Needs
root, losetup and mkfs.ext4.

`--cost` runs a backfill of a data set, by default with its default models, and prints how often it synced and how many
CPU and wall seconds that took, beside those of the run.
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
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from oneclass.tasks.errors import OneclassError
from oneclass.tasks.stores import checksums, publications, warehouse
from oneclass.tasks.stores.home import Home

IMAGE_BYTES = 400 * 10**6
DEMO_SIZES = ["demo.users=200", "demo.items=80", "demo.likes=3000"]
PUBLISH_ALWAYS = ["publish.margin=1e9", "publish.min_size_ratio=0"]
MAX_PAUSE_SECONDS = 6.0  # between two cuts; ext4 writes by itself after 5 s
DISABLE_SYNC = "import os; os.fsync = lambda descriptor: None; "
COUNTS_FILE = "SYNC_COUNTS_FILE"  # environment variable
COUNT_SYNCS = f"""
import atexit, json, os, time
fsync, counts = os.fsync, [0, 0.0, 0.0]
def count_sync(descriptor):
    cpu, wall = time.thread_time(), time.perf_counter()
    fsync(descriptor)
    counts[:] = counts[0] + 1, counts[1] + time.thread_time() - cpu, counts[2] + time.perf_counter() - wall
os.fsync = count_sync
atexit.register(lambda: open(os.environ["{COUNTS_FILE}"], "w").write(json.dumps(counts)))
"""
RUN_COMMAND = "from oneclass.flows import commands; import sys; sys.exit(commands.main('{flow}', sys.argv[1:]))"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-sync", action="store_true")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--dataset", default="demo")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--models")
    options = parser.parse_args()
    program = RUN_COMMAND.format(flow="backfill")
    if options.cost:
        print_sync_cost(options.dataset, options.source, options.models, COUNT_SYNCS + program)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return cut_power(
            Path(folder), options.cuts, random.Random(options.seed), DISABLE_SYNC * options.without_sync + program
        )


def cut_power(folder: Path, cuts: int, generator: random.Random, program: str) -> int:
    """Copy the image at drawn moments of runs of a program and check each copy; returns the exit status."""
    image, point = create_image(folder), folder / "mounted"
    outcomes: Counter[str] = Counter()
    ended = number = 0
    with mount_image(image, point):
        run = start_backfill(program, point, number)
        for _ in range(cuts):
            time.sleep(generator.uniform(0, MAX_PAUSE_SECONDS))
            if run.poll() is not None:
                if run.returncode:
                    raise SystemExit(f"the run ended with {run.returncode}")
                ended += 1
            copy_image(image, folder / "copy", run)
            outcomes[check_copy(folder, ended)] += 1
            if run.poll() is not None:
                number += 1
                run = start_backfill(program, point, number)
        run.kill()
        run.wait()
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:4} {outcome}")
    print(f"{cuts} cuts, {ended} runs ended meanwhile")
    return int(any(outcome.startswith("BROKEN") for outcome in outcomes))


def start_backfill(program: str, point: Path, seed: int) -> subprocess.Popen:
    """Start a backfill of a small demo in a home at a mount point."""
    words = ["--dataset", "demo", "--home", str(point), "--models", "popularity", "--seed", str(seed)]
    command = [sys.executable, "-c", program, *words, "--set", *DEMO_SIZES, *PUBLISH_ALWAYS]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def create_image(folder: Path) -> Path:
    """Create the image of an ext4 file system in a folder."""
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    return image


@contextlib.contextmanager
def mount_image(image: Path, point: Path) -> Iterator[None]:
    """Mount an image for the block."""
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
    while before != (before := image.stat().st_mtime_ns):  # again if the system wrote during the copy
        subprocess.run(["cp", "--sparse=always", str(image), str(copy)], check=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGCONT)


def check_copy(folder: Path, ended: int) -> str:
    """Mount a copy of the image and describe its publication and warehouse.

    Args:
        ended: the number of runs that have ended with status 0, each of which has published.
    """
    with mount_image(folder / "copy", folder / "after"):
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


def print_sync_cost(dataset: str, source: Path | None, models: str | None, program: str) -> None:
    """Run a backfill and print the number and the cost of its syncs."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder, "counts")
        command = [sys.executable, "-c", program, "--dataset", dataset, "--home", f"{folder}/home"]
        command += ["--source", str(source)] if source else []
        command += ["--models", models] if models else []
        before, began, environment = os.times(), time.monotonic(), {**os.environ, COUNTS_FILE: str(counts)}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        after, wall = os.times(), time.monotonic() - began
        calls, sync_cpu, sync_wall = json.loads(counts.read_text())
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{dataset}: {calls} syncs took {sync_cpu:.2f} of {cpu:.1f} CPU s, and {sync_wall:.2f} of {wall:.1f} wall s")


if __name__ == "__main__":
    sys.exit(main())
