"""Draw hostile logs, and read them record by record as `docs/how-to/logs.md` says, for `benchmarks.fuzz_readers`."""

import csv
import gzip
import io
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import partial

import polars as pl

from oneclass.tasks.datasets import Dataset

SIZES = (1, 2, 5, 12, 40)
DECLARED = {"name": "own", "value_min": -1000, "value_max": 1000, "max_future_days": 1_000_000}
IDS = ["u1", "7", "0007", "é", "日本", "a b", "x-y", "a'b", "5_0", "1e3", "NULL", "nan", "\U0001f600", "x" * 300]
VALUES = ["1", "5", "3.5", "0", "-2", "4.0", "1e2", "999.5"]
BAD_VALUES = ["", "inf", "-Infinity", "nan", "1e400", "5_0", "0x5", "+5", " 5", "5 ", ".5", "5.", "--5", "5,0,0",
              "five", "٥", "1e", "1001", "-1000.5", "1 000", "5e-1", "true", "1e999999999999"]  # fmt: skip
TIMES = ["1000000000", "1000000000123", "20040229", "2004-01-01", "2004-02-29", "2004-01-01 10:11:12", "4102444799"]
BAD_TIMES = ["", "0", "253402300799", "yesterday", "2004-02-30", "2004-13-01", "1_000", "0x10",
             "infinity", "99999999999999999999", "2003-02-29"]  # fmt: skip
GOOD = {"user": "u", "item": "i", "value": "2", "time": "2004-01-01", "note": ""}
POOLS = {"user": IDS, "item": IDS, "value": VALUES, "time": TIMES, "note": ["", "good", "not so, good", "x|y;z"]}
BAD = {"value": BAD_VALUES, "time": BAD_TIMES, "user": ["", " ", '"'], "item": ["", "  ", "\u3000"], "note": ["note"]}
ODD_NETFLIX = ["12:ab", ":", "1_0:", " 7 :", "9", "9,4", "9,4,2004-02-30", "9,4,infinity", " ,4,2004-01-01",
               "9,5_0,2004-01-01"]  # fmt: skip
STRAY = ['"', '""', ",", ";", "\t", "|", ":", " ", "_", "-", ".", "1", "é", "\u2028", "\x0b", "\x1c", "\x85", "\ufffd",
         "\ufeff", "\r", "\n", "'", "\\", "#", "%", "{", "$1"]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An input: its bytes, and what the naive reader needs: the text before compression, or the rows of Parquet.

    The layout is header, delimited, netflix, adjacency, counted_adjacency or parquet.
    """

    layout: str
    dataset: Dataset
    name: str
    content: bytes
    is_unreadable: bool
    text: bytes = b""
    columns: Sequence[str] = ()
    table: pl.DataFrame | None = None


def draw_delimited(rng: random.Random, layout: str) -> Case:
    """Draw a log of delimited columns in any order, quoted fields, some over several lines, and bad values."""
    delimiter = rng.choice([",", ",", ";", "|", "\t", "::"])
    columns = ["user", "item", "value", *(["time"] * (rng.random() < 0.5)), *(["note"] * (rng.random() < 0.35))]
    rng.shuffle(columns)
    bad_share = rng.choice((0, 0.05, 0.3))

    def write_field(field: str) -> str:
        needs_quotes = any(mark in field for mark in (delimiter, '"', "\n")) or rng.random() < 0.1
        is_quoted = needs_quotes and delimiter not in ("\t", "::")
        return '"' + field.replace('"', '""') + '"' if is_quoted else field

    lines = [
        delimiter.join(write_field(rng.choice((BAD if rng.random() < bad_share else POOLS)[name])) for name in columns)
        for _ in range(rng.choice(SIZES))
    ]
    good = [GOOD[name] for name in columns]
    if rng.random() < 0.3:
        several = "\n".join(rng.choices(["x", *lines], k=rng.choice((2, 2, 3))))
        lines.insert(rng.randrange(len(lines) + 1), delimiter.join([good[0], write_field(several), *good[2:]]))
    lines += [delimiter.join(good)] * (len(lines) + 3)  # most lines show the format
    places = {"time": (), **{column: str(at) for at, column in enumerate(columns, 1) if column != "note"}}
    declared = {"delimiter": delimiter} | ({} if layout == "header" else {"columns": places})
    first = columns if layout == "header" else good
    return build_case(rng, layout, [delimiter.join(first), *lines], declared, columns)


def draw_netflix(rng: random.Random) -> Case:
    lines = []
    for movie in rng.sample(range(1, 99), rng.choice((1, 2, 5))):
        ratings = (f"{rng.randrange(99)},{rng.choice(VALUES)},2004-01-01" for _ in range(4 + rng.choice(SIZES)))
        lines += [f"{movie}:", *ratings]
    for odd in rng.choices(ODD_NETFLIX, k=rng.choice((0, 0, 1, 2))):
        lines.insert(rng.randrange(1, len(lines) + 1), odd)
    return build_case(rng, "netflix", lines, {})


def draw_adjacency(rng: random.Random) -> Case:
    """Draw a log with a user and the user's items on a line, or a count and as many items of the user 'line number'."""
    layout, lines = rng.choice(("adjacency", "counted_adjacency")), []
    for _ in range(rng.choice(SIZES)):
        first, *items = (one.replace(" ", "") for one in rng.choices(IDS, k=rng.randint(1, 6)))
        count = len(items)
        if layout == "counted_adjacency":
            first = rng.choice([str(count)] * 9 + ["1_0", f"{count - 1}", "x", f"+{count}", f"0{count}"])
        lines.append(rng.choice([" ", " ", "\t", "  "]).join([first, *items]))
    return build_case(rng, layout, lines, {"layout": layout})


def draw_parquet(rng: random.Random) -> Case:
    """Draw a Parquet log with columns of several types, nulls and values that are not numbers."""
    ids = rng.choice([[*IDS, "", " ", None], [1, 7, -3, 10**15, None]])
    values = rng.choice([[5.0, 0.5, math.nan, math.inf, 2e3, None], [1, 5, None], [*VALUES, *BAD_VALUES, None]])
    pools = {"user": ids, "item": ids, "value": values, "file_row_number": [7], "user_2": [7], "filename": [7]}
    names = [name for name in rng.sample([*pools], len(pools)) if pools[name] != [7] or rng.random() < 0.3]
    more = rng.choice(SIZES)  # rows below the first, which has no nulls, so that each column has a type
    table = pl.DataFrame({name: [pools[name][0], *rng.choices(pools[name], k=more)] for name in names})
    table.write_parquet(target := io.BytesIO())
    name, content, is_cut = rng.choice(["log.parquet", "[a]*?.parquet"]), target.getvalue(), rng.random() < 0.1
    content = content[: rng.randrange(4, len(content) - 1)] if is_cut else content
    return Case("parquet", Dataset(**DECLARED), name, content, is_cut, table=table)


FORMATS = {
    "header": partial(draw_delimited, layout="header"),
    "no header": partial(draw_delimited, layout="delimited"),
    "netflix": draw_netflix,
    "adjacency": draw_adjacency,
    "parquet": draw_parquet,
}


def build_case(rng: random.Random, layout: str, lines: list[str], declared: dict, columns: Sequence[str] = ()) -> Case:
    """Build a case of some lines: damage a few, draw their ends, compress or truncate the file."""
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange("adjacency" not in layout, len(lines))  # the first line shows the format
        line, place = lines[at], rng.randrange(len(lines[at]) + 1)
        middle = rng.choice(["", line[: rng.randrange(len(line) + 1)], rng.choice(STRAY)])
        lines[at] = line[:place] + middle + rng.choice(["", line[place:], line[place + 1 :]])
    ends = rng.choice([["\n"], ["\n"], ["\r\n"], ["\r"], ["\n", "\r\n", "\r"]])
    text = "".join(line + rng.choice(ends) for line in lines)
    text = text.rstrip("\r\n") if rng.random() < 0.3 else text
    data = ("\ufeff" * (rng.random() < 0.1) + text).encode()
    if rng.random() < 0.1:
        at = rng.randrange(min(len(lines[0].encode()) + 4, len(data)), len(data) + 1)
        data = data[:at] + rng.choice([b"\xff", b"\xe9", b"\xc3", b"\xed\xa0\x80", b"\0"]) + data[at:]
    content, is_cut = data, rng.random() < 0.03
    if is_cut:
        content = gzip.compress(data)[:-5]
    elif rng.random() < 0.25:
        half = rng.randrange(len(data) + 1)
        members = rng.choice([[data], [data[:half], data[half:]]])
        content = b"".join(map(gzip.compress, members)) + bytes(rng.choice((0, 0, 1, 5, 600)))
    return Case(layout, Dataset(**DECLARED, **declared), "log.txt", content, is_cut, data, columns)


NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
DATE = re.compile(r"[ \t\n\f\r]*([1-9]\d{3})[-/](\d\d?)[-/](\d\d?)(?:[ T]+(\d\d?):(\d\d?)(?::(\d\d?))?)?", re.ASCII)
BLANKS = " \t\u00a0\u200b\u2060\ufeff"
BLANK_BEHIND_QUOTE = re.compile(r'(?<=") +(?=[,;|\n])')
Event = tuple[str, str, float, float | None]
Record = dict[str, str] | None  # the text of each role; None for a reject
TORN: Record = {}  # stands where quotes do not pair; a reader may take more of the lines below for the same field


def read_naively(case: Case) -> tuple[list[Event], int, bool]:
    """Read a case; returns the events, the number of rejected lines, and whether all quotes pair."""
    data = case.text.removeprefix("\ufeff".encode())
    text = data.decode("utf-8", errors="replace").replace("\0", "\ufffd")
    marks = {"\n"} if text.encode() == data else {"\n", "\ufffd"}
    if case.table is not None:
        records = case.table.cast(pl.String).fill_null("").rows(named=True)
    else:
        split = {"netflix": split_netflix, "adjacency": split_adjacency, "counted_adjacency": split_adjacency}
        records = list(split.get(case.layout, split_delimited)(case, re.split(r"\r\n|\r|\n", text)))
    events = [parse_event(case.dataset, one, marks) if one else one for one in records]
    return [one for one in events if one], events.count(None), TORN not in records


def parse_event(dataset: Dataset, record: dict[str, str], marks: set[str]) -> Event | None:
    """Parse a record; None if it is a reject, as one whose ids have a mark of damage is."""
    user, item = clean_id(record["user"]), clean_id(record["item"])
    text = re.sub("^ *([0-9].*)- *$", r"-\1", record.get("value", "1"))
    value = float(text) if NUMBER.fullmatch(text) else {"true": 1.0, "false": 0.0}.get(text.strip(" "), math.nan)
    time = parse_time(record.get("time", ""))
    is_missing = bool({user, item} & {"", *dataset.missing_ids}) or ("time" in record and time is None)
    if is_missing or marks & {*user, *item} or not -1000 <= value <= 1000:
        return None
    return user, item, value, time


def clean_id(text: str) -> str:
    """Drop blanks around an id, and the fraction of a whole number."""
    return re.sub(r"^(-?[0-9]+)\.0+$", r"\1", text.strip(BLANKS))


def parse_time(text: str) -> float | None:
    """Parse seconds, or parts of them, since 1970, a day without separators, or a date with a time of day."""
    parts = []
    if match := DATE.fullmatch(text.rstrip(" ")):
        parts = [int(part or 0) for part in match.groups()]
    elif NUMBER.fullmatch(text):
        number = int(Decimal(text.strip()).to_integral_value(ROUND_HALF_UP))
        for scale in (1, 10**3, 10**6, 10**9):
            if 788918400 * scale <= number < 4102444800 * scale:
                return float(text) if scale == 1 else number * 10**6 // scale / 10**6  # in whole microseconds
        parts = [number // 10**4, number // 100 % 100, number % 100] if 19e6 < number < 21e6 else []
    try:
        return datetime(*parts, tzinfo=UTC).timestamp() if parts else None
    except ValueError:
        return None


def split_delimited(case: Case, lines: list[str]) -> Iterator[Record]:
    """Split records as RFC 4180 has them, without the header."""
    lines, width = lines[case.layout == "header" :], len(case.columns)
    delimiter, quoting = case.dataset.delimiter, csv.QUOTE_MINIMAL
    if delimiter in (",", ";", "|"):
        lines = BLANK_BEHIND_QUOTE.sub("", "\n".join(lines)).split("\n")
    else:
        lines, delimiter, quoting = [line.replace(delimiter, "\x01") for line in lines], "\x01", csv.QUOTE_NONE
    source = (f"{line}\n" for line in lines)
    skips = quoting == csv.QUOTE_MINIMAL
    reader = csv.reader(source, delimiter=delimiter, quoting=quoting, strict=True, skipinitialspace=skips)
    while (first := reader.line_num) < len(lines):
        try:
            fields = next(reader)
        except csv.Error:
            fields = []
            yield TORN
        if "".join(lines[first : reader.line_num]).strip(" "):
            is_record = len(fields) >= width and not any(fields[width:])  # empty cells at the end do not count
            yield dict(zip(case.columns, fields, strict=False)) if is_record else None


def split_netflix(case: Case, lines: list[str]) -> Iterator[Record]:
    movie = 0
    for line in lines:
        user, *rest = line.split(",")
        is_header = ":" in user and not any(rest)
        header = re.fullmatch(r"[ \t\f]*([0-9]+)[ \t\f]*:[ \t\f]*", user) if is_header else None
        movie = int(header[1] if header else 0) if is_header else movie
        if not header and line.lstrip(" \t\f").strip(","):
            is_rating = movie and len(rest) >= 2 and not any(rest[2:]) and DATE.fullmatch(rest[1])
            yield {"user": user, "item": str(movie), "value": rest[0], "time": rest[1]} if is_rating else None


def split_adjacency(case: Case, lines: list[str]) -> Iterator[Record]:
    """Split a user, or the number of items, and the items of each line, in their order."""
    for number, line in enumerate(lines, 1):
        user, *items = re.split(r"[ \t]+", line.strip(" \t"))
        if case.layout == "counted_adjacency" and user:
            is_right = re.fullmatch("[0-9]+", user) and int(user) == len(items)
            user, items = (str(number), items) if is_right else ("", [""])
        yield from ({"user": user, "item": item} for item in sorted(items, key=clean_id))
