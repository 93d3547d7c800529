"""One pass over a text's bytes: what must be known of a log before DuckDB is given it."""

import codecs
import hashlib
import io
from dataclasses import dataclass, field
from typing import IO

import numpy as np

CHUNK = 1 << 20
HEAD = 1 << 16
LINE_FEED = ord("\n")


@dataclass(frozen=True)
class Survey:
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
    longest: int
    longest_at: int
    nul_at: int | None
    utf8: bool
    even_ends: bool


class Hashed:
    """A stream whose bytes are digested as they are read, so that a gzip is unpacked and hashed in one pass."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._digest = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._digest.update(piece)
        return piece

    def hexdigest(self) -> str:
        """The sha256 of all bytes; reads those that nobody has asked for."""
        while self.read(CHUNK):
            pass
        return self._digest.hexdigest()


def sha256(path: str) -> str:
    """Digest of a file's bytes."""
    with open(path, "rb") as stream:
        return Hashed(stream).hexdigest()


def survey(stream: IO[bytes]) -> Survey:
    """Read the stream to its end, in about the time that the digest takes.

    Raises:
        OSError, EOFError, zlib.error: the stream cannot be read to its end.
    """
    feeds = returns = pairs = size = since_end = longest = longest_at = 0
    nul_at: int | None = None
    digest, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
    utf8, head, last = True, b"", b""
    while chunk := stream.read(CHUNK):
        if chunk.endswith(b"\r"):
            chunk += stream.read(1)  # CRLF in one piece
        head = head or chunk[:HEAD]
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
        utf8 = utf8 and _decodes(decoder, chunk)
        size += len(chunk)
        last = chunk[-1:]
    return Survey(
        sha256=digest.hexdigest(),
        size=size,
        head=head,
        lines=feeds + returns - pairs + (last not in (b"", b"\n", b"\r")),
        longest=max(longest, min(size, CHUNK)),  # a line inside one chunk is no longer than the chunk
        longest_at=longest_at,
        nul_at=nul_at,
        utf8=utf8 and not decoder.getstate()[0],
        even_ends=returns == 0 or feeds == returns == pairs,
    )


def rewrite(stream: IO[bytes], target: str) -> None:
    """Copy a text so that DuckDB can read it: LF at every line's end, U+FFFD for bytes that are not UTF-8."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    with open(target, "w", encoding="utf-8", newline="\n") as copy:
        while chunk := stream.read(CHUNK):
            copy.write(decoder.decode(chunk))
        copy.write(decoder.decode(b"", final=True))


def _decodes(decoder: codecs.IncrementalDecoder, chunk: bytes) -> bool:
    if chunk.isascii() and not decoder.getstate()[0]:
        return True
    try:
        decoder.decode(chunk)
    except UnicodeDecodeError:
        return False
    return True
