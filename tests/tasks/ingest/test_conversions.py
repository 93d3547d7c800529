"""Files that are no logs as they stand: the lines that a refusal prints write one, which is read."""

import csv
import io
import json
import pickle
import shlex
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.preview import preview_logs

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # the printed lines are short
PAIRS = [("u1", "i1"), ("u1", "i2"), ("u2", "i1")]
CSV = "user_id,item_id\n" + "".join(f"{user},{item}\n" for user, item in PAIRS)
MATRIX = scipy.sparse.csr_array(np.array([[0, 2.0, 0], [3.0, 0, 4.0]]))
ENTRIES = [("0", "1", 2.0), ("1", "0", 3.0), ("1", "2", 4.0)]
HITS = (
    '10.0.0.1 - ann [10/Oct/2023:13:55:36 -0700] "GET /p/17?q=1 HTTP/1.1" 200 2326 "-" "curl/8"\n'
    '10.0.0.2 - - [10/Oct/2023:13:56:36 -0700] "GET /p/18 HTTP/1.1" 200 326 "-" "curl/8"\n'
    '10.0.0.2 - - [10/Oct/2023:13:57:36 -0700] "POST /cart HTTP/1.1" 200 326 "-" "curl/8"\n'
    '10.0.0.3 - - [10/Oct/2023:13:58:36 -0700] "GET /p/19 HTTP/1.1" 404 326 "-" "curl/8"\n'
)


def write_to_bytes(write: Callable[[io.BytesIO], object]) -> bytes:
    write(stream := io.BytesIO())
    return stream.getvalue()


def as_database() -> bytes:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("create table orders (user_id, item_id)")
        database.execute("create table prices (item_id, price)")
        database.executemany("insert into orders values (?, ?)", PAIRS)
        database.commit()
        return database.serialize()


def in_wide_rows() -> bytes:
    rows = [("", "i1", "i2", "i3"), ("u1", "1", "0", "3"), ("u2", "", "4", "")]
    return "".join(",".join(row) + "\n" for row in rows).encode()


ARFF = b"@relation r\n@attribute user_id {u1,u2}\n@attribute item_id {i1,i2}\n@data\nu1,i1\nu1,i2\nu2,i1\n"
ROWS = list(csv.DictReader(CSV.splitlines()))
READ = [(*pair, 1.0) for pair in PAIRS]
FILES: dict[str, tuple[bytes, list[tuple[str, str, float]]]] = {
    "SQLite": (as_database(), READ),
    "access log": (HITS.encode(), [("ann", "/p/17", 1.0), ("10.0.0.2", "/p/18", 1.0)]),
    "libsvm": (b"0 1:2\n1 0:3 2:4\n", ENTRIES),
    "pairs": ("".join(f'user_id={user} item_id="{item}"\n' for user, item in PAIRS).encode(), READ),
    "npz": (write_to_bytes(lambda stream: scipy.sparse.save_npz(stream, MATRIX)), ENTRIES),
    "npy": (write_to_bytes(lambda stream: np.save(stream, MATRIX.toarray())), ENTRIES),
    "mtx": (write_to_bytes(lambda stream: scipy.io.mmwrite(stream, MATRIX)), ENTRIES),
    "mat": (write_to_bytes(lambda stream: scipy.io.savemat(stream, {"ratings": MATRIX})), ENTRIES),
    "wide": (in_wide_rows(), [("u1", "i1", 1.0), ("u2", "i2", 4.0), ("u1", "i3", 3.0)]),
    "lists": (b"user_id,item_id\nu1,\"['i1', 'i2']\"\nu2,\"['i1']\"\n", READ),
    "keys": (json.dumps({"u1": ["i1", "i2"], "u2": ["i1"]}).encode(), READ),
    "keys in lines": (b'{"u1": ["i1", "i2"]}\n{"u2": ["i1"]}\n', READ),
    "keys of values": (json.dumps({"0": {"1": 2}, "1": {"0": 3, "2": 4}}, indent=1).encode(), ENTRIES),
    "tables": (json.dumps({"users": [{"id": 1}], "log": ROWS}).encode(), READ),
    "pickle": (pickle.dumps(pd.DataFrame(PAIRS, columns=["user_id", "item_id"])), READ),
    "arff": (ARFF, READ),
}  # fmt: skip


def read_rows(path: Path) -> list[tuple]:
    dataset = Dataset(name="mine", columns={"value": ("value",)})
    return preview_logs(dataset, [path]).events.select("user_id", "item_id", "value").rows()


def refusal_of(path: Path) -> str:
    with pytest.raises(InputError) as refusal:
        preview_logs(Dataset(name="mine"), [path])
    said, lines = str(refusal.value).split("\n\n", 1)
    assert said.startswith(str(path))
    return lines


@pytest.mark.parametrize("name", FILES)
def test_the_lines_of_a_refusal_write_a_log_that_is_read(tmp_path, name):
    content, expected = FILES[name]
    (path := tmp_path / "it's a file.bin").write_bytes(content)
    exec(refusal_of(path), {})  # noqa: S102 - what a person would paste
    (copy,) = set(tmp_path.iterdir()) - {path}
    assert sorted(read_rows(copy)) == sorted(expected)


def test_a_database_of_duckdb_is_refused_with_the_lines_that_write_its_table(tmp_path):
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("create table orders as select 'u1' as user_id, 'i1' as item_id")
    exec(refusal_of(path), {})  # noqa: S102 - what a person would paste
    assert read_rows(tmp_path / "shop_log.parquet") == [("u1", "i1", 1.0)]


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_an_archive_of_several_files_is_refused_with_the_command_that_unpacks_it(tmp_path, kind):
    path = tmp_path / f"export.{kind}"
    members = {"ml/README.txt": "read me", "ml/ratings.csv": CSV}
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in members.items():
                archive.writestr(name, text)
    else:
        with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as archive:
            for name, text in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
    command = shlex.split(refusal_of(path))
    subprocess.run([sys.executable, *command[1:]], check=True, capture_output=True)
    assert read_rows(tmp_path / "export" / "ml" / "ratings.csv") == READ


def test_tuples_of_python_become_a_log_without_a_header(tmp_path):
    (path := tmp_path / "log.txt").write_text("".join(f"{pair},\n" for pair in PAIRS))
    exec(refusal_of(path), {})  # noqa: S102 - what a person would paste
    dataset = Dataset(name="mine", delimiter=",", fields=("user", "item"))
    assert preview_logs(dataset, [tmp_path / "log_log.csv"]).events.select("user_id", "item_id").rows() == PAIRS


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"MATLAB 7.3 MAT-file\0\0", "is a file of MATLAB in its form 7.3"),
        (b"\x89HDF\r\n\x1a\n\0\0", "is an HDF5 file"),
        (b"RDX3\nX\n\0\0", "is a workspace of R"),
        (b"Rar!\x1a\x07\x01\x00", "is a RAR archive"),
        (b"- user_id: u1\n  item_id: i1\n", "is YAML"),
        (b"INSERT INTO orders VALUES (1, 2);\n", "is a dump of SQL"),
        (b"<events>\n<event user='u1'/>\n</events>\n", "is a page of HTML or XML"),
        (b"1 |u u1 |i i1\n", "is a text of Vowpal Wabbit"),
        (b"user_id,item_id,user_id\nu1,i1,x\n", "two columns are called user_id"),
        (b'{"user_id": "u1", "item_id"', "is not whole JSON"),
    ],
)
def test_other_files_are_refused_by_what_they_are(tmp_path, content, said):
    (path := tmp_path / "log").write_bytes(content)
    with pytest.raises(InputError) as refusal:
        preview_logs(Dataset(name="mine"), [path])
    assert str(refusal.value).startswith(str(path)) and said in str(refusal.value)


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
