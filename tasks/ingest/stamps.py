"""Whether a file on disk is still the one whose bytes were read."""

import os
import time
from pathlib import Path
from typing import NamedTuple, Self

from tasks.errors import InputError

SETTLED_NS = 2_000_000_000
"""The coarsest clock among file systems: of a file written later than this before a look, a change may not show."""


class StillChanging(InputError):
    """A file did not stay as it was while it was looked at: somebody may be writing it."""


class Stamp(NamedTuple):
    """What tells a file that was written to, or replaced, from the one that was read."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """The stamp of a file as it is now.

        Raises:
            OSError: it is not there any more.
        """
        found = os.stat(path)
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def holds(self, path: Path) -> bool:
        """The file is there and has not changed since."""
        try:
            return Stamp.of(path) == self
        except OSError:
            return False

    @property
    def settled(self) -> bool:
        """The file was last written so long ago that a change from now on will show in its stamp."""
        return time.time_ns() - self.modified_ns > SETTLED_NS


def changed(path: Path) -> str:
    """What to tell a person whose file did not stay as it was while it was read."""
    return f"{path}: was changed or taken away while it was read. Run again when it is complete."
