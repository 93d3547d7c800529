"""Copy a home while the process that writes to it is stopped.

Files with equal bytes are stored once, so a thousand copies of a home that changes little need little room.
"""

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MIN_FILE_AGE_NS = 100_000_000  # from this age on every change shows in the file's time, whatever the clock's tick


class Entry(NamedTuple):
    """A file, folder or link.

    Attributes:
        path: relative to the home.
        content: a file's digest, or what a link points to.
        same_as: path of the first hard link to the same file; its own if there is none.
        modified_ns: time of the last write to a file.
    """

    path: str
    kind: str
    mode: int
    content: str
    same_as: str
    modified_ns: int


class Snapshot(NamedTuple):
    """A home at one moment.

    Attributes:
        digest: of all but the times, so equal if a run could find no difference.
    """

    digest: str
    entries: tuple[Entry, ...]


class Store:
    """Store snapshots in a folder, each distinct file once.

    Args:
        folder: created if absent.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[int, int], tuple[int, int, str]] = {}
        self.stored_bytes, self.largest_bytes = 0, 0
        folder.mkdir(parents=True, exist_ok=True)

    def take(self, home: Path) -> Snapshot:
        """Copy a home, to which no process may write meanwhile."""
        entries, first, size = [], {}, 0
        for path in sorted(_iterate_paths(home)):
            relative, status = path[len(str(home)) + 1 :], os.lstat(path)
            kind, content, same_as = stat.S_IFMT(status.st_mode), "", relative
            if kind == stat.S_IFLNK:
                content = os.readlink(path)
            elif kind == stat.S_IFREG:
                same_as = first.setdefault((status.st_dev, status.st_ino), relative)
                content = self._store_file(path, status)
                size += status.st_size * (same_as == relative)
            name = {stat.S_IFLNK: "link", stat.S_IFREG: "file", stat.S_IFDIR: "folder"}[kind]
            modified_ns = status.st_mtime_ns if kind == stat.S_IFREG else 0
            entries.append(Entry(relative, name, stat.S_IMODE(status.st_mode), content, same_as, modified_ns))
        self.largest_bytes = max(self.largest_bytes, size)
        listing = "\n".join(f"{one[:-1]}" for one in entries)
        return Snapshot(hashlib.sha256(listing.encode()).hexdigest(), tuple(entries))

    def put(self, snapshot: Snapshot, home: Path) -> None:
        """Restore a snapshot, replacing the home."""
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        for one in snapshot.entries:
            path = home / one.path
            if one.kind == "folder":
                path.mkdir()
            elif one.kind == "link":
                path.symlink_to(one.content)
            elif one.same_as != one.path:
                os.link(home / one.same_as, path)
            else:
                shutil.copyfile(self._folder / one.content, path)
                os.utime(path, ns=(one.modified_ns, one.modified_ns))
        for one in reversed(snapshot.entries):
            if one.kind != "link":
                (home / one.path).chmod(one.mode)

    def _store_file(self, path: str, status: os.stat_result) -> str:
        """Copy a file into the store if it is new; returns its digest."""
        inode, stamp = (status.st_dev, status.st_ino), (status.st_size, status.st_mtime_ns)
        known = self._known.get(inode)
        if known and known[:2] == stamp:
            return known[2]
        with open(path, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if time.time_ns() - status.st_mtime_ns > MIN_FILE_AGE_NS:
            self._known[inode] = *stamp, digest
        copy = self._folder / digest
        if not copy.exists():
            shutil.copyfile(path, copy)
            self.stored_bytes += status.st_size
        return digest


def _iterate_paths(folder: Path) -> Iterator[str]:
    for within, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            yield os.path.join(within, name)
