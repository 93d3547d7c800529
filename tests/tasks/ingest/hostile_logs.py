"""Draw hostile logs from a seed, and read them by a naive reader that shares no code with the product.

The reader follows `docs/how-to/logs.md`, record by record; `benchmarks.fuzz_readers` compares.
"""

import csv
import gzip
import io
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
GOOD = {"user": "u", "item": "i", "value": "2", "time": "2004-01-01", "note": ""}
POOLS = {"user": IDS, "item": IDS, "value": VALUES, "time": TIMES, "note": ["", "good", "not so, good", "x|y;z"]}
BAD = {"value": BAD_VALUES, "time": BAD_TIMES, "user": ["", " ", '"'], "item": ["", "  ", "\u3000"], "note": ["note"]}
ODD_NETFLIX = ["12:ab", ":", "1_0:", " 7 :", "9", "9,4", "9,4,2004-02-30", "9,4,infinity", " ,4,2004-01-01",
               "9,5_0,2004-01-01"]
STRAY = ['"', '""', ",", ";", "\t", "|", ":", " ", "_", "-", ".", "1", "é", "\u2028", "\x0b", "\x1c", "\x85", "\ufffd",
         "\ufeff", "\r", "\n", "'", "\\", "#", "%", "{", "$1"]
# fmt: on


@dataclass(frozen=True)
class Case:
    """An input: its bytes, and what the naive reader needs.

    Attributes:
        layout: header, delimited, unquoted, netflix, adjacency, counted_adjacency or parquet.
        columns: roles of the columns of a delimited log.
        text: bytes of the log before compression; empty for Parquet.
        table: rows of a Parquet log.
        is_unreadable: no reader can read the file as a whole.
    """

    layout: str
    dataset: Dataset
    name: str
    content: bytes
    columns: tuple[str, ...] = ()
    text: bytes = b""
    table: pl.DataFrame | None = None
    is_unreadable: bool = False


def draw_delimited(rng: random.Random, *, has_header: bool) -> Case:
    """Draw a log of delimited columns in any order, quoted fields, some over several lines, and a few bad values."""
    delimiter = rng.choice([",", ",", ";", "|", "\t", "::"])
    columns = ["user", "item", "value", *(["time"] * (rng.random() < 0.5)), *(["note"] * (rng.random() < 0.35))]
    rng.shuffle(columns)

    def join_fields(row: Sequence[str]) -> str:
        if delimiter in ("\t", "::"):
            return delimiter.join(field.replace(delimiter, " ") for field in row)
        quoted = [any(one in field for one in (delimiter, '"', "\n")) or rng.random() < 0.1 for field in row]
        fields = zip(row, quoted, strict=True)
        return delimiter.join('"' + one.replace('"', '""') + '"' if is_quoted else one for one, is_quoted in fields)

    rows = [[rng.choice(POOLS[column]) for column in columns] for _ in range(draw_size(rng) + rng.choice((0, 1, 1, 3)))]
    for row in rng.sample(rows, min(len(rows), rng.choice((0, 1, 1, 3)))):
        at = rng.randrange(len(columns))
        row[at] = rng.choice(BAD[columns[at]])
    lines = [join_fields(row) for row in rows]
    if rng.random() < 0.3:
        field = "\n".join(rng.choice(["x", *lines]) for _ in range(rng.choice((2, 2, 3))))
        lines.insert(
            rng.randrange(len(lines) + 1),
            join_fields([GOOD[columns[0]], field, *(GOOD[column] for column in columns[2:])]),
        )
    good = delimiter.join(GOOD[column] for column in columns)
    lines = [*([] if has_header else [good]), *lines, *[good] * (len(lines) + 3)]  # most lines show the format
    places = {column: str(at) for at, column in enumerate(columns, 1) if column != "note"}
    declared = {"columns": places | ({} if "time" in places else {"time": ()})} if not has_header else {}
    case = build_case(
        rng, "delimited", {"delimiter": delimiter, **declared}, lines, delimiter.join(columns) * has_header
    )
    return replace(case, layout="header" if has_header else "delimited", columns=tuple(columns))


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


def build_case(rng: random.Random, layout: str, declared: dict, lines: list[str], header: str = "") -> Case:
    """Build a case of some lines: damage a few, draw their ends, compress or truncate the file."""
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange(not header and "adjacency" not in layout, len(lines))  # the first line shows the format
        line, place = lines[at], rng.randrange(len(lines[at]) + 1)
        middle = rng.choice(["", line[: rng.randrange(len(line) + 1)], rng.choice(STRAY)])
        lines[at] = line[:place] + middle + rng.choice(["", line[place:], line[place + 1 :]])
    ends = rng.choice([["\n"], ["\n"], ["\r\n"], ["\r"], ["\n", "\r\n", "\r"]])
    text = "".join(line + rng.choice(ends) for line in [*([header] if header else []), *lines])
    text = text.rstrip("\r\n") if rng.random() < 0.3 else text
    data = ("\ufeff" * (rng.random() < 0.1) + text).encode()
    if rng.random() < 0.1:
        at = rng.randrange(min(len((header or lines[0]).encode()) + 4, len(data)), len(data) + 1)
        data = data[:at] + rng.choice([b"\xff", b"\xe9", b"\xc3", b"\xed\xa0\x80", b"\0"]) + data[at:]
    content, is_unreadable = data, False
    if rng.random() < 0.25:
        half = rng.randrange(len(data) + 1)
        content = rng.choice([gzip.compress(data), gzip.compress(data[:half]) + gzip.compress(data[half:])])
        content += bytes(rng.choice((0, 0, 1, 5, 600)))
        if rng.random() < 0.1:
            content, is_unreadable = gzip.compress(data)[:-5], True
    dataset = Dataset(name="own", **{**DECLARED, **declared})
    return Case(layout, dataset, "log.txt", content, text=data, is_unreadable=is_unreadable)


NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
DATE = re.compile(r"[ \t\n\f\r]*([1-9]\d{3})[-/](\d\d?)[-/](\d\d?)(?:[ T]+(\d\d?):(\d\d?)(?::(\d\d?))?)? *", re.ASCII)
MOVIE = re.compile(r"\s*([0-9]+)\s*:\s*", re.ASCII)
BLANKS = " \t\u00a0\u200b\u2060\ufeff"
BLANK_BEHIND_QUOTE = re.compile(r'(?<=") +(?=[,;|\n])')
Event = tuple[str, str, float, float | None]
TORN: Event = ("", "", math.nan, None)
"""Stands where quotes do not pair; a reader may take more of the lines below for the same field."""


def read_naively(case: Case) -> tuple[list[Event], int, bool]:
    """Read a case; returns the events, the number of rejected lines, and whether all quotes pair."""
    if case.table is not None:
        cells = (["" if cell is None else str(cell) for cell in row] for row in case.table[list(GOOD)[:3]].iter_rows())
        outcomes = [parse_event(case, dict(zip(GOOD, row, strict=False))) for row in cells]
    else:
        text = case.text.decode("utf-8", errors="replace").removeprefix("\ufeff").replace("\0", "\ufffd")
        lines = re.split(r"\r\n|\r|\n", text)
        reader = read_adjacency if "adjacency" in case.layout else read_delimited
        outcomes = list((read_netflix if case.layout == "netflix" else reader)(case, lines))
        if text.encode() != case.text.removeprefix("\ufeff".encode()):
            outcomes = [None if one and "\ufffd" in one[0] + one[1] else one for one in outcomes]
    return [one for one in outcomes if one and one is not TORN], outcomes.count(None), TORN not in outcomes


def read_delimited(case: Case, lines: list[str]) -> Iterator[Event | None]:
    """Read records as RFC 4180 has them; each line of a record that is none is a reject."""
    delimiter = case.dataset.delimiter
    quoted = delimiter in (",", ";", "|") and case.layout != "unquoted"
    text = "\n".join(lines)
    lines = BLANK_BEHIND_QUOTE.sub("", text).split("\n") if quoted else lines
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter[0], strict=True, skipinitialspace=True)
    at = 0
    while at < len(lines):
        fields, first = None, at
        if quoted:
            try:
                fields = next(reader)
            except csv.Error:
                yield TORN
            at = reader.line_num
        else:
            fields, at = lines[at].split(delimiter), at + 1
        is_header = case.layout == "header" and first == 0
        if is_header or not lines[first].strip(" "):
            continue
        width = len(case.columns)
        if fields and len(fields) >= width and not any(fields[width:]):  # empty cells at the end do not count
            yield parse_event(case, dict(zip(case.columns, fields, strict=False)))
        else:
            yield from [None for line in lines[first:at] if line.strip(" ")]


def parse_event(case: Case, named: dict[str, str]) -> Event | None:
    """Parse the fields of a record."""
    user, item = (re.sub(r"^(-?[0-9]+)\.0+$", r"\1", named[side].strip(BLANKS)) for side in ("user", "item"))
    text, low, high = named.get("value", "1"), case.dataset.value_min, case.dataset.value_max
    value = float(text) if NUMBER.fullmatch(text) else math.nan
    in_range = math.isfinite(value) and (low is None or low <= value) and (high is None or value <= high)
    time = parse_time(named["time"]) if "time" in named else None
    if (
        "\n" in user + item
        or {user, item} & {"", *case.dataset.missing_ids}
        or not in_range
        or ("time" in named and time is None)
    ):
        return None
    return user, item, value, time


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
            if 788918400 * scale <= number < 4102444800 * scale:
                return float(text) if scale == 1 else number * 10**6 // scale / 10**6  # in whole microseconds
        return (
            datetime.strptime(text.strip(), "%Y%m%d").replace(tzinfo=UTC).timestamp() if 19e6 < number < 21e6 else None
        )
    except ValueError:
        return None


def read_netflix(case: Case, lines: list[str]) -> Iterator[Event | None]:
    """Read ratings below the header of their film."""
    movie = None
    for line in lines:
        fields = line.split(",")
        fields = fields[:3] if not any(fields[3:]) else fields
        if ":" in fields[0] and not any(fields[1:]):
            match = MOVIE.fullmatch(fields[0])
            movie = match[1] if match else None
            yield from [] if match else [None]
        elif not re.fullmatch(r"\s*,*", line):
            is_rating = movie is not None and len(fields) == 3 and DATE.fullmatch(fields[2]) and fields[2][-1:] != " "
            yield (
                parse_event(case, dict(zip(("user", "value", "time"), fields, strict=False), item=movie))
                if is_rating
                else None
            )


def read_adjacency(case: Case, lines: list[str]) -> Iterator[Event | None]:
    """Read a user, or the number of items, and the items of a line."""
    for number, line in enumerate(lines, 1):
        user, *items = re.split(r"[ \t]+", line.strip(" \t"))
        if case.layout == "counted_adjacency" and user:
            if not re.fullmatch("[0-9]+", user) or int(user) != len(items):
                yield None
                continue
            user = str(number)
        events = (parse_event(case, {"user": user, "item": item}) for item in items)
        yield from sorted(events, key=lambda event: event[1] if event else "")
