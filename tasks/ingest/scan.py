"""Scan a text log's bytes in one pass: digest, encoding, line counts and line ends, before DuckDB reads it."""

import codecs
import hashlib
import io
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import numpy as np

from oneclass.tasks.errors import InputError
from oneclass.tasks.terminal import escape_controls

MIN_AGE_NS = 2_000_000_000
"""The coarsest timestamp resolution of file systems: a change of a younger file may not alter its signature."""


class FileStillChanging(InputError):
    """A file changed during the scan; another program may be writing it."""


class NameNotUtf8(InputError):
    """A file's name is not UTF-8 text, as which the warehouse keeps it."""


class FileSignature(NamedTuple):
    """Identity and times of a file, which change when it is written to or replaced."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the current signature of a file.

        Raises:
            OSError: it does not exist.
        """
        status = os.stat(path)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def matches(self, path: Path) -> bool:
        """Whether the file exists and is unchanged."""
        try:
            return FileSignature.of(path) == self
        except OSError:
            return False

    @property
    def is_old_enough(self) -> bool:
        """Whether the last write is long enough ago for a later change to alter the signature."""
        return time.time_ns() - self.modified_ns > MIN_AGE_NS


def changed_file_message(path: Path) -> str:
    """Return the message for a file that changed while it was read."""
    return f"{path}: was changed or taken away while it was read. Run again when it is complete."


def check_name(path: Path) -> None:
    """Reject a path that is not UTF-8 text.

    Raises:
        NameNotUtf8: it is not.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise NameNotUtf8(f"{escape_controls(str(path))}: its name is not UTF-8 text. Rename it.") from error


CHUNK_BYTES = 1 << 20
HEAD_BYTES = 1 << 16
TAIL_BYTES = 1 << 12
LINE_FEED = ord("\n")


@dataclass(frozen=True)
class FileScan:
    """The properties of a text log's bytes.

    Attributes:
        sha256: the digest of its bytes.
        size: the number of bytes.
        head, tail: the first and last bytes, up to `HEAD_BYTES` and `TAIL_BYTES`.
        lines: the number of lines, including a last one without a line end.
        max_line_bytes: an upper bound of the longest line's bytes.
        longest_line: the number of the longest line, from 1, if it is longer than `CHUNK_BYTES`.
        nul_line: the position of the first NUL byte, if any: text has none.
        utf8: whether all bytes are UTF-8.
        uniform_line_ends: whether all lines end in LF, or all in CRLF, as DuckDB requires.
    """

    sha256: str
    size: int
    head: bytes = field(repr=False)
    tail: bytes = field(repr=False)
    lines: int
    max_line_bytes: int
    longest_line: int
    nul_line: int | None
    utf8: bool
    uniform_line_ends: bool


class ByteStream(Protocol):
    """A source of bytes: a file, an archive's member, or a stream of this package."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at most `size` of them; none at the end."""
        ...


class HashingStream:
    """A stream that hashes the bytes as they are read, so that a gzip is unpacked and hashed in one pass."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream, self._digest = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._digest.update(piece)
        return piece

    def hexdigest(self) -> str:
        """Return the sha256 of all bytes, reading those that remain."""
        while self.read(CHUNK_BYTES):
            pass
        return self._digest.hexdigest()


def hash_file(path: str) -> str:
    """Return the sha256 of a file's bytes."""
    with open(path, "rb") as stream:
        return HashingStream(stream).hexdigest()


def scan_stream(stream: ByteStream) -> FileScan:
    """Scan the stream to its end, in about the time of hashing it.

    Raises:
        OSError, EOFError, zlib.error: the stream cannot be read to its end.
    """
    lf = cr = crlf = size = since_end = longest = longest_line = 0
    nul_position: int | None = None
    digest, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
    utf8, head, tail = True, b"", b""
    while chunk := stream.read(CHUNK_BYTES):
        if chunk.endswith(b"\r"):
            chunk += stream.read(1)  # CRLF in one piece
        head = head or chunk[:HEAD_BYTES]
        digest.update(chunk)
        if nul_position is None and b"\0" in chunk:
            nul_position = size + chunk.index(b"\0")
        with_lf = chunk.replace(b"\r", b"\n") if b"\r" in chunk else chunk
        first = with_lf.find(b"\n")
        if (line_bytes := since_end + (first if first >= 0 else len(with_lf))) > longest:
            longest, longest_line = line_bytes, lf + cr - crlf + 1
        since_end = len(with_lf) - 1 - with_lf.rfind(b"\n") if first >= 0 else line_bytes
        lf += int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == LINE_FEED))
        if b"\r" in chunk:
            cr += chunk.count(b"\r")
            crlf += chunk.count(b"\r\n")
        utf8 = utf8 and _is_valid_utf8(decoder, chunk)
        size += len(chunk)
        tail = (tail + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]
    return FileScan(
        sha256=digest.hexdigest(),
        size=size,
        head=head,
        tail=tail,
        lines=lf + cr - crlf + (tail[-1:] not in (b"", b"\n", b"\r")),
        max_line_bytes=max(longest, min(size, CHUNK_BYTES)),  # a line inside one chunk is no longer than the chunk
        longest_line=longest_line,
        nul_line=nul_position,
        utf8=utf8 and not decoder.getstate()[0],
        uniform_line_ends=cr == 0 or lf == cr == crlf,
    )


def normalize_text(stream: ByteStream, target: str) -> None:
    """Copy a text in the form that DuckDB reads: LF at every line end, U+FFFD for bytes that are not UTF-8."""
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
