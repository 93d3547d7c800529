"""Read the titles of items from a table that comes with a data set."""

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import containers
from oneclass.tasks.ingest.sources import check_readable
from oneclass.tasks.ingest.statements import escape_path

ITEM_COLUMNS = ("item_id", "itemid", "movieid", "movie_id", "item", "id")
TITLE_COLUMNS = ("title", "name", "item_name", "movie_title")
END_MARK = "\0end"  # no table has a NUL; one that is not a row of its own stands inside an open quote
QUOTE_ADVICE = "Close the quote, or double it if it is part of a title."
DELIMITERS = (",", "\t", ";", "|")


def read_titles(path: Path, dataset: Dataset) -> dict[str, str]:
    """Return a dictionary of item id to title.

    Reads what logs may be: delimited text, JSON lines or an array, a workbook, Parquet, and these compressed. Columns
    are found by the names under `[titles]` in the data set's file, else by usual names, in any case. MovieLens'
    `movies.dat` has lines `id::title::genres` without a header.

    Raises:
        InputError: the file is unreadable, or lacks a column of ids or titles.
    """
    with check_readable(path):
        container = containers.detect_container(path)
        if container == "parquet":
            names, rows = _read_parquet(path)
        else:
            with containers.open_text(path, container) as stream:
                text = _decode(stream.read(), dataset.encoding)
            names, rows = _split_text(path, text)
    declared, log_columns = dataset.titles, dataset.join.lines.columns if dataset.join else dataset.columns
    item_columns = (declared.item,) if declared.item else (*log_columns.item, *ITEM_COLUMNS)
    item = _find_column(path, names, item_columns, "item", dataset)
    title = _find_column(path, names, (declared.title,) if declared.title else TITLE_COLUMNS, "title", dataset)
    filled = (row for row in rows if len(row) > max(item, title) and row[title] not in (None, ""))
    return {_normalize_id(row[item]): str(row[title]) for row in filled}


def _normalize_id(value: Any) -> str:
    """Return an id as the logs' ids are read: without outer blanks, and 17 for 17.0."""
    return re.sub(r"^(-?\d+)\.0+$", r"\1", str(value).strip(" "))


def _decode(data: bytes, encoding: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode(encoding or "latin-1", errors="replace")  # the encoding of MovieLens' older files


def _read_parquet(path: Path) -> tuple[list[str], Iterable[Sequence[Any]]]:
    try:
        with duckdb.connect() as connection:
            table = connection.read_parquet(escape_path(path), hive_partitioning=False)
            return table.columns, table.fetchall()
    except duckdb.Error as error:
        raise InputError(f"titles {path}: is not a complete Parquet file ({str(error).splitlines()[0]}).") from error


def _split_text(path: Path, text: str) -> tuple[list[str], Iterable[Sequence[Any]]]:
    """Return the names of the columns, and the rows."""
    text = re.sub(r"\A(\s*(#[^\n]*)?\n)+", "", text)
    if not text.strip():
        raise InputError(f"titles {path}: is empty.")
    first = _split_lines(text)[0]
    if first.lstrip().startswith("{"):
        records = list(_iterate_records(path, text))
        names = list(dict.fromkeys(name for record in records for name in record))
        return names, ([record.get(name) for name in names] for record in records)
    if "::" in first:
        return [ITEM_COLUMNS[0], TITLE_COLUMNS[0]], (line.split("::") for line in _split_lines(text))
    delimiter = max(DELIMITERS, key=first.count)
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL  # as logs are read
    lines = itertools.chain(io.StringIO(text, newline=""), [END_MARK])
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting)
    rows: list[list[str]] = []
    start = 1
    try:
        for row in reader:
            rows.append(row)
            if row and row[-1].endswith(END_MARK) and row != [END_MARK]:
                raise InputError(
                    f"titles {path}, line {start}: a quote is opened in it and never closed. {QUOTE_ADVICE}"
                )
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"titles {path}, line {start}: a field of the row that begins here has more than "
            f"{csv.field_size_limit():,} characters. A quote may lack its partner. {QUOTE_ADVICE}"
        ) from error
    names, *rest = (row for row in rows[:-1] if row)
    return names, rest


def _split_lines(text: str) -> list[str]:
    """Split a text at its line ends; unlike `str.splitlines`, not at separators such as U+2028 inside titles."""
    return re.split(r"\r\n|\r|\n", text.removesuffix("\n").removesuffix("\r"))


def _iterate_records(path: Path, text: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_split_lines(text), 1):
        try:
            yield dict(json.loads(line))
        except (ValueError, TypeError) as error:
            raise InputError(f"titles {path}, line {number}: is not a JSON object.") from error


def _find_column(path: Path, names: Sequence[str], accepted: Sequence[str], role: str, dataset: Dataset) -> int:
    columns = [name.strip().lower() for name in names]
    for name in accepted:
        if name.lower() in columns:
            return columns.index(name.lower())
    shown = ", ".join(names)[:200]
    raise InputError(
        f"titles {path}, line 1: has the columns {shown}, and none is called "
        f"{' or '.join(dict.fromkeys(name.lower() for name in accepted))}. Name the {role}'s column in the data set's "
        f'file, datasets/{dataset.name}.toml in the home:\n\n[titles]\n{role} = "COLUMN"'
    )
