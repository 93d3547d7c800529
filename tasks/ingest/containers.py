"""Open a raw log as a stream of UTF-8 text: compressed, in another encoding, a table or JSON in another form, or in a
tar archive.
"""

import bz2
import codecs
import csv
import fnmatch
import gzip
import io
import json
import lzma
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import charset_normalizer
import duckdb
import polars as pl
import pyarrow as pa
from backports import zstd
from python_calamine import CalamineError, CalamineWorkbook

from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.scan import ByteStream

MAGIC = {
    b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip",
    b"PAR1": "parquet", b"ARROW1\0\0": "arrow", b"\xff\xff\xff\xff": "arrow", b"\xd0\xcf\x11\xe0": "workbook",
}  # fmt: skip
WORKBOOK_MEMBERS = ("xl/workbook.xml", "xl/workbook.bin", "content.xml")
"""In the zip archives of .xlsx, .xlsb and .ods."""
HIDDEN_MEMBER = re.compile(r"(^|/)(__MACOSX/|\.|Thumbs\.db$)")
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
BYTE_ORDER_MARK = codecs.BOM_UTF8
CHUNK_BYTES = 1 << 20
SAMPLE_BYTES = 1 << 22
HEAD_BYTES = 1 << 16
MAX_JSON_BYTES = 1 << 26
ROWS_AT_ONCE = 10_000
ID_NAME = re.compile(r"(user|customer|client|visitor|item|product|sku|order|session)[ _]?(id)?", re.IGNORECASE)
"""Keys of one event or order."""
LOG_PATTERNS = ("mv_*.txt", "combined_data_*.txt")
"""The names of the logs in a tar archive."""
TAR_HEADER_BYTES = 512
TAR_MAGIC = slice(257, 262)


def detect_container(path: Path) -> str:
    """Return what a file is: a value of `MAGIC`, `workbook`, or nothing for text; of JSON that is not in lines
    `json_array` or `json_values`, followed by a blank and how it is compressed.

    Raises:
        InputError: it is a zip archive of several files.
    """
    with open(path, "rb") as raw:
        head = raw.read(8)
    container = next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), "")
    if container == "zip":
        names = list_zip(path)
        if not names:
            return ""
        if any(name in names for name in WORKBOOK_MEMBERS):
            return "workbook"
        if len(names) > 1:
            raise InputError(explain_archive(path, "zip", names))
    if container == "parquet" or container in TABLE_READERS:
        return container
    with _decompress(path, container) as stream:
        kind = _detect_json(stream)
    return f"{kind} {container}" if kind else container


def explain_archive(path: Path, kind: str, names: Sequence[str]) -> str:
    """Return the refusal of an archive of several files."""
    shown = ", ".join(names)[:200]
    return f"{path}: is a {kind} archive of {len(names)} files: {shown}. Unpack it and name the log inside."


def open_text(path: Path, container: str, encoding: str = "") -> IO[bytes]:
    """Open a log's text in UTF-8, one record a line.

    Args:
        container: of `detect_container`.
        encoding: of the text; by default UTF-8, or UTF-16 where it begins with the mark of it.

    Raises:
        OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError: the file cannot be read.
        InputError: a table, a workbook or JSON cannot.
    """
    if container in TABLE_READERS:
        return cast("IO[bytes]", _IteratorStream(TABLE_READERS[container](path)))
    kind, _, compression = container.partition(" ")
    if kind in JSON_READERS:
        return cast("IO[bytes]", _IteratorStream(_read_json(path, kind, compression)))
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
        return zipfile.ZipFile(path).open(list_zip(path)[0])
    openers: dict[str, Any] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open, "zstd": zstd.open}
    return openers.get(container, open)(path, "rb")


def list_zip(path: Path) -> list[str]:
    """Return the names of the files in a zip archive, without those that macOS and Windows add."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: the zip archive is cut short or damaged ({error}). Fetch it again.") from error
    return [name for name in names if not HIDDEN_MEMBER.search(name)]


def _read_json(path: Path, kind: str, compression: str) -> Iterator[bytes]:
    with _unpack(path, compression) as plain:
        yield from JSON_READERS[kind](path, plain)


@contextmanager
def _unpack(path: Path, compression: str) -> Generator[Path]:
    """Yield the path of a file without compression: the file itself, or a temporary copy."""
    if not compression:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="oneclass-", suffix=".json") as copy:
        with _decompress(path, compression) as stream:
            shutil.copyfileobj(stream, copy)
        copy.flush()
        yield Path(copy.name)


def _read_workbook(path: Path) -> Iterator[bytes]:
    """Yield the rows of a workbook's first sheet with data as lines of CSV, dates in ISO 8601."""
    try:
        with open(path, "rb") as stream, CalamineWorkbook.from_filelike(stream) as workbook:
            sheets = (workbook.get_sheet_by_index(index) for index in range(len(workbook.sheet_names)))
            sheet = next((sheet for sheet in sheets if sheet.height), None)
            for row in sheet.iter_rows() if sheet else ():
                yield _format_row([_format_cell(cell) for cell in row])
    except CalamineError as error:
        raise InputError(f"{path}: the workbook cannot be read ({error}). Save the sheet as CSV.") from error


def _format_cell(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, date | datetime):
        return cell.isoformat(" ") if isinstance(cell, datetime) else cell.isoformat()
    return " ".join(str(cell).splitlines())  # a row is a line


def _format_row(row: Iterable[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue().encode()


def _read_arrow(path: Path) -> Iterator[bytes]:
    """Yield the rows of an Arrow file (Feather) or stream as JSON lines."""
    try:
        with pa.memory_map(str(path)) as source:
            if source.read(6) == b"ARROW1":
                file = pa.ipc.open_file(source)
                batches: Iterable[pa.RecordBatch] = map(file.get_batch, range(file.num_record_batches))
            else:
                source.seek(0)
                batches = pa.ipc.open_stream(source)
            for batch in batches:
                yield from _format_frame(pl.DataFrame(pl.from_arrow(batch)))
    except (pa.ArrowException, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: the Arrow file cannot be read ({reason}). Fetch it again.") from error


def _format_frame(frame: pl.DataFrame) -> Iterator[bytes]:
    binary = [name for name, kind in frame.schema.items() if kind == pl.Binary]
    frame = frame.with_columns(pl.col(name).cast(pl.String, strict=False) for name in binary)
    for rows in frame.iter_slices(ROWS_AT_ONCE):
        yield rows.write_ndjson().encode()


def _detect_json(stream: IO[bytes]) -> str:
    """Return `json_array` for one array, `json_values` for other JSON than an object a line, nothing for other text.

    Lines of objects, also after a damaged first one, are read as they stand.
    """
    head = stream.read(64).removeprefix(BYTE_ORDER_MARK).lstrip()
    stream.seek(0)
    if head[:1] == b"[":
        lines = [line.strip() for line in stream.read(HEAD_BYTES).splitlines() if line.strip()]
        if lines[1:] and lines[1].startswith(b"[") and _parses_to(lines[0].removeprefix(BYTE_ORDER_MARK), list):
            return "json_values"
        return "json_array" if head[1:].lstrip()[:1] in (b"", b"{", b"[", b"]") else ""
    if head[:1] != b"{":
        return ""
    lines = _iterate_filled(stream)
    first, second = next(lines), next(lines, b"")
    is_line = first.endswith(b"}") and second.startswith(b"{")
    return "" if is_line or _parses_to(second, dict) or (second and _parses_to(first, dict)) else "json_values"


def _iterate_filled(stream: IO[bytes]) -> Iterator[bytes]:
    while line := stream.readline(MAX_JSON_BYTES):
        if line.strip():
            yield line.removeprefix(BYTE_ORDER_MARK).strip()


def _parses_to(text: bytes, kind: type) -> bool:
    try:
        return isinstance(json.loads(text), kind)
    except ValueError:
        return False


def _read_array(path: Path, plain: Path) -> Iterator[bytes]:
    """Yield the elements of a JSON array as lines, without holding them all."""
    for values in _fetch_values(path, plain, "array"):
        yield b"".join(map(_format_value, values))


def _read_values(path: Path, plain: Path) -> Iterator[bytes]:
    """Yield JSON values as lines; of a single object that holds a table its rows."""
    batches = _fetch_values(path, plain, "unstructured")
    first = next(batches, [])
    if len(first) > 1:
        yield b"".join(map(_format_value, first))
        for values in batches:
            yield b"".join(map(_format_value, values))
    else:
        for value in first:
            record = json.loads(value)
            rows = _find_rows(record) if isinstance(record, dict) else None
            yield b"".join(_format_value(json.dumps(row)) for row in ([record] if rows is None else rows))


def _fetch_values(path: Path, plain: Path, form: str) -> Iterator[list[str]]:
    query = "select json(json)::varchar from read_json_objects(?, format = ?, maximum_object_size = ?)"
    try:
        with duckdb.connect() as connection:
            cursor = connection.execute(query, [str(plain), form, MAX_JSON_BYTES])
            while rows := cursor.fetchmany(1000):
                yield [value for (value,) in rows]
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        if "maximum_object_size" in str(error):
            raise InputError(
                f"{path}: holds a JSON object of over {MAX_JSON_BYTES:,} bytes. Convert it to CSV or Parquet."
            ) from error
        what = "a whole JSON array" if form == "array" else "whole JSON"
        raise InputError(f"{path}: is not {what} ({reason}). Fetch it again.") from error


def _format_value(value: str) -> bytes:
    """Return a line: an array's elements as CSV, anything else as it is."""
    if not value.startswith("["):
        return f"{value}\n".encode()
    line = io.StringIO()
    cells = ["" if cell is None else cell if isinstance(cell, str) else json.dumps(cell) for cell in json.loads(value)]
    csv.writer(line, lineterminator="\n").writerow(" ".join(cell.splitlines()) for cell in cells)
    return line.getvalue().encode()


def _find_rows(record: Mapping[str, Any]) -> Sequence[Any] | None:
    """Return the rows of the table that one JSON object holds; None if it holds none, or maybe several.

    A table is an array of objects, such as `data` in {"data": [...]}.
    """
    tables = list(_iterate_tables(record))
    is_event = any(ID_NAME.fullmatch(name) and not isinstance(value, list) for name, value in record.items())
    return tables[0] if len(tables) == 1 and not is_event else None


def _iterate_tables(record: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    for value in record.values():
        if isinstance(value, dict):
            yield from _iterate_tables(value)
        elif isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            yield value


TABLE_READERS: dict[str, Callable[[Path], Iterator[bytes]]] = {"workbook": _read_workbook, "arrow": _read_arrow}
"""Container -> the reader that yields the text of a file."""
JSON_READERS: dict[str, Callable[[Path, Path], Iterator[bytes]]] = {
    "json_array": _read_array,
    "json_values": _read_values,
}
"""Kind of JSON -> the reader that yields its lines, given the path to name and that of the unpacked file."""


def is_tar(stream: ByteStream) -> bool:
    """Whether a stream begins as a tar archive does."""
    return stream.read(TAR_HEADER_BYTES)[TAR_MAGIC] == b"ustar"


def iterate_logs(stream: ByteStream) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield (name, contents) of every log in an archive and the archives directly inside it, in order.

    Read each before requesting the next. The stream is read to its end to detect a truncated archive.

    Raises:
        tarfile.TarError: the archive is truncated or damaged.
        EOFError, zlib.error: its gzip is.
    """
    yield from _iterate_members(stream, "", nested=True)


def list_tar(stream: ByteStream) -> list[str]:
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
