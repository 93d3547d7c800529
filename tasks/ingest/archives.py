"""Logs inside tar archives, as the Netflix Prize was published: a tar inside a tar.gz, one file a film."""

import fnmatch
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO

LOGS = ("mv_*.txt", "combined_data_*.txt")
HEADER = 512
MAGIC = slice(257, 262)


def is_tar(head: bytes) -> bool:
    """The bytes begin a tar archive."""
    return head[MAGIC] == b"ustar"


def logs(stream: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    """(name, contents) of every log in an archive, and in the archives right inside it, in its order.

    Each must be read before the next is asked for. The stream is read to its end, so that an archive that
    was cut short is found.

    Raises:
        tarfile.TarError: the archive is cut short or damaged.
        EOFError, zlib.error: so is the gzip round it.
    """
    yield from _logs(stream, "", nested=True)


class _Ended:
    """A stream that knows whether it ended as an archive must; tarfile does not notice one cut off inside a header."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._tail = stream, b""

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._tail = (self._tail + piece[-HEADER:])[-HEADER:]
        return piece

    def require_end(self) -> None:
        while self.read(1 << 20):
            pass
        if self._tail.strip(b"\0"):
            raise tarfile.ReadError("its closing block of zeros is missing")


def _logs(stream: IO[bytes], folder: str, nested: bool) -> Iterator[tuple[str, IO[bytes]]]:
    ended = _Ended(stream)
    with tarfile.open(fileobj=ended, mode="r|") as archive:
        for member in archive:
            contents = archive.extractfile(member) if member.isfile() else None
            if contents is None:
                continue
            name = PurePosixPath(folder, member.name)
            if nested and name.suffix == ".tar":
                yield from _logs(contents, str(name), nested=False)
            elif any(fnmatch.fnmatch(name.name, pattern) for pattern in LOGS):
                yield str(name), contents
    ended.require_end()
