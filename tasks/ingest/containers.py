"""Open a raw log as a stream of UTF-8 text: compressed, in another encoding, or a table or JSON in another form."""

import bz2
import codecs
import gzip
import io
import lzma
import re
import shutil
import tempfile
import zipfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import charset_normalizer
from backports import zstd

from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import conversions, json_values, table_files

MAGIC = {
    b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip",
    b"PAR1": "parquet", b"ARROW1\0\0": "arrow", b"\xff\xff\xff\xff": "arrow", b"Obj\x01": "avro",
    b"SQLite f": "sqlite", b"\xd0\xcf\x11\xe0": "workbook",
}  # fmt: skip
WORKBOOK_MEMBERS = ("xl/workbook.xml", "xl/workbook.bin", "content.xml")
"""In the zip archives of .xlsx, .xlsb and .ods."""
HIDDEN_MEMBER = re.compile(r"(^|/)(__MACOSX/|\.|Thumbs\.db$)")
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
CHUNK_BYTES = 1 << 20
SAMPLE_BYTES = 1 << 22


def detect_container(path: Path) -> str:
    """Return what a file is: a value of `MAGIC`, `workbook`, `orc`, `html`, or nothing for text; of JSON that is not in
    lines `json_array` or `json_values`, followed by a blank and how it is compressed.

    Raises:
        InputError: it is a zip archive of several files.
    """
    with open(path, "rb") as raw:
        head = raw.read(8)
    container = next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), "")
    if container == "zip":
        names = list_zip(path)
        if not names:
            return ""  # refused as what it is
        if any(name in names for name in WORKBOOK_MEMBERS):
            return "workbook"
        if len(names) > 1:
            raise InputError(conversions.explain_archive(path, names, "zipfile"))
    if container == "parquet" or container in table_files.READERS:
        return container
    if head.startswith(b"ORC") and table_files.is_orc(path):
        return "orc"
    with _decompress(path, container) as stream:
        kind = json_values.detect_json(stream)
        if kind:
            return f"{kind} {container}"
        stream.seek(0)
        return "html" if not container and table_files.is_html(stream) else container


def open_text(path: Path, container: str, encoding: str = "") -> IO[bytes]:
    """Open a log's text in UTF-8, one record a line.

    Args:
        container: of `detect_container`.
        encoding: of the text; by default UTF-8, or UTF-16 where it begins with the mark of it.

    Raises:
        OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError: the file cannot be read.
        InputError: a table, a workbook or JSON cannot.
    """
    if container in table_files.READERS:
        return cast("IO[bytes]", _IteratorStream(table_files.READERS[container](path)))
    kind, _, compression = container.partition(" ")
    if kind in json_values.READERS:
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
        yield from json_values.READERS[kind](path, plain)


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
