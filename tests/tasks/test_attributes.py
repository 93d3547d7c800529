"""Attributes of items and users: tables as people have them, what is kept of them, and tables that are refused."""

import json
import re
from datetime import date, datetime

import polars as pl
import pytest

from oneclass.tasks.attributes import load_attributes
from oneclass.tasks.datasets import Dataset, load_dataset
from oneclass.tasks.datasets.columns import AttributeTable
from oneclass.tasks.errors import InputError
from oneclass.tasks.forget.stage import certify_removal, remove_users
from oneclass.tasks.ingest.attributes import read_attributes
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import warehouse
from tests.conftest import query_rows

PRODUCTS = """sku;name;genres;price;about;value;adult;since;seen_at;id
  7 ;Lamp;b | a|b;1.5;A lamp;3;true;2026-11-01;2026-11-01 10:00:00;007
8.0;Chair;;;;0;FALSE;2026-11-02;2026-11-02T10:00:00.5;x
9;Table;a;2;;;;;;
"""
DECLARED = {"category": ["name"], "categories": ["genres"], "number": ["price"], "text": ["about"]}
ROWS = {
    "item_id": ["7", "8", "9"],
    "name": ["Lamp", "Chair", "Table"],
    "genres": [["b", "a"], None, ["a"]],
    "price": [1.5, None, 2.0],
    "about": ["A lamp", None, None],
    "value": [3, 0, None],
    "adult": [True, False, None],
    "since": [date(2026, 11, 1), date(2026, 11, 2), None],
    "seen_at": [datetime(2026, 11, 1, 10), datetime(2026, 11, 2, 10, 0, 0, 500_000), None],
    "id": ["007", "x", None],
}
LOG = "user_id,item_id\nu1,7\nu1,8\nu2,7\nu2,9\n"


def write_shop(tmp_path, content=PRODUCTS, *, name="products.csv", users=None, **declared):
    """A data set whose tables lie in `tmp_path`."""
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    items = AttributeTable(file=str(tmp_path / name), **(DECLARED | declared))
    return Dataset(name="shop", items=items, users=users)


def read_tables(dataset):
    return read_attributes("item", dataset.items, dataset).frame


def ingest_night(home, dataset, tmp_path, run_id="run", events=LOG):
    (log := tmp_path / "log.csv").write_text(events)
    ingest(home, dataset, [log], run_id)


def load_side(home, side="item"):
    with warehouse.open_warehouse(home, read_only=True) as connection:
        return load_attributes(connection, side)


def test_columns_have_their_kind_or_the_narrowest_type(tmp_path):
    found = read_tables(write_shop(tmp_path))
    assert found.to_dict(as_series=False) == ROWS
    assert found.schema["value"] == pl.Int64


def test_a_table_is_read_in_the_formats_that_logs_have(tmp_path):
    records = [
        {"sku": 7, "genres": ["b", "a"], "price": 1.5, "adult": True, "since": "2026-11-01"},
        {"sku": 8, "genres": None, "price": None, "adult": False, "since": None},
    ]
    expected = {"genres": [["b", "a"], None], "price": [1.5, None], "adult": [True, False]}
    lines = "".join(json.dumps(record) + "\n" for record in records)
    pl.DataFrame(records).with_columns(pl.col("since").str.to_date()).write_parquet(tmp_path / "given.parquet")
    for name, data in {"a.jsonl": lines, "b.parquet": (tmp_path / "given.parquet").read_bytes()}.items():
        found = read_tables(write_shop(tmp_path, data, name=name, category=[], text=[]))
        assert found.select(expected.keys()).to_dict(as_series=False) == expected, name
        assert found["item_id"].to_list() == ["7", "8"] and found["since"][0] == date(2026, 11, 1)


@pytest.mark.parametrize(
    ("text", "declared", "message"),
    [
        ("price\n1\n", {}, r'line 1: has the columns price, and none is called .*sku.*\n\nid = "COLUMN"'),
        (
            "sku,genre\n1,a\n",
            {},
            r"line 1: has .*none is called name\. Correct `category` in \[items\] of",
        ),
        ("sku\n1\n", {"category": []}, r"line 1: has no column but the ids"),
        ("sku,a\n1,2\n,3\n", {"category": []}, r"line 3: has no id in the column sku"),
        ("sku,a\n1,2\nNULL,3\n", {"category": []}, r"line 3: has no id"),
        ("sku,a\n1,2\n2,3\n1,4\n", {"category": []}, r"line 4: describes 1 otherwise than line 2"),
        ("# list\nsku,a\n1,2\n2,3,4\n", {"category": []}, r"line 4: has 3 fields, and the header 2"),
        ("sku,a,A\n1,2,3\n", {"category": []}, r"line 1: has two columns called a\. Rename one"),
        ("sku,a,b,sku\n1,2,3,4\n", {"category": "a"}, r"line 1: has two columns called sku\. Rename one"),
        ("sku,a\n1,2\n2,cheap\n", {"category": [], "number": ["a"]}, r"line 3: a = 'cheap' is not a number"),
        ("sku,a\n1,inf\n", {"category": [], "number": ["a"]}, r"line 2: a = 'inf' is not a number"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(tmp_path, text, declared, message):
    columns = {"categories": [], "number": [], "text": []} | declared
    with pytest.raises(InputError, match=re.compile(rf"\[items\] table .*products.csv, {message}", re.DOTALL)):
        read_tables(write_shop(tmp_path, text, **columns))


def test_equal_rows_of_an_id_count_once(tmp_path):
    assert len(read_tables(write_shop(tmp_path, PRODUCTS + "9;Table;a;2;;;;;;\n"))) == 3


def test_a_column_has_one_kind():
    with pytest.raises(ValueError, match="a column is named twice"):
        AttributeTable(file="x", category=["a"], text=["a"])
    with pytest.raises(ValueError, match="a column is named twice"):
        AttributeTable(file="x", id="a", number=["A"])


def test_the_warehouse_has_the_current_version(tmp_path, home):
    (tmp_path / "users.csv").write_text("customer,age\nu1,30\nu2,\n")
    users = AttributeTable(file=str(tmp_path / "users.csv"), number=["age"])
    dataset = write_shop(tmp_path, users=users)
    ingest_night(home, dataset, tmp_path, "first")
    assert load_side(home).to_dict(as_series=False) == ROWS
    assert load_side(home, "user").to_dict(as_series=False) == {"user_id": ["u1", "u2"], "age": [30.0, None]}

    ingest_night(home, dataset, tmp_path, "second")  # nothing changed
    dataset = write_shop(
        tmp_path, PRODUCTS.replace(";3;", ";2;").replace("8.0;Chair;;;;0;", "10;Bed;;;;1;"), users=users
    )
    ingest_night(home, dataset, tmp_path, "third")
    assert load_side(home)["value"].to_list() == [1, 2, None] and load_side(home)["item_id"].to_list() == [
        "10",
        "7",
        "9",
    ]
    versions = query_rows(home, "select side, run_id, is_current from operations.attribute_tables")
    assert versions == [("item", "first", False), ("user", "first", True), ("item", "third", True)]

    ingest_night(home, Dataset(name="shop", users=users), tmp_path, "fourth")  # [items] is gone
    assert load_side(home) is None and load_side(home, "user") is not None


def test_a_forgotten_user_has_no_attributes(tmp_path, home, caplog):
    (tmp_path / "users.csv").write_text("customer,age\nu1,30\nu2,40\n")
    dataset = Dataset(name="shop", users=AttributeTable(file=str(tmp_path / "users.csv")))
    ingest_night(home, dataset, tmp_path)
    remove_users(home, dataset, ["u1"])
    assert f"{tmp_path / 'users.csv'}: has a forgotten user" in caplog.text
    certify_removal(home, None)
    ingest_night(home, dataset, tmp_path, "next", LOG.replace("u1", "u3"))  # its contract holds
    assert load_side(home, "user").to_dict(as_series=False) == {"user_id": ["u2"], "age": [40]}


def test_ids_in_another_form_are_warned_of(tmp_path, home, caplog):
    ingest_night(home, write_shop(tmp_path, "sku,name\nA-7,x\nA-8,y\n", categories=[], number=[], text=[]), tmp_path)
    assert "describes 0 of the 3 items of the log; it lacks 7, for one" in caplog.text


def test_a_declared_table_lies_beside_the_data_sets_file(tmp_path):
    (folder := tmp_path / "datasets").mkdir()
    (folder / "shop.toml").write_text('[items]\nfile = "products.csv"\ntitle = "Name"\ncategory = "Name"\n')
    dataset = load_dataset("shop", tmp_path)
    assert dataset.items.file == dataset.titles.file == str(folder / "products.csv")
    assert dataset.items.kinds == {"Name": "category"} and dataset.titles.title == "Name"
    (folder / "shop.toml").write_text('[items]\nfile = "products.csv"\ncategry = "Name"\n')
    with pytest.raises(InputError, match=r"unknown key items.categry. Did you mean category\?"):
        load_dataset("shop", tmp_path)
