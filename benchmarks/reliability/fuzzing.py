"""Draw hostile logs from a seed, and read them by a naive reader that shares no code with the product.

The reader follows `docs/how-to/datasets.md` line by line; `benchmarks.reliability.fuzz_readers` compares.
"""

import csv
import gzip
import io
import itertools
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal

import polars as pl

from oneclass.tasks.datasets import Dataset

DECLARED = {"title": "A fuzzed log", "max_reject_share": 1.0, "value_min": -1000.0, "value_max": 1000.0,
       "max_future_days": 1_000_000}  # fmt: skip
IDS = ["u1", "7", "0007", "é", "日本", "a b", "x-y", "a'b", "5_0", "1e3", "NULL", "nan", "\U0001f600", "x" * 300]
VALUES = ["1", "5", "3.5", "0", "-2", "4.0", "1e2", "999.5"]
BAD_VALUES = ["", "inf", "-Infinity", "nan", "1e400", "5_0", "0x5", "+5", " 5", "5 ", ".5", "5.", "--5", "5,0,0",
              "five", "٥", "1e", "1001", "-1000.5", "1 000", "5e-1", "true", "1e999999999999"]  # fmt: skip
TIMES = ["1000000000", "1000000000123", "20040229", "2004-01-01", "2004-02-29", "2004-01-01 10:11:12", "4102444799"]
GOOD = {"user": "u", "item": "i", "value": "2", "timestamp": "2004-01-01", "time": "2004-01-01", "note": "", "-": ""}
BAD_TIMES = ["", "0", "253402300799", "yesterday", "2004-02-30", "2004-13-01", "1_000", "0x10",
             "infinity", "99999999999999999999", "2003-02-29"]  # fmt: skip
STRAY = ['"', '""', ",", ";", "\t", "|", ":", " ", "_", "-", ".", "1", "é", "\u2028", "\x0b", "\x1c", "\x85", "\ufffd",
         "\ufeff", "\r", "\n", "'", "\\", "#", "%", "{", "$1"]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An input: its bytes, and what the oracle needs.

    Attributes:
        layout: delimited, netflix, adjacency, counted_adjacency or parquet.
        content: bytes of the file.
        text: bytes of the log before compression; empty for Parquet.
        table: rows of a Parquet log.
        is_unreadable: no reader can read the file as a whole.
    """

    layout: str
    dataset: Dataset
    name: str
    content: bytes
    text: bytes = b""
    table: pl.DataFrame | None = None
    is_unreadable: bool = False


def draw_delimited(rng: random.Random) -> Case:
    """Draw a CSV, TSV or similar log with a header, columns in any order, further columns, and quoted fields."""
    delimiter = rng.choice(",,;|\t")
    columns = [
        "user",
        "item",
        "value",
        *(["timestamp"] if rng.random() < 0.5 else []),
        *(["note"] * (rng.random() < 0.4)),
    ]
    rng.shuffle(columns)
    pools = {
        "user": IDS,
        "item": IDS,
        "value": VALUES,
        "timestamp": TIMES,
        "note": ["", "good", "not so, good", "x|y;z"],
    }
    lines = [
        _join_fields(rng, [rng.choice(pools[column]) for column in columns], delimiter) for _ in range(_draw_size(rng))
    ]
    bad = {"value": BAD_VALUES, "timestamp": BAD_TIMES, "user": ["", " ", '"'], "item": ["", "  ", "\u3000"]}
    for _ in range(rng.choice((0, 1, 1, 3))):
        row = [rng.choice(pools[column]) for column in columns]
        index = rng.randrange(len(columns))
        row[index] = rng.choice(bad.get(columns[index], ["note"]))
        lines.insert(rng.randrange(len(lines) + 1), _join_fields(rng, row, delimiter))
    if rng.random() < 0.3 and delimiter != "\t":  # a field over several lines
        field = "\n".join(rng.choice(["x", *lines]).replace('"', '""') for _ in range(rng.choice((2, 2, 3))))
        lines.insert(
            rng.randrange(len(lines) + 1), _join_fields(rng, ["a", f"\0{field}", "5"], delimiter).replace("\0", "")
        )
    lines += [delimiter.join(GOOD[column] for column in columns)] * (
        len(lines) + 3
    )  # the format is detected by most lines
    declared = {"columns": {"value": ("value",)}} if rng.random() < 0.5 else {"delimiter": delimiter}
    return _build_case(rng, "delimited", declared, lines, header=delimiter.join(columns))


def _join_fields(rng: random.Random, row: Sequence[str], delimiter: str) -> str:
    def quote_field(field: str) -> str:
        if delimiter == "\t":
            return field.replace("\t", " ")
        needs_quotes = any(one in field for one in (delimiter, '"', "\n", "\0"))
        return '"' + field.replace('"', '""') + '"' if needs_quotes or rng.random() < 0.1 else field

    return delimiter.join(map(quote_field, row))


def draw_without_header(rng: random.Random) -> Case:
    """Draw a log without a header, whose fields the data set's file declares."""
    delimiter = rng.choice(["::", "\t", "|", ","])
    roles = ["user", "item", "value", *(["time"] if rng.random() < 0.6 else []), *(["-"] * (rng.random() < 0.3))]
    rng.shuffle(roles)
    pools = {"user": IDS, "item": IDS, "value": VALUES + BAD_VALUES[:2], "time": TIMES + BAD_TIMES[:2], "-": ["", "?"]}
    lines = [delimiter.join(rng.choice(pools[role]) for role in roles) for _ in range(_draw_size(rng))]
    good = delimiter.join(GOOD[role] for role in roles)
    lines = [good, *lines, *[good] * (len(lines) + 3)]
    return _build_case(rng, "delimited", {"delimiter": delimiter, "fields": tuple(roles)}, lines)


def draw_netflix(rng: random.Random) -> Case:
    """Draw a log in the Netflix format: ratings below the headers of their films."""
    lines = []
    for movie in rng.sample(range(1, 99), rng.choice((1, 2, 5))):
        lines += [
            f"{movie}:",
            *(f"{rng.randrange(99)},{rng.choice(VALUES)},2004-01-01" for _ in range(4 + _draw_size(rng))),
        ]
    for _ in range(rng.choice((0, 0, 1, 2))):
        odd = ["12:ab", ":", "1_0:", " 7 :", "9", "9,4",
               "9,4,2004-02-30", "9,4,infinity", " ,4,2004-01-01", "9,5_0,2004-01-01"]  # fmt: skip
        lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(odd))
    return _build_case(rng, "netflix", {}, lines)


def draw_adjacency(rng: random.Random) -> Case:
    """Draw a log with a user and the user's items on a line, or a count and as many items of the user 'line number'."""
    counted, lines = rng.random() < 0.5, []
    for _ in range(_draw_size(rng)):
        items = [rng.choice(IDS).replace(" ", "") for _ in range(rng.randrange(6))]
        first = rng.choice(IDS).replace(" ", "")
        if counted:
            first = rng.choice([str(len(items))] * 9 + ["1_0", "-1", "x", f"+{len(items)}", f"0{len(items)}"])
        lines.append(rng.choice([" ", " ", "\t", "  "]).join([first, *items]))
    layout = "counted_adjacency" if counted else "adjacency"
    return _build_case(rng, layout, {"layout": layout, "value_min": None, "value_max": None}, lines)


def draw_parquet(rng: random.Random) -> Case:
    """Draw a Parquet log with columns of several types, nulls and values that are not numbers."""
    rows = _draw_size(rng)
    kind = rng.choice([pl.String, pl.Int64])
    ids = [*IDS, "", " ", None] if kind == pl.String else [1, 7, -3, 10**15, None]
    values = rng.choice([[5.0, 0.5, float("nan"), float("inf"), 2e3, None], [1, 5, None], [*VALUES, *BAD_VALUES, None]])
    frame = {
        "user": pl.Series([rng.choice(ids) for _ in range(rows)], dtype=kind),
        "item": pl.Series([rng.choice(ids) for _ in range(rows)], dtype=kind),
        "value": pl.Series([rng.choice(values) for _ in range(rows)]),
    }
    for name in ("file_row_number", "user_2", "filename"):
        if rng.random() < 0.3:
            frame[name] = pl.Series([7] * rows)
    names = list(frame)
    rng.shuffle(names)
    table = pl.DataFrame({name: frame[name] for name in names})
    if table["value"].dtype == pl.Null:
        table = table.with_columns(pl.col("value").cast(pl.Float64))
    table.write_parquet(target := io.BytesIO())
    is_cut = rng.random() < 0.1
    content = target.getvalue()[: rng.randrange(4, target.tell() - 1)] if is_cut else target.getvalue()
    name = rng.choice(["log.parquet", "item=7/log.parquet", "[a]*?.parquet"])
    return Case("parquet", Dataset(name="own", **DECLARED), name, content, table=table, is_unreadable=is_cut)


FORMATS: dict[str, Callable[[random.Random], Case]] = {
    "header": draw_delimited,
    "no header": draw_without_header,
    "netflix": draw_netflix,
    "adjacency": draw_adjacency,
    "parquet": draw_parquet,
}


def _draw_size(rng: random.Random) -> int:
    return rng.choice((1, 2, 5, 12, 40))


def _build_case(rng: random.Random, layout: str, declared: dict, lines: list[str], header: str | None = None) -> Case:
    """Build a case of some lines: damage a few, draw their ends, compress or truncate the file."""
    for _ in range(rng.choice((0, 0, 1, 2))):
        if not lines:
            break
        at = rng.randrange(layout == "netflix" or "fields" in declared, len(lines))  # the first line shows the format
        lines[at] = _damage_line(rng, lines[at])
    head = [header] if header else []
    ends = rng.choice([["\n"], ["\n"], ["\r\n"], ["\r"], ["\n", "\r\n", "\r"]])
    text = "".join(line + rng.choice(ends) for line in [*head, *lines])
    if rng.random() < 0.3:
        text = text.rstrip("\r\n")
    data = ("\ufeff" * (rng.random() < 0.1) + text).encode()
    if rng.random() < 0.1 and lines:
        at = rng.randrange(min(len((header or lines[0]).encode()) + 4, len(data)), len(data) + 1)
        data = data[:at] + rng.choice([b"\xff", b"\xe9", b"\xc3", b"\xed\xa0\x80"]) + data[at:]
    is_unreadable = rng.random() < 0.03
    if is_unreadable:
        data += b"\0"
    content, name = data, "log.txt"
    if rng.random() < 0.25:
        half = rng.randrange(len(data) + 1)
        content = rng.choice([gzip.compress(data), gzip.compress(data[:half]) + gzip.compress(data[half:])])
        content += bytes(rng.choice((0, 0, 1, 5, 600)))
        if rng.random() < 0.1:
            content, is_unreadable = gzip.compress(data)[:-5], True
    return Case(
        layout, Dataset(name="own", **{**DECLARED, **declared}), name, content, data, is_unreadable=is_unreadable
    )


def _damage_line(rng: random.Random, line: str) -> str:
    at = rng.randrange(len(line) + 1)
    match rng.randrange(4):
        case 0:
            return line[:at] + line[at + 1 :]
        case 1:
            return line[:at]
        case 2:
            return line[:at] + line[: rng.randrange(len(line) + 1)] + line[at:]
    return line[:at] + rng.choice(STRAY) + line[at:]


NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
DATE = re.compile(r"\s*([1-9]\d{3})[-/](\d\d?)[-/](\d\d?)(?:[ T]+(\d\d?):(\d\d?)(?::(\d\d?))?)?\s*", re.ASCII)
MOVIE = re.compile(r"\s*([0-9]+)\s*:\s*", re.ASCII)
Event = tuple[int, str, str, float, float | None]
Outcome = list[Event] | None  # None: a reject; an empty list: a blank line


def read_naively(case: Case) -> tuple[list[Event], list[int]]:
    """Read a case; returns the events and the numbers of the rejected lines."""
    events, rejects = [], []
    outcomes = _read_rows(case) if case.table is not None else _read_lines(case)
    for number, outcome in enumerate(outcomes, 1):
        if outcome is None:
            rejects.append(number)
        else:
            events += outcome
    return events, rejects


def _read_lines(case: Case) -> Iterator[Outcome]:
    text = case.text.decode("utf-8", errors="replace").removeprefix("\ufeff")
    try:
        case.text.decode()
        damaged = False
    except UnicodeDecodeError:
        damaged = True
    lines = re.split(r"\r\n|\r|\n", text)
    lines = lines[:-1] if lines[-1] == "" else lines
    reader = {"delimited": _read_delimited, "netflix": _read_netflix}.get(case.layout, _read_adjacency)
    for line, outcome in zip(lines, reader(case, lines), strict=True):
        if case.layout == "delimited":  # only damaged ids are rejected
            yield None if damaged and outcome and "\ufffd" in outcome[0][1] + outcome[0][2] else outcome
        else:
            yield None if damaged and "\ufffd" in line and line.strip() else outcome


def _read_delimited(case: Case, lines: list[str]) -> Iterator[Outcome]:
    delimiter, first = case.dataset.delimiter, 0
    if case.dataset.fields:
        roles, quoted = list(case.dataset.fields), delimiter in (",", "|")
    else:
        delimiter = delimiter or next(one for one in ",\t;|" if one in lines[0])
        roles, quoted, first = (
            ["time" if one == "timestamp" else one for one in lines[0].split(delimiter)],
            delimiter != "\t",
            1,
        )
        yield []
    multiline = _find_multiline(lines, delimiter) if quoted else set()
    for at in range(first, len(lines)):
        if not lines[at].strip(" ") or (first and lines[at] == lines[0]):
            yield []
        elif at in multiline:
            yield None
        else:
            yield _parse_event(
                case, at + 1, _split_quoted(lines[at], delimiter) if quoted else lines[at].split(delimiter), roles
            )


def _split_quoted(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        return []


def _find_multiline(lines: list[str], delimiter: str) -> set[int]:
    """Find the lines of quoted fields that span several lines, at most a hundred."""
    odd, multiline = [at for at, line in enumerate(lines) if at and line.count('"') % 2], set()
    for at, following in itertools.pairwise(odd):
        if following - at <= 100 and _opens_quote(lines[at], delimiter) and _closes_quote(lines[following], delimiter):
            multiline |= set(range(at, following + 1))
    return multiline


def _opens_quote(line: str, delimiter: str) -> bool:
    """Tell whether a quote that begins a field is followed by doubled quotes only."""
    begins = [at for at, one in enumerate(line) if one == '"' and (at == 0 or line[at - 1] == delimiter)]
    return any('"' not in line[at + 1 :].replace('""', "") for at in begins)


def _closes_quote(line: str, delimiter: str) -> bool:
    """Tell whether the first quote that is not doubled ends a field."""
    at = 0
    while at < len(line):
        if line[at] == '"':
            if line[at + 1 : at + 2] != '"':
                return at + 1 == len(line) or line[at + 1] == delimiter
            at += 1
        at += 1
    return False


def _parse_event(case: Case, number: int, fields: list[str], roles: list[str]) -> Outcome:
    if len(fields) != len(roles):
        return None
    named = dict(zip(roles, fields, strict=True))
    user, item = (re.sub(r"^(-?[0-9]+)\.0+$", r"\1", named[side].strip(" ")) for side in ("user", "item"))
    missing = case.dataset.missing_ids if case.layout in ("delimited", "parquet") else ()
    if {user, item} & {"", *missing}:
        return None
    value = _parse_value(case, named.get("value", "1"))
    time = _parse_time(named["time"]) if "time" in named else None
    if value is None or ("time" in named and time is None):
        return None
    return [(number, user, item, value, time)]


def _parse_value(case: Case, text: str) -> float | None:
    if not NUMBER.fullmatch(text) or not math.isfinite(value := float(text)):
        return None
    low, high = case.dataset.value_min, case.dataset.value_max
    return value if (low is None or low <= value) and (high is None or value <= high) else None


def _parse_time(text: str) -> float | None:
    if NUMBER.fullmatch(text):
        number = int(Decimal(text.strip()).to_integral_value(ROUND_HALF_UP))
        for scale in (1, 10**3, 10**6, 10**9):
            if 631152000 * scale <= number < 4102444800 * scale:
                return float(text) if scale == 1 else number * 10**6 // scale / 10**6  # in whole microseconds
        try:
            day = datetime.strptime(text.strip(), "%Y%m%d").replace(tzinfo=UTC)
        except ValueError:
            return None
        return day.timestamp() if 1900 <= day.year < 2100 else None
    if not (match := DATE.fullmatch(text)):
        return None
    try:
        return datetime(*(int(part or 0) for part in match.groups()), tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _read_netflix(case: Case, lines: list[str]) -> Iterator[Outcome]:
    movie = None
    for number, line in enumerate(lines, 1):
        if ":" in line and "," not in line:
            match = MOVIE.fullmatch(line)
            movie = match[1] if match else None
            yield [] if match else None
        elif not line.strip(" "):
            yield []
        else:
            fields = line.split(",")
            date = fields[2] if len(fields) == 3 else ""
            if movie is None or not DATE.fullmatch(date):
                yield None
            else:
                yield _parse_event(case, number, [*fields, movie], ["user", "value", "time", "item"])


def _read_adjacency(case: Case, lines: list[str]) -> Iterator[Outcome]:
    for number, line in enumerate(lines, 1):
        user, *items = re.split(r"[ \t]+", line.strip(" \t"))
        if case.layout == "counted_adjacency" and user:
            if not re.fullmatch("[0-9]+", user) or int(user) != len(items):
                yield None
                continue
            user = str(number)
        yield [(number, user, item, 1.0, None) for item in items]


def _read_rows(case: Case) -> Iterator[Outcome]:
    for number, row in enumerate(case.table.iter_rows(named=True), 1):
        named = {role: "" if row[role] is None else str(row[role]) for role in ("user", "item", "value")}
        yield _parse_event(case, number, list(named.values()), list(named))
