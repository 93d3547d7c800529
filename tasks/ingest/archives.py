"""Read the logs in a tar archive, and in the archives directly inside it, in one pass."""

import fnmatch
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any

from oneclass.tasks.ingest.scan import ByteStream

LOG_PATTERNS = ("mv_*.txt", "combined_data_*.txt")
TAR_HEADER_BYTES = 512
TAR_MAGIC = slice(257, 262)


def is_tar(head: bytes) -> bool:
    """Whether the bytes are the head of a tar archive."""
    return head[TAR_MAGIC] == b"ustar"


def iterate_logs(stream: ByteStream) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield (name, contents) of every log in an archive and the archives directly inside it, in order.

    Read each before requesting the next. The stream is read to its end to detect a truncated archive.

    Raises:
        tarfile.TarError: the archive is truncated or damaged.
        EOFError, zlib.error: its gzip is.
    """
    yield from _iterate_members(stream, "", nested=True)


def list_files(stream: ByteStream) -> list[str]:
    """Return the names of all files in a tar archive."""
    readable: Any = stream
    with tarfile.open(fileobj=readable, mode="r|", encoding="utf-8", errors="backslashreplace") as archive:
        return [member.name for member in archive if member.isfile()]


class _CompleteTarStream:
    """A stream that checks the end of an archive; tarfile does not notice one that is cut off inside a header."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream, self._tail = stream, b""

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._tail = (self._tail + piece[-TAR_HEADER_BYTES:])[-TAR_HEADER_BYTES:]
        return piece

    def require_end(self) -> None:
        while self.read(1 << 20):
            pass
        if self._tail.strip(b"\0"):
            raise tarfile.ReadError("its closing block of zeros is missing")


def _iterate_members(stream: ByteStream, folder: str, nested: bool) -> Iterator[tuple[str, IO[bytes]]]:
    checked: Any = _CompleteTarStream(stream)  # tarfile only reads it
    # A name that is not UTF-8 is shown as mv_\xe9.txt, as which the warehouse can keep it.
    with tarfile.open(fileobj=checked, mode="r|", encoding="utf-8", errors="backslashreplace") as archive:
        for member in archive:
            contents = archive.extractfile(member) if member.isfile() else None
            if contents is None:
                continue
            name = PurePosixPath(folder, member.name)
            if nested and name.suffix == ".tar":
                yield from _iterate_members(contents, str(name), nested=False)
            elif any(fnmatch.fnmatch(name.name, pattern) for pattern in LOG_PATTERNS):
                yield str(name), contents
    checked.require_end()
