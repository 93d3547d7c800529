"""The layouts in which people have logs: the same events from each, at once, by roles, or by a query."""

import bz2
import contextlib
import csv
import gzip
import io
import json
import lzma
import re
import zipfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import pytest
from backports import zstd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.query import land_query
from oneclass.tasks.ingest.sources import scan_logs
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


def in_rows(events: Sequence[Event], time: Callable[[datetime], str] = str, decimal: str = ".") -> list[tuple]:
    return [
        (user, item, f"{value:g}".replace(".", decimal), time(when) if when else "")
        for user, item, value, when in events
    ]


def write_csv(
    rows: Sequence[Sequence[str]], header: Sequence[str] = NAMES, delimiter: str = ",", quoting: int = csv.QUOTE_MINIMAL
) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator="\n")
    writer.writerows([header, *rows] if header else rows)
    return text.getvalue().encode()


def count_since_1970(per_second: int) -> Callable[[datetime], str]:
    return lambda when: str(int(when.replace(tzinfo=UTC).timestamp()) * per_second)


def as_workbook(rows: Sequence[Sequence[str]]) -> bytes:
    """An .xlsx file of texts, written by hand."""
    cells = ("".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in row) for row in rows)
    sheet = "".join(f"<row>{row}</row>" for row in cells)
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    relations = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    part = f'{relations}<Relationship Id="r1" Type="{office}/{{}}" Target="{{}}"/></Relationships>'
    files = {
        "_rels/.rels": part.format("officeDocument", "xl/workbook.xml"),
        "xl/_rels/workbook.xml.rels": part.format("worksheet", "worksheets/sheet1.xml"),
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
        '<sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{sheet}</sheetData></worksheet>',
    }
    return write_zip(files)


def write_zip(files: dict[str, bytes | str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def write_json(rows: Sequence, indent: int | None = None) -> bytes:
    """One value of JSON after the other."""
    return "".join(json.dumps(row, indent=indent) + "\n" for row in rows).encode()


def write_lists(lists: dict[str, list[str]], between: str, comma: str) -> bytes:
    """A user and the user's items on a line."""
    return "".join(f"{user}{between}{comma.join(items)}\n" for user, items in lists.items()).encode()


def draw_table(rule: str, edge: str, end: str = "") -> bytes:
    """A table of the events as clients of databases draw it."""
    lines = [f"{edge} {' | '.join(cell.ljust(19) for cell in row)} {edge}".strip(" ") for row in [NAMES, *ROWS]]
    return "\n".join([lines[0], rule, *lines[1:], end]).encode()


ROWS = in_rows(EVENTS)
IN_SECONDS = in_rows(EVENTS, count_since_1970(1))
PLAIN = write_csv(ROWS)
RECORDS = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
NESTED = [{"who": {"id": user}, "what": {"item": item, "count": value}, "day": day} for user, item, value, day in ROWS]
APART = [(*row[:3], *row[3].split()) for row in ROWS]
INDEXED = [(str(number), *row) for number, row in enumerate(ROWS)]
LISTED = {"u1": ["i1", "i2"], "u2": ["i1"], "Zoë": ["i3"]}
NUMBERED = {"1": ["10", "20"], "2": ["10"], "3": ["30", "10", "40"]}
BY_NUMBER = {"columns": {"user": 1, "item": 2, "value": 3, "time": 4}}
TEXTS = "names = ['user_id', 'items'], header = false, all_varchar = true"
SPLIT = "select user_id, unnest(string_split(items, ',')) as item_id"
LINES = "unnest(string_split(trim(content, chr(10)), chr(10)))"
ARRAYS = "select json->>0 as user_id, json->>1 as item_id, json->>2 as value, json->>3 as occurred_at from "
# fmt: off
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "caret": "^", "tilde": "~",
              "control character": "\x01"}
TITLES = {"shift-jis": "クール", "big5": "酷片", "gb18030": "电影", "latin-1": "Amélie"}
PACKINGS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd.compress,
            "zip": lambda content: write_zip({"export/log.csv": content})}
TIMES = {
    "seconds": count_since_1970(1), "milliseconds": count_since_1970(1000), "microseconds": count_since_1970(10**6),
    "nanoseconds": count_since_1970(10**9), "seconds of pandas": lambda when: count_since_1970(1)(when) + ".0",
    "d.m.y": "{:%d.%m.%Y %H:%M}", "d/m/y": "{:%d/%m/%Y %H:%M}", "m/d/y": "{:%m/%d/%Y %H:%M}",
    "m/d/y with am and pm": "{:%m/%d/%Y %I:%M:%S %p}", "y/m/d": "{:%Y/%m/%d %H:%M}",
    "ISO with am and pm": "{:%Y-%m-%d %I:%M %p}", "ISO with T and Z": "{:%Y-%m-%dT%H:%M:%SZ}",
    "ISO without marks": "{:%Y%m%dT%H%M%SZ}", "names of months": "{:%d %b %Y %H:%M}",
    "times of ctime": "{:%a %b %d %H:%M:%S %Y}",
}
TIMES_OF_TOKYO = {
    "ISO with an offset": "{:%Y-%m-%dT%H:%M:%S%z}", "ISO with an offset behind a blank": "{:%Y-%m-%d %H:%M:%S %z}",
    "ISO with a zone": "{:%Y-%m-%d %H:%M:%S Asia/Tokyo}", "times of mail": "{:%a, %d %b %Y %H:%M:%S %z}",
    "times of Twitter": "{:%a %b %d %H:%M:%S %z %Y}",
}
# fmt: on
IN_TOKYO = [(*event[:3], event[3].replace(tzinfo=UTC).astimezone(ZoneInfo("Asia/Tokyo"))) for event in EVENTS]
LAYOUTS: dict[str, bytes | tuple[bytes, dict | str]] = {
    **{name: write_csv(ROWS, delimiter=delimiter) for name, delimiter in DELIMITERS.items()},
    "double colon": "".join("::".join(row) + "\n" for row in [NAMES, *ROWS]).encode(),
    "blanks": write_csv(IN_SECONDS, delimiter=" "),
    "comma and tab": PLAIN.replace(b",", b",\t"),
    "blanks beside the marks": PLAIN.replace(b",", b", "),
    "ratings.dat": "".join("::".join(row) + "\n" for row in IN_SECONDS).encode(),
    "u.data": write_csv(IN_SECONDS, (), "\t"),
    "comma without a header": (write_csv(ROWS, ()), BY_NUMBER),
    "blanks without a header": (write_csv(IN_SECONDS, (), " "), BY_NUMBER),
    "caret without a header": (write_csv(ROWS, (), "^"), BY_NUMBER),
    "quotes without a header": (write_csv(ROWS, (), quoting=csv.QUOTE_ALL), BY_NUMBER),
    "quotes": write_csv(ROWS, quoting=csv.QUOTE_ALL),
    "quotes over several lines": write_csv([(*row, 'a "note"\n\nof, lines') for row in ROWS], (*NAMES, "note")),
    "other order": write_csv([row[::-1] for row in ROWS], NAMES[::-1]),
    "swapped tab header": write_csv([(i, u, v, t) for u, i, v, t in IN_SECONDS], (*NAMES[1::-1], *NAMES[2:]), "\t"),
    "unknown name of the time": (write_csv(ROWS, ("reviewerID", "asin", "overall", "reviewTime")),
                                 {"columns": {"time": "reviewTime"}}),
    "unknown name of the value": (PLAIN.replace(b"rating", b"Sterne"), {"columns": {"value": "Sterne"}}),
    "German names": write_csv(in_rows(EVENTS, "{:%d.%m.%Y %H:%M}".format, ","),
                              ("Kunde", "Artikelnummer", "Menge", "Datum"), ";"),
    "Spanish names": write_csv(ROWS, ("ID-Cliente", "Producto", "Cantidad", "Fecha")),
    "RecBole": write_csv(IN_SECONDS, ("user_id:token", "item_id:token", "rating:float", "timestamp:float"), "\t"),
    "names in other letters": write_csv(ROWS, ("USER-ID", "Item ID", "RATING", "Timestamp")),
    "lines of Windows": PLAIN.replace(b"\n", b"\r\n"),
    "lines of old Macs": PLAIN.replace(b"\n", b"\r"),
    "unnamed index": write_csv(INDEXED, ("", *NAMES)),
    "row names of R": (write_csv(INDEXED), {"row_names": True}),
    "comments": (b"# exported on Monday\n# by the shop\n" + PLAIN, "from read_csv('log', skip = 2)"),
    "delimiter for Excel": (b"sep=;\r\n" + write_csv(ROWS, delimiter=";").replace(b"\n", b"\r\n"),
                            "from read_csv('log', skip = 1)"),
    "files put together": PLAIN + PLAIN,
    "totals at the end": PLAIN + b"Total,4,13.75,\n",
    "title above the header": (b"Orders of the user\nExported on Monday\n\n" + PLAIN, "from read_csv('log', skip = 3)"),
    "title of a table": (b"Orders of the shop,,,\n,,,\n" + PLAIN, "from read_csv('log', skip = 2)"),
    "title above unknown names": (b"Orders of the shop\n\n" + PLAIN.replace(b"user_id,item_id", b"Nr,Was"),
                                  "select * rename (Nr as user_id, Was as item_id) from read_csv('log', skip = 2)"),
    "byte order mark": b"\xef\xbb\xbf" + PLAIN,
    "UTF-16": PLAIN.decode().encode("utf-16"),
    "Windows-1252": (PLAIN.decode().encode("windows-1252"), {"encoding": "windows-1252"}),
    **{name: pack(PLAIN) for name, pack in PACKINGS.items()},
    **{name: write_csv(in_rows(EVENTS, time if callable(time) else time.format)) for name, time in TIMES.items()},
    **{name: write_csv(in_rows(IN_TOKYO, time.format)) for name, time in TIMES_OF_TOKYO.items()},
    **{f"titles in {code}": write_csv([(*row, title) for row in ROWS[:3]], (*NAMES, "title")).decode().encode(code)
       for code, title in TITLES.items()},
    "zip of macOS": write_zip({"__MACOSX/._log.csv": b"\0\5\x16\7", ".DS_Store": b"\0", "log.csv": PLAIN}),
    "workbook": as_workbook([NAMES, *ROWS]),
    "JSON lines": write_json(RECORDS),
    "JSON array": (json.dumps(RECORDS, indent=2).encode(), "from read_json('log')"),
    "JSON objects over several lines": (write_json(RECORDS, indent=2), "from read_json('log')"),
    "nested JSON lines": (write_json(NESTED), "select who.id as user_id, what.item as item_id, what.count as value, "
                          + "day as occurred_at from read_json('log')"),
    "JSON object with an array": (json.dumps({"shop": "x", "result": {"data": RECORDS}}).encode(),
                                  "select unnest(result.data, recursive := true) from read_json('log')"),
    "JSON array of arrays": (json.dumps(ROWS).encode(), ARRAYS + "(select unnest(from_json(content, '[\"JSON\"]')) as "
                             "json from read_text('log'))"),
    "arrays in JSON lines": (write_json(ROWS), f"{ARRAYS} (select {LINES}::json as json from read_text('log'))"),
    "decimal comma": write_csv(in_rows(EVENTS, decimal=","), delimiter=";"),
    "Excel's days": (write_csv(in_rows(EVENTS, lambda at: f"{(at - datetime(1899, 12, 30)) / timedelta(1):.8f}")),
                     "select * replace (date_trunc('second', timestamp '1899-12-30' + to_milliseconds(("
                     + "timestamp * 86400000 + 500)::bigint)) as timestamp) from read_csv('log')"),
    "empty times": (write_csv([(*row[:3], "") for row in ROWS]), {"columns": {"time": []}}),
    "date and time apart": (write_csv(APART, (*NAMES[:3], "date", "time")), {"columns": {"time": ["date", "time"]}}),
    "date and time in other names": (write_csv(APART, (*NAMES[:3], "order_date", "order_time")),
                                     {"columns": {"time": ["order_date", "order_time"]}}),
    "date and time without a header": (write_csv(APART, (), " "),
                                       {"columns": {"user": 1, "item": 2, "value": 3, "time": [4, 5]}}),
    "psql": draw_table("-+-+-", "", "(4 rows)\n"),
    "mysql": (b"+-+-+-+-+\n" + draw_table("+-+-+-+-+", "|", "+-+-+-+-+\n4 rows in set (0.00 sec)\n"),
              {"columns": {"user": 2, "item": 3, "value": 4, "time": 5}}),
    "Markdown": draw_table("|-|-|-|-|", "|"),
    "lists behind a colon": (write_lists(LISTED, ": ", ","), f"{SPLIT} from read_csv('log', delim = ': ', {TEXTS})"),
    "lists behind a tab": (write_lists(LISTED, "\t", ","), f"{SPLIT} from read_csv('log', delim = '\t', {TEXTS})"),
    "lists in a cell": (b"user_id,items\n" + write_lists(LISTED, ",", "|"), SPLIT.replace("','", "'|'")
                        + " from read_csv('log', header = true)"),
    "lists in a field of JSON": (write_json([{"user_id": user, "items": items} for user, items in LISTED.items()]),
                                 "select user_id, unnest(items) as item_id from read_json('log')"),
    "column for each item": (
        b"user_id,i1,i2,i3\nu1,5,3.5,\nu2,4,,\nZo\xc3\xab,,,1.25\n",
        "select user_id, name as item_id, value from (unpivot (from read_csv('log')) on columns(* exclude user_id))",
    ),
    "adjacency list": write_lists(NUMBERED, " ", " "),
    "list with commas": (write_lists(LISTED, ",", ","), "select cells[1] as user_id, unnest(cells[2:]) as item_id "
                         + f"from (select string_split({LINES}, ',') as cells from read_text('log'))"),
    "counted adjacency list": (b"2 10 20\n1 10\n3 30 10 40\n", {"layout": "counted_adjacency"}),
}  # fmt: skip
REJECTS = {"totals at the end": 1, "psql": 2, "Markdown": 1, "mysql": 5}
"""Lines of some layouts that are no events."""


def expect_events(name: str) -> list[Event]:
    lists = NUMBERED if "adjacency" in name else LISTED if "list" in name else {}
    pairs = [(user, item, 1.0, None) for user, items in lists.items() for item in items]
    if name in ("empty times", "column for each item"):
        pairs = [(*event[:3], None) for event in EVENTS]
    return pairs or (EVENTS * 2 if "together" in name else EVENTS[:3] if name.startswith("titles") else EVENTS)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory):
    home = Home(tmp_path_factory.mktemp("var"), "mine", LIMITS)
    write_tables(home)
    with warehouse.open_warehouse(home) as opened:
        yield opened


@pytest.fixture
def read(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> Callable[..., tuple[list[Event], int]]:
    """Read a log of the data set `mine`: its events and the number of its rejects."""

    def _read(content: bytes | Path, query: str = "", **declared: object) -> tuple[list[Event], int]:
        path = content if isinstance(content, Path) else tmp_path / "log"
        if isinstance(content, bytes):
            path.write_bytes(content)
        source = {"query": query, "file": str(tmp_path / "mine.toml")} if query else None
        dataset = Dataset(name="mine", source=source, **declared)
        if dataset.source:
            land_query(home := Home(tmp_path, "mine", LIMITS), dataset, dataset.source)
            path = home.landing
        logs = scan_logs([path], dataset)
        connection.begin()
        try:
            load_logs(connection, list(enumerate(logs, 1)), tmp_path, dataset)
            events = "select user_id, item_id, value, occurred_at from raw.events order by line_number"
            rejects = "select count(*) from raw.rejects"
            return connection.execute(events).fetchall(), warehouse.fetch_row(connection, rejects)[0]
        finally:
            connection.rollback()

    return _read


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_read_right_or_refused_until_its_roles_or_a_query_are_stated(read, name):
    layout, meant = LAYOUTS[name], (expect_events(name), REJECTS.get(name, 0))
    if isinstance(layout, bytes):
        assert read(layout) == meant
        return
    content, how = layout
    with contextlib.suppress(InputError):
        events, rejects = read(content)
        assert set(events) <= set(meant[0]) and rejects
    events, rejects = read(content, query=how) if isinstance(how, str) else read(content, **how)
    assert (sorted(events, key=str), rejects) == (sorted(meant[0], key=str), meant[1])


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Tokyo"])
def test_instants_in_parquet_do_not_depend_on_the_zone_of_the_process(read, tmp_path, monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    path = tmp_path / "log.parquet"
    duckdb.execute(
        "copy (select 17850.0 as user_id, 'i' as item_id, timestamptz '2025-06-15 15:12:11+00' as timestamp union all "
        f"select 'nan'::double, 'i', timestamptz '2025-06-15 15:12:11+00') to '{path}'"
    )
    assert read(path) == ([("17850", "i", 1.0, datetime(2025, 6, 15, 15, 12, 11))], 1)


@pytest.mark.parametrize("column", ["[1, 2]", "{'a': 1}"])
def test_a_nested_id_is_refused_by_its_column(read, tmp_path, column):
    path = tmp_path / "log.parquet"
    duckdb.execute(f"copy (select 1 as user_id, {column} as item_id) to '{path}'")
    with pytest.raises(InputError, match="column item_id: has several values in a cell"):
        read(path)


@pytest.mark.parametrize("missing", ["NA", "NaN", "NULL", "None", r"\N", "<NA>", ""])
def test_a_missing_id_that_is_spelt_out_names_nobody(read, missing):
    content = write_csv([("u", "i"), (missing, "i"), ("u", missing)], NAMES[:2])
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
    assert read(write_csv(rows, ("user_id", "item_id", "timestamp")))[1] == 1


def test_text_without_a_zone_is_in_the_zone_of_the_data_set(read):
    rows = [("u", "i", "2024-07-01 12:00"), ("u", "i", "2024-01-01T12:00:00Z")]
    events, _ = read(write_csv(rows, ("user_id", "item_id", "timestamp")), timezone="Europe/Berlin")
    assert [event[3] for event in events] == [datetime(2024, 7, 1, 10), datetime(2024, 1, 1, 12)]


@pytest.mark.parametrize(
    ("first", "last", "time_format"),
    [
        ("1/2/2024", "3/4/2024", "%d/%m/%Y"),
        ("1/2/2024 10:00", "3/4/2024 1:02:03 PM", "%m/%d/%Y"),
        ("2020", "2021", "%Y"),
        ("230000000", "250000000", "s"),
    ],
)
def test_times_that_may_be_several_things_are_asked_for(read, first, last, time_format):
    content = write_csv([("u", "i", first), ("u", "i", last)], ("user_id", "item_id", "timestamp"))
    with pytest.raises(InputError, match="time_format = "):
        read(content)
    assert len(read(content, time_format=time_format)[0]) == 2


@pytest.mark.parametrize(
    ("header", "question"),
    [
        ("item_id\tuser_id\tseen\tprice", "Is price, or another column, the value"),
        ("user_id\titem_id\tbegan\trating", "Is began, or another column, the time"),
        ("order_id\tcustomer_id\tts\tquantity", "Which column is the item"),
        ("a\tb\tc\td", "Which column is the user and which the item"),
        ("user_id\tmovie_id\titem_id\td", "Which column is the item"),
    ],
)
def test_a_header_never_falls_through_to_positions(read, header, question):
    with pytest.raises(InputError, match=re.escape(question)):
        read(f"{header}\nsku27\tcust98\t2024-01-01\t58\nsku1\tcust66\t2024-01-02\t70\n".encode())


ID = st.text("abcXYZ0189é_-", min_size=1, max_size=6).filter(lambda text: text not in Dataset(name="x").missing_ids)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(ID, ID, st.integers(1, 5).map(float),
                            st.datetimes(datetime(1991, 1, 1), datetime(2090, 1, 1))),
                  min_size=1, max_size=8),
    delimiter=st.sampled_from(",;|\t"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    time=st.sampled_from(["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
    pack=st.sampled_from([bytes, *PACKINGS.values()]),
    order=st.permutations(range(4)),
    line_end=st.sampled_from([b"\n", b"\r\n"]),
)  # fmt: skip
def test_any_mixture_of_layouts_agrees_with_what_was_written(
    read, rows, delimiter, quoting, time, encoding, pack, order, line_end
):
    events = [(user, item, value, when.replace(microsecond=0)) for user, item, value, when in rows]
    quoting = csv.QUOTE_MINIMAL if delimiter == "\t" else quoting
    ordered = [[row[at] for at in order] for row in in_rows(events, lambda when: when.strftime(time))]
    text = write_csv(ordered, [NAMES[at] for at in order], delimiter, quoting).replace(b"\n", line_end).decode()
    declared = {"time_format": time if "%p" in time else (), "max_future_days": 1_000_000}
    declared["encoding"] = "latin-1" if encoding == "latin-1" else ""
    assert read(pack(text.encode(encoding)), **declared) == (events, 0)
