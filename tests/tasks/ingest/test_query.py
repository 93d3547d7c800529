"""The third door: a query's rows are landed and read once each; and what flows.inspect shows before a run."""

import contextlib
import json
import sqlite3
import tomllib

import duckdb
import pytest

from oneclass.flows import commands
from oneclass.tasks import datasets
from oneclass.tasks.datasets import Dataset, load_dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.forget.stage import remove_users
from oneclass.tasks.ingest import preview
from oneclass.tasks.ingest.landing import IngestSettings
from oneclass.tasks.ingest.query import land_query
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home
from tests import postgres_server
from tests.conftest import LIMITS, query_rows
from tests.processes import ends_before_change
from tests.tasks.ingest.conftest import write_file

ORDERS = "select customer as user_id, sku as item_id, ordered_at as occurred_at from 'orders.csv'"
NEW_ORDERS = f"{ORDERS} where ordered_at >= {{since}}::timestamp - interval 1 day"
DAY_1, DAY_2, DAY_3 = ("a,x,2026-11-01 10:00:00", "b,x,2026-11-02 10:00:00", "b,y,2026-11-03 10:00:00")


class Shop:
    """A data set with a query, in a home, and the files beside the data set's own that the query reads."""

    def __init__(self, folder) -> None:
        self.home, self.files, self.nights = Home(folder, "shop", LIMITS), folder / "datasets", 0
        self.files.mkdir()

    def declare(self, query: str, more: str = "", url: str = "") -> Dataset:
        source = {"query": query} | ({"url": url} if url else {})
        lines = [f"{key} = {json.dumps(value)}" for key, value in source.items()]
        (self.files / "shop.toml").write_text("\n".join([more, "[source]", *lines]))
        return load_dataset("shop", self.home.root)

    def write_orders(self, *lines: str) -> None:
        (self.files / "orders.csv").write_text("\n".join(["customer,sku,ordered_at", *lines, ""]))

    def run_night(self, dataset: Dataset, shown: str = "user_id, item_id, occurred_at", **given) -> list[str]:
        """Ingest, and return what is shown of all events, as lines of a CSV file."""
        self.nights += 1
        ingest(self.home, dataset, [], str(self.nights), **given)
        return [line for (line,) in query_rows(self.home, f"select concat_ws(',', {shown}) from raw.events order by 1")]

    def landed(self) -> list[str]:
        return sorted(path.name for path in self.home.landing.rglob("*.parquet"))


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def test_a_whole_result_replaces_the_earlier_one_if_it_changed(shop):
    dataset, written = shop.declare(ORDERS), []
    for orders in ([DAY_1, DAY_1, DAY_2], [DAY_2, DAY_1, DAY_1], [DAY_2, DAY_3], []):
        shop.write_orders(*orders)
        assert shop.run_night(dataset) == sorted(orders or [DAY_2, DAY_3])
        written.append((shop.home.landing / "source.parquet").stat().st_mtime_ns)
    assert written[0] == written[1] < written[2] == written[3] and shop.landed() == ["source.parquet"]


def test_each_row_counts_once_over_nights_late_and_equal_ones_included(shop):
    dataset, settings = shop.declare(NEW_ORDERS), IngestSettings(keep_files="move")
    dataset, orders = dataset.model_copy(update={"max_reject_share": 1}), []
    for new in ([DAY_1, DAY_2, DAY_2], [], ["c,late,2026-11-01 11:00:00", DAY_2, ",x,2026-11-02 10:00:00"], [DAY_3]):
        shop.write_orders(*(orders := [*orders, *new]))
        assert shop.run_night(dataset, settings=settings) == sorted(order for order in orders if order[0] != ",")
    assert shop.landed() == [f"source-{number:06}.parquet" for number in (1, 2, 3)]
    assert len(shop.run_night(dataset, settings=settings, replace=True)) == 6


@pytest.mark.parametrize(
    ("times", "since"),
    [
        ("2026-10-25 02:30:05.250+0100\n2026-10-24 20:00:00+0100", "2026-10-25 01:30:05.25"),  # twice half past two
        ("2026-11-01 10:30:00\n2999-01-01 00:00:00", "2026-11-01 10:30"),  # read before it happens
    ],
)
def test_since_is_the_newest_time_in_the_zone_of_the_data_set(shop, times, since):
    query = "select 'u' as user_id, {since} as item_id, t as occurred_at from read_csv('times.csv', all_varchar = true)"
    dataset = shop.declare(query, more='timezone = "Europe/Berlin"\nmax_future_days = 1_000_000')
    (shop.files / "times.csv").write_text(f"t\n{times}")
    assert {*shop.run_night(dataset, "item_id")} == {"1000-01-01"}
    assert {*shop.run_night(dataset, "item_id")} == {"1000-01-01", since}


def test_a_landing_that_is_killed_before_any_change_of_files_loses_and_doubles_nothing(shop):
    dataset, orders, number, whole = shop.declare(NEW_ORDERS), [DAY_1], 0, False
    while not whole:
        number += 1
        orders.append(f"k{number},x,2026-11-02 10:00:{number:02}")
        shop.write_orders(*orders)
        whole = ends_before_change(number, lambda: land_query(shop.home, dataset, dataset.source))
        if number % 2:
            assert shop.run_night(dataset)
    assert number > 2 and shop.run_night(dataset) == sorted(orders)
    assert not list(shop.home.landing.glob(".*"))


def test_a_query_that_no_longer_asks_for_new_rows_is_refused_before_it_doubles_them(shop):
    shop.write_orders(DAY_1, DAY_2)
    shop.run_night(shop.declare(NEW_ORDERS))
    with pytest.raises(InputError, match=r"has no \{since\}, so that rows which .* delete all source-\*\.parquet"):
        shop.run_night(shop.declare(ORDERS))
    (shop.home.landing / "source-000001.parquet").unlink()
    assert len(shop.run_night(shop.declare(ORDERS), replace=True)) == 2
    shop.write_orders(DAY_1, DAY_2, DAY_3)
    assert len(shop.run_night(shop.declare(NEW_ORDERS))) == 3


def test_a_forgotten_user_does_not_come_back(shop):
    dataset = shop.declare(NEW_ORDERS)
    shop.write_orders(DAY_1, DAY_2, DAY_3)
    shop.run_night(dataset)
    remove_users(shop.home, dataset, ["b"])
    shop.write_orders(DAY_1)
    assert shop.run_night(dataset) == [DAY_1]
    assert shop.run_night(dataset, replace=True) == [DAY_1]
    assert duckdb.sql(f"select user_id from '{shop.home.landing}/*.parquet'").fetchall() == [("a",)]


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"])
def test_times_that_are_texts_miss_no_row_of_sqlite_and_inspect_lands_none(shop, monkeypatch, capsys, form):
    pytest.importorskip("adbc_driver_sqlite", reason="the extra `sql` is not installed")
    monkeypatch.setenv("SHOP_URL", f"sqlite://{shop.files}/shop.db")
    query, more = "select * from orders where ordered_at >= {since}", 'columns = { user = "customer" }'
    dataset = shop.declare(query, more, url="env:SHOP_URL")
    with contextlib.closing(sqlite3.connect(shop.files / "shop.db", isolation_level=None)) as database:
        database.execute("create table orders (customer text, sku text, quantity real, ordered_at text)")
        insert = f"insert into orders values (?, 'x', 2, strftime('{form}', '2026-11-01 ' || ?))"
        database.execute(insert, ("Zoë", "00:00:00"))
        assert commands.main("inspect", ["--dataset", "shop", "--home", str(shop.home.root)]) == 0
        said = capsys.readouterr().out
        assert "Zoë" in said and "2026-11-01" in said and not shop.home.landing.exists()
        assert shop.run_night(dataset, "user_id") == ["Zoë"]
        database.executemany(insert, [("Zoë", "00:00:00"), ("b", "10:00:00")])
    assert shop.run_night(dataset, "user_id, value") == ["Zoë,2.0", "Zoë,2.0", "b,2.0"]


def test_rows_of_postgresql_keep_their_types_and_count_once(shop, postgres, monkeypatch):
    monkeypatch.setenv("SHOP_URL", postgres)
    columns = "customer text, sku numeric(12), quantity numeric(10, 2), ordered_at timestamptz"
    same = "('Zoë', 17850, 3.10, '2026-03-29 01:30:00+01')"
    first = f"{same}, ('c', null, 2, null), (null, 1, 2, '2026-01-01')"
    create = "drop table if exists orders", f"create table orders ({columns})", f"insert into orders values {first}"
    postgres_server.execute_statements(postgres, *create)
    more = 'timezone = "Europe/Berlin"\nmax_reject_share = 1\ncolumns = { user = "customer" }'
    dataset = shop.declare("select * from orders where ordered_at >= {since};", more, url="env:SHOP_URL")
    shown, zoe = "user_id, item_id, value, occurred_at", "Zoë,17850,3.1,2026-03-29 00:30:00"
    assert shop.run_night(dataset, shown) == [zoe]
    tie = "('a', 12345678901, 0.01, '2026-03-29 01:30:00+01'), ('past', 1, 1, '2026-03-29 00:29:59+00')"
    postgres_server.execute_statements(postgres, f"insert into orders values {tie}, {same}")
    assert shop.run_night(dataset, shown) == [zoe, zoe, "a,12345678901,0.01,2026-03-29 00:30:00"]
    assert len(shop.run_night(dataset)) == 3 and len(shop.landed()) == 2


URL, QUERY, OPEN = "env:SHOP_URL", r"^\[source\] query of .*/shop\.toml:? .*", "env:SHOP_URL names cannot be opened"
SERVER = "postgresql://shop:s3cret%2Fpass%23word@SERVER"
REFUSED = [  # where the database's URL is, the URL, the query, the message
    ("", "", "select nothing from 'orders.csv'", QUERY + r'Referenced column "nothing" not found'),
    ("", "", "select customer from 'orders.csv'", QUERY + r"Which column is the item\?"),
    ("", "", "from 'here.csv'", QUERY + r"here\.csv is in the current folder too\. Write its whole"),
    ("postgresql://me:s3cret@here", "", "select 1", r"url: may hold a token: write env:NAME"),
    (URL, "oracle://here", "select 1", r"adbc_driver_oracle.*pip install .*adbc-driver-oracle"),
    (URL, SERVER, "select * from lines", r'refuses the query .*relation "lines" does not exist.*Correct `query`'),
    (URL, SERVER, "select 'a' as who, 1 / (n - 9999) as sku from generate_series(1, 9999) as n", "division by zero"),
    (URL, SERVER, "drop table orders", "refuses the query .*read-only"),
    (URL, SERVER.replace("s3cret", "wrong"), "select 1", OPEN),
    (URL, "postgresql://shop:s3cret@pass@word@no.such.host.invalid:5432/postgres", "select 1", OPEN),
    (URL, f"{SERVER}?password=wrong&sslmode=pass", "select 1", OPEN),
]


@pytest.mark.parametrize(("place", "url", "query", "message"), REFUSED)
def test_a_refusal_says_why_and_shows_no_password(shop, monkeypatch, request, place, url, query, message):
    uses_driver = url.startswith("postgresql")
    server = request.getfixturevalue("postgres").rpartition("@")[2] if uses_driver else ""
    monkeypatch.setenv("SHOP_URL", url.replace("SERVER", server))
    monkeypatch.chdir(shop.home.root)
    shop.write_orders(DAY_1)
    (shop.home.root / "here.csv").write_text("user_id,item_id\nwrong,x\n")
    with pytest.raises(InputError, match=message) as refused:
        shop.run_night(shop.declare(query, url=place))
    assert not shop.landed() and not (uses_driver and refused.value.__cause__)
    assert not [word for word in ("s3cret", "wrong", "pass#", "%2Fpass", "pass@") if word in str(refused.value)]


ROWS = [f"k{n % 7};a{n};1,5;{n % 28 + 1}.3.2024;in den Korb" for n in range(56)]
SHOP = "\n".join(["Kdnr;Ware;Stück;Tag;Aktion", *ROWS, "k1;;1,5;1.3.2024;in den Korb", ""])
KINDS = "user_id,item_id,event\n" + "".join(f"u{n % 5},i{n},{('view', 'buy')[n % 3 == 0]}\n" for n in range(30))
NAMED = ["--user", "Kdnr", "--item", "Ware", "--value", "Stück", "--time", "Tag", "--event", "Aktion"]
DECLARED = """
title = "Küche"
events = {"in den Korb" = 2}
rules = {not_event = ["in den Korb"]}
models = {wmf = {factors = 8}}
"""


@pytest.fixture
def inspect(tmp_path, capsys):

    def _inspect(text, *arguments):
        (path := tmp_path / "log.csv").write_text(text, encoding="utf-8")
        status = commands.main("inspect", ["--source", str(path), "--home", str(tmp_path / "var"), *arguments])
        printed = capsys.readouterr()
        return status, (printed.out + printed.err).replace(str(tmp_path), "")

    return _inspect


def test_an_unknown_log_is_answered_with_its_columns_and_no_proposal(inspect, tmp_path):
    status, shown = inspect(SHOP, "--write", "shop")
    assert status == 2 and not (tmp_path / "var").exists() and "Which column is the user and which the item?" in shown
    assert "Kdnr text 0% 7 k0, k1, k2" in [" ".join(line.split()) for line in shown.splitlines()]


def test_named_columns_show_events_and_losses_and_are_written_beside_what_a_file_declares(inspect, tmp_path):
    write_file(tmp_path / "var" / "datasets" / "shop.toml", DECLARED)
    before = datasets.load_dataset("shop", tmp_path / "var")
    for _ in range(2):
        status, shown = inspect(SHOP, *NAMED, "--write", "shop")
        assert status == 0, shown
        for part in ("user   <- Kdnr", "times as %d.%m.%Y", "56 events of 7 users and 56 items", "names no item"):
            assert part in shown
    after = datasets.load_dataset("shop", tmp_path / "var")
    named = {"user": ("Kdnr",), "item": ("Ware",), "value": ("Stück",), "time": ("Tag",), "event": ("Aktion",)}
    assert after.columns.model_dump() == named and after.binarize == {"threshold": 1.0}
    changed = {"columns", "binarize", "time_format"}
    assert after.model_dump(exclude=changed) == before.model_dump(exclude=changed)
    home = Home(tmp_path / "var", "shop", LIMITS)
    ingest(home, after.model_copy(update={"max_reject_share": 0.1}), [tmp_path / "log.csv"], "run")
    totals = "select count(*), sum(value), max(occurred_at)::varchar from raw.events"
    assert query_rows(home, totals) == [(56, 84.0, "2024-03-28 00:00:00")]


def test_kinds_are_listed_and_their_weights_left_to_a_person(inspect, tmp_path):
    status, shown = inspect(KINDS, "--write", "shop")
    assert status == 0 and "A run would refuse this" in shown and "view (20), buy (10)" in shown
    text = (path := tmp_path / "var" / "datasets" / "shop.toml").read_text()
    assert "events" not in tomllib.loads(text) and '# "buy" = WEIGHT' in text
    for kind, weight in (("buy", 3), ("view", 0)):
        text = text.replace(f'# "{kind}" = WEIGHT', f"{kind} = {weight}")
    path.write_text(text.replace("# [events]", "[events]"))
    status, shown = inspect(KINDS, "--dataset", "shop")
    assert status == 0 and "refuse" not in shown and "10  -20: of a kind with the weight 0" in shown


@pytest.mark.parametrize(
    ("text", "arguments", "part"),
    [
        ("user,item\n" + "".join(f"u{n},i{n}\n" for n in range(101)), [], "100 events of 100 users"),
        ("user,item,liked\na,x,True\na,y,False\n", [], "Is liked, or another column, the value of an event?"),
        ("user;item;n\na;x;1,5\na;y;2.000,5-\n", ["--value", "n"], "values from -2000.5 to 1.5"),
        ("user,item,n\na,x,1\na,y,2-\n", ["--value", "n"], "some values are negative, such as 2-"),
        ("user,item,state\n" + "a,x,paid\na,y,void\n" * 10, [], "count alike, if state has them: name it, or"),
        ("a,x,buy\na,x,view\n", ["--user", "1", "--item", "2", "--event", "3"], '# "view" = WEIGHT'),
        ("# by a tool\nuser,item,n\na,x,1\n", [], "line 2: looks like the header (user, item, n)"),
    ],
)
def test_what_is_said_and_asked(inspect, monkeypatch, text, arguments, part):
    monkeypatch.setattr(preview, "MAX_RECORDS", 100)
    assert part in inspect(text, *arguments)[1]
