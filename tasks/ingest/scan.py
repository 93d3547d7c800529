"""One pass over a text's bytes: what must be known of a log before DuckDB is given it."""

import codecs
import hashlib
import io
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, Self

import numpy as np

from oneclass.tasks.errors import InputError

MIN_AGE_NS = 2_000_000_000
"""The coarsest clock among file systems: of a file written later than this before a look, a change may not show."""


class FileStillChanging(InputError):
    """A file did not stay as it was while it was looked at: somebody may be writing it."""


class FileSignature(NamedTuple):
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

    def matches(self, path: Path) -> bool:
        """The file is there and has not changed since."""
        try:
            return FileSignature.of(path) == self
        except OSError:
            return False

    @property
    def is_old_enough(self) -> bool:
        """The file was last written so long ago that a change from now on will show in its stamp."""
        return time.time_ns() - self.modified_ns > MIN_AGE_NS


def changed_file_message(path: Path) -> str:
    """What to tell a person whose file did not stay as it was while it was read."""
    return f"{path}: was changed or taken away while it was read. Run again when it is complete."


CHUNK_BYTES = 1 << 20
HEAD_BYTES = 1 << 16
LINE_FEED = ord("\n")


@dataclass(frozen=True)
class FileScan:
    """A text as its bytes are.

    Attributes:
        sha256: the digest of its bytes.
        size: how many bytes there are.
        head: the first of them, up to HEAD.
        lines: its lines, a last one without a line end included.
        longest: no line has more bytes.
        longest_at: the number of the longest line, from 1, where it is longer than CHUNK.
        nul_at: where its first NUL byte is, if there is one: text has none.
        utf8: every byte of it is UTF-8.
        even_ends: all its lines end in LF, or all in CRLF, as DuckDB requires.
    """

    sha256: str
    size: int
    head: bytes = field(repr=False)
    lines: int
    max_line_bytes: int
    longest_line: int
    nul_line: int | None
    utf8: bool
    uniform_line_ends: bool


class HashingStream:
    """A stream whose bytes are digested as they are read, so that a gzip is unpacked and hashed in one pass."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._digest = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._digest.update(piece)
        return piece

    def hexdigest(self) -> str:
        """The sha256 of all bytes; reads those that nobody has asked for."""
        while self.read(CHUNK_BYTES):
            pass
        return self._digest.hexdigest()


def hash_file(path: str) -> str:
    """Digest of a file's bytes."""
    with open(path, "rb") as stream:
        return HashingStream(stream).hexdigest()


def scan_stream(stream: IO[bytes]) -> FileScan:
    """Read the stream to its end, in about the time that the digest takes.

    Raises:
        OSError, EOFError, zlib.error: the stream cannot be read to its end.
    """
    feeds = returns = pairs = size = since_end = longest = longest_at = 0
    nul_at: int | None = None
    digest, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
    utf8, head, last = True, b"", b""
    while chunk := stream.read(CHUNK_BYTES):
        if chunk.endswith(b"\r"):
            chunk += stream.read(1)  # CRLF in one piece
        head = head or chunk[:HEAD_BYTES]
        digest.update(chunk)
        if nul_at is None and b"\0" in chunk:
            nul_at = size + chunk.index(b"\0")
        ends = chunk.replace(b"\r", b"\n") if b"\r" in chunk else chunk
        first = ends.find(b"\n")
        if (stretch := since_end + (first if first >= 0 else len(ends))) > longest:
            longest, longest_at = stretch, feeds + returns - pairs + 1
        since_end = len(ends) - 1 - ends.rfind(b"\n") if first >= 0 else stretch
        feeds += int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == LINE_FEED))
        if b"\r" in chunk:
            returns += chunk.count(b"\r")
            pairs += chunk.count(b"\r\n")
        utf8 = utf8 and _is_valid_utf8(decoder, chunk)
        size += len(chunk)
        last = chunk[-1:]
    return FileScan(
        sha256=digest.hexdigest(),
        size=size,
        head=head,
        lines=feeds + returns - pairs + (last not in (b"", b"\n", b"\r")),
        max_line_bytes=max(longest, min(size, CHUNK_BYTES)),  # a line inside one chunk is no longer than the chunk
        longest_line=longest_at,
        nul_line=nul_at,
        utf8=utf8 and not decoder.getstate()[0],
        uniform_line_ends=returns == 0 or feeds == returns == pairs,
    )


def normalize_text(stream: IO[bytes], target: str) -> None:
    """Copy a text so that DuckDB can read it: LF at every line's end, U+FFFD for bytes that are not UTF-8."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    with open(target, "w", encoding="utf-8", newline="\n") as copy:
        while chunk := stream.read(CHUNK_BYTES):
            copy.write(decoder.decode(chunk))
        copy.write(decoder.decode(b"", final=True))


def _is_valid_utf8(decoder: codecs.IncrementalDecoder, chunk: bytes) -> bool:
    if chunk.isascii() and not decoder.getstate()[0]:
        return True
    try:
        decoder.decode(chunk)
    except UnicodeDecodeError:
        return False
    return True
