"""Open a raw file as a stream of UTF-8 text, one record a line, and scan its bytes before DuckDB reads it."""

import bz2
import codecs
import csv
import gzip
import hashlib
import io
import lzma
import os
import re
import zipfile
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from backports import zstd
from python_calamine import CalamineWorkbook

from oneclass.tasks.errors import InputError

MAGIC = {
    b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip",
    b"PAR1": "parquet", b"\xd0\xcf\x11\xe0": "workbook", b"Obj\x01": "avro",
}  # fmt: skip
WORKBOOK_MEMBERS = ("xl/workbook.xml", "xl/workbook.bin", "content.xml")
"""In the zip archives of .xlsx, .xlsb and .ods."""
HIDDEN_MEMBER = re.compile(r"(^|/)(__MACOSX/|\.|Thumbs\.db$)")
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
CHUNK_BYTES = 1 << 20
HEAD_BYTES = 1 << 16


class FileStillChanging(InputError):
    """A file changed while it was read; another program may be writing it."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: was changed or taken away while it was read. Run again when it is complete.")


def sign_file(path: Path) -> tuple[int, ...]:
    """Return the identity, size and times of a file, which change when it is written to; nothing if it is gone."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def detect_container(path: Path, encoding: str = "") -> str:
    """Return what a file is: a value of `MAGIC`, `workbook`, or nothing for text, in `encoding` if it is not UTF-8.

    Raises:
        InputError: it is an archive of several files, or binary: many bytes are NUL, as in tar archives.
    """
    with open(path, "rb") as raw:
        head = raw.read(8)
    container = next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), "")
    if container == "zip":
        names = _list_zip(path)
        if not {*names}.isdisjoint(WORKBOOK_MEMBERS):
            return "workbook"
        if len(names) != 1:
            shown = ", ".join(names)[:200]
            raise InputError(f"{path}: is an archive of {len(names)} files: {shown}. Unpack it and name the logs.")
    if container not in ("parquet", "workbook"):
        with open_text(path, container, encoding) as stream:
            head = stream.read(256)
        if head.count(0) > len(head) // 10 or container == "avro":
            raise InputError(
                f"{path}: is a binary file. Unpack it, write it as CSV or Parquet, or, if it is text, state its "
                f'encoding in the data set\'s file, such as\n\nencoding = "utf-16-{"le" if head[0] else "be"}"'
            )
    return container


def open_text(path: Path, container: str, encoding: str = "") -> IO[bytes]:
    """Open a file's text in UTF-8, whatever its `encoding`, UTF-16 with a mark among them; of a workbook CSV."""
    if container == "workbook":
        return _read_workbook(path)
    stream = _decompress(path, container)
    encoding = encoding or ("utf-16" if stream.read(2) in UTF16_MARKS else "")
    stream.seek(0)
    return cast("IO[bytes]", codecs.EncodedFile(stream, "utf-8", encoding, "replace")) if encoding else stream


def copy_text(stream: IO[bytes], target: Path) -> None:
    """Copy a text as DuckDB reads it: LF at every line end, U+FFFD for NUL and for bytes that are not UTF-8."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    with open(target, "w", encoding="utf-8", newline="\n") as copy:
        while chunk := stream.read(CHUNK_BYTES):
            copy.write(decoder.decode(chunk).replace("\0", "\ufffd"))
        copy.write(decoder.decode(b"", final=True))


def explain_encoding(path: Path, container: str) -> str:
    """Return what to do about text that is not UTF-8, or whose lines are in two encodings."""
    with open_text(path, container) as stream:
        lines = [line for line in stream.read(4 * CHUNK_BYTES).splitlines() if not line.isascii()]
    if utf8 := sum(line == line.decode(errors="ignore").encode() for line in lines):
        return f"{utf8} of {len(lines)} lines with letters beyond ASCII are UTF-8, the others are not: convert them."
    return 'It is not UTF-8 text: state its encoding in the data set\'s file, such as\n\nencoding = "windows-1252"'


def hash_file(path: str | Path) -> str:
    """Return the sha256 of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass
class FileScan:
    """The properties of a text log's bytes.

    Attributes:
        head: the first bytes, up to `HEAD_BYTES`.
        lines: the number of lines, including a last one without a line end.
        max_line_bytes: an upper bound of the longest line's bytes.
        has_blank, has_nul: whether a byte is a space or a tab; whether one is NUL, as none of a text is.
        is_ascii, is_utf8: whether all bytes are.
        is_uniform: whether all lines end in LF, or all in CRLF, as DuckDB requires.
    """

    sha256: str = ""
    size: int = 0
    head: bytes = field(default=b"", repr=False)
    lines: int = 0
    max_line_bytes: int = 0
    has_blank: bool = False
    has_nul: bool = False
    is_ascii: bool = True
    is_utf8: bool = True
    is_uniform: bool = True


def scan_stream(stream: IO[bytes]) -> FileScan:
    """Scan the stream to its end, in about the time of hashing it."""
    scan, digest, decoder = FileScan(), hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
    lf = cr = crlf = open_bytes = 0
    chunk = b""
    while piece := stream.read(CHUNK_BYTES):
        chunk = piece
        while chunk.endswith(b"\r") and (more := stream.read(1)):
            chunk += more  # CRLF in one piece
        scan.head = scan.head or chunk[:HEAD_BYTES]
        scan.size += len(chunk)
        digest.update(chunk)
        lf += int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == ord("\n")))
        if b"\r" in chunk:
            cr, crlf = cr + chunk.count(b"\r"), crlf + chunk.count(b"\r\n")
        # Since the beginning of the last chunk with a line end, in which the current line may have begun.
        open_bytes += len(chunk)
        scan.max_line_bytes = max(scan.max_line_bytes, open_bytes)
        open_bytes = len(chunk) if b"\n" in chunk or b"\r" in chunk else open_bytes
        scan.has_blank = scan.has_blank or b" " in chunk or b"\t" in chunk
        scan.has_nul = scan.has_nul or b"\0" in chunk
        if not chunk.isascii() or decoder.getstate()[0]:
            scan.is_ascii = False
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                scan.is_utf8 = False
    scan.sha256 = digest.hexdigest()
    scan.lines = lf + cr - crlf + (chunk[-1:] not in (b"", b"\n", b"\r"))
    scan.is_utf8 = scan.is_utf8 and not decoder.getstate()[0]
    scan.is_uniform = cr == 0 or lf == cr == crlf
    return scan


def _decompress(path: Path, container: str) -> IO[bytes]:
    if container == "zip":
        return zipfile.ZipFile(path).open(_list_zip(path)[0])
    openers: dict[str, Any] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open, "zstd": zstd.open}
    return openers.get(container, open)(path, "rb")


def _list_zip(path: Path) -> list[str]:
    """List the files in a zip archive, without those that macOS and Windows add."""
    with zipfile.ZipFile(path) as archive:
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
    return [name for name in names if not HIDDEN_MEMBER.search(name)]


def _read_workbook(path: Path) -> IO[bytes]:
    """Return the rows of a workbook's sheets, which begin with the same header, as CSV, dates in ISO 8601."""
    rows = io.StringIO()
    with open(path, "rb") as stream, CalamineWorkbook.from_filelike(stream) as workbook:
        sheets = [sheet for name in workbook.sheet_names if (sheet := workbook.get_sheet_by_name(name)).height]
        if len({tuple(map(str, next(sheet.iter_rows()))) for sheet in sheets}) > 1:
            names = ", ".join(sheet.name for sheet in sheets)
            raise InputError(f"{path}: has sheets that begin with different rows: {names}. Keep those of the table.")
        for sheet in sheets:
            csv.writer(rows, lineterminator="\n").writerows(map(_format_cell, row) for row in sheet.iter_rows())
    return io.BytesIO(rows.getvalue().encode())


def _format_cell(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return cell.isoformat(*" " * isinstance(cell, datetime)) if isinstance(cell, date) else str(cell)
