"""Refuse a text log whose first line does not say what its fields are, with what the data set's file may state."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.column_names import UnknownColumns, find_list_mark, suggests_role
from oneclass.tasks.ingest.log_format import LogFormat, split_line
from oneclass.tasks.ingest.times import CLOCK, ISO, NUMBER, NUMERIC_DATE, are_dates

COMMON_DELIMITERS = ",\t;| "
NO_DELIMITERS = "\"'_-.:/\r\n"
"""Characters that stand inside fields; those of dates and times among them."""
LIST_DELIMITERS = (":", "\t", ";", "|", "=", ",", " ")
"""What may stand between a user and the list of items, in the order of preference."""
MAX_SAMPLED_LINES = 200
MAX_LISTED_ID = 60
EPOCH = re.compile(r"\s*\d{10}(\.\d+|\d{3}|\d{6}|\d{9})?\s*")
MIN_ALIKE = 0.9
"""Share of the sampled lines that have as many fields as most, if a delimiter separates them."""


def list_rare_delimiters(line: str) -> tuple[str, ...]:
    """Return the characters of a line that are neither letters, digits nor usual inside a field."""
    return tuple(
        mark
        for mark in dict.fromkeys(line)
        if not mark.isalnum() and mark not in NO_DELIMITERS and mark not in COMMON_DELIMITERS
    ) + tuple(mark for mark in ":/" if mark in line)


def explain_unknown_format(path: str, lines: Sequence[str], dataset: Dataset, delimiters: Sequence[str]) -> InputError:
    """Return the refusal of a log in no known format."""
    line, filled = lines[0], [line for line in lines if line.strip()][:MAX_SAMPLED_LINES]
    if "\ufffd" in line:
        return InputError(f"{path}, line 1: is neither UTF-8 text nor Parquet. Name its `encoding`, or another log.")
    rare = () if dataset.delimiter else list_rare_delimiters(line)
    choice = _choose_delimiter(lines, delimiters, rare)
    if listed := _explain_lists(path, filled, dataset, is_table=choice is not None and choice.fields > 2):
        return InputError(listed)
    first, delimiter = choice[1:] if choice else (0, max(delimiters, key=lambda mark: (line.count(mark), len(mark))))
    layout = LogFormat("delimited", delimiter)
    names = split_line(lines[first], layout)
    rows = [split_line(line, layout) for line in lines[first:] if line.strip()]
    rows = [row for row in rows if len(row) == len(names)]
    fields = _guess_fields(rows)
    if "item" not in fields or line.lstrip().startswith("<"):
        return InputError(
            f"{path}, line 1: is not in a known format: {line[:80]!r}. Convert it to CSV or Parquet; an adjacency list "
            "needs `layout` in the data set's file."
        )
    position = f"{path}, line {first + 1}"
    stated = f"delimiter = {json.dumps(delimiter)}\nfields = {json.dumps(fields)}"
    if not any(NUMBER.fullmatch(name) or any(letter.isdigit() for letter in name) for name in names):
        samples = {name: [row[number] for row in rows[1:]] for number, name in enumerate(names)}
        more = f"\n\nIf line {first + 1} is no header, state the fields in their order (`-` for one to ignore):"
        more = f"{more}\n\n{stated}"
        is_header = first or any(map(suggests_role, names))
        return UnknownColumns(position, names, ("user", "item"), dataset, samples, more="" if is_header else more)
    shown = ", ".join(names)[:200]
    return InputError(
        f"{position}: is not a header, and the fields {shown} do not say what they are. State "
        f"their roles in the data set's file, datasets/{dataset.name}.toml in the home, in their order (`-` for a "
        f"field to ignore):\n\n{stated}{_suggest_adjacency(rows, delimiter)}"
    )


def _suggest_adjacency(rows: Sequence[Sequence[str]], delimiter: str) -> str:
    """Return what to state if the fields, equally many whole numbers between blanks, are those of adjacency lists."""
    if delimiter not in " \t" or len(rows[0]) < 3 or not all(field.isdigit() for row in rows for field in row):
        return ""
    return '\n\nIf each line has a user and the items:\n\nlayout = "adjacency"'


class _Choice(NamedTuple):
    """A delimiter: how many fields it gives from which line on."""

    fields: int
    first: int
    delimiter: str


def _choose_delimiter(lines: Sequence[str], common: Sequence[str], rare: Sequence[str]) -> _Choice | None:
    """Return the delimiter that gives most lines, those of a title above left out, as many fields; None without one.

    Among several the one with most fields is chosen; colons and slashes, which times have, only if no other is left.
    """
    choices = []
    filled = [(number, line) for number, line in enumerate(lines) if line.strip()][:MAX_SAMPLED_LINES]
    for mark in (*common, *rare):
        counts = [len(split_line(line, LogFormat("delimited", mark))) for _, line in filled]
        fields, _ = Counter(counts).most_common(1)[0]
        first = counts.index(fields)
        alike = sum(count == fields for count in counts[first:]) / len(counts[first:])
        is_title = all(count < fields for count in counts[:first]) and (
            not first or mark in COMMON_DELIMITERS[:-1] or fields > 2
        )
        if (
            fields > 1
            and alike >= MIN_ALIKE
            and is_title
            and not (first and mark in rare)
            and len(counts) > first + (first > 0)
        ):
            is_common = mark in COMMON_DELIMITERS[:-1] and fields > 2  # `a, b, c` has blanks, too
            choices.append((mark not in ":/", is_common, fields, -first, len(mark), mark))
    if not choices:
        return None
    *_, fields, first, _, mark = max(choices)
    return _Choice(fields, filled[-first][0], mark)


def _guess_fields(rows: Sequence[Sequence[str]]) -> list[str]:
    """Guess the roles of fields by their contents: times by their form, then user, item and a number as value."""
    columns = [[text for text in column if text.strip()] for column in zip(*rows, strict=True)]
    roles = ["-" if not column else "" for column in columns]

    def find(*patterns: re.Pattern[str], after: int = 0) -> int | None:
        for number, column in enumerate(columns):
            matched = sum(any(pattern.fullmatch(text) for pattern in patterns) for text in column)
            if number >= after and not roles[number] and matched > len(column) / 2:
                return number
        return None

    if (time := find(ISO, NUMERIC_DATE)) is None:
        time = find(EPOCH, after=2)
    if time is not None:
        roles[time] = "time"
    if (clock := find(CLOCK)) is not None:
        roles[clock] = "clock" if time is not None and are_dates(columns[time]) else "-"
    for role in ("user", "item"):
        if "" in roles:
            roles[roles.index("")] = role
    if (value := find(NUMBER)) is not None:
        roles[value] = "value"
    return [role or "-" for role in roles]


def _explain_lists(path: str, lines: Sequence[str], dataset: Dataset, *, is_table: bool) -> str:
    """Return the refusal of lines with a user and a list of items, of different lengths; nothing for others.

    Args:
        is_table: whether a delimiter gives most lines as many fields, and more than two.
    """
    if is_table:
        return ""
    for outer in LIST_DELIMITERS:
        pairs = [line.split(outer) for line in lines]
        if all(len(pair) == 2 and pair[0].strip() and not ISO.fullmatch(pair[1]) for pair in pairs):
            inner = find_list_mark([pair[1] for pair in pairs])
            if inner and inner != outer:
                fields = f'delimiter = {json.dumps(outer)}\nfields = ["user", "item"]'
                return _state_lists(path, lines, dataset, f"{fields}\nitem_separator = {json.dumps(inner)}")
    for mark in LIST_DELIMITERS:
        rows = [split_line(line, LogFormat("delimited", mark)) for line in lines]
        if not _are_ragged(rows, mark):
            continue
        if mark in " \t" and all(row[0] == str(len(row) - 1) for row in rows):
            return _state_lists(path, lines, dataset, 'layout = "counted_adjacency"')
        delimiter = "" if mark in " \t" else f"\ndelimiter = {json.dumps(mark)}"
        return _state_lists(path, lines, dataset, f'layout = "adjacency"{delimiter}')
    return ""


def _are_ragged(rows: Sequence[Sequence[str]], mark: str) -> bool:
    """Whether rows look like lists of ids of different lengths."""
    counts = Counter(map(len, rows))
    fields = [field.strip() for row in rows for field in row]
    are_ids = all(len(field) <= MAX_LISTED_ID for field in fields)
    if mark == " ":  # words of a text are no ids
        are_ids = are_ids and all(any(map(str.isdigit, field)) for field in fields)
    most = counts.most_common(1)[0][1]
    are_ids = are_ids and not any(map(suggests_role, rows[0]))
    return are_ids and most < MIN_ALIKE * len(rows) and counts[1] < len(rows) / 2


def _state_lists(path: str, lines: Sequence[str], dataset: Dataset, stated: str) -> str:
    what = (
        "begins with the number of its items, and line n is user n"
        if "counted" in stated
        else "has a user and the items"
    )
    return (
        f"{path}, line 1: is not a header, and the lines have different numbers of fields: {lines[0][:80]!r}. If each "
        f"{what}, state so in the data set's file, datasets/{dataset.name}.toml in the home:\n\n"
        f"{stated}"
    )
