"""Recognise the layout of a log from its first lines and the data set's file."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest import times
from oneclass.tasks.ingest.columns import (
    AMOUNT,
    BLANKS,
    ID_NAMES,
    MIN_SHARE,
    Sample,
    count_known,
    describe_doubts,
    match_columns,
    normalize_name,
)
from oneclass.tasks.ingest.files import FileScan
from oneclass.tasks.stores.home import escape_path

MAX_TITLES = 10  # lines above a header that are looked for, and it
DELIMITERS = (",", "\t", ";", "|", "::", "\x01", "^", "~", " ")
LINE_END = re.compile(r"\r\n|\r|\n")
MOVIE_HEADER = re.compile(r"\s*\d+\s*:\s*")
NETFLIX_RATING = re.compile(r"[^,]+,[^,]+,\d{4}-\d\d-\d\d\s*")
NUMBER = r"-?\d+(?:\.\d+)?"
FORMS_WITHOUT_HEADER = (
    ("::", ("user", "item", "value", "time"), re.compile(rf"[^:]+::[^:]+::{NUMBER}::\d+\s*")),  # ratings.dat
    ("\t", ("user", "item", "value", "time"), re.compile(rf"[^\t]+\t[^\t]+\t{NUMBER}\t\d+\s*")),  # u.data
    ("\t", ("user", "item", "value"), re.compile(rf"[^\t]+\t[^\t]+\t{NUMBER}\s*")),  # taste profile triplets
)
THOUSANDS = re.compile(r"\s*-?\d{1,3}(,\d{3})+(\.\d+)?-?\s*")
COMMA_NUMBER = re.compile(r"\s*-?(\d+|\d{1,3}(\.\d{3})+),(\d+)-?\s*")
JSON = re.compile(r"\s*(\{|\[\s*\{)")
NESTED = re.compile(r"\s*[\[({].*[\])}]\s*", re.DOTALL)
MAX_ROWS = 1000


@dataclass(frozen=True)
class Layout:
    """How a log is read.

    Attributes:
        form: `netflix`, `delimited`, `json`, `adjacency`, `counted_adjacency` or `parquet`.
        delimiter: of fields.
        skip: lines before the first record.
        names: of the columns of a header or schema; none without one.
        fields: the number of fields of a line.
        columns: role (`user`, `item`, `value`, `time`, `clock`, `event`) -> position of its field, from 1; in Parquet
            and JSON its name.
        is_by_form: whether only its form tells which column is which.
        has_quotes: whether all fields of the first line are in double quotes.
        doubts, decimal, time_formats: of `describe_doubts`, `_decimal_mark` and `detect_time_formats`.
    """

    form: str
    delimiter: str = ""
    skip: int = 0
    names: tuple[str, ...] = ()
    fields: int = 0
    columns: tuple[tuple[str, int | str], ...] = ()
    is_by_form: bool = False
    has_quotes: bool = False
    doubts: tuple[str, ...] = ()
    decimal: str = ""
    time_formats: tuple[str, ...] = ()

    @property
    def names_columns(self) -> bool:
        """Whether the log says itself which column is which."""
        return self.form == "json" or bool(self.names)

    @property
    def is_quoted(self) -> bool:
        """Whether fields may be in double quotes, as in RFC 4180. Other tab-separated logs keep quotes as they are."""
        return len(self.delimiter) == 1 and (self.delimiter != "\t" or self.has_quotes)


def detect_text(path: str, text: FileScan, dataset: Dataset) -> Layout:
    """Detect the layout of a text log from its first lines.

    Columns are found by their names, or by number where the data set's file states them so; only a public format is
    read by its form.

    Raises:
        InputError: the columns leave a doubt, or values or times can be read in two ways.
    """
    lines = LINE_END.split(text.head.decode("utf-8-sig", errors="replace"))
    lines = lines if text.size == len(text.head) or len(lines) == 1 else lines[:-1]
    filled = [line for line in lines if line.strip()][:MAX_ROWS]
    if not filled:
        raise InputError(f"{path}: is empty. Give a log with at least one line, or leave it out.")
    if dataset.layout != "recognised":
        return Layout(dataset.layout)
    if re.match(r"(?i)\s*<(!doctype|\?xml|html|table)\b", filled[0]):
        raise InputError(f"{path}: is HTML or XML, whatever its name. Save it by a spreadsheet as CSV or .xlsx.")
    if JSON.match("\n".join(filled)):
        records = list(filter(None, map(_parse_object, filled)))
        if not records:
            raise InputError(
                f"{path}: is JSON without an object on each line, which a query reads. State it in the data set's file:"
                f"\n\n[source]\nquery = \"select * from read_json('{path}')\""
            )
        names = list(dict.fromkeys(name for record in records for name in record))
        rows = [[_format_json(record.get(name)) for name in names] for record in records]
        return _match_names(Layout("json"), Sample(path, "JSON lines", names, rows), dataset)
    if dataset.columns.model_fields_set or dataset.events or not (found := _detect_form(filled)):
        layout = _detect_delimited(path, lines[lines.index(filled[0]) :], dataset)
        return replace(layout, skip=layout.skip + lines.index(filled[0]))
    sample = _make_sample(path, "", (), split_rows(filled, found))
    columns = {role: int(place) for role, place in found.columns}
    return _detect_values(found, sample, columns, dataset) if columns else found


def detect_parquet(path: Path, dataset: Dataset) -> Layout:
    """Detect the layout of a Parquet log from its schema and first rows, whose cells are read as text.

    Raises:
        InputError: it is cut short or damaged, or its columns leave a doubt.
    """
    try:
        with duckdb.connect() as connection:
            connection.execute("set TimeZone = 'UTC'")
            scan = connection.read_parquet(escape_path(path), hive_partitioning=False)
            names = scan.columns
            rows = scan.project(", ".join(map(as_text, names))).limit(MAX_ROWS).fetchall()
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: is not a complete Parquet file ({reason}). Fetch it again.") from error
    sample = Sample(str(path), "Parquet", names, [[cell or "" for cell in row] for row in rows])
    return _match_names(Layout("parquet", names=tuple(sample.names)), sample, dataset)


def as_text(name: str) -> str:
    """Return the SQL expression of a column of any type as text."""
    return '"' + name.replace('"', '""') + '"::varchar'


def _detect_form(lines: Sequence[str]) -> Layout | None:
    """Return the layout of a public format without a header; None for other lines."""

    def share(*patterns: re.Pattern[str]) -> float:
        return sum(any(pattern.fullmatch(line) for pattern in patterns) for line in lines) / len(lines)

    if any(map(MOVIE_HEADER.fullmatch, lines)) and share(MOVIE_HEADER, NETFLIX_RATING) >= MIN_SHARE:
        return Layout("netflix", ",", fields=3)
    rows = [line.split() for line in lines]
    if all(cell.isdigit() for row in rows for cell in row) and len({len(row) for row in rows}) > 1:
        users = [int(row[0]) for row in rows]
        if users[0] in (0, 1) and users == list(range(users[0], users[0] + len(users))):  # LightGCN's lists of items
            return Layout("adjacency", " ", is_by_form=True)
    for delimiter, roles, pattern in FORMS_WITHOUT_HEADER:
        if pattern.fullmatch(lines[0]) and share(pattern) >= MIN_SHARE:
            columns = tuple((role, at) for at, role in enumerate(roles, 1))
            return Layout("delimited", delimiter, fields=len(roles), columns=columns, is_by_form=True)
    return None


def _detect_delimited(path: str, lines: Sequence[str], dataset: Dataset) -> Layout:
    """Detect the delimiter, the header and the columns of a log of delimited fields."""
    delimiter = dataset.delimiter or choose_delimiter(lines, dataset)
    has_quotes = all(re.fullmatch(r'"[^"]*"\s*', cell) for cell in lines[0].split(delimiter))
    layout, form = Layout("delimited", delimiter, has_quotes=has_quotes), f"delimiter {json.dumps(delimiter)}"
    if delimiter == " " != dataset.delimiter and sum("  " in one.strip() for one in lines) > MIN_SHARE * len(lines):
        raise InputError(
            f"{path}: aligns its columns by blanks. Read them by a query in the data set's file:\n\n[source]\nquery = "
            "\"select cells[1] as user_id, cells[2] as item_id from (select regexp_split_to_array(trim(line), ' +') as "
            f"cells from read_csv('{path}', columns = {{'line': 'varchar'}}, delim = '', auto_detect = false))\""
        )
    rows = split_rows(lines, layout)
    stated = [name for role in dataset.columns.model_fields_set for name in getattr(dataset.columns, role) or ()]
    is_numbered = bool(stated) and all(map(str.isdigit, stated))
    if is_numbered and (_is_header(rows) or not ID_NAMES.isdisjoint(map(normalize_name, rows[0]))):
        raise InputError(
            f"{path}, line 1: looks like a header ({', '.join(rows[0])[:200]}), so that its columns have names. State "
            "them by name."
        )
    if not is_numbered and (_is_header(rows) or count_known(rows[0], dataset)):
        try:
            next(csv.reader(lines[:1], delimiter=delimiter[0], strict=layout.is_quoted))
        except csv.Error as error:  # DuckDB would skip more than the header
            raise InputError(f"{path}, line 1: the quotes of its header do not pair. Mend them.") from error
        names = tuple(name.strip(BLANKS) for name in rows[0])
        layout = replace(layout, skip=1, names=names, fields=len(names) + dataset.row_names)
        sample = _make_sample(f"{path}, line 1", form, ("", *names) if dataset.row_names else names, rows[1:])
    else:
        if not is_numbered:
            _refuse_titles(path, rows, dataset)
        sample = _make_sample(path, f"{form}, without a header", (), rows)
        layout = replace(layout, fields=len(sample.names))
    return _detect_values(layout, sample, match_columns(sample, dataset), dataset)


def _refuse_titles(path: str, rows: Sequence[Sequence[str]], dataset: Dataset) -> None:
    """Refuse a log with titles above its header."""
    for number, row in enumerate(rows[1:MAX_TITLES], 2):
        if count_known(row, dataset) > 1 or (len(rows[0]) < len(row) and _is_header(rows[number - 1 :])):
            raise InputError(
                f"{path}, line {number}: looks like the header ({', '.join(row)[:200]}), with others above it. "
                "Take these out, or read the log by a query that skips them."
            )


def choose_delimiter(lines: Sequence[str], dataset: Dataset) -> str:
    """Return the delimiter that shows most columns of known names, or else most lines of equally many fields."""

    def rate(delimiter: str) -> tuple[int, float, int]:
        rows = split_rows(lines, Layout("delimited", delimiter))
        (width, count), *_ = Counter(map(len, rows)).most_common(1)
        known = count_known(rows[0], dataset) if len(rows[0]) > 1 else 0
        return known, count / len(rows) * (width > 1), width * (delimiter != " ")  # texts have blanks in them

    return max(DELIMITERS, key=rate)  # of equal ones the first


def split_rows(lines: Sequence[str], layout: Layout) -> list[list[str]]:
    """Split lines into rows of fields, as DuckDB does; a quoted field may have several lines."""
    if not layout.is_quoted:
        rows = [line.split(layout.delimiter) for line in lines if line.strip()]
    else:
        rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=layout.delimiter))
    rows = [row for row in rows if any(cell.strip() for cell in row)][:MAX_ROWS]
    is_trailing = len(rows) > 1 and all(not row[-1].strip() and len(row) > len(rows[0]) for row in rows[1:])
    return [rows[0], *(row[:-1] for row in rows[1:])] if is_trailing else rows


def _make_sample(source: str, form: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Sample:
    """Make the sample of the rows that are as wide as most; columns without names have numbers."""
    width = len(names) or Counter(map(len, rows)).most_common(1)[0][0]
    numbers = names or [str(at) for at in range(1, width + 1)]
    return Sample(source, form, numbers, [row for row in rows if len(row) == width], bool(names))


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has names: no cell of it is a number or a time, and below some column has such alone."""

    def is_measured(cell: str) -> bool:
        return times.NUMBER.fullmatch(cell) is not None or times.are_times([cell])

    first, below = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    are_measured = (all(map(is_measured, filter(None, cells))) for cells in zip(*below, strict=True))
    return not any(map(is_measured, first)) and any(are_measured)


def _match_names(layout: Layout, sample: Sample, dataset: Dataset) -> Layout:
    """Add the columns of a log that names them in each record or its schema."""
    positions = match_columns(sample, dataset)
    columns = tuple((role, sample.names[at - 1]) for role, at in positions.items())
    return _detect_values(replace(layout, columns=columns), sample, positions, dataset)


def _detect_values(layout: Layout, sample: Sample, positions: Mapping[str, int], dataset: Dataset) -> Layout:
    """Add the columns, and the forms of values and times, from sampled rows."""
    path = sample.source.partition(", line")[0]
    labels = {role: f"{path}, column {sample.names[at - 1]}" for role, at in positions.items()}
    cells = {role: sample.column(at) for role, at in positions.items()}
    for role, label in labels.items():
        filled = [cell for cell in cells[role] if cell.strip()]
        nested = [cell for cell in filled if NESTED.fullmatch(cell)]
        if len(nested) > MIN_SHARE * len(filled):
            raise InputError(
                f"{label}: has several values in a cell, such as {nested[0].strip()[:60]}, where the {role} has one. "
                "Name another column, or read it by a query with unnest under [source] in the data set's file."
            )
    if "clock" in cells:
        cells["time"] = [f"{date} {clock}".strip() for date, clock in zip(cells["time"], cells["clock"], strict=True)]
    return replace(
        layout,
        columns=layout.columns or tuple(positions.items()),
        doubts=describe_doubts(sample, positions, dataset),
        decimal=_decimal_mark(labels.get("value", ""), cells.get("value", []), dataset),
        time_formats=times.detect_time_formats(labels["time"], cells["time"], dataset) if "time" in cells else (),
    )


def _decimal_mark(label: str, values: Sequence[str], dataset: Dataset) -> str:
    """Return the decimal mark of values with commas, nothing if they have none; ask if they may separate thousands."""
    filled = [one.strip() for one in values if one.strip()]
    if filled and not any(map(AMOUNT.fullmatch, filled)):
        shown = f"values such as {filled[0][:60]!r} are no numbers"
        raise InputError(f"{label}: {shown}. Name another column, convert them by a query, or say --value -")
    commas = [one for one in filled if COMMA_NUMBER.fullmatch(one) or THOUSANDS.fullmatch(one)]
    if dataset.decimal or len(commas) <= MIN_SHARE * sum("," in one or "." in one for one in values):
        return dataset.decimal or ""  # what else has a comma is damage
    if not all(map(COMMA_NUMBER.fullmatch, commas)) or all(map(THOUSANDS.fullmatch, commas)):
        raise InputError(
            f"{label}: a value such as {commas[0]} may have a decimal comma or separate thousands. State the decimal "
            'mark in the data set\'s file:\n\ndecimal = ","    # or "."'
        )
    return ","


def _parse_object(line: str) -> dict[str, object] | None:
    try:
        return json.loads(line) if line.lstrip().startswith("{") else None
    except ValueError:
        return None


def _format_json(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)
