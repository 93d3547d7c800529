"""What a refused log is told: the role that is lacking, what was found, and lines to paste that make it read."""

import shutil
import tomllib

import pytest

from oneclass.data_contracts import ContractBroken
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.preview import preview_logs
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
    "rejects": (b"user,item\n" + b"a,x\n" * 8 + b"b,\n" * 2, 8, ("a", "x", 1.0)),
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
        (b"<!DOCTYPE html>\n<html><body>Not found</body></html>\n", "Convert it to CSV or Parquet"),
        (b"user_id,item_id,user_id\nu1,i1,x\n", "two columns are called user_id"),
        (b"user_id,item_id\nu1,\"['i1', 'i2']\"\n", "column item_id: has lists, such as ['i1', 'i2']. Write a line"),
        (b'{"user_id": "u1", "item_id"', "is not whole JSON"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
            "the workbook cannot be read (Cannot detect file format). Save",
        ),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(60), "is NUL. Convert it to CSV or Parquet"),
    ],
)
def test_a_refusal_says_what_was_found(home, tmp_path, content, said):
    (path := tmp_path / "log").write_bytes(content)
    with pytest.raises(InputError) as refusal:
        ingest(home, Dataset(name="small"), [path], "run")
    assert str(path) in str(refusal.value) and said in str(refusal.value)


def test_a_header_whose_names_suggest_roles_is_not_taken_for_data(home, tmp_path):
    (path := tmp_path / "log").write_text("kunde;artikel\nanna;apfel\n")
    with pytest.raises(InputError) as refusal:
        ingest(home, Dataset(name="small"), [path], "run")
    assert "If line 1 is no header" not in str(refusal.value)


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_of_several_files_is_refused_by_their_names(home, tmp_path, kind):
    (folder := tmp_path / "export").mkdir()
    for name in ("readme.txt", "ratings.csv"):
        (folder / name).write_text("user,item\na,x\n")
    path = shutil.make_archive(str(folder), kind, folder)
    with pytest.raises(InputError, match=rf"is a {kind} archive of 2 files: .*ratings.csv.* Unpack it"):
        ingest(home, Dataset(name="small"), [path], "run")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"user_id,item_id\n1.234,i1\n12.345,i2\n9,i1\n", "separated thousands, such as 1.234"),
        (b"user_id,item_id\nu1,a|b\nu2,a|c\n", 'item_separator = "|"'),
        (b"user_id,item_id,rating,when\nu1,i1,1,2024-03-31\n", 'state time = ["when"]'),
    ],
)
def test_what_may_be_read_otherwise_is_asked_about(tmp_path, content, said):
    (path := tmp_path / "log.csv").write_bytes(content)
    (_, layout, _), = preview_logs(Dataset(name="mine"), [path]).layouts  # fmt: skip
    assert said in "".join(layout.doubts)
