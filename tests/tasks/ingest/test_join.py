"""Orders and their lines in files of their own: the events of a join in plain Python, in any order of arrival."""

import csv
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from oneclass.flows import commands
from oneclass.tasks.datasets import Dataset, load_dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows

DECLARED = """
max_reject_share = 0.5

[join]
key = "order_id"
orders = {files = ["orders*"], columns = {user = "customer", time = "date"}}
lines = {files = ["lines*"], columns = {item = "sku", value = "qty"}}
"""
EVENTS = """
    select parse_filename(path), line_number, user_id, item_id, value, strftime(occurred_at, '%Y-%m-%d')
    from raw.events join operations.log_files using (file_id) order by all
"""
Table = list[dict[str, str]]
Event = tuple[str, int, str, str, float, str]


@pytest.fixture
def dataset(home: Home) -> Dataset:
    (home.root / "datasets").mkdir(parents=True, exist_ok=True)
    (home.root / "datasets" / f"{home.dataset}.toml").write_text(DECLARED)
    return load_dataset(home.dataset, home.root)


def as_csv(table: Table, delimiter: str = ",") -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def as_json_lines(table: Table) -> str:
    return "".join(json.dumps(row) + "\n" for row in table)


def make_tables(seed: int, orders: int = 40) -> tuple[Table, Table]:
    """Orders, of which some have no line, and shuffled lines, of which some have no order."""
    drawn = random.Random(seed)
    heads = [
        {"date": f"2024-05-{drawn.randint(1, 28):02}", "order_id": f"B {n}", "customer": f"Zoë, {drawn.randint(1, 9)}"}
        for n in range(orders)
    ]
    lines = [
        {
            "sku": f"sku {drawn.randint(1, 20)}",
            "order_id": f"B {drawn.randint(3, orders + 2)}",
            "qty": str(drawn.randint(1, 9)),
        }
        for _ in range(5 * orders)
    ]
    return heads, lines


def join_by_hand(orders: dict[str, Table], lines: dict[str, Table], header_lines: int = 1) -> list[Event]:
    """The events of the lines that have an order, the first of its key in the order of the files."""
    heads: dict[str, dict[str, str]] = {}
    for table in orders.values():
        for row in table:
            heads.setdefault(row["order_id"], row)
    return sorted(
        (
            name,
            number,
            heads[row["order_id"]]["customer"],
            row["sku"],
            float(row["qty"]),
            heads[row["order_id"]]["date"],
        )
        for name, table in lines.items()
        for number, row in enumerate(table, 1 + header_lines)
        if row["order_id"] in heads
    )


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "JSON lines"])
def test_lines_get_the_user_and_time_of_their_order(home, dataset, tmp_path, caplog, delimiter):
    heads, lines = make_tables(1)
    is_json = delimiter == "JSON lines"
    for name, table in (("orders.txt", heads), ("lines.txt", lines)):
        (tmp_path / name).write_text(as_json_lines(table) if is_json else as_csv(table, delimiter))
    result = ingest(home, dataset, [tmp_path / "orders.txt", tmp_path / "lines.txt"], "run")
    expected = join_by_hand({"orders.txt": heads}, {"lines.txt": lines}, header_lines=0 if is_json else 1)
    assert query_rows(home, EVENTS) == expected and result.total_events == len(expected) > 150
    waiting = [number for number, row in enumerate(lines, 1 if is_json else 2) if int(row["order_id"][2:]) >= 40]
    assert (
        f"{len(waiting)} lines wait for their order" in caplog.text and f"lines.txt, line {waiting[0]})" in caplog.text
    )


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "keep_files"), [(0, "keep"), (1, "move")])
def test_files_may_come_in_any_order_on_any_night(home, dataset, seed, keep_files):
    heads, lines = make_tables(seed)
    orders = {f"orders-{n}.csv": heads[10 * n : 10 * n + 10] for n in range(4)}
    parts = {f"lines-{n}.csv": lines[50 * n : 50 * n + 50] for n in range(4)}
    files = [*orders.items(), *parts.items()]
    random.Random(seed).shuffle(files)
    home.landing.mkdir(parents=True)
    arrived: dict[str, Table] = {}
    for night, (name, table) in enumerate(files):
        (home.landing / name).write_text(as_csv(table))
        arrived[name] = table
        ingest(home, dataset, [], f"night-{night}", IngestSettings(keep_files=keep_files))
        there = [{name: arrived[name] for name in group if name in arrived} for group in (orders, parts)]
        assert query_rows(home, EVENTS) == join_by_hand(*there)
    counts = "select sum(events) from operations.log_files"
    assert query_rows(home, counts) == [(len(join_by_hand(orders, parts)),)]


def test_a_changed_file_of_either_part_changes_its_events_alone(home, dataset):
    heads, lines = make_tables(5)
    home.landing.mkdir(parents=True)
    orders = {"orders-a.csv": heads[:20], "orders-b.csv": heads[20:]}
    parts = {"lines-a.csv": lines[:100], "lines-b.csv": lines[100:]}
    for name, table in (orders | parts).items():
        (home.landing / name).write_text(as_csv(table))
    ingest(home, dataset, [], "first")
    orders["orders-a.csv"] = [row | {"customer": "another"} for row in heads[5:20]]
    (home.landing / "orders-a.csv").write_text(as_csv(orders["orders-a.csv"]))
    ingest(home, dataset, [], "second")
    assert query_rows(home, EVENTS) == join_by_hand(orders, parts)
    parts["lines-b.csv"] = lines[150:]
    (home.landing / "lines-b.csv").write_text(as_csv(parts["lines-b.csv"]))
    ingest(home, dataset, [], "third")
    assert query_rows(home, EVENTS) == join_by_hand(orders, parts)


def test_a_repeated_order_is_a_reject_and_counts_where_the_first_goes(home, dataset, tmp_path):
    def write(name: str, *lines: str) -> Path:
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return tmp_path / name

    first = write(
        "orders-1.csv", "order_id,customer,date", "1,anna,2024-05-01", "2,ben,2024-05-02", "1,carl,2024-05-03"
    )
    again = write("orders-2.csv", "order_id,customer,date", "2,dora,2024-05-04", "3,emil,2024-05-05")
    lines = write("lines.csv", "order_id,sku,qty", "1,a,1", "2,b,1", "3,c,1", ",d,1", "4,e,x")
    rejects = "select file_id, line_number, reason from raw.rejects order by all"
    ingest(home, dataset, [first, again, lines], "run")
    assert [event[2:4] for event in query_rows(home, EVENTS)] == [("anna", "a"), ("ben", "b"), ("emil", "c")]
    assert query_rows(home, rejects) == [
        (1, 4, "repeats the order 1 of line 2"),
        (2, 2, "repeats the order 2 of line 3 of file 1 (operations.log_files)"),
        (3, 5, "names no order"),
        (3, 6, "value is not a number"),
    ]
    write("orders-1.csv", "order_id,customer,date", "1,anna,2024-05-01")
    ingest(home, dataset, [first], "changed")
    assert [event[2:4] for event in query_rows(home, EVENTS)] == [("anna", "a"), ("dora", "b"), ("emil", "c")]
    assert [reason for _, _, reason in query_rows(home, rejects)] == ["names no order", "value is not a number"]


@pytest.mark.parametrize("part", ["orders", "lines"])
def test_the_kind_of_event_is_the_order_s_or_the_line_s(home, tmp_path, part):
    kinds, columns = random.Random(part), {"columns": {"event": "what"}}
    heads, lines = make_tables(3)
    rows_with_kind = heads if part == "orders" else lines
    for row in rows_with_kind:
        row["what"] = kinds.choice(["sale", "return", " sale ", "gift"])
    for name, table in (("orders.csv", heads), ("lines.csv", lines)):
        (tmp_path / name).write_text(as_csv(table))
    join = {"key": "order_id", "orders": {"files": ["orders*"]}, "lines": {"files": ["lines*"]}}
    join["lines"]["columns"] = {"value": "qty"}
    join[part] = {**join[part], "columns": {**join[part].get("columns", {}), **columns["columns"]}}
    dataset = Dataset(name="small", join=join, events={"sale": 1, "return": -1}, max_reject_share=1)
    ingest(home, dataset, [tmp_path / "orders.csv", tmp_path / "lines.csv"], "run")
    known = {row["order_id"]: row for row in heads if row.get("what", "").strip() != "gift"}
    expected = [
        (number, known[row["order_id"]]["customer"], row["sku"], (row | known[row["order_id"]])["what"].strip())
        for number, row in enumerate(lines, 2)
        if row["order_id"] in known and row.get("what") != "gift"
    ]
    assert query_rows(home, "select line_number, user_id, item_id, event from raw.events order by all") == expected
    assert {event for *_, event in expected} == {"sale", "return"}
    assert query_rows(home, "select distinct reason from raw.rejects") == [("unknown kind of event gift",)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "content", "expected"),
    [
        ("", ("order_id,user,amount,date\n1,u,7,2024-05-01\n", "order_id,item,quantity\n1,i,2\n"), (2.0, "2024-05-01")),
        ('value = "amount"', ("order_id,user,amount\n1,u,7\n", "order_id,item,quantity\n1,i,2\n"), (7.0, None)),
        ("lines: value = []", ("order_id,user\n1,u\n", "order_id,item,price\n1,i,2\n"), (1.0, None)),
        (
            'lines: time = "at"',
            ("order_id,user,date\n1,u,2024-05-01\n", "order_id,item,at\n1,i,2024-06-01\n"),
            (1.0, "2024-06-01"),
        ),
    ],
)
def test_value_and_time_are_in_either_file(home, tmp_path, columns, content, expected):
    part, _, named = ("orders", "", columns) if not columns.startswith("lines") else columns.partition(": ")
    join = {"orders": {"files": ["o"]}, "lines": {"files": ["l"]}}
    name, _, value = named.partition(" = ")
    join[part] |= {"columns": {name: json.loads(value)}} if named else {}
    for file, text in zip("ol", content, strict=True):
        (tmp_path / file).write_text(text)
    ingest(home, Dataset(name="small", join={"key": "order_id", **join}), [tmp_path / "l", tmp_path / "o"], "run")
    assert [event[2:] for event in query_rows(home, EVENTS)] == [("u", "i", *expected)]


@pytest.mark.parametrize(
    ("name", "header", "message"),
    [
        ("orders.csv", "number,customer,date", "orders.csv, line 1: .*none of them is known as key. State key under"),
        ("lines.csv", "order_id,product_no,qty", r"lines.csv, line 1: .*known as lines\.columns\.item\. State lines"),
        ("invoices.csv", "a,b,c", r"invoices.csv: is called neither orders\*, as orders are, nor lines\*, as their"),
    ],
)
def test_what_cannot_be_joined_is_refused(home, dataset, tmp_path, name, header, message):
    (tmp_path / name).write_text(f"{header}\n1,2,2024-05-01\n")
    with pytest.raises(InputError, match=message):
        ingest(home, dataset, [tmp_path / name], "run")


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[join]\nkey = "id"\norders = {files = ["o"]}\n', "key join.lines is missing"),
        (f'{DECLARED}\n[columns]\nuser = "x"\n', "join: its files have columns of their own"),
        (DECLARED.replace('user = "customer"', 'item = "customer"'), "join.orders.columns.item"),
        (f"{DECLARED}\n[events]\nsale = 1\n", "name the column with the kind of event in orders.columns.event"),
        (DECLARED.replace('value = "qty"', 'event = "what"'), "state what each kind adds under"),
    ],
)
def test_a_wrong_join_is_refused(home, toml, message):
    (home.root / "datasets").mkdir(parents=True)
    (home.root / "datasets" / "shop.toml").write_text(toml)
    with pytest.raises(InputError, match=message):
        load_dataset("shop", home.root)


def test_inspect_shows_how_both_files_are_read(home, dataset, tmp_path, capsys):
    heads, lines = make_tables(2)
    (tmp_path / "orders.csv").write_text(as_csv(heads))
    (tmp_path / "lines.csv").write_text(as_csv(lines))
    sources: Sequence[str] = [str(tmp_path / "orders.csv"), str(tmp_path / "lines.csv")]
    assert commands.main("inspect", ["--dataset", home.dataset, "--home", str(home.root), "--source", *sources]) == 0
    printed = capsys.readouterr().out
    assert "key    <- order_id" in printed and "user   <- customer" in printed and "item   <- sku" in printed
    events = len(join_by_hand({"o": heads}, {"l": lines}))
    assert f"{events:,}  " in printed and "its order is in none of the files" in printed
    assert "its lines are in none of the files" in printed
