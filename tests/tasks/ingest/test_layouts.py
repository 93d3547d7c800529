"""The layouts in which people have logs: the same events from each, at once or by the lines that the refusal prints."""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import polars as pl
import pytest
from backports import zstd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.sources import SourceScanner
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import LIMITS, write_tables

Event = tuple[str, str, float, datetime | None]
EVENTS: list[Event] = [
    ("u1", "i1", 5.0, datetime(2024, 3, 31, 13, 30)),
    ("u1", "i2", 3.5, datetime(2024, 3, 31, 0, 10)),
    ("u2", "i1", 4.0, datetime(2024, 12, 24, 9, 5)),
    ("Zoë", "i3", 1.25, datetime(2023, 1, 2, 23, 59)),
]
NAMES = ("user_id", "item_id", "rating", "timestamp")


def in_rows(
    events: Sequence[Event], time: Callable[[datetime], str] = str, value: Callable[[float], str] = "{:g}".format
):
    return [(user, item, value(rating), time(when) if when else "") for user, item, rating, when in events]


def as_csv(rows, header: Sequence[str] = NAMES, delimiter: str = ",", quoting: int = csv.QUOTE_MINIMAL) -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator="\n")
    writer.writerows([header, *rows] if header else rows)
    return text.getvalue()


def write_timed(time: Callable[[datetime], str]) -> bytes:
    return as_csv(in_rows(EVENTS, time)).encode()


def format_epoch(per_second: int) -> Callable[[datetime], str]:
    return lambda when: str(int(when.replace(tzinfo=UTC).timestamp()) * per_second)


def format_strftime(text: str) -> Callable[[datetime], str]:
    return lambda when: when.strftime(text)


def in_zone(zone: str, text: str) -> Callable[[datetime], str]:
    return lambda when: when.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).strftime(text)


def as_records(**names: str) -> list[dict]:
    return [dict(zip(NAMES, row, strict=True)) for row in in_rows(EVENTS)]


def as_workbook(rows) -> bytes:
    """An .xlsx file of texts, written by hand."""

    def cell(text: str) -> str:
        return f'<c t="inlineStr"><is><t>{text}</t></is></c>'

    sheet = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    document = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    files = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="xml" '
        'ContentType="application/xml"/>'
        '<Override PartName="/xl/workbook.xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{document}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{document}"><sheets>'
        '<sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{document}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{sheet}</sheetData></worksheet>',
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def zip_content(content: bytes, name: str = "export/log.csv", **others: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file, text in {**others, name: content}.items():
            archive.writestr(file, text)
    return packed.getvalue()


def as_frame() -> pl.DataFrame:
    return pl.DataFrame(EVENTS, NAMES, orient="row")


def write_to_bytes(write: Callable[[pl.DataFrame, io.BytesIO], object]) -> bytes:
    """The bytes that a function writes of a frame of the events."""
    write(as_frame(), target := io.BytesIO())
    return target.getvalue()


def as_table(rows, rule: str, edge: str) -> str:
    """A table as clients of databases draw it, with a rule below the header, and around it all if `edge`."""
    lines = [f"{edge} {' | '.join(cell.ljust(19) for cell in row)} {edge}".strip(" ") for row in rows]
    drawn = "+".join([rule * 21] * len(rows[0]))
    drawn = f"+{drawn}+" if edge else drawn
    return "\n".join([*([drawn] if edge else []), lines[0], drawn, *lines[1:], *([drawn] if edge else [])]) + "\n"


PLAIN = as_csv(in_rows(EVENTS)).encode()
NESTED = [{"user": {"id": u}, "event": {"item": i, "count": v}, "when": w} for u, i, v, w in in_rows(EVENTS)]
LISTED = {"u1": ["i1", "i2"], "u2": ["i1"], "Zoë": ["i3"]}
APART = [(user, item, value, *time.split()) for user, item, value, time in in_rows(EVENTS)]
TITLED = [(*row, "クール") for row in in_rows(EVENTS[:3])]
DAY_FIRST, MONTH_FIRST = "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"

LAYOUTS: dict[str, bytes] = {
    "comma": PLAIN,
    "semicolon": as_csv(in_rows(EVENTS), delimiter=";").encode(),
    "tab": as_csv(in_rows(EVENTS), delimiter="\t").encode(),
    "pipe": as_csv(in_rows(EVENTS), delimiter="|").encode(),
    "double colon": "".join("::".join(row) + "\n" for row in [NAMES, *in_rows(EVENTS)]).encode(),
    "blanks": as_csv(in_rows(EVENTS, format_epoch(1)), delimiter=" ").encode(),
    "ratings.dat": "".join("::".join(row) + "\n" for row in in_rows(EVENTS, format_epoch(1))).encode(),
    "u.data": as_csv(in_rows(EVENTS, format_epoch(1)), (), "\t").encode(),
    "comma without a header": as_csv(in_rows(EVENTS), ()).encode(),
    "blanks without a header": as_csv(in_rows(EVENTS, format_epoch(1)), (), " ").encode(),
    "quotes": as_csv(in_rows(EVENTS), quoting=csv.QUOTE_ALL).encode(),
    "quotes without a header": as_csv(in_rows(EVENTS), (), quoting=csv.QUOTE_ALL).encode(),
    "other order": as_csv([row[::-1] for row in in_rows(EVENTS)], NAMES[::-1]).encode(),
    "swapped tab header": as_csv([(i, u, v, t) for u, i, v, t in in_rows(EVENTS, format_epoch(1))],
                                 ("item_id", "user_id", "rating", "timestamp"), "\t").encode(),
    "unknown names": as_csv(in_rows(EVENTS), ("reviewerID", "asin", "overall", "reviewTime")).encode(),
    "German names": as_csv(in_rows(EVENTS, format_strftime("%d.%m.%Y %H:%M"), lambda v: f"{v:g}".replace(".", ",")),
                           ("Kunde", "Artikelnummer", "Menge", "Datum"), ";").encode(),
    "unnamed index": as_csv([(str(n), *row) for n, row in enumerate(in_rows(EVENTS))], ("", *NAMES)).encode(),
    "row names of R": as_csv([(str(n), *row) for n, row in enumerate(in_rows(EVENTS))], NAMES).encode(),
    "comments": b"# exported on Monday\n# by the shop\n" + PLAIN,
    "files put together": PLAIN + PLAIN,
    "blanks beside the marks": PLAIN.replace(b",", b", "),
    "byte order mark": b"\xef\xbb\xbf" + PLAIN,
    "UTF-16": PLAIN.decode().encode("utf-16"),
    "Windows-1252": PLAIN.decode().encode("windows-1252"),
    "Shift-JIS titles": as_csv(TITLED, (*NAMES, "title")).encode("shift-jis"),
    "Big5 titles": as_csv([(*row[:4], "酷片") for row in TITLED], (*NAMES, "title")).encode("big5"),
    "GB18030 titles": as_csv([(*row[:4], "电影") for row in TITLED], (*NAMES, "title")).encode("gb18030"),
    "Latin-1 titles": as_csv([(*row[:4], "Amélie") for row in TITLED], (*NAMES, "title")).encode("latin-1"),
    "gzip": gzip.compress(PLAIN),
    "bzip2": bz2.compress(PLAIN),
    "xz": lzma.compress(PLAIN),
    "zstd": zstd.compress(PLAIN),
    "zip": zip_content(PLAIN),
    "workbook": as_workbook([NAMES, *in_rows(EVENTS)]),
    "JSON lines": "".join(json.dumps(record) + "\n" for record in as_records()).encode(),
    "nested JSON lines": "".join(json.dumps(record) + "\n" for record in NESTED).encode(),
    "JSON array": json.dumps(as_records(), indent=2).encode(),
    "decimal comma": as_csv(in_rows(EVENTS, value=lambda v: f"{v:g}".replace(".", ",")), delimiter=";").encode(),
    "seconds": write_timed(format_epoch(1)),
    "milliseconds": write_timed(format_epoch(1_000)),
    "microseconds": write_timed(format_epoch(1_000_000)),
    "nanoseconds": write_timed(format_epoch(1_000_000_000)),
    "seconds of pandas": write_timed(lambda when: format_epoch(1)(when) + ".0"),
    "d.m.y": write_timed(format_strftime("%d.%m.%Y %H:%M")),
    "d/m/y": write_timed(format_strftime(DAY_FIRST)),
    "m/d/y": write_timed(format_strftime(MONTH_FIRST)),
    "m/d/y with am and pm": write_timed(format_strftime("%m/%d/%Y %I:%M:%S %p")),
    "y/m/d": write_timed(format_strftime("%Y/%m/%d %H:%M")),
    "ISO with am and pm": write_timed(format_strftime("%Y-%m-%d %I:%M %p")),
    "ISO with T and Z": write_timed(format_strftime("%Y-%m-%dT%H:%M:%SZ")),
    "ISO with an offset": write_timed(in_zone("Asia/Tokyo", "%Y-%m-%dT%H:%M:%S%z")),
    "ISO with a zone": write_timed(lambda when: in_zone("Asia/Tokyo", "%Y-%m-%d %H:%M:%S")(when) + " Asia/Tokyo"),
    "names of months": write_timed(format_strftime("%d %b %Y %H:%M")),
    "ISO without marks": write_timed(format_strftime("%Y%m%dT%H%M%SZ")),
    "times of ctime": write_timed(format_strftime("%a %b %d %H:%M:%S %Y")),
    "delimiter for Excel": b"sep=;\r\n" + as_csv(in_rows(EVENTS), delimiter=";").replace("\n", "\r\n").encode(),
    "caret": as_csv(in_rows(EVENTS), delimiter="^").encode(),
    "tilde": as_csv(in_rows(EVENTS), delimiter="~").encode(),
    "control character": as_csv(in_rows(EVENTS), delimiter="\x01").encode(),
    "caret without a header": as_csv(in_rows(EVENTS), (), "^").encode(),
    "comma and tab": PLAIN.replace(b",", b",\t"),
    "title above the header": b"Orders of the user\nExported on Monday\n\n" + PLAIN,
    "title of a table": b"Orders of the shop,,,\n,,,\n" + PLAIN,
    "title above unknown names": b"Orders of the shop\n\n" + PLAIN.replace(b"user_id,item_id", b"Kunde,Artikel"),
    "totals at the end": PLAIN + b"Total,4,13.75,\n",
    "psql": (as_table([NAMES, *in_rows(EVENTS)], "-", "") + "(4 rows)\n\n").encode(),
    "mysql": (as_table([NAMES, *in_rows(EVENTS)], "-", "|") + "4 rows in set (0.00 sec)\n").encode(),
    "Markdown": "\n".join(as_table([NAMES, *in_rows(EVENTS)], "-", "|").replace("+", "|").split("\n")[1:-2]).encode(),
    "date and time apart": as_csv(APART, (*NAMES[:3], "date", "time")).encode(),
    "date and time in other names": as_csv(APART, ("user_id", "item_id", "qty", "order_date", "order_time")).encode(),
    "date and time without a header": as_csv(APART, (), " ").encode(),
    "empty times": as_csv([(*row[:3], "") for row in in_rows(EVENTS)]).encode(),
    "RecBole": as_csv(
        in_rows(EVENTS, format_epoch(1)), ("user_id:token", "item_id:token", "rating:float", "timestamp:float"), "\t"
    ).encode(),
    "lists behind a colon": "".join(f"{user}: {','.join(items)}\n" for user, items in LISTED.items()).encode(),
    "lists behind a tab": "".join(f"{user}\t{','.join(items)}\n" for user, items in LISTED.items()).encode(),
    "lists in a cell": "".join(f"{user},{'|'.join(items)}\n" for user, items in
                               {"user_id": ["items"], "u1": ["i1", "i2"], "u2": ["i1", "i3"]}.items()).encode(),
    "adjacency list": "".join(f"{user} {' '.join(items)}\n" for user, items in
                              {"1": ["10", "20"], "2": ["10"], "3": ["30", "10", "40"]}.items()).encode(),
    "adjacency list with commas": "".join(f"{','.join([user, *items])}\n" for user, items in LISTED.items()).encode(),
    "counted adjacency list": b"2 10 20\n1 10\n3 30 10 40\n",
    "zip of macOS": zip_content(PLAIN, **{"__MACOSX/._log.csv": b"\0\5\x16\7", ".DS_Store": b"\0"}),
    "Feather": write_to_bytes(lambda frame, target: frame.write_ipc(target, compression="zstd")),
    "Arrow stream": write_to_bytes(lambda frame, target: frame.write_ipc_stream(target)),
    "JSON object with an array": json.dumps({"shop": "x", "result": {"data": as_records()}}).encode(),
    "JSON objects over several lines": "".join(json.dumps(record, indent=2) + "\n" for record in as_records()).encode(),
    "JSON array of arrays": json.dumps(in_rows(EVENTS)).encode(),
    "arrays in JSON lines": "".join(json.dumps(row) + "\n" for row in in_rows(EVENTS)).encode(),
    "Excel's days": write_timed(lambda when: f"{(when - datetime(1899, 12, 30)) / timedelta(days=1):.8f}"),
}  # fmt: skip


PAIRS = {
    name: [(user, item, 1.0, None) for user, items in lists.items() for item in items]
    for name, lists in {
        "lists behind a colon": LISTED,
        "lists behind a tab": LISTED,
        "lists in a cell": {"u1": ["i1", "i2"], "u2": ["i1", "i3"]},
        "adjacency list": {"1": ["10", "20"], "2": ["10"], "3": ["30", "10", "40"]},
        "adjacency list with commas": LISTED,
        "counted adjacency list": {"1": ["10", "20"], "2": ["10"], "3": ["30", "10", "40"]},
    }.items()
}
"""The events of layouts without values and times."""


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., tuple[list[Event], int]]:
    """Read a log of the data set `mine`: its events and the number of its rejects."""

    def _read(content: bytes | Path, **declared: object) -> tuple[list[Event], int]:
        path = content if isinstance(content, Path) else tmp_path / "log"
        if isinstance(content, bytes):
            path.write_bytes(content)
        dataset = Dataset(name="mine", **declared)
        (scratch := tmp_path / "scratch").mkdir(exist_ok=True)
        logs = SourceScanner(dataset).scan([path])
        home = Home(tmp_path, f"mine-{len(list(tmp_path.iterdir()))}", LIMITS)
        write_tables(home)
        with warehouse.open_warehouse(home) as connection:
            connection.begin()
            load_logs(connection, list(enumerate(logs, 1)), scratch, dataset)
            connection.commit()
            events = connection.execute(
                "select user_id, item_id, value, occurred_at from raw.events order by line_number"
            )
            return events.fetchall(), connection.execute("select count(*) from raw.rejects").fetchone()[0]

    return _read


def printed_toml(message: str) -> dict:
    """The lines for the data set's file in a refusal: its second paragraph."""
    return tomllib.loads(message.split("\n\n")[1])


def read_with_advice(read, content: bytes) -> tuple[list[Event], int, dict]:
    """Read a log with nothing declared, then with what each refusal prints, which is returned too."""
    declared: dict = {}
    for _ in range(3):
        try:
            return *read(content, max_reject_share=1, **declared), declared
        except InputError as error:
            declared |= printed_toml(str(error))
    raise AssertionError(f"refused three times: {declared}")


def documented_layouts() -> dict[str, str]:
    """The table of the page on layouts: how each is read."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "layouts.md").read_text(encoding="utf-8")
    table = page.split("\n## ")[0].splitlines()
    rows = [re.split(r" (?<!\\)\| ", row.strip("| ")) for row in table if row.startswith("| ")]
    return {name: how for name, _, how in rows[1:]}


def test_the_page_on_layouts_has_a_row_for_each():
    found = documented_layouts()
    assert list(found) == list(LAYOUTS)
    assert sum(how == "✓" for how in found.values()) == 66


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_read_at_once_or_by_the_lines_of_its_refusal(read, name):
    if name == "Windows-1252":  # rejected lines, not the first, show that it is no UTF-8
        events, rejects = read(LAYOUTS[name], encoding="windows-1252")
    else:
        events, rejects, declared = read_with_advice(read, LAYOUTS[name])
        keys = [f"`[{key}]`" if isinstance(value, dict) else f"`{key}`" for key, value in declared.items()]
        assert documented_layouts()[name] == (", ".join(keys) or "✓")
    expected = {"files put together": EVENTS * 2, "empty times": [(*event[:3], None) for event in EVENTS]}.get(name)
    expected = expected or PAIRS.get(name) or (EVENTS[:3] if "titles" in name else EVENTS)
    if name == "Excel's days":
        events = [(*row, when + timedelta(seconds=30)) for *row, when in events]
        events = [(user, item, value, when.replace(second=0, microsecond=0)) for user, item, value, when in events]
    assert (events, rejects) == (expected, 0)


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Tokyo"])
def test_instants_in_parquet_do_not_depend_on_the_zone_of_the_process(read, tmp_path, monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    path = tmp_path / "log.parquet"
    duckdb.execute(
        "copy (select 17850.0 as user_id, 'i' as item_id, timestamptz '2025-06-15 15:12:11+00' as timestamp union all "
        f"select 'nan'::double, 'i', timestamptz '2025-06-15 15:12:11+00') to '{path}'"
    )
    assert read(path) == ([("17850", "i", 1.0, datetime(2025, 6, 15, 15, 12, 11))], 1)


@pytest.mark.parametrize("column", ["[1, 2]", "{'a': 1}", "'x'::blob"])
def test_a_nested_or_binary_id_is_refused_by_name_and_type(read, tmp_path, column):
    path = tmp_path / "log.parquet"
    duckdb.execute(f"copy (select 1 as user_id, {column} as item_id) to '{path}'")
    with pytest.raises(InputError, match="column item_id of the item has the type"):
        read(path)


@pytest.mark.parametrize("missing", ["NA", "NaN", "NULL", "None", r"\N", "<NA>", ""])
def test_a_missing_id_that_is_spelt_out_names_nobody(read, missing):
    content = as_csv([("u", "i"), (missing, "i"), ("u", missing)], ("user_id", "item_id")).encode()
    assert read(content) == ([("u", "i", 1.0, None)], 2)
    if missing:
        assert read(content, missing_ids=())[1] == 0


def test_whole_floats_are_the_ids_that_they_stand_for(read):
    events, _ = read(b"user_id,item_id\n17850.0,85\n17850,85.0\n1.5,v1.0\n")
    assert [event[:2] for event in events] == [("17850", "85"), ("17850", "85"), ("1.5", "v1.0")]


@pytest.mark.parametrize(
    "time", ["2024-03-31 09:00:00 garbage", "2024-03-31 09:00:00 XY", "2024-02-30", "12", "31.12.2024"]
)
def test_what_follows_a_time_is_not_ignored(read, time):
    rows = [("u", "i", "2024-03-31 09:00:00")] * 3 + [("u", "i", time)]
    assert read(as_csv(rows, ("user_id", "item_id", "timestamp")).encode())[1] == 1


def test_text_without_a_zone_is_in_the_zone_of_the_data_set(read):
    rows = [("u", "i", "2024-07-01 12:00"), ("u", "i", "2024-01-01T12:00:00Z")]
    events, _ = read(as_csv(rows, ("user_id", "item_id", "timestamp")).encode(), timezone="Europe/Berlin")
    assert [event[3] for event in events] == [datetime(2024, 7, 1, 10), datetime(2024, 1, 1, 12)]


@pytest.mark.parametrize(
    "times",
    [
        ("1/2/2024", "3/4/2024"),
        ("1/2/2024 10:00", "3/4/2024 1:02:03 PM"),
        ("2020", "2021"),
        ("1", "2"),
        ("45292", "45293"),
    ],
)
def test_times_that_may_be_several_things_are_asked_for(read, times):
    content = as_csv([("u", "i", time) for time in times], ("user_id", "item_id", "timestamp")).encode()
    with pytest.raises(InputError, match="time_format = ") as refusal:
        read(content)
    assert len(read(content, **printed_toml(str(refusal.value)))[0]) == 2


@pytest.mark.parametrize(
    ("header", "lacking"),
    [
        ("item_id\tuser_id\tprice\ttimestamp", "value"),
        ("order_id\tcustomer_id\tquantity\tts", "item"),
        ("store\tsku\tqty\tunix", "user or value"),
        ("a\tb\tc\td", "user or item"),
    ],
)
def test_a_header_never_falls_through_to_positions(read, header, lacking):
    with pytest.raises(InputError, match=f"known as {lacking}"):
        read(f"{header}\nsku27\tcust98\t58\t1700000000\nsku1\tcust66\t70\t1700000060\n".encode())


def test_items_listed_in_a_cell_or_an_array_are_events_of_their_own(read):
    expected = [("u1", "a"), ("u1", "b"), ("u2", "c")]
    events, rejects = read(b"user_id,item_id\nu1,a|b\nu2,c\nu3,\n", item_separator="|")
    assert ([event[:2] for event in events], rejects) == (expected, 1)
    lines = [{"user_id": "u1", "items": [{"sku": "a"}, {"sku": "b"}]}, {"user_id": "u2", "items": [{"sku": "c"}]}]
    content = "".join(json.dumps(line) + "\n" for line in [*lines, {"user_id": "u3", "items": []}]) + '{"user_id": \n'
    events, rejects = read(content.encode(), columns={"item": ("items.sku",), "value": ()})
    assert ([event[:2] for event in events], rejects) == (expected, 2)


ID = st.text("abcXYZ0189é_-", min_size=1, max_size=6).filter(lambda text: text not in Dataset(name="x").missing_ids)
TIMES = {
    "%Y-%m-%d %H:%M:%S": (), "%Y-%m-%dT%H:%M:%SZ": (), "%d.%m.%Y %H:%M:%S": (), "%m/%d/%Y %I:%M:%S %p": "%m/%d/%Y "
        "%I:%M:%S %p",
}  # fmt: skip
PACKINGS = {
    "": bytes,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zip": zip_content,
    "zstd": zstd.compress,
}


@pytest.mark.slow
@pytest.mark.parametrize("packing", PACKINGS)
def test_a_large_json_array_is_read_however_it_is_packed(read, tmp_path, packing):
    records = [{"user_id": f"u{n % 97}", "item_id": f"i{n}", "rating": n % 5} for n in range(30_000)]
    records[20_000]["user_id"] = ""
    content = PACKINGS[packing](json.dumps(records).encode())
    events, rejects = read(content)
    expected = [(record["user_id"], record["item_id"], record["rating"]) for record in records if record["user_id"]]
    assert ([event[:3] for event in events], rejects) == (expected, 1)
    if packing:
        (tmp_path / "cut").write_bytes(content[: len(content) // 2])
        with pytest.raises(InputError, match="cut: the (compressed file|zip archive) is cut short or damaged"):
            read(tmp_path / "cut")


@pytest.mark.slow
@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(ID, ID, st.integers(1, 5).map(float),
                            st.datetimes(datetime(1991, 1, 1), datetime(2090, 1, 1))),
                  min_size=1, max_size=8),
    delimiter=st.sampled_from(",;|\t"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    time=st.sampled_from(sorted(TIMES)),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
    packing=st.sampled_from(sorted(PACKINGS)),
    order=st.permutations(range(4)),
    line_end=st.sampled_from(["\n", "\r\n"]),
)  # fmt: skip
def test_any_mixture_of_layouts_agrees_with_what_was_written(
    read, rows, delimiter, quoting, time, encoding, packing, order, line_end
):
    events = [(user, item, value, when.replace(microsecond=0)) for user, item, value, when in rows]
    quoting = csv.QUOTE_MINIMAL if delimiter == "\t" else quoting
    ordered = [[row[at] for at in order] for row in in_rows(events, format_strftime(time))]
    text = as_csv(ordered, [NAMES[at] for at in order], delimiter, quoting).replace("\n", line_end)
    declared = {
        "time_format": TIMES[time],
        "encoding": "latin-1" if encoding == "latin-1" else "",
        "max_future_days": 1_000_000,
    }
    assert read(PACKINGS[packing](text.encode(encoding)), **declared) == (events, 0)
