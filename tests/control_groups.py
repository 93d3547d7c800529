"""Control groups with a limit of memory, which the kernel enforces as it does a container's: version 1 or 2, root
only.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOUNTED = Path("/sys/fs/cgroup")
SECONDS = 10  # that the processes of a group get to be gone


class NoGroups(Exception):
    """This machine does not let this user create a control group."""


@dataclass(frozen=True)
class Group:
    """A control group, and the names of its files in its version."""

    folder: Path
    limit: str
    peak: str
    events: str

    def enter(self) -> None:
        """Put the calling process into the group, and with it those that it starts."""
        (self.folder / "cgroup.procs").write_text("0")

    def most(self) -> int:
        """The most that its processes and their files have had at a time, in bytes; 0 where the kernel does not say."""
        file = self.folder / self.peak
        return int(file.read_text()) if file.exists() else 0

    def killed(self) -> int:
        """How many processes the kernel has killed in it for want of memory."""
        lines = (line.split() for line in (self.folder / self.events).read_text().splitlines())
        return sum(int(count) for name, count in lines if name == "oom_kill")


@contextlib.contextmanager
def create_group(name: str, limit: int) -> Iterator[Group]:
    """A control group of so many bytes, swap included; it is removed once its processes have ended.

    Raises:
        NoGroups: it cannot be made here.
    """
    if (MOUNTED / "memory" / "memory.limit_in_bytes").exists():
        files, swap = ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"), str(limit)
        made = Group(MOUNTED / "memory" / name, *files)
    else:
        files, swap = ("memory.max", "memory.peak", "memory.events"), "0"
        made = Group(MOUNTED / name, *files)
    try:
        made.folder.mkdir()
    except OSError as error:
        raise NoGroups(f"{made.folder}: cannot be made ({error.strerror}); only root makes control groups") from error
    try:
        try:
            (made.folder / made.limit).write_text(str(limit))
            for file in ("memory.memsw.limit_in_bytes", "memory.swap.max"):  # the first counts memory and swap together
                if (made.folder / file).exists():
                    (made.folder / file).write_text(swap)
        except OSError as error:
            raise NoGroups(f"{made.folder / made.limit}: takes no limit ({error.strerror})") from error
        yield made
    finally:
        _remove_group(made.folder)


def _remove_group(folder: Path) -> None:
    """The kernel gives a group up only once its last process is gone, which may be a moment after it was killed."""
    ended = time.monotonic() + SECONDS
    while True:
        try:
            return folder.rmdir()
        except OSError:
            if time.monotonic() > ended:
                raise
            time.sleep(0.1)
