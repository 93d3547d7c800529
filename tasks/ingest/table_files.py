"""Read the rows of tables that are no text as lines of CSV or JSON: workbooks, Arrow, Avro, ORC, SQLite and HTML."""

import csv
import io
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import date, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, Any

import polars as pl
import pyarrow as pa
from pyarrow import orc
from python_calamine import CalamineError, CalamineWorkbook

from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.conversions import explain_database

ROWS_AT_ONCE = 10_000
HEAD_BYTES = 4096
ORC_MAGIC = b"ORC"
HTML_HEAD = re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype html|html|head|meta|table|style)\b", re.IGNORECASE | re.DOTALL)


def is_orc(path: Path) -> bool:
    """Whether a file ends as ORC files do; its beginning may be that of a text."""
    with open(path, "rb") as stream:
        stream.seek(-min(4, path.stat().st_size), os.SEEK_END)
        return stream.read(3) == ORC_MAGIC


def is_html(stream: IO[bytes]) -> bool:
    """Whether a text is a page of HTML with a table of at least two rows and columns, as the exports of many shops."""
    head = stream.read(HEAD_BYTES)
    if not HTML_HEAD.match(head.removeprefix(b"\xef\xbb\xbf")):
        return False
    return any(len(row) > 1 for row in _parse_tables((head + stream.read()).decode("utf-8", "replace"))[1:])


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
        raise InputError(_explain_damage(path, "Arrow", error)) from error


def _read_avro(path: Path) -> Iterator[bytes]:
    """Yield the rows of an Avro file as JSON lines."""
    try:
        yield from _format_frame(pl.read_avro(path))
    except pl.exceptions.PolarsError as error:
        raise InputError(_explain_damage(path, "Avro", error)) from error


def _read_orc(path: Path) -> Iterator[bytes]:
    """Yield the rows of an ORC file as JSON lines."""
    try:
        file = orc.ORCFile(path)
        for stripe in range(file.nstripes):
            yield from _format_frame(pl.DataFrame(pl.from_arrow(file.read_stripe(stripe))))
    except (pa.ArrowException, pl.exceptions.PolarsError) as error:
        raise InputError(_explain_damage(path, "ORC", error)) from error


def _format_frame(frame: pl.DataFrame) -> Iterator[bytes]:
    binary = [name for name, kind in frame.schema.items() if kind == pl.Binary]
    frame = frame.with_columns(pl.col(name).cast(pl.String, strict=False) for name in binary)
    for rows in frame.iter_slices(ROWS_AT_ONCE):
        yield rows.write_ndjson().encode()


def _explain_damage(path: Path, kind: str, error: Exception) -> str:
    reason = str(error).splitlines()[0]
    return f"{path}: the {kind} file cannot be read ({reason}). Fetch it again, or write it as Parquet."


def _read_sqlite(path: Path) -> Iterator[bytes]:
    """Yield the rows of the only table of an SQLite database as lines of CSV."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            query = "select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'"
            names = [name for (name,) in database.execute(query)]
            if len(names) != 1:
                raise InputError(explain_database(path, names))
            table = '"' + names[0].replace('"', '""') + '"'
            cursor = database.execute(f"select * from {table}")
            yield _format_row(column for column, *_ in cursor.description)
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                yield b"".join(_format_row("" if cell is None else _format_cell(cell) for cell in row) for row in rows)
    except sqlite3.Error as error:
        raise InputError(f"{path}: the SQLite database cannot be read ({error}). Fetch it again.") from error


class _TableParser(HTMLParser):
    """Collects the rows of the tables of a page: one list of cells a row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        self._in_cell = tag in ("td", "th") or (self._in_cell and tag not in ("tr", "table"))
        if tag in ("td", "th"):
            self.rows = self.rows or [[]]
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th", "tr", "table")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data


def _parse_tables(text: str) -> list[list[str]]:
    parser = _TableParser()
    parser.feed(text)
    return [[" ".join(cell.split()) for cell in row] for row in parser.rows if row]


def _read_html(path: Path) -> Iterator[bytes]:
    """Yield the rows of the tables of a page as lines of CSV."""
    data = path.read_bytes()
    declared = re.search(rb"charset=[\"']?([\w-]+)", data[:HEAD_BYTES])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode(declared[1].decode() if declared else "windows-1252", "replace")
    yield from map(_format_row, _parse_tables(text))


Reader = Callable[[Path], Iterator[bytes]]
READERS: dict[str, Reader] = {
    "workbook": _read_workbook,
    "arrow": _read_arrow,
    "avro": _read_avro,
    "orc": _read_orc,
    "sqlite": _read_sqlite,
    "html": _read_html,
}
"""Container -> the reader that yields the text of a file."""
