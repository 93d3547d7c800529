"""Kill a night, or cut its power, at its writes; let it run again, and compare what it publishes.

    python -m benchmarks.interrupted_nights [--moments 20] [--seed 1]
    python -m benchmarks.interrupted_nights --power [--moments 20]

A night of a small shop is stopped with all its threads right before a change of files in its home (opened for writing,
renamed, removed, linked), or around a commit, checkpoint or closing of DuckDB. Without `--power` it then gets
`kill -9`: what it wrote stays. With `--power` the home is on an ext4 file system of its own, on a loop device, and a
copy of the device at that moment is what a power cut leaves; this needs root, losetup and mkfs.ext4. The same command
runs again. The rows of the tables and the bytes of the published lists must equal those of an undisturbed night, and no
run may stay recorded as running. Without `--moments` every write is tried, each for a run of some seconds.

Prints the number of moments, and each that ended otherwise. Exit status: 0 if there is none, else 1.
"""

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.common import parse_options

USERS, ITEMS, EVENTS, IMAGE_BYTES, STOPPED = 80, 40, 1500, 300 * 10**6, -1
ARGUMENTS = ["--dataset", "shop", "--models", "popularity,wmf", "--protocols", "leave_one_out", "--set",
             "train.tune=off", "publish.margin=1e9", "publish.min_size_ratio=0"]  # fmt: skip
TABLES = {
    "curated.interactions": "from curated.interactions",
    "splits.leave_one_out": "from splits.leave_one_out",
    "evaluation.metrics": "select * exclude (run_id) from evaluation.metrics "
    "where run_id = (select max_by(run_id, started_at) from operations.runs)",
    "published.recommendations": "from published.recommendations",
}
PROGRAM = """
import os, signal, sys
import duckdb

home, moment, counter, writes = sys.argv[1], int(sys.argv[2]), sys.argv[3], 0
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate")
def count_write():
    global writes
    writes += 1
    if writes == moment:
        os.kill(os.getpid(), signal.SIGSTOP)
def hear_event(event, arguments):
    is_write = event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    if is_write and isinstance(arguments[0], (str, bytes, os.PathLike)) and os.fsdecode(arguments[0]).startswith(home):
        count_write()
def wrap(method):
    def call(*arguments, **more):
        count_write()
        try:
            return method(*arguments, **more)
        finally:
            count_write()
    return call
for name in ("commit", "checkpoint", "close", "__exit__"):
    setattr(duckdb.DuckDBPyConnection, name, wrap(getattr(duckdb.DuckDBPyConnection, name)))
sys.addaudithook(hear_event)
from oneclass.flows import commands
status = commands.main("nightly_retrain", ["--home", home, *sys.argv[4:]])
open(counter, "w").write(str(writes))
sys.exit(status)
"""


def write_shop(home: Path) -> None:
    """Write a data set and a log in its landing folder."""
    generator = np.random.default_rng(0)
    users, items = generator.integers(0, USERS, EVENTS), (ITEMS * generator.random(EVENTS) ** 2).astype(int)
    (home / "shop" / "landing").mkdir(parents=True)
    (home / "datasets").mkdir()
    (home / "datasets" / "shop.toml").write_text("[binarize]\nthreshold = 1\n")
    lines = "".join(f"u{user},i{item}\n" for user, item in zip(users, items, strict=True))
    (home / "shop" / "landing" / "log.csv").write_text(f"user_id,item_id\n{lines}")


@contextlib.contextmanager
def open_home(store: Path, point: Path) -> Iterator[Path]:
    """Yield the folder of a home: a plain folder as it is, an image mounted for the block."""
    if store.is_dir():
        yield store
        return
    point.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(store), str(point)], check=True)
    try:
        yield point / "home"
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


def copy_store(store: Path, copy: Path) -> None:
    """Copy a folder or an image."""
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(store), str(copy)], check=True)


def run_night(home: Path, folder: Path, moment: int = 0, cut: tuple[Path, Path] | None = None) -> int:
    """Run the night; returns its status, or STOPPED if it was killed right before the write of that number.

    `cut` has the image of the home, and where its copy at that moment goes.
    """
    words = [sys.executable, "-c", PROGRAM, str(home), str(moment), str(folder / "writes"), *ARGUMENTS]
    environment = {**os.environ, "PREFECT_HOME": str(folder / "prefect"), "PREFECT_API_URL": ""}
    with (folder / "log").open("wb") as log:
        run = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)
    _, status = os.waitpid(run.pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        if cut:
            copy_store(*cut)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        os.waitpid(run.pid, 0)
    run.returncode = STOPPED if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
    return run.returncode


def digest_home(home: Path) -> dict[str, str]:
    """Digest the rows of the tables, the published lists, and the runs that are recorded as running."""
    shop = home / "shop"
    with duckdb.connect(str(shop / "warehouse.duckdb"), read_only=True) as connection:
        rows = {name: connection.execute(f"from ({query}) order by all").fetchall() for name, query in TABLES.items()}
        running = "select count(*) from operations.runs where state = 'running'"
        rows["running"] = connection.execute(running).fetchall()
    digests = {name: hashlib.sha256(repr(of).encode()).hexdigest() for name, of in rows.items()}
    lists = (shop / "published" / "recommendations.parquet").read_bytes()
    return digests | {"recommendations.parquet": hashlib.sha256(lists).hexdigest()}


def try_moment(folder: Path, before: Path, moment: int, expected: dict[str, str]) -> str:
    """Interrupt a night at a moment and run it again; returns what differs, if anything does."""
    store, cut = folder / "store", folder / "cut"
    copy_store(before, store)
    with open_home(store, folder / "mounted") as home:
        if run_night(home, folder, moment, None if store.is_dir() else (store, cut)) != STOPPED:
            return ""  # this night had fewer writes
    with open_home(store if store.is_dir() else cut, folder / "mounted") as home:
        if status := run_night(home, folder):
            return f"status {status}: " + " ".join((folder / "log").read_text(errors="replace").splitlines()[-3:])
        found = digest_home(home)
    return ", ".join(name for name in expected if found[name] != expected[name])


def main() -> int:
    options = parse_options(__doc__, power=False, moments=0, seed=1)
    with tempfile.TemporaryDirectory() as name:
        folder, before = Path(name), Path(name) / "before"
        if options.power:
            with before.open("wb") as file:
                file.truncate(IMAGE_BYTES)
            subprocess.run(["mkfs.ext4", "-q", str(before)], check=True)
        else:
            before.mkdir()
        with open_home(before, folder / "mounted") as home:
            write_shop(home)
        copy_store(before, folder / "store")
        with open_home(folder / "store", folder / "mounted") as home:
            if run_night(home, folder):
                raise SystemExit((folder / "log").read_text()[-2000:])
            expected = digest_home(home)
        writes = int((folder / "writes").read_text())
        count, wrong = min(options.moments or writes, writes), 0
        moments = sorted(random.Random(options.seed).sample(range(1, writes + 1), count))
        for moment in moments:
            if differing := try_moment(folder, before, moment, expected):
                print(f"write {moment} of {writes}: {differing}", flush=True)
                wrong += 1
        print(f"{count} interruptions of {writes} writes; {count - wrong} ended like an undisturbed night")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
