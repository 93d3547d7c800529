"""Read a log line by line as `docs/how-to/datasets.md` describes it, sharing no code with the readers.

An event is (line, user, item, value, seconds since 1970 or None); a reject is the number of its line.
"""

import csv
import itertools
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal

from benchmarks.reliability.fuzzing.inputs import Case

NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
DATE = re.compile(r"\s*([1-9]\d{3})-(\d\d?)-(\d\d?)(?:[ T](\d\d?):(\d\d?)(?::(\d\d?))?)?\s*", re.ASCII)
MOVIE = re.compile(r"\s*([0-9]+)\s*:\s*", re.ASCII)
Event = tuple[int, str, str, float, float | None]
Outcome = list[Event] | None  # None: a reject; an empty list: a blank line


def read(case: Case) -> tuple[list[Event], list[int]]:
    """The events and the numbers of the rejected lines."""
    events, rejects = [], []
    outcomes = _rows(case) if case.table is not None else _lines(case)
    for number, outcome in enumerate(outcomes, 1):
        if outcome is None:
            rejects.append(number)
        else:
            events += outcome
    return events, rejects


def _lines(case: Case) -> Iterator[Outcome]:
    text = case.text.decode("utf-8", errors="replace").removeprefix("\ufeff")
    try:
        case.text.decode()
        damaged = False
    except UnicodeDecodeError:
        damaged = True
    lines = re.split(r"\r\n|\r|\n", text)
    lines = lines[:-1] if lines[-1] == "" else lines
    reader = {"delimited": _delimited, "netflix": _netflix}.get(case.layout, _adjacency)
    for line, outcome in zip(lines, reader(case, lines), strict=True):
        yield None if damaged and "\ufffd" in line and line.strip() else outcome


def _delimited(case: Case, lines: list[str]) -> Iterator[Outcome]:
    delimiter, first = case.dataset.delimiter, 0
    if case.dataset.fields:
        roles, quoted = list(case.dataset.fields), False
    else:
        delimiter = delimiter or next(one for one in ",\t;|" if one in lines[0])
        roles, quoted, first = (
            ["time" if one == "timestamp" else one for one in lines[0].split(delimiter)],
            delimiter != "\t",
            1,
        )
        yield []
    spoilt = _several(lines, delimiter) if quoted else set()
    for at in range(first, len(lines)):
        if not lines[at].strip(" "):
            yield []
        elif at in spoilt:
            yield None
        else:
            yield _event(case, at + 1, _split(lines[at], delimiter) if quoted else lines[at].split(delimiter), roles)


def _split(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        return []


def _several(lines: list[str], delimiter: str) -> set[int]:
    """Lines of quoted fields that go over several lines, at most a hundred apart."""
    odd, spoilt = [at for at, line in enumerate(lines) if at and line.count('"') % 2], set()
    for at, following in itertools.pairwise(odd):
        if following - at <= 100 and _open_at_end(lines[at], delimiter) and _closes(lines[following], delimiter):
            spoilt |= set(range(at, following + 1))
    return spoilt


def _open_at_end(line: str, delimiter: str) -> bool:
    """Some quote that begins a field is followed by doubled quotes alone."""
    begins = [at for at, one in enumerate(line) if one == '"' and (at == 0 or line[at - 1] == delimiter)]
    return any('"' not in line[at + 1 :].replace('""', "") for at in begins)


def _closes(line: str, delimiter: str) -> bool:
    """The first quote that is not doubled ends a field."""
    at = 0
    while at < len(line):
        if line[at] == '"':
            if line[at + 1 : at + 2] != '"':
                return at + 1 == len(line) or line[at + 1] == delimiter
            at += 1
        at += 1
    return False


def _event(case: Case, number: int, fields: list[str], roles: list[str]) -> Outcome:
    if len(fields) != len(roles):
        return None
    named = dict(zip(roles, fields, strict=True))
    if not named["user"].strip(" ") or not named["item"].strip(" "):
        return None
    value = _value(case, named.get("value", "1"))
    time = _time(named["time"]) if "time" in named else None
    if value is None or ("time" in named and time is None):
        return None
    return [(number, named["user"], named["item"], value, time)]


def _value(case: Case, text: str) -> float | None:
    if not NUMBER.fullmatch(text) or not math.isfinite(value := float(text)):
        return None
    low, high = case.dataset.value_min, case.dataset.value_max
    return value if (low is None or low <= value) and (high is None or value <= high) else None


def _time(text: str) -> float | None:
    if NUMBER.fullmatch(text):  # to the nearest second
        seconds = int(Decimal(text.strip()).to_integral_value(ROUND_HALF_UP))
        return seconds if 0 <= seconds <= 253402300799 else None
    if not (found := DATE.fullmatch(text)):
        return None
    try:
        return datetime(*(int(part or 0) for part in found.groups()), tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _netflix(case: Case, lines: list[str]) -> Iterator[Outcome]:
    movie = None
    for number, line in enumerate(lines, 1):
        if ":" in line and "," not in line:
            found = MOVIE.fullmatch(line)
            movie = found[1] if found else None
            yield [] if found else None
        elif not line.strip(" "):
            yield []
        else:
            fields = line.split(",")
            date = fields[2] if len(fields) == 3 else ""
            if movie is None or not DATE.fullmatch(date):
                yield None
            else:
                yield _event(case, number, [*fields, movie], ["user", "value", "time", "item"])


def _adjacency(case: Case, lines: list[str]) -> Iterator[Outcome]:
    for number, line in enumerate(lines, 1):
        user, *items = re.split(r"[ \t]+", line.strip(" \t"))
        if case.layout == "counted_adjacency" and user:
            if not re.fullmatch("[0-9]+", user) or int(user) != len(items):
                yield None
                continue
            user = str(number)
        yield [(number, user, item, 1.0, None) for item in items]


def _rows(case: Case) -> Iterator[Outcome]:
    for number, row in enumerate(case.table.iter_rows(named=True), 1):
        named = {role: "" if row[role] is None else str(row[role]) for role in ("user", "item", "value")}
        yield _event(case, number, list(named.values()), list(named))
