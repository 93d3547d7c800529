"""Open a raw log as a stream of UTF-8 text: compressed, in another encoding, in an Excel workbook or a JSON array."""

import bz2
import codecs
import csv
import gzip
import io
import lzma
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import IO, Any, cast

import charset_normalizer
import duckdb
from backports import zstd
from python_calamine import CalamineError, CalamineWorkbook

from oneclass.tasks.errors import InputError

MAGIC = {
    b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip",
    b"PAR1": "parquet",
}  # fmt: skip
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MAX_JSON_BYTES = 1 << 26
CHUNK_BYTES = 1 << 20
SAMPLE_BYTES = 1 << 22


def detect_container(path: Path) -> str:
    """Return what a file is: a value of `MAGIC`, `xlsx`, or nothing for text; of a JSON array `json_array`, followed by
    a blank and how it is compressed.

    Raises:
        InputError: it is a zip archive of several files.
    """
    with open(path, "rb") as raw:
        head = raw.read(8)
    container = next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), "")
    if container == "zip":
        names = _list_zip(path)
        if "xl/workbook.xml" in names:
            return "xlsx"
        if len(names) != 1:
            raise InputError(f"{path}: is a zip archive of {len(names)} files. Unpack it and name the logs inside.")
    if container == "parquet":
        return container
    with _decompress(path, container) as stream:
        head = stream.read(64)
    return f"json_array {container}" if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"[" else container


def open_text(path: Path, container: str, encoding: str = "") -> IO[bytes]:
    """Open a log's text in UTF-8, one record a line.

    Args:
        container: of `detect_container`.
        encoding: of the text; by default UTF-8, or UTF-16 where it begins with the mark of it.

    Raises:
        OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError: the file cannot be read.
        InputError: a workbook or JSON array cannot.
    """
    if container == "xlsx":
        return cast("IO[bytes]", _IteratorStream(_read_workbook(path)))
    kind, _, compression = container.partition(" ")
    if kind == "json_array":
        return cast("IO[bytes]", _IteratorStream(_read_json_array(path, compression)))
    stream = _decompress(path, container)
    mark = stream.read(2)
    stream.seek(0)
    encoding = encoding or ("utf-16" if mark in UTF16_MARKS else "")
    return cast("IO[bytes]", _Utf8Stream(stream, encoding)) if encoding else stream


GUESSED_ENCODINGS = [
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r", "shift_jis", "cp932", "euc_jp",
    "big5", "gb18030", "euc_kr", "cp949",
]  # fmt: skip
"""Encodings that exports have; of all that Python knows, a few umlauts would fit dozens."""


def guess_encoding(path: Path, container: str) -> str:
    """Return the likely encoding of text that is not UTF-8; nothing without a guess."""
    with open_text(path, container) as stream:
        lines = [line for line in stream.read(SAMPLE_BYTES).splitlines() if not line.isascii()]
    best = charset_normalizer.from_bytes(b"\n".join(lines[:500]), cp_isolation=GUESSED_ENCODINGS).best()
    if best is None:
        return ""
    return "windows-1252" if "cp1252" in best.could_be_from_charset else best.encoding


class _Utf8Stream(io.RawIOBase):
    """A stream of UTF-8 from one in another encoding."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        self._stream, self._buffer, self._at_end = stream, b"", False
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read(self, size: int = -1) -> bytes:
        while not self._at_end and (size < 0 or len(self._buffer) < size):
            piece = self._stream.read(CHUNK_BYTES)
            self._buffer += self._decoder.decode(piece, final=not piece).encode()
            self._at_end = not piece
        size = len(self._buffer) if size < 0 else size
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def close(self) -> None:
        self._stream.close()
        super().close()


class _IteratorStream(io.RawIOBase):
    """A stream of the pieces that an iterator yields."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._buffer = iter(pieces), b""

    def read(self, size: int = -1) -> bytes:
        pieces = [self._buffer]
        have = len(self._buffer)
        while (size < 0 or have < size) and (piece := next(self._pieces, b"")):
            pieces.append(piece)
            have += len(piece)
        joined = b"".join(pieces)
        size = have if size < 0 else size
        self._buffer = joined[size:]
        return joined[:size]


def _decompress(path: Path, container: str) -> IO[bytes]:
    if container == "zip":
        return zipfile.ZipFile(path).open(_list_zip(path)[0])
    openers: dict[str, Any] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open, "zstd": zstd.open}
    return openers.get(container, open)(path, "rb")


def _list_zip(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return [info.filename for info in archive.infolist() if not info.is_dir()]
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: the zip archive is cut short or damaged ({error}). Fetch it again.") from error


def _read_workbook(path: Path) -> Iterator[bytes]:
    """Yield the rows of a workbook's first sheet with data as lines of CSV, dates in ISO 8601."""
    try:
        with CalamineWorkbook.from_path(str(path)) as workbook:
            sheets = (workbook.get_sheet_by_index(index) for index in range(len(workbook.sheet_names)))
            sheet = next((sheet for sheet in sheets if sheet.height), None)
            for row in sheet.iter_rows() if sheet else ():
                line = io.StringIO()
                csv.writer(line, lineterminator="\n").writerow([_format_cell(cell) for cell in row])
                yield line.getvalue().encode()
    except CalamineError as error:
        raise InputError(f"{path}: the workbook cannot be read ({error}). Save the sheet as CSV.") from error


def _format_cell(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, date | datetime):
        return cell.isoformat(" ") if isinstance(cell, datetime) else cell.isoformat()
    return " ".join(str(cell).splitlines())  # a row is a line


def _read_json_array(path: Path, compression: str) -> Iterator[bytes]:
    """Yield the elements of a JSON array as lines, without holding them all."""
    query = "select json(json)::varchar from read_json_objects(?, format = 'array', maximum_object_size = ?)"
    try:
        with _unpack(path, compression) as plain, duckdb.connect() as connection:
            cursor = connection.execute(query, [str(plain), MAX_JSON_BYTES])
            while rows := cursor.fetchmany(1000):
                yield "".join(f"{row[0]}\n" for row in rows).encode()
    except duckdb.Error as error:
        raise InputError(
            f"{path}: is not a whole JSON array ({str(error).splitlines()[0]}). Fetch it again."
        ) from error


@contextmanager
def _unpack(path: Path, compression: str) -> Iterator[Path]:
    """Yield the path of a file without compression: the file itself, or a temporary copy."""
    if not compression:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="oneclass-", suffix=".json") as copy:
        with _decompress(path, compression) as stream:
            shutil.copyfileobj(stream, copy)
        copy.flush()
        yield Path(copy.name)
