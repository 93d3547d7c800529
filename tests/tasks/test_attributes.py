"""Tables of titles and attributes as people have them, what is kept of them, and tables that are refused."""

import re
from datetime import date, datetime

import polars as pl
import pytest

from oneclass.tasks.attributes import convert_columns, load_attributes
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.datasets.sections import AttributeTable
from oneclass.tasks.errors import InputError
from oneclass.tasks.forget.stage import certify_removal, remove_users
from oneclass.tasks.ingest.attributes import read_attributes, read_titles
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import warehouse
from tests.conftest import query_rows
from tests.tasks.ingest.test_layouts import as_workbook

PRODUCTS = """sku;name;genres;price;about;value;adult;since;seen_at;id
  7 ;Lamp;b | a|b;1.5;"A lamp; of
brass";3;true;2026-11-01;2026-11-01 10:00:00;007
8.0;Chair;;;;0;FALSE;2026-11-02;2026-11-02T10:00:00.5;x
9;Table;a;2;;;;;;
9;Table;a;2;;;;;;
"""
DECLARED = {"category": ["name"], "categories": ["genres"], "number": ["price"], "text": ["about"]}
ROWS = {
    "item_id": ["7", "8", "9"],
    "name": ["Lamp", "Chair", "Table"],
    "genres": [["b", "a"], None, ["a"]],
    "price": [1.5, None, 2.0],
    "about": ["A lamp; of\nbrass", None, None],
    "value": [3, 0, None],
    "adult": [True, False, None],
    "since": [date(2026, 11, 1), date(2026, 11, 2), None],
    "seen_at": [datetime(2026, 11, 1, 10), datetime(2026, 11, 2, 10, 0, 0, 500_000), None],
    "id": ["007", "x", None],
}
LOG = "user_id,item_id\nu1,7\nu1,8\nu2,7\nu2,9\n"


def write_shop(tmp_path, content=PRODUCTS, *, users=None, **declared):
    """A data set whose tables lie in `tmp_path`."""
    (tmp_path / "products.csv").write_text(content)
    items = AttributeTable(file=str(tmp_path / "products.csv"), **(DECLARED | declared))
    return Dataset(name="shop", items=items, users=users)


def read_tables(dataset):
    return convert_columns(*read_attributes("item", dataset.items, dataset))


def ingest_night(home, dataset, tmp_path, run_id="run", events=LOG):
    (log := tmp_path / "log.csv").write_text(events)
    ingest(home, dataset, [log], run_id)


def load_side(home, side="item"):
    with warehouse.open_warehouse(home, read_only=True) as connection:
        return load_attributes(connection, side)


def test_columns_have_their_kind_or_the_narrowest_type(tmp_path):
    found = read_tables(write_shop(tmp_path))
    assert found.to_dict(as_series=False) == ROWS and found.columns == list(ROWS)
    assert found.schema["value"] == pl.Int64


@pytest.mark.parametrize("write", [pl.DataFrame.write_ndjson, pl.DataFrame.write_parquet])
def test_lists_and_types_of_other_formats_are_kept(tmp_path, write):
    columns = {"genres": [["b", "a"], None], "price": [1.5, None], "adult": [True, False]}
    table = pl.DataFrame({"item_id": ["7", "8"], **columns, "since": [date(2026, 11, 1), None]})
    write(table.rename({"item_id": "sku"}).cast({"sku": pl.Int64}), tmp_path / "items")
    items = AttributeTable(file=str(tmp_path / "items"), categories=["genres"], number=["price"])
    assert read_tables(Dataset(name="shop", items=items)).equals(table)


SKU_ALONE = {"category": [], "categories": [], "number": [], "text": []}


@pytest.mark.parametrize(
    ("text", "declared", "message"),
    [
        ("price\n1\n", {}, r'has the columns price, and none is called item_id.*\n\n\[items\]\nid = "COLUMN"'),
        ("sku,genre\n1,a\n", {"category": "name"}, r'has .*none is called name\. .*\n\n\[items\]\ncategory = "COLUMN"'),
        ("sku,a\n1,2\n,3\n", {}, r"row 3: item_id = '' is no id"),
        ("sku,a\n1,2\n2,3\n1.0,4\n", {}, r"row 4: item_id = '1' has an earlier row with other cells"),
        ("sku,a,A\n1,2,3\n", {}, r"row 1: two of the columns sku, a, A have one name"),
        ("sku,a\n1,2\n2,cheap\n", {"number": ["a"]}, r"row 3: a = 'cheap' is not a number"),
        ("", {}, "is empty"),
        ('id,title\n1,x\n2,"y\n3,z\n', {}, "cannot be read .*Line: 3 .*unterminated quote"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(tmp_path, text, declared, message):
    dataset = write_shop(tmp_path, text, **(SKU_ALONE | declared))
    with pytest.raises(InputError, match=re.compile(rf"/products.csv(, |: ){message}", re.DOTALL)):
        read_tables(dataset)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"movieId,title,genres\n1,Toy Story (1995),Comedy\n", {"1": "Toy Story (1995)"}),
        ('item_id;name;\r\n 7 ;"Käse; B";\r\n8.0;;\r\n'.encode("utf-16"), {"7": "Käse; B"}),
        ("id,title\n7,クール\nNULL,x\n".encode("shift-jis"), {"7": "クール"}),
        (as_workbook([["sku", "name"], ["7", "Lamp"]]), {"7": "Lamp"}),
    ],
)
def test_titles_are_read_as_logs_are_and_found_by_usual_names(tmp_path, content, found):
    (path := tmp_path / "titles").write_bytes(content)
    assert read_titles(path, Dataset(name="shop", encoding="shift-jis")) == found


def test_a_file_of_titles_that_cannot_be_read_or_lacks_its_columns_is_named(tmp_path):
    path = tmp_path / "titles.csv"
    with pytest.raises(InputError, match="titles.csv: cannot be read"):
        read_titles(path, Dataset(name="shop"))
    path.write_text("sku,what\n1,x\n")
    with pytest.raises(InputError, match=r"columns sku, what.*\n\n\[titles\]\ntitle = "):
        read_titles(path, Dataset(name="shop"))


def test_the_warehouse_has_the_current_version(tmp_path, home):
    (tmp_path / "users.csv").write_text("customer,age\nu1,30\nu2,\n")
    users = AttributeTable(file=str(tmp_path / "users.csv"), number=["age"])
    dataset = write_shop(tmp_path, users=users)
    ingest_night(home, dataset, tmp_path, "first")
    assert load_side(home).to_dict(as_series=False) == ROWS
    assert load_side(home, "user").to_dict(as_series=False) == {"user_id": ["u1", "u2"], "age": [30.0, None]}

    ingest_night(home, dataset, tmp_path, "second")  # nothing changed
    changed = PRODUCTS.replace(";3;", ";2;").replace("8.0;Chair;;;;0;", "10;Bed;;;;1;")
    ingest_night(home, write_shop(tmp_path, changed, users=users), tmp_path, "third")
    found = load_side(home)
    assert found["value"].to_list() == [1, 2, None] and found["item_id"].to_list() == ["10", "7", "9"]
    versions = query_rows(home, "select side, run_id, rows, is_current from operations.attribute_tables")
    assert versions == [("item", "first", 3, False), ("user", "first", 2, True), ("item", "third", 3, True)]

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
    ingest_night(home, write_shop(tmp_path, "sku,name\nA-7,x\nA-8,y\n", **SKU_ALONE), tmp_path)
    assert "describes 0 of the 3 items of the log; it lacks 7, for one" in caplog.text
