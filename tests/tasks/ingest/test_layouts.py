"""The layouts in which people have logs: the same events from each, at once, by roles, or by a query."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import duckdb
import pytest
from backports import zstd

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.load import load_logs
from oneclass.tasks.ingest.query import land_query
from oneclass.tasks.ingest.sources import scan_logs
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home
from tests.conftest import LIMITS, write_tables
from tests.tasks.ingest.conftest import write_file

EVENTS = [
    ("u1", "i1", 5.0, datetime(2024, 3, 31, 13, 30)),
    ("u1", "i2", 3.5, datetime(2024, 3, 31, 0, 10)),
    ("u2", "i1", 4.0, datetime(2024, 12, 24, 9, 5)),
    ("Zoë", "i3", 1.25, datetime(2023, 1, 2, 23, 59)),
]
NAMES = ("user_id", "item_id", "rating", "timestamp")


def in_rows(time: Callable[[datetime], str] = str, decimal: str = ".", hours: int = 0) -> list[tuple[str, ...]]:
    later = timedelta(hours=hours)
    return [(user, item, f"{value:g}".replace(".", decimal), time(when + later)) for user, item, value, when in EVENTS]


def write_csv(rows: Iterable[Sequence[str]], header: Sequence[str] = NAMES, delimiter: str = ",") -> str:
    return "".join(f"{delimiter.join(row)}\n" for row in [header, *rows] if row)


def write_json(rows: Iterable[object], indent: int | None = None) -> str:
    return "".join(f"{json.dumps(row, indent=indent)}\n" for row in rows)


def write_zip(files: dict[str, bytes | str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def as_workbook(*sheets: Iterable[Sequence[str]]) -> bytes:
    """An .xlsx file of texts, written by hand."""
    formats = "http://schemas.openxmlformats.org"
    main, office = f"{formats}/spreadsheetml/2006/main", f"{formats}/officeDocument/2006/relationships"
    head, link = f'<Relationships xmlns="{formats}/package/2006/relationships">', f'Type="{office}/'
    links = (f'<Relationship Id="r{at}" {link}worksheet" Target="worksheets/{at}.xml"/>' for at in range(len(sheets)))
    named = "".join(f'<sheet name="s{at}" sheetId="{at + 1}" r:id="r{at}"/>' for at in range(len(sheets)))
    parts = {
        "_rels/.rels": f'{head}<Relationship Id="r" {link}officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/_rels/workbook.xml.rels": f"{head}{''.join(links)}</Relationships>",
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{named}</sheets></workbook>',
    }
    for at, rows in enumerate(sheets):
        cells = ("".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in row) for row in rows)
        data = f"<sheetData>{''.join(f'<row>{row}</row>' for row in cells)}</sheetData>"
        parts[f"xl/worksheets/{at}.xml"] = f'<worksheet xmlns="{main}">{data}</worksheet>'
    return write_zip(parts)


ROWS = in_rows()
IN_SECONDS = in_rows(lambda when: f"{(when - datetime(1970, 1, 1)).total_seconds():.0f}")
PLAIN = write_csv(ROWS)
RECORDS = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
NESTED = [{"who": {"id": user}, "what": {"sku": item, "value": value}, "date": day} for user, item, value, day in ROWS]
APART = [(*row[:3], *row[3].split()) for row in ROWS]
INDEXED = [(str(number), *row) for number, row in enumerate(ROWS)]
PADDED = write_csv([[cell.ljust(19) for cell in row] for row in [NAMES, *ROWS]], (), " | ")
EDGED = re.sub("^(.+)$", r"| \1 |", PADDED, flags=re.MULTILINE)
RULE = "+-+-+-+-+\n"
LISTED = {"u1": ["i1", "i2"], "u2": ["i1"], "Zoë": ["i3"]}
LISTS = "u1,i1|i2\nu2,i1\nZoë,i3\n"
NUMBERED = {"1": ["10", "20"], "2": ["10"], "3": ["30", "10", "40"]}
BY_NUMBER = {"columns": {"user": 1, "item": 2, "value": 3, "time": 4}}
TEXTS = "names = ['user_id', 'items'], header = false, all_varchar = true"
SPLIT = "select user_id, unnest(string_split(items, '|')) as item_id from"
LINES = "unnest(string_split(trim(content, chr(10)), chr(10)))"
ARRAYS = "select json->>0 as user_id, json->>1 as item_id, json->>2 as value, json->>3 as occurred_at from"
DELIMITERS = [",", ";", "\t", "|", "^", "~", "\x01", "::", ",\t", ", "]
TITLES = {"shift-jis": "クール", "big5": "酷片", "gb18030": "电影", "latin-1": "Amélie"}
PACKINGS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd.compress,
            "zip": lambda content: write_zip({"__MACOSX/._a": b"\0", ".DS_Store": b"\0", "x/a": content})}  # fmt: skip
UNITS = {"seconds": "", "milliseconds": "0" * 3, "microseconds": "0" * 6, "nanoseconds": "0" * 9, "pandas": ".0"}
TIMES = ["%d.%m.%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%m/%d/%Y %I:%M:%S %p", "%Y/%m/%d %H:%M",
         "%Y-%m-%d %I:%M %p", "%Y-%m-%dT%H:%M:%SZ", "%d %b %Y %H:%M", "%d-%m-%Y %H:%M", '"%b %d, %Y, %I:%M %p"',
         "%y-%m-%d %H:%M", "%d.%m.%y %H:%M", "%Y%m%d %H%M%S", '"%Y-%m-%d %H:%M:%S,000"']  # fmt: skip
STATED_TIMES = ["%Y%m%dT%H%M%SZ", "%a %b %d %H:%M:%S %Y"]
TIMES_OF_TOKYO = ["%Y-%m-%dT%H:%M:%S+0900", "%Y-%m-%d %H:%M:%S +0900", "%Y-%m-%d %H:%M:%S Asia/Tokyo",
                  '"%a, %d %b %Y %H:%M:%S +0900"', "%a %b %d %H:%M:%S +0900 %Y"]  # fmt: skip
LAYOUTS: dict[str, str | bytes | tuple[str | bytes, dict | str]] = {
    **{f"delimiter {mark!r}": write_csv(ROWS, delimiter=mark) for mark in DELIMITERS},
    "blanks": write_csv(IN_SECONDS, delimiter=" "),
    "ratings.dat": write_csv(IN_SECONDS, (), "::"),
    "u.data": write_csv(IN_SECONDS, (), "\t"),
    "comma without a header": (write_csv(ROWS, ()), BY_NUMBER),
    "blanks without a header": (write_csv(IN_SECONDS, (), " "), BY_NUMBER),
    "caret without a header": (write_csv(ROWS, (), "^"), BY_NUMBER),
    "quotes without a header": (re.sub(r"[^,\n]+", r'"\g<0>"', write_csv(ROWS, ())), BY_NUMBER),
    "quotes": re.sub(r"[^,\n]+", r'"\g<0>"', PLAIN),
    "quotes over several lines": write_csv([(*row, '"a ""note""\n\nof, lines"') for row in ROWS], (*NAMES, "note")),
    "other order": write_csv([row[::-1] for row in ROWS], NAMES[::-1]),
    "swapped tab header": write_csv([(i, u, v, t) for u, i, v, t in IN_SECONDS], (*NAMES[1::-1], *NAMES[2:]), "\t"),
    "unknown name of the time": (PLAIN.replace("timestamp", "seen"), {"columns": {"time": "seen"}}),
    "unknown name of the value": (PLAIN.replace("rating", "Sterne"), {"columns": {"value": "Sterne"}}),
    "German names": write_csv(in_rows("{:%d.%m.%Y %H:%M}".format, decimal=","),
                              ("Kunde", "Artikelnummer", "Menge", "Datum"), ";"),
    "Spanish names": write_csv(ROWS, ("ID-Cliente", "Producto", "Cantidad", "Fecha")),
    "RecBole": write_csv(IN_SECONDS, ("user_id:token", "item_id:token", "rating:float", "timestamp:float"), "\t"),
    "names in other letters": write_csv(ROWS, ("USER-ID", "Item ID", "RATING", "Timestamp")),
    "lines of Windows": PLAIN.replace("\n", "\r\n"),
    "lines of old Macs": PLAIN.replace("\n", "\r"),
    "unnamed index": write_csv(INDEXED, ("", *NAMES)),
    "row names of R": (write_csv(INDEXED), {"row_names": True}),
    "comments": ("# exported on Monday\n# by the shop\n" + PLAIN, "from read_csv('log', skip = 2)"),
    "delimiter for Excel": ("sep=,\r\n" + PLAIN.replace("\n", "\r\n"), "from read_csv('log', skip = 1)"),
    "files put together": PLAIN + PLAIN,
    "totals at the end": PLAIN + "Total,4,13.75,\n",
    "title above the header": ("Orders of the user\nExported on Monday\n\n" + PLAIN, "from read_csv('log', skip = 3)"),
    "title of a table": ("Orders of the shop,,,\n,,,\n" + PLAIN, "from read_csv('log', skip = 2)"),
    "title above unknown names": ("Orders of the shop\n\n" + PLAIN.replace("user_id,item_id", "Nr,Was"),
                                  "select * rename (Nr as user_id, Was as item_id) from read_csv('log', skip = 2)"),
    "comments above unknown names": ("# by a tool\n\n" + write_csv(ROWS, ("user_id", *"abc"), "\t"),
                                     "select user_id, a as item_id, b as value, c as occurred_at "
                                     + "from read_csv('log', skip = 2)"),
    "quotes between tabs": re.sub(r"[^\t\n]+", r'"\g<0>"', write_csv(ROWS, delimiter="\t")),
    "byte order mark": "\ufeff" + PLAIN,
    "UTF-16": PLAIN.encode("utf-16"),
    "Windows-1252": (PLAIN.encode("windows-1252"), {"encoding": "windows-1252"}),
    **{name: pack(PLAIN.encode()) for name, pack in PACKINGS.items()},
    **{name: write_csv((*row[:3], row[3] + end) for row in IN_SECONDS) for name, end in UNITS.items()},
    **{time: write_csv(in_rows(f"{{:{time}}}".format)) for time in TIMES},
    **{time: (write_csv(in_rows(f"{{:{time}}}".format)), {"time_format": time}) for time in STATED_TIMES},
    **{time: write_csv(in_rows(f"{{:{time}}}".format, hours=9)) for time in TIMES_OF_TOKYO},
    **{f"titles in {code}": write_csv([(*row, title) for row in ROWS[:3]], (*NAMES, "title")).encode(code)
       for code, title in TITLES.items()},
    "workbook": as_workbook([NAMES, *ROWS]),
    "workbook of several sheets": as_workbook([NAMES, *ROWS[:3]], [], [NAMES, *ROWS[3:]]),
    "JSON lines": write_json(RECORDS),
    "JSON array": (json.dumps(RECORDS, indent=2), "from read_json('log')"),
    "JSON objects over several lines": (write_json(RECORDS, indent=2), "from read_json('log')"),
    "nested JSON lines": (write_json(NESTED), "select who.id as user_id, what.*, date from read_json('log')"),
    "JSON object with an array": (json.dumps({"shop": "x", "result": {"data": RECORDS}}),
                                  "select unnest(result.data, recursive := true) from read_json('log')"),
    "JSON array of arrays": (json.dumps(ROWS), f"{ARRAYS} (select unnest(from_json(content, '[\"JSON\"]')) as json "
                             + "from read_text('log'))"),
    "arrays in JSON lines": (write_json(ROWS), f"{ARRAYS} (select {LINES}::json as json from read_text('log'))"),
    "decimal comma": write_csv(in_rows(decimal=","), delimiter=";"),
    "Excel's days": (write_csv(in_rows(lambda at: f"{(at - datetime(1899, 12, 30)) / timedelta(1):.8f}")),
                     "select * replace (timestamp '1899-12-30' + to_seconds(round(timestamp * 86400)) as timestamp) "
                     + "from read_csv('log')"),
    "empty times": (write_csv((*row[:3], "") for row in ROWS), {"columns": {"time": []}}),
    "date and time apart": (write_csv(APART, (*NAMES[:3], "date", "time")), {"columns": {"time": ["date", "time"]}}),
    "date and time without a header": (write_csv(APART, (), " "), {"columns": BY_NUMBER["columns"] | {"time": [4, 5]}}),
    "psql": PADDED.replace("\n", "\n-+-+-+-\n", 1) + "(4 rows)\n",
    "mysql": (RULE + EDGED.replace("\n", "\n" + RULE, 1) + RULE + "4 rows in set (0.00 sec)\n",
              {"columns": {"user": 2, "item": 3, "value": 4, "time": 5}}),
    "Markdown": EDGED.replace("\n", "\n|-|-|-|-|\n", 1),
    "lists behind a colon": (LISTS.replace(",", ": "), f"{SPLIT} read_csv('log', delim = ': ', {TEXTS})"),
    "lists behind a tab": (LISTS.replace(",", "\t"), f"{SPLIT} read_csv('log', delim = '\t', {TEXTS})"),
    "lists in a cell": ("user_id,items\n" + LISTS, f"{SPLIT} read_csv('log', header = true)"),
    "lists in a field of JSON": (write_json({"user_id": user, "items": items} for user, items in LISTED.items()),
                                 "select user_id, unnest(items) as item_id from read_json('log')"),
    "column for each item": ("user_id,i1,i2,i3\nu1,5,3.5,\nu2,4,,\nZoë,,,1.25\n", "select user_id, name as item_id, "
                             + "value from (unpivot (from read_csv('log')) on columns(* exclude user_id))"),
    "adjacency list": "1 10 20\n2 10\n3 30 10 40\n",
    "list with commas": (LISTS.replace("|", ","), "select cells[1] as user_id, unnest(cells[2:]) as item_id "
                         + f"from (select string_split({LINES}, ',') as cells from read_text('log'))"),
    "counted adjacency list": ("2 10 20\n1 10\n3 30 10 40\n", {"layout": "counted_adjacency"}),
}  # fmt: skip
REJECTS = {"totals at the end": 1, "psql": 2, "Markdown": 1, "mysql": 5}  # lines that are no events


def expect_events(name: str) -> list[tuple]:
    lists = NUMBERED if "adjacency" in name else LISTED if "list" in name else {}
    pairs: list[tuple] = [(user, item, 1.0, None) for user, items in lists.items() for item in items]
    if name in ("empty times", "column for each item"):
        pairs = [(*event[:3], None) for event in EVENTS]
    return pairs or (EVENTS * 2 if "together" in name else EVENTS[:3] if name.startswith("titles") else [*EVENTS])


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory):
    """Read a log of the data set `mine`: its events and the number of its rejects."""
    write_tables(home := Home(tmp_path_factory.mktemp("var"), "mine", LIMITS))

    def _read(content: str | bytes, query: str = "", **declared: object) -> tuple[list[tuple], int]:
        path = write_file(tmp_path_factory.mktemp("log") / "log", content)
        dataset = Dataset(name="mine", source={"query": query, "file": str(path)} if query else None, **declared)
        if dataset.source:
            land_query(beside := Home(path.parent, "mine", LIMITS), dataset, dataset.source)
            path = beside.landing
        connection.begin()
        try:
            load_logs(connection, list(enumerate(scan_logs([path], dataset), 1)), home.root, dataset)
            events = connection.sql("select user_id, item_id, value, occurred_at from raw.events order by line_number")
            return events.fetchall(), len(connection.sql("from raw.rejects"))
        finally:
            connection.rollback()

    with warehouse.open_warehouse(home) as connection:
        yield _read


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_read_right_or_refused_until_its_roles_or_a_query_are_stated(read, name):
    layout, meant, rejected = LAYOUTS[name], expect_events(name), REJECTS.get(name, 0)
    if not isinstance(layout, tuple):
        assert read(layout) == (meant, rejected)
        return
    content, how = layout
    with contextlib.suppress(InputError):
        events, rejects = read(content)
        assert set(events) <= set(meant) and rejects
    events, rejects = read(content, query=how) if isinstance(how, str) else read(content, **how)
    assert (sorted(events, key=str), rejects) == (sorted(meant, key=str), rejected)


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Tokyo"])
def test_instants_in_parquet_do_not_depend_on_the_zone_of_the_process(read, tmp_path, monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    path = tmp_path / "log.parquet"
    time = "timestamptz '2025-06-15 15:12:11+00' as timestamp"
    duckdb.execute(f"copy (select unnest([17850, 'nan'::double]) as user_id, 'i' as item_id, {time}) to '{path}'")
    assert read(path.read_bytes()) == ([("17850", "i", 1.0, datetime(2025, 6, 15, 15, 12, 11))], 1)


PAIRS, TIMED = "user_id,item_id\n", "user_id,item_id,timestamp\n"
SPELT = ["NA", "NaN", "NULL", "None", r"\N", "<NA>"]
CELLS = {  # content, what is declared, users, items and times of the events; each other line is a reject
    "missing ids": (PAIRS + "u,i\n,i\nu,\n" + "".join(f"{one},i\nu,{one}\n" for one in SPELT), {}, ["u i"]),
    "no missing ids": (PAIRS + ",i\n".join([*SPELT, ""]), {"missing_ids": ()}, [f"{one} i" for one in SPELT]),
    "whole floats": (PAIRS + "17850.0,85\n17850,85.0\n1.5,v1.0\n", {}, ["17850 85", "17850 85", "1.5 v1.0"]),
    "no times": (TIMED + "u,i,2024-03-31 09:00\n" * 15 + "u,i,2024-03-31 09:00 garbage\nu,i,2024-03-31 09:00 XY\n"
                 + "u,i,2024-02-30\nu,i,12\nu,i,31.12.2024\n", {}, ["u i 2024-03-31 09:00:00"] * 15),
    "a zone": (TIMED + "u,i,2024-07-01 12:00\nu,i,2024-01-01T12:00Z\n", {"timezone": "Europe/Berlin"},
               ["u i 2024-07-01 10:00:00", "u i 2024-01-01 12:00:00"]),
    "day first": (TIMED + "u,i,3/4/2024\n", {"time_format": "%d/%m/%Y"}, ["u i 2024-04-03 00:00:00"]),
    "month first": (TIMED + "u,i,1/2/2024 10:00\nu,i,3/4/2024 1:02:03 PM\n", {"time_format": "%m/%d/%Y"},
                    ["u i 2024-01-02 10:00:00", "u i 2024-03-04 13:02:03"]),
    "hours": (TIMED + "u,i,2024-03-31 9\n", {}, ["u i 2024-03-31 09:00:00"]),
    "years": (TIMED + "u,i,2021\n", {"time_format": "%Y"}, ["u i 2021-01-01 00:00:00"]),
    "early seconds": (TIMED + "u,i,250000000\n", {"time_format": "s"}, ["u i 1977-12-03 12:26:40"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
def test_cells_are_read_as_declared_and_times_that_may_be_several_are_asked_for(read, name):
    content, declared, meant = CELLS[name]
    if "time_format" in declared:
        with pytest.raises(InputError, match="time_format = "):
            read(content)
    events, rejects = read(content, **declared)
    assert [" ".join(map(str, filter(None, (user, item, time)))) for user, item, _, time in events] == meant
    assert rejects == content.count("\n") - 1 - len(meant)
