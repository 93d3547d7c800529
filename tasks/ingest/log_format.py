"""The layout of a log, and the forms of its values."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.times import MIN_MATCH

ROLES = ("user", "item", "value", "time")
BLANKS = re.compile(r"[ \t]+")
GROUPED_NUMBER = re.compile(r"\d{1,3}([.,]\d{3})+")
COMMA_NUMBER = re.compile(r"\s*-?(\d+|\d{1,3}(\.\d{3})+),(\d+)\s*")


@dataclass(frozen=True)
class LogFormat:
    """The statement of `sql/ingest.sql` that parses a log, and its parameters.

    Attributes:
        statement: `netflix`, `delimited`, `json`, `adjacency`, `counted_adjacency` or `parquet`.
        delimiter: the field separator; a blank stands for any number of blanks and tabs.
        header_lines: lines before the first event.
        header: the header itself; where it is repeated, it is skipped.
        comments: whether lines that begin with `#` are skipped.
        skipped: further lines that are no events, such as one of totals at the end.
        fields: the number of fields of a line.
        columns: role ("user", "item", "value", "time", "clock", "event") -> position of its field, from 1; in Parquet
            its name; in JSON its path.
        types: role -> DuckDB's type of a Parquet column.
        has_row_numbers: whether a Parquet log has its own column `file_row_number`.
        item_lists: whether the item's field lists several items.
        doubts: of `find_doubts`.
        decimal: the decimal mark of values with commas; the other mark separates thousands.
        time_formats: of `times.detect_time_formats`.
    """

    statement: str
    delimiter: str = ""
    header_lines: int = 0
    header: str = ""
    comments: bool = False
    skipped: tuple[str, ...] = ()
    fields: int = 0
    columns: tuple[tuple[str, int | str], ...] = ()
    types: tuple[tuple[str, str], ...] = ()
    has_row_numbers: bool = False
    item_lists: bool = False
    doubts: tuple[str, ...] = ()
    decimal: str = ""
    time_formats: tuple[str, ...] = ()

    @property
    def names_columns(self) -> bool:
        """Whether the log itself says which column is which."""
        return self.statement in ("parquet", "json") or bool(self.header)

    @property
    def is_quoted(self) -> bool:
        """Whether fields may be in double quotes, as in RFC 4180. Tab-separated logs hold quotes as they are."""
        return len(self.delimiter) == 1 and self.delimiter not in "\t "


def split_line(line: str, layout: LogFormat) -> list[str]:
    """Split a line into its fields, as the statements of `sql/ingest.sql` do."""
    if layout.delimiter == " ":
        return BLANKS.split(line.strip(" \t"))  # `str.split` takes more characters for blanks
    return next(csv.reader([line], delimiter=layout.delimiter)) if layout.is_quoted else line.split(layout.delimiter)


def find_doubts(columns: Mapping[str, Sequence[str]], dataset: Dataset) -> tuple[str, ...]:
    """Return what to ask about the sampled ids of users and items: their form suggests something else than one id."""
    doubts = []
    for role in ("user", "item"):
        ids = [text.strip() for text in columns.get(role, []) if text.strip()]
        grouped = [text for text in ids if GROUPED_NUMBER.fullmatch(text)]
        if grouped and all(text.isdigit() or GROUPED_NUMBER.fullmatch(text) for text in ids):
            doubts.append(
                f"ids of the {role} look like numbers with separated thousands, such as {grouped[0]}: they are "
                f"kept so, and {re.sub('[.,]', '', grouped[0])} is another {role}"
            )
    cells = [text.strip() for text in columns.get("item", []) if text.strip()]
    for mark in "" if dataset.item_separator else "|,;":
        lists = [text for text in cells if mark in text and not GROUPED_NUMBER.fullmatch(text)]
        if len(lists) > MIN_MATCH * len(cells):
            doubts.append(
                f"most cells of the item hold {mark!r}, such as {lists[0][:60]!r}: each is taken as one item. If they "
                f'list several, state item_separator = "{mark}" in the data set\'s file'
            )
    return tuple(doubts)


def decimal_mark(path: str, values: Sequence[str], dataset: Dataset) -> str:
    """Return the decimal mark of values with commas, nothing if they have none.

    Raises:
        InputError: the commas may separate thousands.
    """
    if dataset.decimal:
        return dataset.decimal
    matches = [match for value in values if (match := COMMA_NUMBER.fullmatch(value))]
    if len(matches) <= MIN_MATCH * sum("," in value or "." in value for value in values):
        return ""
    if all(len(match[3]) == 3 and not match[2] for match in matches):
        raise InputError(
            f"{path}: a value such as {matches[0][0].strip()} may have a decimal comma or separate thousands. State "
            'the decimal mark in the data set\'s file:\n\ndecimal = ","    # or "."'
        )
    return ","
