"""A disk that is full: what a run says when its home has no room left, and what the same command gives once it has.

    python -m benchmarks.full_disk [--stages ingest split ...] [--shares 0 0.5] [--megabytes 6 10 24]

The home lies in a file system in memory, which only root can mount (Linux). As each stage begins, all of it is filled but
for a share of what the stage took in a run that was never disturbed; or the file system is as small as `--megabytes` says
from the beginning. Then it gets room and the same command runs again. A row names the task that failed, the last line that
the run said of it, and whether the second run's recommendations and evaluation have the bytes of the first of all, which
had room.
"""

import argparse
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.shortage import STAGES, Begins, backfill, digests, server

SMALL = ["--set", "train.tune=always", "demo.users=600", "demo.items=200", "demo.likes=12000"]
RUN = ["--threads", "1", "--models", "popularity,slim", *SMALL]
ROOM = 400  # megabytes, which is enough


@contextlib.contextmanager
def disk_of(folder: Path, megabytes: int) -> Iterator[None]:
    """A file system in memory, mounted on a folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def room(disk: Path) -> int:
    """Bytes that are free."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_bsize


def filled_at(stage: str, spared: int, disk: Path) -> Begins:
    """Fill the disk but for some bytes as the first task of a stage begins."""

    def begins(name: str, number: int) -> None:
        if (name, number) == (stage, 1) and room(disk) > spared:
            with open(disk / "filler", "wb") as filler:
                os.posix_fallocate(filler.fileno(), 0, room(disk) - spared)

    return begins


def noted_in(file: Path, disk: Path) -> Begins:
    """Note the room that there is as each task begins."""

    def begins(name: str, number: int) -> None:
        with open(file, "a") as notes:
            notes.write(f"{name} {number} {room(disk)}\n")

    return begins


def took(file: Path, at_the_end: int) -> dict[str, int]:
    """What the first task of each stage took, in bytes, as noted."""
    notes = [line.split() for line in file.read_text().splitlines()]
    after = [int(left) for _, _, left in notes[1:]] + [at_the_end]
    pairs = zip(notes, after, strict=True)
    return {name: max(0, int(left) - then) for (name, number, left), then in pairs if number == "1"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.full_disk", description=__doc__.splitlines()[0])
    parser.add_argument("--stages", nargs="*", choices=STAGES, default=list(STAGES))
    parser.add_argument("--shares", type=float, nargs="+", default=[0, 0.5], help="of what a stage takes, that is free")
    parser.add_argument("--megabytes", type=int, nargs="*", default=[], help="sizes of file systems that are too small")
    given = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("only root can mount a file system; run it in a container of your own")
    healed = tried = 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        disk, log, notes, home = (folder / part for part in ("disk", "log", "notes", "disk/var"))
        disk.mkdir()
        with server(folder / "prefect"):
            for _ in range(2):  # the first compiles kernels
                notes.unlink(missing_ok=True)
                with disk_of(disk, ROOM):
                    ended = backfill(home, RUN, log, noted_in(notes, disk))
                    assert ended.status == 0, log.read_text()[-3000:]
                    wanted, takes = digests(home), took(notes, room(disk))
            print("takes, kB:", ", ".join(f"{stage} {count // 1000:,}" for stage, count in takes.items()))
            print("\n| room | exit | failed at | said | again | bytes |\n|---|---|---|---|---|---|", flush=True)
            aims = [(f"{stage}, {share:.0%}", stage, share) for stage in given.stages for share in given.shares]
            for what, stage, share in [*aims, *((f"{size} MB in all", "", size) for size in given.megabytes)]:
                with disk_of(disk, ROOM if stage else int(share)):
                    begins = filled_at(stage, int(share * takes[stage]), disk) if stage else None
                    first = backfill(home, RUN, log, begins)
                    subprocess.run(["mount", "-o", f"remount,size={ROOM}m", disk], check=True)
                    (disk / "filler").unlink(missing_ok=True)
                    again = backfill(home, RUN, folder / "again")
                    same = again.status == 0 and digests(home) == wanted
                said = first.said.replace(str(disk), "")[:140]
                cells = (what, first.status, first.failed_at, said, again.status, "equal" if same else "DIFFERENT")
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
                if not same:
                    print(log.read_text()[-2000:], (folder / "again").read_text()[-3000:], sep="\n----\n")
                healed, tried = healed + same, tried + 1
    print(f"\n{healed} of {tried} gave the bytes of an undisturbed run.")
    return int(healed < tried)


if __name__ == "__main__":
    raise SystemExit(main())
