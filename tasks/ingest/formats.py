"""Recognise the layout of a log from its first lines and the data set's file."""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from oneclass.tasks.datasets import Columns, Dataset, Part
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.times import MIN_MATCH, NUMBER, detect_time_formats

DELIMITERS = (",", "\t", ";", "|", "::", " ")
ROLES = ("user", "item", "value", "time")
MOVIE_HEADER = re.compile(r"\s*\d+\s*:\s*")
EXCEL_SEPARATOR = re.compile(r'"?sep=.{1,2}?"?\s*', re.IGNORECASE)
"""The line that tells Excel the delimiter, before the header."""
NETFLIX_RATING = re.compile(r"[^,]+,[^,]+,\d{4}-\d\d-\d\d\s*")
NUMBER_PATTERN = r"-?\d+(?:\.\d+)?"
COMMA_NUMBER = re.compile(r"\s*-?(\d+|\d{1,3}(\.\d{3})+),(\d+)\s*")
HEADERLESS_FORMATS = (
    ("::", ("user", "item", "value", "time"), re.compile(rf"[^:]+::[^:]+::{NUMBER_PATTERN}::\d+\s*")),  # ratings.dat
    ("\t", ("user", "item", "value", "time"), re.compile(rf"[^\t]+\t[^\t]+\t{NUMBER_PATTERN}\t\d+\s*")),  # u.data
    ("\t", ("user", "item", "value"), re.compile(rf"[^\t]+\t[^\t]+\t{NUMBER_PATTERN}\s*")),  # taste profile triplets
)
HINTS = {
    "user": ("user", "cust", "client", "member", "visitor", "reviewer", "account", "buyer", "person", "kunde",
             "session", "mail"),
    "item": ("item", "product", "sku", "asin", "movie", "song", "track", "artist", "book", "article", "artikel", "isbn",
             "game", "business", "place", "recipe", "anime", "listing", "title"),
    "value": ("rating", "score", "star", "overall", "qty", "quantit", "menge", "play", "count", "weight", "amount"),
    "time": ("time", "date", "datum", "created", "unix", "ts", "when", "day"),
}  # fmt: skip
"""Parts of column names that suggest a role, in the refusal of an unknown header."""


@dataclass(frozen=True)
class LogFormat:
    """The statement of `sql/ingest.sql` that parses a log, and its parameters.

    Attributes:
        statement: `netflix`, `delimited`, `json`, `adjacency`, `counted_adjacency` or `parquet`.
        delimiter: the field separator; a blank stands for any number of blanks.
        header_lines: lines before the first event.
        header: the header itself; where it is repeated, it is skipped.
        comments: whether lines that begin with `#` are skipped.
        fields: the number of fields of a line.
        columns: role ("user", "item", "value", "time", "event") -> position of its field, from 1; in Parquet its name;
            in JSON its path.
        types: role -> DuckDB's type of a Parquet column.
        has_row_numbers: whether a Parquet log has its own column `file_row_number`.
        item_lists: whether the item's field lists several items.
        padded_ids: of `find_padded_ids`.
        decimal: the decimal mark of values with commas; the other mark separates thousands.
        time_formats: of `times.detect_time_formats`.
    """

    statement: str
    delimiter: str = ""
    header_lines: int = 0
    header: str = ""
    comments: bool = False
    fields: int = 0
    columns: tuple[tuple[str, int | str], ...] = ()
    types: tuple[tuple[str, str], ...] = ()
    has_row_numbers: bool = False
    item_lists: bool = False
    padded_ids: tuple[str, ...] = ()
    decimal: str = ""
    time_formats: tuple[str, ...] = ()

    @property
    def is_quoted(self) -> bool:
        """Whether fields may be in double quotes, as in RFC 4180. Tab-separated logs hold quotes as they are."""
        return len(self.delimiter) == 1 and self.delimiter not in "\t "


def detect_format(path: str, lines: Sequence[str], dataset: Dataset) -> LogFormat:
    """Detect the layout of a text log from its first lines.

    A first line that names a role, or lacks the form and the numbers of the lines below, is a header: then columns are
    found by their names or the log is refused, never by position.

    Raises:
        InputError: the format is unknown, the header lacks columns, or values or times can be read in two ways.
    """
    filled = [line for line in lines if line.strip()]
    if not filled:
        raise InputError(f"{path}: holds nothing but blank lines. Give a log with at least one line.")
    if dataset.layout != "recognised":
        return LogFormat(dataset.layout)
    skipped = next((number for number, line in enumerate(lines) if not _precedes_log(line)), 0)
    has_comments = any(not EXCEL_SEPARATOR.fullmatch(line) for line in lines[:skipped])
    lines = lines[skipped:]
    if lines[0].lstrip().startswith("{") and (records := _parse_json(lines)):
        layout = _json_format(path, records, dataset)
    elif _is_netflix(filled, dataset):
        return LogFormat("netflix", delimiter=",", fields=3)
    else:
        layout = _delimited_format(path, lines, dataset)
        rows = [split_line(line, layout) for line in lines[layout.header_lines :] if line.strip()]
        layout = _detect_values(path, layout, [row for row in rows if len(row) == layout.fields], dataset)
    return replace(layout, header_lines=layout.header_lines + skipped, comments=has_comments)


def _precedes_log(line: str) -> bool:
    return not line.strip() or line.startswith("#") or EXCEL_SEPARATOR.fullmatch(line) is not None


def match_columns(header: Sequence[str], columns: Columns) -> tuple[dict[str, int], list[str]]:
    """Find the position, from 1, of the first accepted name of each role in `header`, and the required roles without
    one.

    A value is not required if `header` has no column for it besides user, item and time.
    """
    lowered = [name.strip().lower() for name in header]
    positions = {}
    for role in (*ROLES, "event"):
        accepted = [name.lower() for name in getattr(columns, role)]
        if match := next((name for name in accepted if name in lowered), None):
            positions[role] = lowered.index(match) + 1
    named = sum(bool(name) for name in lowered)  # an index column has no name
    needed = ["user", "item", *(["value"] if columns.value and len(positions) < named else [])]
    needed += ["event"] if columns.event else []
    return positions, [role for role in needed if role not in positions]


def explain_lacking_columns(source: str, names: Sequence[str], lacking: Sequence[str], dataset: Dataset) -> str:
    """Return the refusal of a log whose columns lack roles, with the lines of a data set's file that help."""
    shown = ", ".join(name.strip() for name in names if name.strip())[:300]
    if isinstance(dataset, Part):
        key = "item" if dataset.part == "orders" else "user"
        roles = ["key" if role == key else f"{dataset.part}.columns.{role}" for role in lacking]
        return (
            f"{source}: has the columns {shown}, and none of them is known as {' or '.join(roles)}. State "
            f"{' and '.join(roles)} under [join] in the data set's file, datasets/{dataset.name}.toml in the home"
            + ("; `value = []` where every line counts 1." if "value" in lacking else ".")
        )
    return (
        f"{source}: has the columns {shown}, and none of them is known as {' or '.join(lacking)}. State which is which "
        f"in the data set's file, datasets/{dataset.name}.toml in the home:\n\n{suggest_columns(names, dataset)}"
    )


def suggest_columns(names: Sequence[str], dataset: Dataset) -> str:
    """Return the table `[columns]` of a data set's file, guessed from a log's column names."""
    positions, _ = match_columns(names, dataset.columns)
    chosen = {role: names[position - 1] for role, position in positions.items()}
    for role in ROLES:
        free = [name for name in names if name.strip() and name not in chosen.values()]
        hinted = [name for hint in HINTS[role] for name in free if hint in name.lower()]
        if role not in chosen and hinted:
            chosen[role] = min(hinted, key=partial(_suggests_another, role=role))
    for role in ("user", "item"):
        free = [name for name in names if name.strip() and name not in chosen.values()]
        chosen.setdefault(role, next(iter(free), "COLUMN"))
    if dataset.events:
        chosen.setdefault("event", "COLUMN")
    roles = [role for role in (*ROLES, "event") if role in chosen]
    lines = [f"{role} = [{json.dumps(chosen[role].strip(), ensure_ascii=False)}]" for role in roles]
    if "value" not in chosen:
        lines.append("value = []    # every line counts 1")
    return "\n".join(["[columns]", *lines])


def _suggests_another(name: str, role: str) -> bool:
    """Whether a column's name suggests a role besides `role`, as `Lineitem quantity` does."""
    return any(hint in name.lower() for other in ROLES if other != role for hint in HINTS[other])


def split_line(line: str, layout: LogFormat) -> list[str]:
    """Split a line into its fields, as the statements of `sql/ingest.sql` do."""
    if layout.delimiter == " ":
        return line.split()
    return next(csv.reader([line], delimiter=layout.delimiter)) if layout.is_quoted else line.split(layout.delimiter)


def _is_netflix(filled: Sequence[str], dataset: Dataset) -> bool:
    return (
        not dataset.fields
        and not dataset.events
        and any(MOVIE_HEADER.fullmatch(line) for line in filled)
        and _matching_share(filled, MOVIE_HEADER, NETFLIX_RATING) >= MIN_MATCH
    )


def _delimited_format(path: str, lines: Sequence[str], dataset: Dataset) -> LogFormat:
    if dataset.fields:
        layout = _column_positions(dataset.delimiter or "", dataset.fields)
        return replace(layout, header_lines=1, header=lines[0]) if _has_header(lines, layout) else layout
    headers = [_match_header(lines[0], delimiter, dataset) for delimiter in _delimiters(dataset)]
    for layout, names, lacking in headers:
        if not lacking:
            return _shift_row_names(replace(layout, fields=len(names)), lines)
    fitting = [header for header in headers if _splits_alike(header[0], len(header[1]), lines)]
    layout, names, lacking = max(fitting or headers, key=lambda header: len(header[0].columns))
    if layout.columns:
        raise InputError(explain_lacking_columns(f"{path}, line 1", names, lacking, dataset))
    filled = [line for line in lines if line.strip()]
    for delimiter, roles, pattern in HEADERLESS_FORMATS:
        if _matching_share(filled, pattern) >= MIN_MATCH:
            layout = _column_positions(delimiter, roles)
            if _has_header(lines, layout):
                names = split_line(lines[0], layout)
                raise InputError(explain_lacking_columns(f"{path}, line 1", names, ("user", "item"), dataset))
            return layout
    raise InputError(_explain_unknown_format(path, lines, dataset))


def _delimiters(dataset: Dataset) -> tuple[str, ...]:
    return (dataset.delimiter,) if dataset.delimiter else DELIMITERS


def _match_header(line: str, delimiter: str, dataset: Dataset) -> tuple[LogFormat, list[str], list[str]]:
    """Return the layout by a header's names, the names, and the roles that it lacks."""
    layout = LogFormat("delimited", delimiter, header_lines=1, header=line)
    names = split_line(line, layout)
    positions, lacking = match_columns(names, dataset.columns)
    return replace(layout, columns=tuple(positions.items())), names, lacking


def _splits_alike(layout: LogFormat, names: int, lines: Sequence[str]) -> bool:
    """Whether the lines below a header have as many fields as it has names, or one more, as R writes them."""
    counts = [len(split_line(line, layout)) for line in lines[1:] if line.strip()]
    return names > 1 and sum(count - names in (0, 1) for count in counts) >= MIN_MATCH * len(counts)


def _shift_row_names(layout: LogFormat, lines: Sequence[str]) -> LogFormat:
    """Move the columns by one if the lines begin with a row name that the header leaves out, as R writes them."""
    counts = [len(split_line(line, layout)) for line in lines[1:] if line.strip()]
    if sum(count == layout.fields + 1 for count in counts) <= MIN_MATCH * len(counts):
        return layout
    columns = tuple((role, int(position) + 1) for role, position in layout.columns)
    return replace(layout, fields=layout.fields + 1, columns=columns)


def _has_header(lines: Sequence[str], layout: LogFormat) -> bool:
    """Whether the first line of a log read by position is a header: it lacks the numbers of the lines below."""
    rows = [split_line(line, layout) for line in lines if line.strip()]
    positions = [int(position) - 1 for role, position in layout.columns if role in ("value", "time")]
    first, below = rows[0], [row for row in rows[1:] if len(row) == layout.fields]

    def is_number(row: Sequence[str], position: int) -> bool:
        return position < len(row) and any(letter.isdigit() for letter in row[position])

    numeric = [
        position for position in positions if sum(is_number(row, position) for row in below) > MIN_MATCH * len(below)
    ]
    return (
        bool(numeric)
        and not any(NUMBER.fullmatch(text) for text in first)
        and not any(is_number(first, position) for position in numeric)
    )


def _column_positions(delimiter: str, roles: Sequence[str]) -> LogFormat:
    columns = tuple((role, position) for position, role in enumerate(roles, 1) if role != "-")
    return LogFormat("delimited", delimiter, fields=len(roles), columns=columns)


def _matching_share(lines: Sequence[str], *patterns: re.Pattern[str]) -> float:
    return sum(any(pattern.fullmatch(line) for pattern in patterns) for line in lines) / len(lines)


def _detect_values(path: str, layout: LogFormat, rows: Sequence[Sequence[str]], dataset: Dataset) -> LogFormat:
    """Add the forms of values and times, from sampled rows of fields."""
    columns = {role: [row[int(position) - 1] for row in rows] for role, position in layout.columns}
    names = split_line(layout.header, layout) if layout.header else []
    by_position = dict(zip(range(layout.fields, 0, -1), reversed(names), strict=False))  # R leaves out the first name
    sources = {
        role: f"{path}, column {by_position.get(int(position), str(position)).strip()}"
        for role, position in layout.columns
    }
    return replace(
        layout,
        item_lists=bool(dataset.item_separator),
        padded_ids=find_padded_ids(columns),
        decimal=_decimal_mark(sources.get("value", path), columns.get("value", []), dataset),
        time_formats=detect_time_formats(sources["time"], columns["time"], dataset) if "time" in columns else (),
    )


def find_padded_ids(columns: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the roles, user or item, over half of whose sampled ids have blanks around them."""
    padded = {role: sum(text != text.strip(" ") for text in columns.get(role, [])) for role in ("user", "item")}
    return tuple(role for role, count in padded.items() if 2 * count > len(columns.get(role, [])))


def _decimal_mark(path: str, values: Sequence[str], dataset: Dataset) -> str:
    if dataset.decimal:
        return dataset.decimal
    matches = [match for value in values if (match := COMMA_NUMBER.fullmatch(value))]
    if len(matches) <= MIN_MATCH * sum("," in value or "." in value for value in values):
        return ""
    if all(len(match[3]) == 3 and not match[2] for match in matches):
        raise InputError(
            f"{path}: a value such as {matches[0][0].strip()} may have a decimal comma or separate thousands. State "
            "the "
            'decimal mark in the data set\'s file:\n\ndecimal = ","    # or "."'
        )
    return ","


def _parse_json(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return the objects of JSON lines; lines that are none are left out."""
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def _list_paths(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield (name, path, value) of each field of a JSON object; those of nested objects are joined by dots."""
    for key, value in record.items():
        name, path = f"{prefix}{key}", f'."{key}"'
        if isinstance(value, dict):
            yield from ((inner, path + below, leaf) for inner, below, leaf in _list_paths(value, f"{name}."))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield from (
                (inner, f"{path}[*]{below}", [leaf]) for inner, below, leaf in _list_paths(value[0], f"{name}.")
            )
        elif isinstance(value, list):
            yield name, f"{path}[*]", value
        else:
            yield name, path, value


def _json_format(path: str, records: Sequence[dict[str, Any]], dataset: Dataset) -> LogFormat:
    fields: dict[str, tuple[str, list[Any]]] = {}
    for record in records:
        for name, json_path, value in _list_paths(record):
            fields.setdefault(name, (json_path, []))[1].append(value)
    names = list(fields)
    positions, lacking = match_columns(names, dataset.columns)
    if lacking:
        raise InputError(explain_lacking_columns(f"{path}, line 1 (JSON lines)", names, lacking, dataset))
    columns = {role: fields[names[position - 1]] for role, position in positions.items()}
    for role, (json_path, _) in columns.items():
        if "[*]" in json_path and role != "item":
            name = names[positions[role] - 1]
            others = [other for other in names if "[*]" not in fields[other][0]]
            raise InputError(
                f"{path}, line 1: the {role}'s field {name} is a list. Name one with single values in the data set's "
                f"file:\n\n{suggest_columns(others, dataset)}"
            )
    values = {role: ["" if one is None else str(one) for one in found] for role, (_, found) in columns.items()}
    return LogFormat(
        "json",
        fields=1,
        columns=tuple((role, f"${json_path}") for role, (json_path, _) in columns.items()),
        item_lists="[*]" in columns["item"][0],
        padded_ids=find_padded_ids(values),
        decimal=_decimal_mark(path, values.get("value", []), dataset),
        time_formats=detect_time_formats(path, values["time"], dataset) if "time" in values else (),
    )


def _explain_unknown_format(path: str, lines: Sequence[str], dataset: Dataset) -> str:
    line = lines[0]
    if line.lstrip().lower().startswith(("<!doctype", "<html", "<?xml")):
        return f"{path}, line 1: is a page of HTML or XML, not a log: {line.strip()[:80]!r}. Fetch the log itself."
    if "\ufffd" in line:
        return f"{path}, line 1: is neither UTF-8 text nor Parquet. Name its `encoding`, or another log."
    delimiter = max(_delimiters(dataset), key=lambda mark: (line.count(mark), len(mark)))
    names = split_line(line, LogFormat("delimited", delimiter))
    if len(names) < 2 or not line.replace("\t", " ").isprintable():
        return (
            f"{path}, line 1: is not in a known format: {line[:80]!r}. Known are delimited text, JSON lines, Parquet, "
            "Netflix Prize and MovieLens; an adjacency list needs `layout` in the data set's file."
        )
    roles = [role for role in ROLES[: len(names)]] + ["-"] * (len(names) - len(ROLES))
    if not any(NUMBER.fullmatch(name) or any(letter.isdigit() for letter in name) for name in names):
        explained = explain_lacking_columns(f"{path}, line 1", names, ("user", "item"), dataset)
        if any(hint in name.lower() for name in names for role in ROLES for hint in HINTS[role]):
            return explained
        roles = [*ROLES[:2], *["-"] * (len(names) - 2)]
        return (
            f"{explained}\n\nIf line 1 is no header, state the fields in their order (`-` for one to ignore):\n\n"
            f"delimiter = {json.dumps(delimiter)}\nfields = {json.dumps(roles)}"
        )
    return (
        f"{path}, line 1: is not a header, and the fields {', '.join(names)[:200]} do not say what they are. State "
        f"their roles in the data set's file, datasets/{dataset.name}.toml in the home, in their order (`-` for a "
        f"field to ignore):\n\ndelimiter = {json.dumps(delimiter)}\nfields = {json.dumps(roles)}"
    )
