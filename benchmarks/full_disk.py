"""A disk that is full: what a run says when its home has no room left, and what the same command gives once it has.

    python -m benchmarks.full_disk --megabytes 6 10 14 18 24 34 38 41 44 47

Each size is a file system in memory of so many megabytes, which only root can mount (Linux). A demo run with three models
goes there until it has no room; then the file system gets room and the same command runs again. A row names the task that
failed, the last line that the run said of it, and whether the second run's recommendations and evaluation have the bytes of
a run that was never disturbed, which is made first.
"""

import argparse
import contextlib
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

RUN = ("--dataset", "demo", "--models", "popularity,mrf_dense,wmf", "--set", "train.tune=off")
ROOM = 400  # megabytes, which is enough
COMPARED = ("recommendations.parquet", "evaluation.csv")
FAILED = re.compile(r"Task run '([^']*)' - Finished in state Failed")


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """A file system in memory, mounted on a folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def backfill(home: Path, prefect: Path) -> subprocess.CompletedProcess:
    """A run in a process of its own, the files of Prefect's server elsewhere."""
    command = [sys.executable, "-m", "flows.backfill", *RUN, "--home", home]
    environment = {**os.environ, "PREFECT_HOME": str(prefect)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def digests(home: Path) -> list[str]:
    published = home / "demo" / "published"
    return [hashlib.sha256((published / name).read_bytes()).hexdigest() for name in COMPARED]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.full_disk", description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[6, 10, 14, 18, 24, 34, 38, 41, 44, 47])
    sizes = parser.parse_args().megabytes
    if os.geteuid() != 0:
        parser.error("only root can mount a file system; run it in a container of your own")
    with TemporaryDirectory() as folder:
        clean, disk, prefect = (Path(folder) / name for name in ("clean", "disk", "prefect"))
        disk.mkdir()
        assert backfill(clean, prefect).returncode == 0
        wanted, healed = digests(clean), 0
        print("| room, MB | exit | failed at | said | again | bytes |\n|---|---|---|---|---|---|")
        for megabytes in sizes:
            with small_disk(disk, megabytes):
                first = backfill(disk / "var", prefect)
                at = FAILED.findall(first.stdout + first.stderr)[-1:] or ["the beginning"]
                said = [line for line in first.stderr.splitlines() if line.strip()][-1].replace(str(disk), "")
                subprocess.run(["mount", "-o", f"remount,size={ROOM}m", disk], check=True)
                again = backfill(disk / "var", prefect)
                same = again.returncode == 0 and digests(disk / "var") == wanted
            healed += same
            cells = (megabytes, first.returncode, at[0], said[:120], again.returncode, "equal" if same else "DIFFERENT")
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
        print(f"\n{healed} of {len(sizes)} gave the bytes of an undisturbed run.")


if __name__ == "__main__":
    main()
