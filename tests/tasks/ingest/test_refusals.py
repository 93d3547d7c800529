"""What a refused log is told: the role that is lacking, what was found, and lines to paste that make it read."""

import tomllib
import zipfile

import duckdb
import pytest

from oneclass.data_contracts import ContractBroken
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.stage import ingest
from tests.conftest import query_rows

ROWS = "Müller;Käse;1\nJörg;Wurst;1\nÄnne;Öl;2\n" * 10
PASTED = {
    "an encoding": (("user;item;value\n" + ROWS).encode("cp1252"), 30, ("Müller", "Käse", 1.0)),
    "an encoding and columns": (("顧客,商品\n" + "山田,りんご\n" * 9).encode("shift_jis"), 9, ("山田", "りんご", 1.0)),
    "one umlaut in all lines": (
        ("Kunde;Artikel;Menge\n" + "Käufer;Tee;2\n" * 30).encode("cp1252"),
        30,
        ("Käufer", "Tee", 2.0),
    ),
    "UTF-16 without a mark": ("user,item\na,x\nb,y\n".encode("utf-16-le"), 2, ("a", "x", 1.0)),
    "big-endian UTF-16 without a mark": ("user,item\na,x\nb,y\n".encode("utf-16-be"), 2, ("a", "x", 1.0)),
    "words as values": (b"user,item,rating\n" + b"a,x,good\n" * 9, 9, ("a", "x", 1.0)),
    "times in words": (b"user,item,value,time\n" + b"a,x,2,today\n" * 9, 9, ("a", "x", 2.0)),
    "rejects": (b"user,item\n" + b"a,x\n" * 8 + b"b,\n" * 2, 8, ("a", "x", 1.0)),
    "ids that look like missing ones": (b"user,item\n" + b"NA,x\n" * 9, 9, ("NA", "x", 1.0)),
    "a list as user": (b'{"user": ["a"], "who": "b", "item": "x", "value": 2}\n', 1, ("b", "x", 2.0)),
    "names without a header": (b"anna,apple\nbob,pear\n", 2, ("anna", "apple", 1.0)),
}


def parse_advice(message: str) -> dict:
    """The lines of a message that are TOML; of two choices the last."""
    found: dict = {}
    for paragraph in message.split("\n\n"):
        try:
            found |= tomllib.loads(paragraph)
        except tomllib.TOMLDecodeError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", PASTED)
def test_the_lines_of_a_refusal_make_the_log_read(home, tmp_path, name):
    content, events, first = PASTED[name]
    (path := tmp_path / "log.csv").write_bytes(content)
    with pytest.raises((InputError, ContractBroken)) as refusal:
        ingest(home, Dataset(name="small"), [path], "run")
    assert str(path) in str(refusal.value).splitlines()[0]
    pasted = parse_advice(str(refusal.value))
    if name == "names without a header":
        del pasted["columns"]  # the other choice
    if name == "times in words":
        del pasted["time_format"]
    if name == "an encoding and columns":
        del pasted["fields"]
    ingest(home, Dataset(name="small", **pasted), [path], "again")
    found = query_rows(home, "select user_id, item_id, value from raw.events order by line_number")
    assert (len(found), found[0]) == (events, first)


@pytest.mark.parametrize(
    "content, said",
    [
        (b"user,item,rating,date\na,x,5,01/02/2024\nb,y,5,03/04/2024\n", "column date: its times may name the day or"),
        (b"user;item;rating;x\na;x;1,500;\nb;y;2,250;\n", "column rating: a value such as 1,500 may have"),
        (b"<!DOCTYPE html>\n<html><body>Not found</body></html>\n", "is a page of HTML or XML"),
        (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", "is a PDF document"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
            "the workbook cannot be read (Cannot detect file format). Save",
        ),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(60), "is a picture. Name a log"),
    ],
)
def test_a_refusal_says_what_was_found(home, tmp_path, content, said):
    (path := tmp_path / "log").write_bytes(content)
    with pytest.raises(InputError) as refusal:
        ingest(home, Dataset(name="small"), [path], "run")
    assert str(path) in str(refusal.value) and said in str(refusal.value)


def test_an_empty_zip_is_said_to_be_one(home, tmp_path):
    zipfile.ZipFile(path := tmp_path / "log.zip", "w").close()
    with pytest.raises(InputError, match="is a zip archive without a file"):
        ingest(home, Dataset(name="small"), [path], "run")


def test_a_header_whose_names_suggest_roles_is_not_taken_for_data(home, tmp_path):
    (path := tmp_path / "log").write_text("kunde;artikel\nanna;apfel\n")
    with pytest.raises(InputError) as refusal:
        ingest(home, Dataset(name="small"), [path], "run")
    assert "If line 1 is no header" not in str(refusal.value)


@pytest.mark.parametrize("item", ["{'id': 'x', 'n': 1}", "['x']", "'x'::blob"])
def test_the_statement_for_a_nested_column_writes_a_copy_that_is_read(home, tmp_path, item):
    duckdb.sql(f"select 'a' as user, {item} as item").write_parquet(str(path := tmp_path / "log.parquet"))
    with pytest.raises(InputError, match="the column item of the item has the type") as refusal:
        ingest(home, Dataset(name="small"), [path], "run")
    duckdb.sql(str(refusal.value).split("\n\n")[1])
    assert ingest(home, Dataset(name="small"), [tmp_path / "log_flat.parquet"], "again").events == 1
    assert query_rows(home, "select user_id, item_id from raw.events") == [("a", "x")]
