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


def write_json(rows: Iterable[object]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


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
APART = [(*row[:3], *row[3].split()) for row in ROWS]
INDEXED = [(str(number), *row) for number, row in enumerate(ROWS)]
BY_NUMBER = {"columns": {"user": 1, "item": 2, "value": 3, "time": 4}}
DELIMITERS = [",", ";", "\t", "|", "^", "~", "\x01", "::", ",\t", ", "]
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
    "u.data": write_csv(IN_SECONDS, (), "\t"),
    "blanks without a header": (write_csv(IN_SECONDS, (), " "), BY_NUMBER),
    "quotes over several lines": write_csv([(*row, '"a ""note""\n\nof, lines"') for row in ROWS], (*NAMES, "note")),
    "unknown name of the time": (PLAIN.replace("timestamp", "seen"), {"columns": {"time": "seen"}}),
    "German names": write_csv(in_rows("{:%d.%m.%Y %H:%M}".format, decimal=","),
                              ("Kunde", "Artikelnummer", "Menge", "Datum"), ";"),
    "RecBole": write_csv(IN_SECONDS, ("user_id:token", "item_id:token", "rating:float", "timestamp:float"), "\t"),
    "unnamed index": write_csv(INDEXED, ("", *NAMES)),
    "row names of R": (write_csv(INDEXED), {"row_names": True}),
    "delimiter for Excel": ("sep=,\r\n" + PLAIN.replace("\n", "\r\n"), "from read_csv('log', skip = 1)"),
    "files put together": PLAIN + PLAIN,
    "totals at the end": PLAIN + "Total,4,13.75,\n",
    "title above the header": ("Orders of the user\nExported on Monday\n\n" + PLAIN, "from read_csv('log', skip = 3)"),
    "quotes between tabs": re.sub(r"[^\t\n]+", r'"\g<0>"', write_csv(ROWS, delimiter="\t")),
    "Windows-1252": (PLAIN.encode("windows-1252"), {"encoding": "windows-1252"}),
    **{name: pack(PLAIN.encode()) for name, pack in PACKINGS.items()},
    **{name: write_csv((*row[:3], row[3] + end) for row in IN_SECONDS) for name, end in UNITS.items()},
    **{time: write_csv(in_rows(f"{{:{time}}}".format)) for time in TIMES},
    **{time: (write_csv(in_rows(f"{{:{time}}}".format)), {"time_format": time}) for time in STATED_TIMES},
    **{time: write_csv(in_rows(f"{{:{time}}}".format, hours=9)) for time in TIMES_OF_TOKYO},
    "workbook of several sheets": as_workbook([NAMES, *ROWS[:3]], [], [NAMES, *ROWS[3:]]),
    "JSON lines": write_json(RECORDS),
    "JSON array": (json.dumps(RECORDS, indent=2), "from read_json('log')"),
    "Excel's days": (write_csv(in_rows(lambda at: f"{(at - datetime(1899, 12, 30)) / timedelta(1):.8f}")),
                     "select * replace (timestamp '1899-12-30' + to_seconds(round(timestamp * 86400)) as timestamp) "
                     + "from read_csv('log')"),
    "empty times": (write_csv((*row[:3], "") for row in ROWS), {"columns": {"time": []}}),
    "date and time apart": (write_csv(APART, (*NAMES[:3], "date", "time")), {"columns": {"time": ["date", "time"]}}),
    "column for each item": ("user_id,i1,i2,i3\nu1,5,3.5,\nu2,4,,\nZoë,,,1.25\n", "select user_id, name as item_id, "
                             + "value from (unpivot (from read_csv('log')) on columns(* exclude user_id))"),
    "adjacency list": "1 10 20\n2 10\n3 30 10 40\n",
}  # fmt: skip


def expect_events(name: str) -> list[tuple]:
    if name == "adjacency list":
        return [(*pair.split(), 1.0, None) for pair in ("1 10", "1 20", "2 10", "3 30", "3 10", "3 40")]
    if name in ("empty times", "column for each item"):
        return [(*event[:3], None) for event in EVENTS]
    return EVENTS * 2 if name == "files put together" else EVENTS


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
    layout, meant, rejected = LAYOUTS[name], expect_events(name), int("totals" in name)
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
    "years": (TIMED + "u,i,2021\n", {"time_format": "%Y"}, ["u i 2021-01-01 00:00:00"]),
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
