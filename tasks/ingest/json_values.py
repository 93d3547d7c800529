"""Read JSON that is not one object a line: arrays, objects over several lines, and tables in one object."""

import csv
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import duckdb

from oneclass.tasks.errors import InputError

MAX_JSON_BYTES = 1 << 26
HEAD_BYTES = 1 << 16
ID_NAME = re.compile(r"(user|customer|client|visitor|item|product|sku|order|session)[ _]?(id)?", re.IGNORECASE)
"""Keys of one event or order, or of the columns of many."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def detect_json(stream: IO[bytes]) -> str:
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
            rows = find_rows(record) if isinstance(record, dict) else None
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
                f"{path}: holds a JSON object of over {MAX_JSON_BYTES:,} bytes. Write the events as JSON lines in a "
                "shell, such as those of a key `data`:\n\n"
                f"jq -c '.data[]' {shlex.quote(str(path))} > {shlex.quote(str(path.with_suffix('.jsonl')))}"
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


def find_rows(record: Mapping[str, Any]) -> Sequence[Any] | None:
    """Return the rows of the table that one JSON object holds; None if it holds none, or maybe several.

    A table is an array of objects, such as `data` in {"data": [...]}, or columns of one length as lists or as objects
    with the same keys, as pandas writes them, or `columns` and `data`.
    """
    values = list(record.values())
    if isinstance(record.get("columns"), list) and isinstance(record.get("data"), list):
        return [record["columns"], *record["data"]]
    if len(values) > 1 and all(isinstance(value, dict) and value for value in values):
        keys = list(values[0])
        if all(list(value) == keys for value in values) and all(key.isdigit() for key in keys):
            columns = [list(value.values()) for value in values]
            return [dict(zip(record, row, strict=True)) for row in zip(*columns, strict=True)]
    are_lists = all(isinstance(value, list) and len(value) == len(values[0]) for value in values)
    if are_lists and any(ID_NAME.fullmatch(name) for name in record):
        return [dict(zip(record, row, strict=True)) for row in zip(*values, strict=True)]
    tables = list(_iterate_tables(record))
    is_event = any(ID_NAME.fullmatch(name) and not isinstance(value, list) for name, value in record.items())
    return tables[0] if len(tables) == 1 and not is_event else None


def _iterate_tables(record: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    for value in record.values():
        if isinstance(value, dict):
            yield from _iterate_tables(value)
        elif isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            yield value


READERS: dict[str, Callable[[Path, Path], Iterator[bytes]]] = {"json_array": _read_array, "json_values": _read_values}
"""Kind of JSON -> the reader that yields its lines, given the path to name and that of the unpacked file."""
