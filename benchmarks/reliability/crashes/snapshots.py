"""Copies of a home, taken while the process that writes to it is stopped.

Files of equal bytes are kept once, so that a thousand copies of a home that changes little take little room.
"""

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SETTLED_NS = 100_000_000  # a file's time shows each change from then on, whatever the clock's tick


class Entry(NamedTuple):
    """A file, folder or link.

    Attributes:
        place: below the home.
        content: a file's digest, or what a link points to.
        same_as: the place of the first file that is the same one (a hard link), its own otherwise.
        modified_ns: when a file was last written to.
    """

    place: str
    kind: str
    mode: int
    content: str
    same_as: str
    modified_ns: int


class Snapshot(NamedTuple):
    """A home at one moment.

    Attributes:
        digest: of all but the times: equal for two moments with nothing between them that a run could find.
    """

    digest: str
    entries: tuple[Entry, ...]


class Store:
    """Snapshots in a folder, each file of them kept once.

    Args:
        folder: made where it is absent.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[int, int], tuple[int, int, str]] = {}
        self.taken, self.bytes_kept, self.largest = 0, 0, 0
        folder.mkdir(parents=True, exist_ok=True)

    def take(self, home: Path) -> Snapshot:
        """Copy a home; no process may write to it meanwhile."""
        entries, first, size = [], {}, 0
        for path in sorted(_below(home)):
            place, status = path[len(str(home)) + 1 :], os.lstat(path)
            kind, content, same_as = stat.S_IFMT(status.st_mode), "", place
            if kind == stat.S_IFLNK:
                content = os.readlink(path)
            elif kind == stat.S_IFREG:
                same_as = first.setdefault((status.st_dev, status.st_ino), place)
                content = self._keep(path, status)
                size += status.st_size * (same_as == place)
            name = {stat.S_IFLNK: "link", stat.S_IFREG: "file", stat.S_IFDIR: "folder"}[kind]
            modified_ns = status.st_mtime_ns if kind == stat.S_IFREG else 0
            entries.append(Entry(place, name, stat.S_IMODE(status.st_mode), content, same_as, modified_ns))
        self.taken, self.largest = self.taken + 1, max(self.largest, size)
        listing = "\n".join(f"{one[:-1]}" for one in entries)
        return Snapshot(hashlib.sha256(listing.encode()).hexdigest(), tuple(entries))

    def put(self, snapshot: Snapshot, home: Path) -> None:
        """Restore a snapshot, replacing the home."""
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        for one in snapshot.entries:
            path = home / one.place
            if one.kind == "folder":
                path.mkdir()
            elif one.kind == "link":
                path.symlink_to(one.content)
            elif one.same_as != one.place:
                os.link(home / one.same_as, path)
            else:
                shutil.copyfile(self._folder / one.content, path)
                os.utime(path, ns=(one.modified_ns, one.modified_ns))
        for one in reversed(snapshot.entries):
            if one.kind != "link":
                (home / one.place).chmod(one.mode)

    def _keep(self, path: str, status: os.stat_result) -> str:
        """The digest of a file, once a copy of it is in the store."""
        inode, stamp = (status.st_dev, status.st_ino), (status.st_size, status.st_mtime_ns)
        known = self._known.get(inode)
        if known and known[:2] == stamp:
            return known[2]
        with open(path, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if time.time_ns() - status.st_mtime_ns > SETTLED_NS:
            self._known[inode] = *stamp, digest
        kept = self._folder / digest
        if not kept.exists():
            shutil.copyfile(path, kept)
            self.bytes_kept += status.st_size
        return digest


def _below(folder: Path) -> Iterator[str]:
    for within, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            yield os.path.join(within, name)
