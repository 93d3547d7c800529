"""The third door: what a query gives, of files or of a database, is landed and read, and each row counts once."""

import contextlib
import json
import sqlite3
import sys

import duckdb
import pytest

from oneclass.flows import commands
from oneclass.tasks.datasets import Dataset, load_dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.forget.stage import remove_users
from oneclass.tasks.ingest.landing import IngestSettings
from oneclass.tasks.ingest.query import land_query
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home
from tests import postgres_server
from tests.conftest import LIMITS
from tests.killed_process import ends_before_change

ORDERS = "select customer as user_id, sku as item_id, ordered_at as occurred_at from 'orders.csv'"
NEW_ORDERS = f"{ORDERS} where ordered_at >= {{since}}::timestamp - interval 1 day"
DAY_1, DAY_2, DAY_3 = ("a,x,2026-11-01 10:00:00", "b,x,2026-11-02 10:00:00", "b,y,2026-11-03 10:00:00")


class Shop:
    """A data set with a query, in a home; beside its file are the query's files, or a database has a table `orders`."""

    def __init__(self, folder, url: str = "", create: str = "") -> None:
        self.home, self.files, self.nights, self.url = Home(folder, "shop", LIMITS), folder / "datasets", 0, url
        self.files.mkdir()
        if url:
            self.execute(create)

    def execute(self, statement: str) -> None:
        if self.url.startswith("postgres"):
            postgres_server.execute_statements(self.url, *statement.split(";"))
            return
        with contextlib.closing(sqlite3.connect(self.url.removeprefix("sqlite://"))) as connection, connection:
            connection.executescript(statement)

    def declare(self, query: str, more: str = "", **source: str) -> Dataset:
        given = {"query": query} | ({"url": "env:SHOP_URL"} if self.url else {}) | source
        lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]
        (self.files / "shop.toml").write_text("\n".join([more, "[source]", *lines]))
        return load_dataset("shop", self.home.root)

    def write_orders(self, *lines: str) -> None:
        (self.files / "orders.csv").write_text("\n".join(["customer,sku,ordered_at", *lines, ""]))

    def run_night(self, dataset: Dataset, **given) -> list[tuple]:
        """Ingest, and return all events."""
        self.nights += 1
        ingest(self.home, dataset, [], str(self.nights), **given)
        with duckdb.connect(str(self.home.warehouse), read_only=True) as connection:
            columns = "user_id, item_id, value, occurred_at::varchar"
            return connection.execute(f"select {columns} from raw.events order by all").fetchall()

    def landed(self) -> list[str]:
        return sorted(path.name for path in self.home.landing.rglob("*.parquet"))


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def test_what_duckdb_reads_beside_the_data_sets_file_is_a_log(shop):
    """What the recipes of the guide do not have: several statements, an attached database, folders `day=`."""
    for day, user in ((1, "a"), (2, "b")):
        (folder := shop.files / "sales" / f"day=2026-11-0{day}").mkdir(parents=True)
        (folder / "1.csv").write_text(f"user_id,item_id\n{user},x\n")
    with duckdb.connect(str(shop.files / "till.duckdb")) as till:
        till.execute("create table sold as select 'a' as user_id, 'y' as item_id, timestamp '2026-11-03' as day")
    sales = "from 'sales/*/*.csv' union all by name from till.sold"
    query = f"attach 'till.duckdb' as till (read_only); select user_id, item_id, day as occurred_at from ({sales});"
    days = [("a", "x", 1.0, "2026-11-01 00:00:00"), ("a", "y", 1.0, "2026-11-03 00:00:00")]
    assert shop.run_night(shop.declare(query)) == [*days, ("b", "x", 1.0, "2026-11-02 00:00:00")]


def test_a_whole_result_replaces_the_earlier_one_if_it_changed(shop):
    dataset = shop.declare(ORDERS)
    shop.write_orders(DAY_1, DAY_1, DAY_2)
    assert [event[:2] for event in shop.run_night(dataset)] == [("a", "x"), ("a", "x"), ("b", "x")]
    before = (shop.home.landing / "source.parquet").stat()
    shop.write_orders(DAY_2, DAY_1, DAY_1)
    assert len(shop.run_night(dataset)) == 3
    assert (shop.home.landing / "source.parquet").stat() == before
    shop.write_orders(DAY_2, DAY_3)
    assert [event[:2] for event in shop.run_night(dataset)] == [("b", "x"), ("b", "y")]
    shop.write_orders()
    assert len(shop.run_night(dataset)) == 2 and shop.landed() == ["source.parquet"]


@pytest.mark.parametrize("keep_files", ["keep", "move"])
def test_each_row_counts_once_over_nights_late_and_equal_ones_included(shop, keep_files):
    dataset, settings = shop.declare(NEW_ORDERS), IngestSettings(keep_files=keep_files)
    dataset, orders = dataset.model_copy(update={"max_reject_share": 1}), []
    for new in ([DAY_1, DAY_2, DAY_2], [], ["c,late,2026-11-01 11:00:00", DAY_2, ",x,2026-11-02 10:00:00"], [DAY_3]):
        shop.write_orders(*(orders := [*orders, *new]))
        events = shop.run_night(dataset, settings=settings)
        assert [f"{user},{item},{at}" for user, item, _, at in events] == sorted(o for o in orders if o[0] != ",")
    assert shop.landed() == [f"source-{number:06}.parquet" for number in (1, 2, 3)]
    assert len(shop.run_night(dataset, settings=settings, replace=True)) == 6


@pytest.mark.parametrize(
    ("times", "since"),
    [
        (["2026-11-01 10:30:05"], "2026-11-01 10:30:05"),
        (["2026-11-01 10:30:00.250"], "2026-11-01 10:30:00.25"),
        (["2026-11-01 10:30:00", "2026-10-31 20:00:00"], "2026-11-01 10:30"),
        (["2026-11-01"], "2026-11-01"),
        (["2026-10-25 02:30:00+0100"], "2026-10-25 01:30"),  # half past two comes twice
        (["2026-11-01 10:30:00+0000", "2999-01-01 00:00:00+0000"], "2026-11-01 11:30"),  # read before it happens
    ],
)
def test_since_is_the_newest_time_in_the_zone_of_the_data_set(shop, times, since):
    query = "select 'u' as user_id, {since} as item_id, t as occurred_at from read_csv('times.csv', all_varchar = true)"
    dataset = shop.declare(query, more='timezone = "Europe/Berlin"\nmax_future_days = 1_000_000')
    (shop.files / "times.csv").write_text("\n".join(["t", *times]))
    assert {event[1] for event in shop.run_night(dataset)} == {"1000-01-01"}
    assert {event[1] for event in shop.run_night(dataset)} == {"1000-01-01", since}


def test_a_landing_that_is_killed_before_any_change_of_files_loses_and_doubles_nothing(shop):
    dataset, orders, number, whole = shop.declare(NEW_ORDERS), [DAY_1], 0, False
    while not whole:
        number += 1
        orders.append(f"k{number},x,2026-11-02 10:00:{number:02}")
        shop.write_orders(*orders)
        whole = ends_before_change(number, lambda: land_query(shop.home, dataset, dataset.source))
        if number % 2:
            assert shop.run_night(dataset)
    assert number > 2
    assert [f"{user},{item},{at}" for user, item, _, at in shop.run_night(dataset)] == sorted(orders)
    assert not list(shop.home.landing.glob(".*"))


def test_a_query_that_cannot_be_landed_says_why(shop, monkeypatch):
    shop.write_orders(DAY_1)
    for query, reason in {
        "select nothing from 'orders.csv'": r'Referenced column "nothing" not found',
        "from 'no.csv'": r'No files found that match the pattern "no\.csv"',
        "select customer from 'orders.csv'": r"Which column is the item\?",
        "-- nothing": r"gives no rows. End it with a select",
    }.items():
        with pytest.raises(InputError, match=r"^\[source\] query of .*/datasets/shop\.toml:? .*" + reason):
            shop.run_night(shop.declare(query))
    monkeypatch.chdir(shop.home.root)
    (shop.home.root / "orders.csv").write_text("customer,sku,ordered_at\nwrong,x,2026-11-01")
    with pytest.raises(InputError, match=r"orders\.csv is in the current folder too\. Write its whole"):
        shop.run_night(shop.declare(ORDERS))
    assert not list(shop.home.landing.iterdir())


def test_a_query_that_no_longer_asks_for_new_rows_is_refused_before_it_doubles_them(shop):
    shop.write_orders(DAY_1, DAY_2)
    shop.run_night(shop.declare(NEW_ORDERS))
    with pytest.raises(InputError, match=r"has no \{since\}, so that rows which .* delete all source-\*\.parquet"):
        shop.run_night(shop.declare(ORDERS))
    (shop.home.landing / "source-000001.parquet").unlink()
    assert len(shop.run_night(shop.declare(ORDERS), replace=True)) == 2
    shop.write_orders(DAY_1, DAY_2, DAY_3)
    assert len(shop.run_night(shop.declare(NEW_ORDERS))) == 3


def test_rows_that_an_earlier_version_landed_count_as_taken(shop):
    shop.write_orders(DAY_1, DAY_2, DAY_2, DAY_3)
    shop.home.landing.mkdir(parents=True)
    landed = duckdb.sql("select 'a' as user_id, 'x' as item_id, timestamp '2026-11-01 10:00:00' as occurred_at")
    landed.write_parquet(str(shop.home.landing / "source-2026-11-01-000007.parquet"))
    cells = "map {'user_id': 'b', 'item_id': 'x', 'occurred_at': '2026-11-02 10:00:00'}"
    taken = duckdb.sql(f"select timestamp '2026-11-02 10:00:00' as mark, {cells} as cells")
    taken.write_parquet(str(shop.home.landing / ".source-taken-000006.parquet"))
    events = shop.run_night(shop.declare(NEW_ORDERS))
    assert [event[:2] for event in events] == [("a", "x"), ("b", "x"), ("b", "y")]  # of two of b's, one was taken
    assert shop.landed()[1:] == ["source-000008.parquet", "source-2026-11-01-000007.parquet"]


@pytest.mark.parametrize("query", [ORDERS, NEW_ORDERS])
def test_a_forgotten_user_does_not_come_back(shop, query):
    dataset = shop.declare(query)
    shop.write_orders(DAY_1, DAY_2, DAY_3)
    shop.run_night(dataset)
    remove_users(shop.home, dataset, ["b"])
    shop.write_orders(DAY_1)
    assert [event[0] for event in shop.run_night(dataset)] == ["a"]
    assert [event[0] for event in shop.run_night(dataset, replace=True)] == ["a"]
    assert duckdb.sql(f"select user_id from '{shop.home.landing}/*.parquet'").fetchall() == [("a",)]


def test_a_key_that_left_says_what_replaces_it(shop):
    with pytest.raises(InputError, match=r"shop\.toml: source\.overlap is read no more: write `where .*\{since\}"):
        shop.declare(ORDERS, overlap="1h")


@pytest.fixture
def sqlite_shop(tmp_path, monkeypatch):
    pytest.importorskip("adbc_driver_sqlite", reason="the extra `sql` is not installed")
    monkeypatch.setenv("SHOP_URL", url := f"sqlite://{tmp_path / 'shop.db'}")
    return Shop(tmp_path, url, "create table orders (customer text, sku text, quantity real, ordered_at text)")


@pytest.fixture
def postgres_shop(postgres, tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_URL", postgres)
    columns = "customer text, sku numeric(12), quantity numeric(10, 2), ordered_at timestamptz"
    return Shop(tmp_path, postgres, f"drop table if exists orders; create table orders ({columns})")


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S.000", "%Y-%m-%dT%H:%M:%SZ"])
def test_times_that_are_texts_miss_no_row_of_sqlite(sqlite_shop, form):
    dataset = sqlite_shop.declare("select * from orders where ordered_at >= {since}", 'columns = { user = "customer" }')
    insert = f"insert into orders values ('{{}}', 'x', 2, strftime('{form}', '2026-11-01 {{}}'))"
    sqlite_shop.execute(insert.format("a", "00:00:00"))
    assert [event[0] for event in sqlite_shop.run_night(dataset)] == ["a"]
    sqlite_shop.execute(insert.format("a", "00:00:00") + ";" + insert.format("b", "10:00:00"))
    assert [event[0] for event in sqlite_shop.run_night(dataset)] == ["a", "a", "b"]
    assert [event[2] for event in sqlite_shop.run_night(dataset)] == [2.0] * 3


def test_rows_of_postgresql_keep_their_types_and_count_once(postgres_shop):
    more = 'timezone = "Europe/Berlin"\nmax_reject_share = 1\ncolumns = { user = "customer" }'
    dataset = postgres_shop.declare("select * from orders where ordered_at >= {since};", more)
    first = ("('Zoë', 17850, 3.10, '2026-03-29 01:30:00+01'), ('c', null, 2, null)", "(null, 1, 2, '2026-01-01')")
    postgres_shop.execute(f"insert into orders values {', '.join(first)}")
    assert postgres_shop.run_night(dataset) == [("Zoë", "17850", 3.1, "2026-03-29 00:30:00")]
    tie = "('a', 12345678901, 0.01, '2026-03-29 01:30:00+01'), ('past', 1, 1, '2026-03-29 00:29:59+00')"
    postgres_shop.execute(f"insert into orders values {tie}, ('Zoë', 17850, 3.10, '2026-03-29 01:30:00+01')")
    expected = [("Zoë", "17850", 3.1, "2026-03-29 00:30:00")] * 2
    assert postgres_shop.run_night(dataset) == [*expected, ("a", "12345678901", 0.01, "2026-03-29 00:30:00")]
    assert len(postgres_shop.run_night(dataset)) == 3 and len(postgres_shop.landed()) == 2


def test_a_query_that_the_database_refuses_is_explained(postgres_shop):
    postgres_shop.execute("insert into orders values ('a', 1, 1, now())")
    for query, message in {
        "select * from order_lines": r'refuses the query .*relation "order_lines" does not exist.*Correct `query`',
        "select customer, 1 / (n - 9999) as sku from orders, generate_series(1, 9999) as n": "division by zero",
        "drop table orders": "refuses the query .*read-only",
    }.items():
        with pytest.raises(InputError, match=message):
            postgres_shop.run_night(postgres_shop.declare(query))
    assert not list(postgres_shop.home.landing.iterdir())


def test_no_message_shows_the_password(postgres_shop, monkeypatch):
    for there, instead in {
        "s3cret%2Fpass%23word": "wrong%2Fpass%23word",
        "shop:s3cret%2Fpass%23word@127.0.0.1": "shop:s3cret@pass@word@no.such.host.invalid",
        "/postgres": "/postgres?password=wrong&sslmode=pass",
        "s3cret%2Fpass%23word@127.0.0.1": "abc@abc.invalid",
    }.items():
        assert there in postgres_shop.url
        monkeypatch.setenv("SHOP_URL", postgres_shop.url.replace(there, instead))
        with pytest.raises(InputError, match="env:SHOP_URL names cannot be opened") as refused:
            postgres_shop.run_night(postgres_shop.declare("select 1"))
        assert refused.value.__cause__ is None
        words = ("s3cret", "wrong", "pass#", "%2Fpass", "pass@", "abc")
        assert not [word for word in words if word in str(refused.value)]


def test_a_database_that_cannot_be_reached_is_explained(shop, monkeypatch):
    monkeypatch.setenv("ORACLE", "oracle://here")
    monkeypatch.setenv("SQLITE", "sqlite:///here")
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite.dbapi", None)
    for url, message in {
        "env:NO_SHOP": "the environment variable NO_SHOP is not set",
        "env:HOME": "has no URL that begins with its kind",
        "env:ORACLE": r"adbc_driver_oracle.*pip install .*adbc-driver-oracle",
        "env:SQLITE": r"adbc_driver_sqlite.*pip install .*adbc-driver-sqlite",
        "postgresql://me:secret@here": r"url: Value error, may hold a token: write env:NAME",
    }.items():
        with pytest.raises(InputError, match=message) as refused:
            shop.run_night(shop.declare("select 1", url=url))
        assert "secret" not in str(refused.value)


def test_inspect_shows_the_first_rows_and_lands_none(sqlite_shop, capsys):
    sqlite_shop.declare("select * from orders where ordered_at > {since}", 'columns = { user = "customer" }')
    sqlite_shop.execute("insert into orders values ('Zoë', 'x', 2, '2026-03-29 00:30:00')")
    assert commands.main("inspect", ["--dataset", "shop", "--home", str(sqlite_shop.home.root)]) == 0
    said = capsys.readouterr().out
    assert "Zoë" in said and "2026-03-29 00:30:00" in said and not sqlite_shop.home.landing.exists()
