"""Draw hostile logs from a seed, and read them by a naive reader that shares no code with the product.

The reader follows `docs/how-to/datasets.md` line by line; `benchmarks.fuzz_readers` compares.
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
from functools import partial

import polars as pl

from oneclass.tasks.datasets import Dataset

# fmt: off
DECLARED = {"title": "A fuzzed log", "max_reject_share": 1.0, "value_min": -1000.0, "value_max": 1000.0,
            "max_future_days": 1_000_000}
IDS = ["u1", "7", "0007", "é", "日本", "a b", "x-y", "a'b", "5_0", "1e3", "NULL", "nan", "\U0001f600", "x" * 300]
VALUES = ["1", "5", "3.5", "0", "-2", "4.0", "1e2", "999.5"]
BAD_VALUES = ["", "inf", "-Infinity", "nan", "1e400", "5_0", "0x5", "+5", " 5", "5 ", ".5", "5.", "--5", "5,0,0",
              "five", "٥", "1e", "1001", "-1000.5", "1 000", "5e-1", "true", "1e999999999999"]
TIMES = ["1000000000", "1000000000123", "20040229", "2004-01-01", "2004-02-29", "2004-01-01 10:11:12", "4102444799"]
BAD_TIMES = ["", "0", "253402300799", "yesterday", "2004-02-30", "2004-13-01", "1_000", "0x10",
             "infinity", "99999999999999999999", "2003-02-29"]
GOOD = {"user": "u", "item": "i", "value": "2", "timestamp": "2004-01-01", "time": "2004-01-01", "note": "", "-": ""}
POOLS = {"user": IDS, "item": IDS, "value": VALUES, "timestamp": TIMES, "time": TIMES + BAD_TIMES[:2],
         "note": ["", "good", "not so, good", "x|y;z"], "-": ["", "?"]}
BAD = {"value": BAD_VALUES, "timestamp": BAD_TIMES, "time": BAD_TIMES, "user": ["", " ", '"'],
       "item": ["", "  ", "\u3000"], "note": ["note"], "-": ["note"]}
ODD_NETFLIX = ["12:ab", ":", "1_0:", " 7 :", "9", "9,4", "9,4,2004-02-30", "9,4,infinity", " ,4,2004-01-01",
               "9,5_0,2004-01-01"]
STRAY = ['"', '""', ",", ";", "\t", "|", ":", " ", "_", "-", ".", "1", "é", "\u2028", "\x0b", "\x1c", "\x85", "\ufffd",
         "\ufeff", "\r", "\n", "'", "\\", "#", "%", "{", "$1"]
# fmt: on


@dataclass(frozen=True)
class Case:
    """An input: its bytes, and what the naive reader needs.

    Attributes:
        layout: delimited, netflix, adjacency, counted_adjacency or parquet.
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


def draw_delimited(rng: random.Random, *, has_header: bool) -> Case:
    """Draw a log of delimited columns in any order, quoted fields, some over several lines, and a few bad values."""
    delimiter = rng.choice(",,;|\t") if has_header else rng.choice(["::", "\t", "|", ","])
    time, note = ("timestamp", "note") if has_header else ("time", "-")
    columns = ["user", "item", "value", *([time] * (rng.random() < 0.5)), *([note] * (rng.random() < 0.35))]
    rng.shuffle(columns)

    def join_fields(row: Sequence[str]) -> str:
        if not has_header:
            return delimiter.join(row)
        if delimiter == "\t":
            return delimiter.join(field.replace("\t", " ") for field in row)
        quoted = [any(one in field for one in (delimiter, '"', "\n")) or rng.random() < 0.1 for field in row]
        fields = zip(row, quoted, strict=True)
        return delimiter.join(
            '"' + field.replace('"', '""') + '"' if is_quoted else field for field, is_quoted in fields
        )

    rows = [[rng.choice(POOLS[column]) for column in columns] for _ in range(draw_size(rng) + rng.choice((0, 1, 1, 3)))]
    for row in rng.sample(rows, min(len(rows), rng.choice((0, 1, 1, 3)))):
        at = rng.randrange(len(columns))
        row[at] = rng.choice(BAD[columns[at]])
    lines = [join_fields(row) for row in rows]
    if has_header and delimiter != "\t" and rng.random() < 0.3:
        field = "\n".join(rng.choice(["x", *lines]) for _ in range(rng.choice((2, 2, 3))))
        lines.insert(rng.randrange(len(lines) + 1), join_fields(["a", field, "5"]))
    good = delimiter.join(GOOD[column] for column in columns)
    lines = [*([] if has_header else [good]), *lines, *[good] * (len(lines) + 3)]  # most lines show the format
    named = {"columns": {"value": ("value",)}} if rng.random() < 0.5 else {"delimiter": delimiter}
    declared = named if has_header else {"delimiter": delimiter, "fields": tuple(columns)}
    return build_case(rng, "delimited", declared, lines, delimiter.join(columns) if has_header else None)


def draw_netflix(rng: random.Random) -> Case:
    """Draw a log in the Netflix format: ratings below the headers of their films."""
    lines = []
    for movie in rng.sample(range(1, 99), rng.choice((1, 2, 5))):
        ratings = (f"{rng.randrange(99)},{rng.choice(VALUES)},2004-01-01" for _ in range(4 + draw_size(rng)))
        lines += [f"{movie}:", *ratings]
    for _ in range(rng.choice((0, 0, 1, 2))):
        lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(ODD_NETFLIX))
    return build_case(rng, "netflix", {}, lines)


def draw_adjacency(rng: random.Random) -> Case:
    """Draw a log with a user and the user's items on a line, or a count and as many items of the user 'line number'."""
    counted, lines = rng.random() < 0.5, []
    for _ in range(draw_size(rng)):
        first, *items = (rng.choice(IDS).replace(" ", "") for _ in range(1 + rng.randrange(6)))
        if counted:
            first = rng.choice([str(len(items))] * 9 + ["1_0", "-1", "x", f"+{len(items)}", f"0{len(items)}"])
        lines.append(rng.choice([" ", " ", "\t", "  "]).join([first, *items]))
    layout = "counted_adjacency" if counted else "adjacency"
    return build_case(rng, layout, {"layout": layout, "value_min": None, "value_max": None}, lines)


def draw_parquet(rng: random.Random) -> Case:
    """Draw a Parquet log with columns of several types, nulls and values that are not numbers."""
    rows, kind = draw_size(rng), rng.choice([pl.String, pl.Int64])
    ids = [*IDS, "", " ", None] if kind == pl.String else [1, 7, -3, 10**15, None]
    values = rng.choice([[5.0, 0.5, float("nan"), float("inf"), 2e3, None], [1, 5, None], [*VALUES, *BAD_VALUES, None]])
    frame = {side: pl.Series([rng.choice(ids) for _ in range(rows)], dtype=kind) for side in ("user", "item")}
    frame["value"] = pl.Series([rng.choice(values) for _ in range(rows)])
    more = [name for name in ("file_row_number", "user_2", "filename") if rng.random() < 0.3]
    names = rng.sample([*frame, *more], len(frame) + len(more))
    table = pl.DataFrame({name: frame.get(name, pl.Series([7] * rows)) for name in names})
    if table["value"].dtype == pl.Null:
        table = table.with_columns(pl.col("value").cast(pl.Float64))
    table.write_parquet(target := io.BytesIO())
    content, is_cut = target.getvalue(), rng.random() < 0.1
    content = content[: rng.randrange(4, len(content) - 1)] if is_cut else content
    name = rng.choice(["log.parquet", "[a]*?.parquet"])
    return Case("parquet", Dataset(name="own", **DECLARED), name, content, table=table, is_unreadable=is_cut)


FORMATS: dict[str, Callable[[random.Random], Case]] = {
    "header": partial(draw_delimited, has_header=True),
    "no header": partial(draw_delimited, has_header=False),
    "netflix": draw_netflix,
    "adjacency": draw_adjacency,
    "parquet": draw_parquet,
}


def draw_size(rng: random.Random) -> int:
    """Draw the number of lines."""
    return rng.choice((1, 2, 5, 12, 40))


def build_case(rng: random.Random, layout: str, declared: dict, lines: list[str], header: str | None = None) -> Case:
    """Build a case of some lines: damage a few, draw their ends, compress or truncate the file."""
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange(layout == "netflix" or "fields" in declared, len(lines))  # the first line shows the format
        line, place = lines[at], rng.randrange(len(lines[at]) + 1)
        middle = rng.choice(["", line[: rng.randrange(len(line) + 1)], rng.choice(STRAY)])
        lines[at] = line[:place] + middle + rng.choice(["", line[place:], line[place + 1 :]])
    ends = rng.choice([["\n"], ["\n"], ["\r\n"], ["\r"], ["\n", "\r\n", "\r"]])
    text = "".join(line + rng.choice(ends) for line in [*([header] if header else []), *lines])
    text = text.rstrip("\r\n") if rng.random() < 0.3 else text
    data = ("\ufeff" * (rng.random() < 0.1) + text).encode()
    if rng.random() < 0.1:
        at = rng.randrange(min(len((header or lines[0]).encode()) + 4, len(data)), len(data) + 1)
        data = data[:at] + rng.choice([b"\xff", b"\xe9", b"\xc3", b"\xed\xa0\x80"]) + data[at:]
    is_unreadable = rng.random() < 0.03
    data = content = data + b"\0" * is_unreadable
    if rng.random() < 0.25:
        half = rng.randrange(len(data) + 1)
        content = rng.choice([gzip.compress(data), gzip.compress(data[:half]) + gzip.compress(data[half:])])
        content += bytes(rng.choice((0, 0, 1, 5, 600)))
        if rng.random() < 0.1:
            content, is_unreadable = gzip.compress(data)[:-5], True
    dataset = Dataset(name="own", **{**DECLARED, **declared})
    return Case(layout, dataset, "log.txt", content, data, is_unreadable=is_unreadable)


NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
DATE = re.compile(r"\s*([1-9]\d{3})[-/](\d\d?)[-/](\d\d?)(?:[ T]+(\d\d?):(\d\d?)(?::(\d\d?))?)?\s*", re.ASCII)
MOVIE = re.compile(r"\s*([0-9]+)\s*:\s*", re.ASCII)
Event = tuple[int, str, str, float, float | None]
Outcome = list[Event] | None  # None: a reject; an empty list: a blank line


def read_naively(case: Case) -> tuple[list[Event], list[int]]:
    """Read a case; returns the events and the numbers of the rejected lines."""
    outcomes = list(enumerate(read_rows(case) if case.table is not None else read_lines(case), 1))
    return [event for _, found in outcomes for event in found or ()], [at for at, found in outcomes if found is None]


def read_lines(case: Case) -> Iterator[Outcome]:
    """Read each line; bytes that are not UTF-8 spoil a line, of delimited columns only if they are in an id."""
    text = case.text.decode("utf-8", errors="replace").removeprefix("\ufeff")
    is_damaged = text.encode() != case.text.removeprefix("\ufeff".encode())
    lines = re.split(r"\r\n|\r|\n", text)
    lines = lines[:-1] if lines[-1] == "" else lines
    reader = {"delimited": read_delimited, "netflix": read_netflix}.get(case.layout, read_adjacency)
    for line, outcome in zip(lines, reader(case, lines), strict=True):
        read = line if case.layout != "delimited" else "".join(f"{one[1]}{one[2]}" for one in outcome or ())
        yield None if is_damaged and "\ufffd" in read and line.strip() else outcome


def read_delimited(case: Case, lines: list[str]) -> Iterator[Outcome]:
    """Read delimited columns, the first line being the header unless the data set declares the fields."""
    delimiter, roles = case.dataset.delimiter, list(case.dataset.fields or ())
    quoted, first = delimiter in (",", "|"), 0
    if not roles:
        delimiter = delimiter or next(one for one in ",\t;|" if one in lines[0])
        roles = ["time" if one == "timestamp" else one for one in lines[0].split(delimiter)]
        quoted, first = delimiter != "\t", 1
        yield []
    spoilt = find_multiline(lines, delimiter) if quoted else set()
    for at in range(first, len(lines)):
        if not lines[at].strip(" ") or (first and lines[at] == lines[0]):
            yield []
        elif at in spoilt:
            yield None
        else:
            try:
                fields = next(csv.reader([lines[at]], delimiter=delimiter, strict=True)) if quoted else None
            except csv.Error:
                fields = []
            yield parse_event(case, at + 1, lines[at].split(delimiter) if fields is None else fields, roles)


def find_multiline(lines: list[str], delimiter: str) -> set[int]:
    """Find the lines of quoted fields that span several lines, at most a hundred."""

    def opens_quote(line: str) -> bool:
        begins = [at for at, one in enumerate(line) if one == '"' and (at == 0 or line[at - 1] == delimiter)]
        return any('"' not in line[at + 1 :].replace('""', "") for at in begins)

    def closes_quote(line: str) -> bool:
        single = re.match(r'(?:[^"]|"")*"(?!")', line)  # the first quote that is not doubled
        return single is not None and line[single.end() :][:1] in ("", delimiter)

    odd, multiline = [at for at, line in enumerate(lines) if at and line.count('"') % 2], set()
    for at, following in itertools.pairwise(odd):
        if following - at <= 100 and opens_quote(lines[at]) and closes_quote(lines[following]):
            multiline |= set(range(at, following + 1))
    return multiline


def parse_event(case: Case, number: int, fields: list[str], roles: list[str]) -> Outcome:
    """Parse the fields of a line."""
    if len(fields) != len(roles):
        return None
    named = dict(zip(roles, fields, strict=True))
    user, item = (re.sub(r"^(-?[0-9]+)\.0+$", r"\1", named[side].strip(" ")) for side in ("user", "item"))
    missing = case.dataset.missing_ids if case.layout in ("delimited", "parquet") else ()
    text, low, high = named.get("value", "1"), case.dataset.value_min, case.dataset.value_max
    value = float(text) if NUMBER.fullmatch(text) else math.nan
    in_range = math.isfinite(value) and (low is None or low <= value) and (high is None or value <= high)
    time = parse_time(named["time"]) if "time" in named else None
    if {user, item} & {"", *missing} or not in_range or ("time" in named and time is None):
        return None
    return [(number, user, item, value, time)]


def parse_time(text: str) -> float | None:
    """Parse seconds, or parts of them, since 1970, a day without separators, or a date with a time of day."""
    match = DATE.fullmatch(text)
    try:
        if match:
            return datetime(*(int(part or 0) for part in match.groups()), tzinfo=UTC).timestamp()
        if not NUMBER.fullmatch(text):
            return None
        number = int(Decimal(text.strip()).to_integral_value(ROUND_HALF_UP))
        for scale in (1, 10**3, 10**6, 10**9):
            if 631152000 * scale <= number < 4102444800 * scale:
                return float(text) if scale == 1 else number * 10**6 // scale / 10**6  # in whole microseconds
        day = datetime.strptime(text.strip(), "%Y%m%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return day.timestamp() if 1900 <= day.year < 2100 else None


def read_netflix(case: Case, lines: list[str]) -> Iterator[Outcome]:
    """Read ratings below the header of their film."""
    movie = None
    for number, line in enumerate(lines, 1):
        fields = line.split(",")
        if ":" in line and len(fields) == 1:
            match = MOVIE.fullmatch(line)
            movie = match[1] if match else None
            yield [] if match else None
        elif not line.strip(" "):
            yield []
        elif movie is None or len(fields) != 3 or not DATE.fullmatch(fields[2]):
            yield None
        else:
            yield parse_event(case, number, [*fields, movie], ["user", "value", "time", "item"])


def read_adjacency(case: Case, lines: list[str]) -> Iterator[Outcome]:
    """Read a user, or the number of items, and the items of a line."""
    for number, line in enumerate(lines, 1):
        user, *items = re.split(r"[ \t]+", line.strip(" \t"))
        if case.layout == "counted_adjacency" and user:
            if not re.fullmatch("[0-9]+", user) or int(user) != len(items):
                yield None
                continue
            user = str(number)
        yield [(number, user, item, 1.0, None) for item in items]


def read_rows(case: Case) -> Iterator[Outcome]:
    """Read the rows of a Parquet log."""
    for number, row in enumerate(case.table.iter_rows(named=True), 1):
        named = {role: "" if row[role] is None else str(row[role]) for role in ("user", "item", "value")}
        yield parse_event(case, number, list(named.values()), list(named))
