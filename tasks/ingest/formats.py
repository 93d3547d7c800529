"""Recognise the layout of a log from its first lines and the data set's file."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oneclass.tasks.datasets import Columns, Dataset
from oneclass.tasks.errors import InputError

DELIMITERS = (",", "\t", ";", "|")
MOVIE_HEADER = re.compile(r"\s*\d+\s*:\s*")
NETFLIX_RATING = re.compile(r"[^,]+,[^,]+,\d{4}-\d\d-\d\d\s*")
NUMBER_PATTERN = r"-?\d+(?:\.\d+)?"
HEADERLESS_FORMATS = (
    ("::", ("user", "item", "value", "time"), re.compile(rf"[^:]+::[^:]+::{NUMBER_PATTERN}::\d+\s*")),  # ratings.dat
    ("\t", ("user", "item", "value", "time"), re.compile(rf"[^\t]+\t[^\t]+\t{NUMBER_PATTERN}\t\d+\s*")),  # u.data
    ("\t", ("user", "item", "value"), re.compile(rf"[^\t]+\t[^\t]+\t{NUMBER_PATTERN}\s*")),  # taste profile triplets
)
MIN_FORMAT_MATCH = 0.5
"""A layout is recognised if at least this share of the first lines matches; the others may be damaged."""


@dataclass(frozen=True)
class LogFormat:
    """The statement of `sql/ingest.sql` that parses a log, and its parameters.

    Attributes:
        statement: `netflix`, `delimited`, `adjacency`, `counted_adjacency` or `parquet`.
        delimiter: the field separator.
        quoted: whether fields may be in double quotes, as in RFC 4180.
        header_lines: lines before the first event.
        fields: the number of fields of a line.
        places: role ("user", "item", "value", "time") -> position of its field, from 1; in Parquet its name.
        has_row_numbers: whether a Parquet log has its own column `file_row_number`.
    """

    statement: str
    delimiter: str = ""
    quoted: bool = False
    header_lines: int = 0
    fields: int = 0
    places: tuple[tuple[str, int | str], ...] = ()
    has_row_numbers: bool = False


def detect_format(path: str, lines: Sequence[str], dataset: Dataset) -> LogFormat:
    """Detect the layout of a text log from its first lines.

    Raises:
        InputError: the format is unknown, or the header lacks columns.
    """
    filled = [line for line in lines if line.strip()]
    if not filled:
        raise InputError(f"{path}: holds nothing but blank lines. Give a log with at least one line.")
    if dataset.layout != "recognised":
        return LogFormat(dataset.layout)
    if dataset.fields:
        return _column_positions(dataset.delimiter or "", dataset.fields)
    if layout := _format_from_header(lines[0], dataset):
        return layout
    if (
        any(MOVIE_HEADER.fullmatch(line) for line in filled)
        and _matching_share(filled, MOVIE_HEADER, NETFLIX_RATING) >= MIN_FORMAT_MATCH
    ):
        return LogFormat("netflix", delimiter=",", fields=3)
    for delimiter, roles, pattern in HEADERLESS_FORMATS:
        if _matching_share(filled, pattern) >= MIN_FORMAT_MATCH:
            return _column_positions(delimiter, roles)
    raise InputError(_unknown_format_error(path, lines[0], dataset))


def match_columns(header: Sequence[str], columns: Columns) -> tuple[dict[str, int], list[str]]:
    """Find the position, from 1, of the first accepted name of each role in `header`, and the required roles without one.

    A value is not required if `header` has no column for it besides user, item and time.
    """
    lowered = [name.strip().lower() for name in header]
    places = {}
    for role in ("user", "item", "value", "time"):
        accepted = [name.lower() for name in getattr(columns, role)]
        if match := next((name for name in accepted if name in lowered), None):
            places[role] = lowered.index(match) + 1
    needed = ["user", "item", *(["value"] if columns.value and len(places) < len(header) else [])]
    return places, [role for role in needed if role not in places]


def describe_required_columns(columns: Columns) -> str:
    """Describe the accepted names of the required columns, for a message."""
    roles: Mapping[str, tuple[str, ...]] = {
        "user": columns.user,
        "item": columns.item,
        "value": columns.value,
    }
    return "; ".join(f"{role}: {' or '.join(accepted)}" for role, accepted in roles.items() if accepted)


def _format_from_header(line: str, dataset: Dataset) -> LogFormat | None:
    for delimiter in (dataset.delimiter,) if dataset.delimiter else DELIMITERS:
        quoted = len(delimiter) == 1 and delimiter != "\t"  # tab-separated logs hold quotes as they are
        found = next(csv.reader([line], delimiter=delimiter)) if quoted else line.split(delimiter)
        places, lacking = match_columns(found, dataset.columns)
        if not lacking:
            return LogFormat("delimited", delimiter, quoted, 1, len(found), tuple(places.items()))
    return None


def _column_positions(delimiter: str, roles: Sequence[str]) -> LogFormat:
    places = tuple((role, place) for place, role in enumerate(roles, 1) if role != "-")
    return LogFormat("delimited", delimiter, False, 0, len(roles), places)


def _matching_share(lines: Sequence[str], *patterns: re.Pattern[str]) -> float:
    return sum(any(pattern.fullmatch(line) for pattern in patterns) for line in lines) / len(lines)


def _unknown_format_error(path: str, line: str, dataset: Dataset) -> str:
    if "\ufffd" in line:
        return f"{path}, line 1: is neither UTF-8 text nor Parquet. Name a log file."
    delimiter = max(DELIMITERS, key=line.count)
    if (delimiter in line and line.isprintable()) or "\t" in line:
        found = ", ".join(name.strip() for name in line.split(delimiter))[:200]
        return (
            f"{path}, line 1: has the columns {found}; a log of {dataset.name} needs "
            f"{describe_required_columns(dataset.columns)}. Name them under [columns] in a data set file of your own."
        )
    return (
        f"{path}, line 1: is not in a known format: {line[:80]!r}. Known formats are Netflix Prize, MovieLens, "
        "taste profile triplets, CSV, TSV and Parquet; an adjacency list needs `layout` in the data set's file."
    )
