"""Hostile logs: small ones of every format, with lines, bytes and files damaged at random."""

import gzip
import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from oneclass.tasks.datasets import Dataset

OWN = {"title": "A log of the fuzzer's", "max_reject_share": 1.0, "value_min": -1000.0, "value_max": 1000.0}
IDS = ["u1", "7", "0007", "é", "日本", "a b", "x-y", "a'b", "5_0", "1e3", "NULL", "nan", "\U0001f600", "x" * 300]
VALUES = ["1", "5", "3.5", "0", "-2", "4.0", "1e2", "999.5"]
BAD_VALUES = ["", "inf", "-Infinity", "nan", "1e400", "5_0", "0x5", "+5", " 5", "5 ", ".5", "5.", "--5", "5,0", "five",
              "٥", "1e", "1001", "-1000.5", "1 000", "5e-1", "true", "1e999999999999"]  # fmt: skip
TIMES = ["1000000000", "0", "2004-01-01", "2004-02-29", "2004-01-01 10:11:12", "253402300799"]
BAD_TIMES = [
    "",
    "yesterday",
    "2004-02-30",
    "2004-13-01",
    "1_000",
    "0x10",
    "infinity",
    "99999999999999999999",
    "2003-02-29",
]
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
        odd = [
            "12:ab",
            ":",
            "1_0:",
            " 7 :",
            "9",
            "9,4",
            "9,4,2004-02-30",
            "9,4,infinity",
            " ,4,2004-01-01",
            "9,5_0,2004-01-01",
        ]
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
    content = target.getvalue()[: draw.randrange(4, target.record_trial() - 1)] if cut else target.getvalue()
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
        at = draw.randrange(layout == "netflix", len(lines))  # the first header tells Netflix's format
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
