"""Rewrite a log without some of its lines.

The result is what the log's reader yields, in UTF-8, packed as before: a workbook becomes CSV, a JSON array its
elements, one a line, and an archive holds its logs alone.
"""

import bz2
import gzip
import hashlib
import lzma
import tarfile
import tempfile
import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

from oneclass.tasks.ingest import containers
from oneclass.tasks.ingest.scan import CHUNK_BYTES, ByteStream, hash_file

CARRIAGE_RETURN, LINE_FEED = b"\r\n"


class Digests(NamedTuple):
    """A log as `operations.log_files` knows it: digest and size of its bytes on disk, and the digest of its text."""

    sha256: str
    size: int
    content_sha256: str


def rewrite_log(
    source: Path,
    target: Path,
    lines: Mapping[str, np.ndarray],
    *,
    container: str,
    encoding: str = "",
    in_place_of_line: bytes = b"",
) -> dict[str, Digests]:
    """Write the log `source` to `target` without some lines, and return the new digests by member.

    Args:
        lines: sorted numbers of the lines to leave out, from 1, by member of an archive; by "" of a plain log.
        container, encoding: of the log, as in `LogFile`.
        in_place_of_line: what stands for a line that is left out, where the numbers of the others matter.
    """
    if container == "parquet":
        _rewrite_parquet(source, target, lines[""])
        sha256 = hash_file(str(target))
        return {"": Digests(sha256, target.stat().st_size, sha256)}
    if "" not in lines:
        return _rewrite_archive(source, target, container, lines)
    with containers.open_text(source, container, encoding) as stream, _open_packed(source, target, container) as packed:
        hashed = _HashingWriter(packed)
        copy_without_lines(stream, hashed, lines[""], in_place_of_line)
    return {"": Digests(hash_file(str(target)), target.stat().st_size, hashed.digest.hexdigest())}


def copy_without_lines(source: ByteStream, target: Any, lines: np.ndarray, in_place_of_line: bytes = b"") -> None:
    """Copy a text without some of its lines, which LF, CR or CRLF end."""
    number = 1  # of the line that a chunk begins in
    while chunk := source.read(CHUNK_BYTES):
        if chunk.endswith(b"\r"):
            chunk += source.read(1)  # CRLF in one piece
        ends = find_line_ends(chunk)
        first, last = np.searchsorted(lines, [number, number + len(ends) + 1])
        position = 0
        for index in lines[first:last] - number:
            target.write(chunk[position : ends[index - 1] if index else 0])
            position = ends[index] if index < len(ends) else len(chunk)
            if index < len(ends):
                target.write(in_place_of_line)
        target.write(chunk[position:])
        number += len(ends)


def find_line_ends(chunk: bytes) -> np.ndarray:
    """Return the positions behind each line end."""
    codes = np.frombuffer(chunk, np.uint8)
    is_end = codes == LINE_FEED
    if b"\r" in chunk:
        is_end |= (codes == CARRIAGE_RETURN) & (np.append(codes[1:], 0) != LINE_FEED)
    return np.flatnonzero(is_end) + 1


class _HashingWriter:
    """A stream that hashes what is written to it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.digest, self.size = stream, hashlib.sha256(), 0

    def write(self, piece: bytes) -> None:
        self._stream.write(piece)
        self.digest.update(piece)
        self.size += len(piece)


@contextmanager
def _open_packed(source: Path, target: Path, container: str) -> Generator[IO[bytes]]:
    """Open `target` to write text into it, compressed as `container` says; equal texts give equal bytes."""
    compression = container.rpartition(" ")[2]
    with open(target, "wb") as raw:
        if compression == "gzip":
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                yield packed  # pyright: ignore[reportReturnType]
        elif compression == "zip":
            name = containers.list_zip(source)[0]
            with zipfile.ZipFile(raw, "w") as archive:
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                with archive.open(info, "w", force_zip64=True) as packed:
                    yield packed
        else:
            openers: dict[str, Any] = {"bz2": bz2.open, "xz": lzma.open, "zstd": zstd.open}
            if compression in openers:
                with openers[compression](raw, "wb") as packed:
                    yield packed
            else:
                yield raw


def _rewrite_archive(source: Path, target: Path, container: str, lines: Mapping[str, np.ndarray]) -> dict[str, Digests]:
    """Write a tar archive of the logs in an archive; of those of one name the last, which alone is read."""
    with containers.open_text(source, container) as stream:
        last = {name: number for number, (name, _) in enumerate(containers.iterate_logs(stream))}
    digests = {}
    with (
        containers.open_text(source, container) as stream,
        _open_packed(source, target, container) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        for number, (name, member) in enumerate(containers.iterate_logs(stream)):
            if number != last[name]:
                continue
            with tempfile.TemporaryFile(dir=target.parent) as copy:
                hashed = _HashingWriter(copy)
                copy_without_lines(member, hashed, lines.get(name, np.empty(0, np.int64)))
                info = tarfile.TarInfo(name)
                info.size = hashed.size
                copy.seek(0)
                archive.addfile(info, copy)
            digest = hashed.digest.hexdigest()
            digests[name] = Digests(digest, hashed.size, digest)
    return digests


def _rewrite_parquet(source: Path, target: Path, rows: np.ndarray) -> None:
    """Write a Parquet file without some of its rows, with the same schema, row groups and compression."""
    with pq.ParquetFile(source) as file:
        compression = file.metadata.row_group(0).column(0).compression if file.num_row_groups else "NONE"
        with pq.ParquetWriter(target, file.schema_arrow, compression=compression.lower()) as writer:
            position = 1
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                is_kept = ~np.isin(np.arange(position, position + len(table)), rows)
                writer.write_table(table.filter(pa.array(is_kept)))
                position += len(table)
