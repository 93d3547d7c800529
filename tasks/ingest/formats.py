"""Recognise the layout of a log from its first lines and the data set's file."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.column_names import (
    UnknownColumns,
    check_unique,
    find_unread_times,
    match_columns,
    pair_clock,
    suggest_columns,
)
from oneclass.tasks.ingest.log_format import LogFormat, decimal_mark, find_doubts, split_line
from oneclass.tasks.ingest.times import MIN_MATCH, NUMBER, detect_time_formats, join_clocks
from oneclass.tasks.ingest.unknown_format import explain_unknown_format, list_rare_delimiters

DELIMITERS = (",", "\t", ";", "|", "::", " ")
MOVIE_HEADER = re.compile(r"\s*\d+\s*:\s*")
EXCEL_SEPARATOR = re.compile(r'"?sep=.{1,2}?"?\s*', re.IGNORECASE)
"""The line that tells Excel the delimiter, before the header."""
NETFLIX_RATING = re.compile(r"[^,]+,[^,]+,\d{4}-\d\d-\d\d\s*")
NUMBER_PATTERN = r"-?\d+(?:\.\d+)?"
HEADERLESS_FORMATS = (
    ("::", ("user", "item", "value", "time"), re.compile(rf"[^:]+::[^:]+::{NUMBER_PATTERN}::\d+\s*")),  # ratings.dat
    ("\t", ("user", "item", "value", "time"), re.compile(rf"[^\t]+\t[^\t]+\t{NUMBER_PATTERN}\t\d+\s*")),  # u.data
    ("\t", ("user", "item", "value"), re.compile(rf"[^\t]+\t[^\t]+\t{NUMBER_PATTERN}\s*")),  # taste profile triplets
)
MAX_TITLE_LINES = 20
MIN_LISTS = 0.5
"""Share of cells that look like a list in brackets, from which on the items are refused."""
RULE = re.compile(r"[-+|: =]*-[-+|: =]*")
"""A line that underlines the header, as database clients and Markdown have it."""
TOTALS = ("total", "totals", "grand total", "sum", "summe", "gesamt", "gesamtsumme", "totale", "suma", "合計", "总计")
ROW_COUNT = re.compile(r"\(?\d[\d,.]* (rows?|records?)( affected| selected| in set.*)?\)?", re.IGNORECASE)


def detect_format(path: str, lines: Sequence[str], dataset: Dataset, last_line: str = "") -> LogFormat:
    """Detect the layout of a text log from its first lines.

    A first line that names a role, or lacks the form and the numbers of the lines below, is a header: then columns are
    found by their names or the log is refused, never by position. Lines of a title above the header are skipped.

    Args:
        last_line: of the log; if it has totals or counts the rows, it is no event.

    Raises:
        InputError: the format is unknown, the header lacks columns, or values or times can be read in two ways.
    """
    filled = [line for line in lines if line.strip()]
    if not filled:
        raise InputError(f"{path}: holds nothing but blank lines. Give a log with at least one line.")
    if dataset.layout != "recognised":
        return LogFormat(dataset.layout, delimiter=dataset.delimiter or " ")
    skipped = next((number for number, line in enumerate(lines) if not _precedes_log(line)), 0)
    has_comments = any(line.startswith("#") for line in lines[:skipped])
    lines = lines[skipped:]
    if lines[0].lstrip().startswith("{") and (records := _parse_json(lines)):
        layout = _json_format(path, records, dataset)
    elif _is_netflix(filled, dataset):
        return LogFormat("netflix", delimiter=",", fields=3)
    else:
        layout = _skip_lines(_delimited_format(path, lines, dataset), lines, last_line)
        events = [line for line in lines[layout.header_lines :] if line.strip() and line not in layout.skipped]
        rows = [split_line(line, layout) for line in events]
        layout = _detect_values(path, layout, [row for row in rows if len(row) == layout.fields], dataset)
    return replace(layout, header_lines=layout.header_lines + skipped, comments=has_comments)


def _precedes_log(line: str) -> bool:
    return (
        not line.strip() or line.startswith("#") or any(pattern.fullmatch(line) for pattern in (EXCEL_SEPARATOR, RULE))
    )


def _skip_lines(layout: LogFormat, lines: Sequence[str], last_line: str) -> LogFormat:
    """Add the lines that are no events: rules around the header, and totals or a count of rows at the end."""
    skipped = dict.fromkeys(line for line in lines if "--" in line and RULE.fullmatch(line))
    first = next((field.strip(' "').lower() for field in split_line(last_line, layout) if field.strip(' "')), "")
    if len(lines) > layout.header_lines + 1 and (first in TOTALS or _counts_rows(last_line, layout)):
        skipped[last_line] = None
    return replace(layout, skipped=tuple(skipped))


def _counts_rows(line: str, layout: LogFormat) -> bool:
    return ROW_COUNT.fullmatch(line.strip(" |")) is not None and len(split_line(line, layout)) != layout.fields


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
            check_unique(f"{path}, line 1", names, layout.columns)
            return _shift_row_names(replace(layout, fields=len(names)), lines)
    if layout := _find_header(lines, dataset):
        return layout
    fitting = [header for header in headers if _splits_alike(header[0], len(header[1]), lines)]
    layout, names, lacking = max(fitting or headers, key=lambda header: len(header[0].columns))
    if layout.columns:
        raise _explain_header(path, layout, names, lacking, lines, dataset)
    filled = [line for line in lines if line.strip()]
    for delimiter, roles, pattern in HEADERLESS_FORMATS:
        if _matching_share(filled, pattern) >= MIN_MATCH:
            layout = _column_positions(delimiter, roles)
            if _has_header(lines, layout):
                names = split_line(lines[0], layout)
                raise _explain_header(path, layout, names, ("user", "item"), lines, dataset)
            return layout
    raise explain_unknown_format(path, lines, dataset, _delimiters(dataset))


def _find_header(lines: Sequence[str], dataset: Dataset) -> LogFormat | None:
    """Return the layout of a log whose header is below a title, or has a rare delimiter; None if it has none.

    Every role is found by name, the lines below have as many fields, and those above have fewer.
    """
    for number, line in enumerate(lines[: MAX_TITLE_LINES + 1]):
        common = _delimiters(dataset) if number else ()
        for delimiter in (*common, *(() if dataset.delimiter else list_rare_delimiters(line))):
            layout, names, lacking = _match_header(line, delimiter, dataset)
            below = lines[number:]
            above = [sum(map(bool, split_line(one, layout))) for one in lines[:number]]
            is_title = all(filled < len(names) for filled in above) and len([one for one in below if one.strip()]) > 1
            if not lacking and is_title and _splits_alike(layout, len(names), below):
                return _shift_row_names(replace(layout, fields=len(names), header_lines=number + 1), below)
    return None


def _explain_header(
    path: str, layout: LogFormat, names: Sequence[str], lacking: Sequence[str], lines: Sequence[str], dataset: Dataset
) -> InputError:
    """Return the refusal of a log whose header lacks roles."""
    check_unique(f"{path}, line 1", names, layout.columns)
    rows = [split_line(line, layout) for line in lines[1:] if line.strip()]
    rows = [row for row in rows if len(row) == len(names)]
    samples = {name: [row[position] for row in rows] for position, name in enumerate(names)}
    return UnknownColumns(f"{path}, line 1", names, lacking, dataset, samples)


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
    """Add the forms of values and times, from sampled rows of fields, and the column of a time of day by itself."""
    names = split_line(layout.header, layout) if layout.header else []
    labels = dict(
        zip(range(layout.fields, 0, -1), map(str.strip, reversed(names)), strict=False)
    )  # R has one name less
    positions = {role: int(position) for role, position in layout.columns}
    unread: tuple[str, ...] = ()
    if names:
        positions = _pair_clock(path, positions, labels, rows, dataset)
        others = {label: position for position, label in labels.items() if label}
        texts = {label: [row[position - 1] for row in rows] for label, position in others.items()}
        unread = find_unread_times({role: labels[position] for role, position in positions.items()}, texts, dataset)
    columns = {role: [row[position - 1] for row in rows] for role, position in positions.items()}
    if "clock" in columns:
        columns["time"] = join_clocks(columns["time"], columns["clock"])
    sources = {role: f"{path}, column {labels.get(position) or position}" for role, position in positions.items()}
    cells = [cell.strip() for cell in columns["item"] if cell.strip()]
    lists = [cell for cell in cells if cell[0] in "[({" and cell[-1] in "])}"]
    if len(lists) > MIN_LISTS * len(cells):
        raise InputError(f"{sources['item']}: has lists, such as {lists[0][:60]}. Write a line for each item.")
    return replace(
        layout,
        columns=tuple(positions.items()),
        item_lists=bool(dataset.item_separator),
        doubts=find_doubts(columns, dataset) + unread,
        decimal=decimal_mark(sources.get("value", path), columns.get("value", []), dataset),
        time_formats=detect_time_formats(sources["time"], columns["time"], dataset) if "time" in columns else (),
    )


def _pair_clock(
    path: str, positions: dict[str, int], labels: dict[int, str], rows: Sequence[Sequence[str]], dataset: Dataset
) -> dict[str, int]:
    """Return the position of each role, with the date's as time where the column of the time has times of day alone."""
    unique = {label: position for position, label in labels.items() if list(labels.values()).count(label) == 1}
    samples = {label: [row[position - 1] for row in rows] for label, position in unique.items() if label}
    chosen = {role: labels[position] for role, position in positions.items()}
    paired = pair_clock(chosen, samples, dataset.columns.time)
    if paired == chosen:
        return positions
    if paired["time"].lower() not in {name.lower() for name in dataset.columns.time}:
        lines = "\n".join(f"{role} = {json.dumps([paired[role]], ensure_ascii=False)}" for role in ("time", "clock"))
        raise InputError(
            f"{path}: the column {paired['clock']} has times of day without a date. If {paired['time']} has the dates, "
            f"state both in the data set's file:\n\n[columns]\n{lines}"
        )
    return {**positions, **{role: unique[paired[role]] for role in ("time", "clock")}}


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
    """Detect the layout of a log from its first JSON objects.

    Raises:
        InputError: fields lack roles, or values or times can be read in two ways.
    """
    rows = [{name: leaf for name, _, leaf in _list_paths(record)} for record in records]
    paths: dict[str, str] = {}
    for record in records:
        for name, json_path, _ in _list_paths(record):
            paths.setdefault(name, json_path)
    names = list(paths)
    positions, lacking = match_columns(names, dataset.columns)
    samples = {name: [_as_text(row.get(name)) for row in rows] for name in names if "[*]" not in paths[name]}
    if lacking:
        raise UnknownColumns(f"{path}, line 1 (JSON lines)", names, lacking, dataset, samples)
    chosen = {role: names[position - 1] for role, position in positions.items()}
    for role, name in chosen.items():
        if "[*]" in paths[name] and role != "item":
            others = [other for other in names if "[*]" not in paths[other]]
            raise InputError(
                f"{path}, line 1: the {role}'s field {name} is a list. Name one with single values in the data set's "
                f"file:\n\n{suggest_columns(others, dataset)}"
            )
    chosen = pair_clock(chosen, samples, dataset.columns.time)
    values = {role: [_as_text(row[name]) for row in rows if name in row] for role, name in chosen.items()}
    if "clock" in chosen:
        values["time"] = join_clocks(samples[chosen["time"]], samples[chosen["clock"]])
    return LogFormat(
        "json",
        fields=1,
        columns=tuple((role, f"${paths[name]}") for role, name in chosen.items()),
        item_lists="[*]" in paths[chosen["item"]],
        doubts=find_doubts({role: samples.get(name, []) for role, name in chosen.items()}, dataset)
        + find_unread_times(chosen, samples, dataset),
        decimal=decimal_mark(path, values.get("value", []), dataset),
        time_formats=detect_time_formats(f"{path}, field {chosen['time']}", values["time"], dataset)
        if "time" in values
        else (),
    )


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)
