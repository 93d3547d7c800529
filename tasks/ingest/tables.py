"""Read small tables that come with a data set: titles and attributes, in the formats that logs may have."""

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import containers
from oneclass.tasks.ingest.sources import check_readable
from oneclass.tasks.stores.home import escape_path

ID_COLUMNS = {
    "item": ("item_id", "itemid", "movieid", "movie_id", "item", "id"),
    "user": ("user_id", "userid", "customer_id", "customerid", "user", "customer", "id"),
}
END_MARK = "\0end"  # no table has a NUL; one that is not a row of its own stands inside an open quote
QUOTE_ADVICE = "Close the quote, or double it if it is part of a value."
DELIMITERS = (",", "\t", ";", "|")


class Table(NamedTuple):
    """The columns and rows of a table.

    Attributes:
        lines: the line on which each row begins; in a Parquet file the row's number.
    """

    names: list[str]
    rows: Sequence[Sequence[Any]]
    lines: Sequence[int]


def read_table(path: Path, what: str, encoding: str, without_header: Sequence[str]) -> Table:
    """Read delimited text with a header, JSON lines or an array, a workbook or Parquet, packed or not.

    Args:
        what: what the table is, for messages.
        encoding: of text that is not UTF-8.
        without_header: the columns of lines `a::b::c`, MovieLens' older form.

    Raises:
        InputError: the file is unreadable or empty, or a line is malformed.
    """
    with check_readable(path):
        container = containers.detect_container(path)
        if container == "parquet":
            return _read_parquet(path, what)
        with containers.open_text(path, container) as stream:
            text = _decode(stream.read(), encoding)
    return _split_text(path, what, text, without_header)


def find_column(path: Path, what: str, names: Sequence[str], accepted: Iterable[str], advice: str) -> int:
    """Return the place of the first of the accepted names, in any case.

    Args:
        advice: a sentence on what to do if there is none.

    Raises:
        InputError: the table has none of them.
    """
    columns = [name.strip().lower() for name in names]
    wanted = list(dict.fromkeys(name.lower() for name in accepted))
    for name in wanted:
        if name in columns:
            return columns.index(name)
    shown = ", ".join(names)[:200]
    raise InputError(
        f"{what} {path}, line 1: has the columns {shown}, and none is called {' or '.join(wanted)}. {advice}"
    )


def normalize_id(value: Any) -> str:
    """Return an id as the logs' ids are read: without outer blanks, and 17 for 17.0."""
    return re.sub(r"^(-?\d+)\.0+$", r"\1", str(value).strip(" \t"))


def _decode(data: bytes, encoding: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode(encoding or "latin-1", errors="replace")  # the encoding of MovieLens' older files


def _read_parquet(path: Path, what: str) -> Table:
    try:
        with duckdb.connect() as connection:
            table = connection.read_parquet(escape_path(path), hive_partitioning=False)
            rows = table.fetchall()
            return Table(table.columns, rows, range(1, len(rows) + 1))
    except duckdb.Error as error:
        raise InputError(f"{what} {path}: is not a complete Parquet file ({str(error).splitlines()[0]}).") from error


def _split_text(path: Path, what: str, text: str, without_header: Sequence[str]) -> Table:
    skipped = re.match(r"(\s*(#[^\n]*)?\n)*", text)
    assert skipped is not None  # an empty match at least
    before, text = text[: skipped.end()].count("\n"), text[skipped.end() :]
    if not text.strip():
        raise InputError(f"{what} {path}: is empty.")
    first = _split_lines(text)[0]
    if first.lstrip().startswith("{"):
        records = list(_iterate_records(path, what, text, before))
        names = list(dict.fromkeys(name for record in records for name in record))
        rows = [[record.get(name) for name in names] for record in records]
        return Table(names, rows, range(before + 1, before + 1 + len(rows)))
    if "::" in first:
        rows = [line.split("::") for line in _split_lines(text)]
        return Table(list(without_header), rows, range(before + 1, before + 1 + len(rows)))
    delimiter = max(DELIMITERS, key=first.count)
    rows, lines = _read_rows(path, what, text, delimiter, before)
    return Table(list(rows[0]), rows[1:], lines[1:])


def _read_rows(path: Path, what: str, text: str, delimiter: str, before: int) -> tuple[list[Sequence[str]], list[int]]:
    """Return the rows that are not empty, the header first, and the line on which each begins."""
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL  # as logs are read
    reader = csv.reader(
        itertools.chain(io.StringIO(text, newline=""), [END_MARK]), delimiter=delimiter, quoting=quoting
    )
    rows: list[Sequence[str]] = []
    lines: list[int] = []
    start = before + 1
    try:
        for row in reader:
            if row == [END_MARK]:
                break
            if row and row[-1].endswith(END_MARK):
                raise InputError(
                    f"{what} {path}, line {start}: a quote is opened in it and never closed. {QUOTE_ADVICE}"
                )
            if row:
                rows.append(row)
                lines.append(start)
            start = before + reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{what} {path}, line {start}: a field of the row that begins here has more than "
            f"{csv.field_size_limit():,} characters. A quote may lack its partner. {QUOTE_ADVICE}"
        ) from error
    return rows, lines


def _split_lines(text: str) -> list[str]:
    """Split a text at its line ends; unlike `str.splitlines`, not at separators such as U+2028 inside values."""
    return re.split(r"\r\n|\r|\n", text.removesuffix("\n").removesuffix("\r"))


def _iterate_records(path: Path, what: str, text: str, before: int) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_split_lines(text), before + 1):
        try:
            yield dict(json.loads(line))
        except (ValueError, TypeError) as error:
            raise InputError(f"{what} {path}, line {number}: is not a JSON object.") from error
