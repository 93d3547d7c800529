"""Hostile logs made from a seed, and a naive reader of them that shares no code with ours.

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

OWN = {"title": "A log of the fuzzer's", "max_reject_share": 1.0, "value_min": -1000.0, "value_max": 1000.0,
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
    """One input: its bytes, and what the oracle is to know of it.

    Attributes:
        layout: delimited, netflix, adjacency, counted_adjacency or parquet.
        content: the file as it is written.
        text: the bytes of the log before they were packed; empty for Parquet.
        table: the rows of a Parquet log.
        refused: no reader can read the file as a whole.
    """

    layout: str
    dataset: Dataset
    name: str
    content: bytes
    text: bytes = b""
    table: pl.DataFrame | None = None
    refused: bool = False


def delimited(draw: random.Random) -> Case:
    """CSV, TSV and their kin with a header, columns in any order, others between them, some fields in quotes."""
    delimiter = draw.choice(",,;|\t")
    columns = [
        "user",
        "item",
        "value",
        *(["timestamp"] if draw.random() < 0.5 else []),
        *(["note"] * (draw.random() < 0.4)),
    ]
    draw.shuffle(columns)
    pools = {
        "user": IDS,
        "item": IDS,
        "value": VALUES,
        "timestamp": TIMES,
        "note": ["", "good", "not so, good", "x|y;z"],
    }
    lines = [_fields(draw, [draw.choice(pools[column]) for column in columns], delimiter) for _ in range(_size(draw))]
    bad = {"value": BAD_VALUES, "timestamp": BAD_TIMES, "user": ["", " ", '"'], "item": ["", "  ", "\u3000"]}
    for _ in range(draw.choice((0, 1, 1, 3))):
        row = [draw.choice(pools[column]) for column in columns]
        place = draw.randrange(len(columns))
        row[place] = draw.choice(bad.get(columns[place], ["note"]))
        lines.insert(draw.randrange(len(lines) + 1), _fields(draw, row, delimiter))
    if draw.random() < 0.3 and delimiter != "\t":  # a field over several lines
        field = "\n".join(draw.choice(["x", *lines]).replace('"', '""') for _ in range(draw.choice((2, 2, 3))))
        lines.insert(
            draw.randrange(len(lines) + 1), _fields(draw, ["a", f"\0{field}", "5"], delimiter).replace("\0", "")
        )
    lines += [delimiter.join(GOOD[column] for column in columns)] * (len(lines) + 3)  # the form is that of most lines
    declared = {"columns": {"value": ("value",)}} if draw.random() < 0.5 else {"delimiter": delimiter}
    return _packed(draw, "delimited", declared, lines, header=delimiter.join(columns))


def _fields(draw: random.Random, row: Sequence[str], delimiter: str) -> str:
    def spelt(field: str) -> str:
        if delimiter == "\t":
            return field.replace("\t", " ")
        needs = any(one in field for one in (delimiter, '"', "\n", "\0"))
        return '"' + field.replace('"', '""') + '"' if needs or draw.random() < 0.1 else field

    return delimiter.join(map(spelt, row))


def without_header(draw: random.Random) -> Case:
    """Fields in places that the data set's file declares."""
    delimiter = draw.choice(["::", "\t", "|", ","])
    roles = ["user", "item", "value", *(["time"] if draw.random() < 0.6 else []), *(["-"] * (draw.random() < 0.3))]
    draw.shuffle(roles)
    pools = {"user": IDS, "item": IDS, "value": VALUES + BAD_VALUES[:2], "time": TIMES + BAD_TIMES[:2], "-": ["", "?"]}
    lines = [delimiter.join(draw.choice(pools[role]) for role in roles) for _ in range(_size(draw))]
    good = delimiter.join(GOOD[role] for role in roles)
    lines = [good, *lines, *[good] * (len(lines) + 3)]
    return _packed(draw, "delimited", {"delimiter": delimiter, "fields": tuple(roles)}, lines)


def netflix(draw: random.Random) -> Case:
    """Ratings below the headers of their films."""
    lines = []
    for movie in draw.sample(range(1, 99), draw.choice((1, 2, 5))):
        lines += [
            f"{movie}:",
            *(f"{draw.randrange(99)},{draw.choice(VALUES)},2004-01-01" for _ in range(4 + _size(draw))),
        ]
    for _ in range(draw.choice((0, 0, 1, 2))):
        odd = ["12:ab", ":", "1_0:", " 7 :", "9", "9,4",
               "9,4,2004-02-30", "9,4,infinity", " ,4,2004-01-01", "9,5_0,2004-01-01"]  # fmt: skip
        lines.insert(draw.randrange(1, len(lines) + 1), draw.choice(odd))
    return _packed(draw, "netflix", {}, lines)


def adjacency(draw: random.Random) -> Case:
    """A user and the user's items on a line; or a count and as many items, the line's number being the user."""
    counted, lines = draw.random() < 0.5, []
    for _ in range(_size(draw)):
        items = [draw.choice(IDS).replace(" ", "") for _ in range(draw.randrange(6))]
        first = draw.choice(IDS).replace(" ", "")
        if counted:
            first = draw.choice([str(len(items))] * 9 + ["1_0", "-1", "x", f"+{len(items)}", f"0{len(items)}"])
        lines.append(draw.choice([" ", " ", "\t", "  "]).join([first, *items]))
    layout = "counted_adjacency" if counted else "adjacency"
    return _packed(draw, layout, {"layout": layout, "value_min": None, "value_max": None}, lines)


def parquet(draw: random.Random) -> Case:
    """Columns of several types, with nulls and values that are no numbers."""
    rows = _size(draw)
    kind = draw.choice([pl.String, pl.Int64])
    ids = [*IDS, "", " ", None] if kind == pl.String else [1, 7, -3, 10**15, None]
    values = draw.choice(
        [[5.0, 0.5, float("nan"), float("inf"), 2e3, None], [1, 5, None], [*VALUES, *BAD_VALUES, None]]
    )
    frame = {
        "user": pl.Series([draw.choice(ids) for _ in range(rows)], dtype=kind),
        "item": pl.Series([draw.choice(ids) for _ in range(rows)], dtype=kind),
        "value": pl.Series([draw.choice(values) for _ in range(rows)]),
    }
    for name in ("file_row_number", "user_2", "filename"):
        if draw.random() < 0.3:
            frame[name] = pl.Series([7] * rows)
    names = list(frame)
    draw.shuffle(names)
    table = pl.DataFrame({name: frame[name] for name in names})
    if table["value"].dtype == pl.Null:
        table = table.with_columns(pl.col("value").cast(pl.Float64))
    table.write_parquet(target := io.BytesIO())
    cut = draw.random() < 0.1
    content = target.getvalue()[: draw.randrange(4, target.tell() - 1)] if cut else target.getvalue()
    name = draw.choice(["log.parquet", "item=7/log.parquet", "[a]*?.parquet"])
    return Case("parquet", Dataset(name="own", **OWN), name, content, table=table, refused=cut)


FORMATS: dict[str, Callable[[random.Random], Case]] = {
    "header": delimited,
    "no header": without_header,
    "netflix": netflix,
    "adjacency": adjacency,
    "parquet": parquet,
}


def _size(draw: random.Random) -> int:
    return draw.choice((1, 2, 5, 12, 40))


def _packed(draw: random.Random, layout: str, declared: dict, lines: list[str], header: str | None = None) -> Case:
    """A case of these lines: some damaged, their ends chosen, the file packed or cut."""
    for _ in range(draw.choice((0, 0, 1, 2))):
        if not lines:
            break
        at = draw.randrange(layout == "netflix" or "fields" in declared, len(lines))  # the first line shows the format
        lines[at] = _damaged(draw, lines[at])
    head = [header] if header else []
    ends = draw.choice([["\n"], ["\n"], ["\r\n"], ["\r"], ["\n", "\r\n", "\r"]])
    text = "".join(line + draw.choice(ends) for line in [*head, *lines])
    if draw.random() < 0.3:
        text = text.rstrip("\r\n")
    data = ("\ufeff" * (draw.random() < 0.1) + text).encode()
    if draw.random() < 0.1 and lines:
        at = draw.randrange(min(len((header or lines[0]).encode()) + 4, len(data)), len(data) + 1)
        data = data[:at] + draw.choice([b"\xff", b"\xe9", b"\xc3", b"\xed\xa0\x80"]) + data[at:]
    refused = draw.random() < 0.03
    if refused:
        data += b"\0"
    content, name = data, "log.txt"
    if draw.random() < 0.25:
        half = draw.randrange(len(data) + 1)
        content = draw.choice([gzip.compress(data), gzip.compress(data[:half]) + gzip.compress(data[half:])])
        content += bytes(draw.choice((0, 0, 1, 5, 600)))
        if draw.random() < 0.1:
            content, refused = gzip.compress(data)[:-5], True
    return Case(layout, Dataset(name="own", **{**OWN, **declared}), name, content, data, refused=refused)


def _damaged(draw: random.Random, line: str) -> str:
    at = draw.randrange(len(line) + 1)
    match draw.randrange(4):
        case 0:
            return line[:at] + line[at + 1 :]
        case 1:
            return line[:at]
        case 2:
            return line[:at] + line[: draw.randrange(len(line) + 1)] + line[at:]
    return line[:at] + draw.choice(STRAY) + line[at:]


NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
DATE = re.compile(r"\s*([1-9]\d{3})[-/](\d\d?)[-/](\d\d?)(?:[ T]+(\d\d?):(\d\d?)(?::(\d\d?))?)?\s*", re.ASCII)
MOVIE = re.compile(r"\s*([0-9]+)\s*:\s*", re.ASCII)
Event = tuple[int, str, str, float, float | None]
Outcome = list[Event] | None  # None: a reject; an empty list: a blank line


def read_naively(case: Case) -> tuple[list[Event], list[int]]:
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
        if case.layout == "delimited":  # damage counts in the ids
            yield None if damaged and outcome and "\ufffd" in outcome[0][1] + outcome[0][2] else outcome
        else:
            yield None if damaged and "\ufffd" in line and line.strip() else outcome


def _delimited(case: Case, lines: list[str]) -> Iterator[Outcome]:
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
    spoilt = _several(lines, delimiter) if quoted else set()
    for at in range(first, len(lines)):
        if not lines[at].strip(" ") or (first and lines[at] == lines[0]):
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
    user, item = (re.sub(r"^(-?[0-9]+)\.0+$", r"\1", named[side].strip(" ")) for side in ("user", "item"))
    missing = case.dataset.missing_ids if case.layout in ("delimited", "parquet") else ()
    if {user, item} & {"", *missing}:
        return None
    value = _value(case, named.get("value", "1"))
    time = _time(named["time"]) if "time" in named else None
    if value is None or ("time" in named and time is None):
        return None
    return [(number, user, item, value, time)]


def _value(case: Case, text: str) -> float | None:
    if not NUMBER.fullmatch(text) or not math.isfinite(value := float(text)):
        return None
    low, high = case.dataset.value_min, case.dataset.value_max
    return value if (low is None or low <= value) and (high is None or value <= high) else None


def _time(text: str) -> float | None:
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
