"""Rows of a database are landed once each: ties, late commits, changed queries, kills, and clear errors."""

import contextlib
import logging
import re
import sqlite3
import sys
import textwrap
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from oneclass.flows import commands
from oneclass.flows.parameters import BackfillParameters
from oneclass.flows.prepare import prepare_run
from oneclass.tasks.datasets import Dataset, load_dataset
from oneclass.tasks.errors import InputError
from oneclass.tasks.ingest.query_source import land_query
from oneclass.tasks.ingest.settings import IngestSettings
from oneclass.tasks.ingest.sources import is_log_name
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home
from tests import postgres_server
from tests.conftest import LIMITS
from tests.killed_process import ends_before_change

pytest.importorskip("adbc_driver_sqlite", reason="the extra `sql` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `sql` is not installed")

SHOP_COLUMNS = """
files = ["orders*.csv"]
columns = { user = ["customer"], item = ["sku"], value = ["quantity"], time = ["ordered_at"] }
"""


class Shop:
    """A database with a table `orders` (id, customer, sku, quantity, at), and the home of its data set."""

    def __init__(self, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url, self.home = url, Home(folder / "home", "shop", LIMITS)
        monkeypatch.setenv("SHOP_URL", url)

    def dataset(self, **source) -> Dataset:
        chosen = {"query": "select * from orders", "high_water_mark": "id", "url": "env:SHOP_URL"} | source
        names = {"user": ["customer"], "item": ["sku"], "value": ["quantity"], "time": ["at"]}
        return Dataset(name="shop", columns=names, source=chosen)

    def land(self, **source) -> int:
        """Land the new rows and return their number."""
        dataset, before = self.dataset(**source), len(self.landed())
        land_query(self.home, dataset, dataset.source)
        return len(self.landed()) - before

    def landed(self, columns: str = "*") -> list[tuple]:
        files = [str(path) for path in self.home.landing.rglob("source-*.parquet")]
        if not files:
            return []
        with duckdb.connect() as connection:
            connection.execute("set TimeZone = 'UTC'")
            rows = connection.read_parquet(files, union_by_name=True)
            return rows.select(columns).fetchall()


class SqliteShop(Shop):
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, f"sqlite://{folder / 'shop.db'}", monkeypatch)
        self.file = folder / "shop.db"
        self.execute("create table orders (id integer primary key, customer text, sku text, quantity real, at text)")

    def execute(self, statement: str, *rows: tuple) -> None:
        with contextlib.closing(sqlite3.connect(self.file)) as connection, connection:
            connection.executemany(statement, rows) if rows else connection.execute(statement)

    def insert(self, *rows: tuple) -> None:
        self.execute("insert into orders values (?, ?, ?, ?, ?)", *rows)


def make_order(number: int, at: str = "2026-11-01 10:00:00", **given) -> tuple:
    return (number, *({"customer": f"c{number % 7}", "sku": f"s{number % 5}", "quantity": 1.5} | given).values(), at)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    return SqliteShop(tmp_path, monkeypatch)


def test_each_run_lands_the_rows_that_are_new(shop, caplog):
    caplog.set_level(logging.INFO)
    shop.insert(*map(make_order, range(1, 4)))
    assert shop.land() == 3
    assert shop.land() == 0 and "no new rows" in caplog.text
    shop.insert(*map(make_order, range(4, 6)))
    assert shop.land() == 2
    assert sorted(shop.landed()) == [make_order(number) for number in range(1, 6)]
    assert len(list(shop.home.landing.glob("source-*.parquet"))) == 2
    assert "landed 2 rows as" in caplog.text and "id = 5" in caplog.text


def test_rows_that_share_the_mark_are_taken_once_each_however_many_are_equal(shop):
    shop.execute("alter table orders rename to numbered")
    shop.execute("create view orders as select customer, sku, quantity, at from numbered")
    again = {"high_water_mark": "at"}

    def insert(*rows):
        shop.execute("insert into numbered values (?, ?, ?, ?, ?)", *rows)

    twins = [(number, "c1", None, 1.0, "2026-11-01 10:00:00") for number in range(1, 3)]
    insert(*twins, make_order(3, "2026-11-01 09:00:00"))
    assert shop.land(**again) == 3
    insert((4, "c1", None, 1.0, "2026-11-01 10:00:00"), (5, "c2", "s2", 1.0, "2026-11-01 10:00:00"))
    assert shop.land(**again) == 2
    assert shop.land(**again) == 0
    assert Counter(shop.landed())["c1", None, 1.0, "2026-11-01 10:00:00"] == 3


@pytest.mark.parametrize(
    ("mark", "overlap", "taken"),
    [("at", 0, False), ("at", "2h", True), ("at", "1d", True), ("id", 0, False), ("id", 3, True)],
)
def test_a_row_that_is_committed_late_is_taken_within_the_overlap(shop, mark, overlap, taken):
    late = make_order(2, "2026-10-31 23:00:00")
    shop.insert(
        make_order(1, "2026-10-31 08:00:00"), make_order(3, "2026-11-01 00:10:00"), make_order(4, "2026-11-01 00:20:00")
    )
    assert shop.land(high_water_mark=mark, overlap=overlap) == 3
    shop.insert(late)
    assert shop.land(high_water_mark=mark, overlap=overlap) == taken
    assert shop.land(high_water_mark=mark, overlap=overlap) == 0


def test_a_longer_overlap_takes_nothing_twice(shop):
    shop.insert(*(make_order(number, f"2026-11-{number:02} 10:00:00") for number in range(1, 9)))
    assert shop.land(high_water_mark="at") == 8
    assert shop.land(high_water_mark="at", overlap="9d") == 0


def test_a_changed_row_is_taken_again_unless_its_key_is_known(shop):
    shop.insert(make_order(1), make_order(2))
    assert shop.land(high_water_mark="at", key=["id"]) == 2
    shop.execute("update orders set quantity = 9 where id = 2")
    assert shop.land(high_water_mark="at", key=["id"]) == 0
    assert shop.land(high_water_mark="at") == 1


def test_a_query_with_other_columns_goes_on_where_it_was(shop):
    shop.insert(make_order(1), make_order(2))
    fewer = "select id, customer, sku, quantity, at from orders"
    assert shop.land(query=fewer) == 2
    assert shop.land(query="select *, 'web' as channel from orders") == 0
    shop.insert(make_order(3))
    assert shop.land(query="select *, 'web' as channel from orders;") == 1
    assert shop.land(query=fewer) == 0
    with pytest.raises(InputError, match=r"high_water_mark = 'at': rows were landed by id\. Set that again"):
        shop.land(high_water_mark="at")


def test_rows_are_ingested_once_where_the_files_are_removed(shop):
    for night in range(3):
        shop.insert(*map(make_order, range(10 * night, 10 * night + 10)))
        done = ingest(shop.home, shop.dataset(), [], str(night), IngestSettings(keep_files="remove"))
        assert done.events == 10 and not list(shop.home.landing.glob("source-*"))
    with duckdb.connect(str(shop.home.warehouse), read_only=True) as connection:
        found = connection.execute("select user_id, item_id, value from raw.events order by all").fetchall()
    assert found == sorted(make_order(number)[1:4] for number in range(30))


def test_the_copy_of_the_taken_rows_follows_from_the_landed_files(shop):
    shop.insert(*map(make_order, range(1, 6)))
    shop.land(high_water_mark="at", overlap="1d")
    shop.insert(*map(make_order, range(6, 9)))
    shop.land(high_water_mark="at", overlap="1d")
    (copy,) = shop.home.landing.glob(".source-taken-*")
    copy.unlink()
    assert shop.land(high_water_mark="at", overlap="1d") == 0
    assert copy.exists()


def test_a_mark_in_the_future_holds_nothing_up(shop):
    shop.insert(make_order(1, "2026-11-01 10:00:00"), make_order(2, "2999-01-01 00:00:00"))
    assert shop.land(high_water_mark="at") == 2
    shop.insert(make_order(3, "2026-11-02 10:00:00"))
    assert shop.land(high_water_mark="at") == 1
    assert shop.land(high_water_mark="at") == 0


def test_rows_without_a_mark_are_not_taken_and_counted(shop, caplog):
    shop.insert(make_order(1, None), make_order(2))
    assert shop.land(high_water_mark="at") == 1
    assert "1 rows have no at, so they are not taken" in caplog.text


@pytest.mark.slow
def test_a_quarantined_file_keeps_its_rows_and_the_mark(shop):
    dataset = shop.dataset()
    shop.insert(*map(make_order, range(1, 4)))
    ingest(shop.home, dataset, [], "1")
    shop.insert(make_order(4), make_order(5, quantity=99.0))
    strict = dataset.model_copy(update={"value_max": 10.0})
    done = ingest(shop.home, strict, [], "2")
    (name,) = done.set_aside
    assert done.total_events == 3
    quarantined = shop.home.landing / "quarantine" / Path(name).name
    assert "value_max" in quarantined.with_name(f"{quarantined.name}.why.txt").read_text()
    assert ingest(shop.home, dataset, [], "3").total_events == 3
    quarantined.rename(name)
    assert ingest(shop.home, dataset, [], "4").total_events == 5


def test_a_query_that_is_no_log_lands_nothing(shop):
    shop.insert(make_order(1))
    with pytest.raises(InputError, match=r"^\[source\] query: .*item"):
        shop.land(query="select id, customer, at from orders")
    assert not list(shop.home.landing.iterdir())
    assert shop.land() == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"query": "select * from order_lines"}, "refuses the query .*no such table: order_lines.*Correct `query`"),
        ({"high_water_mark": "ordered"}, "refuses the query .*no such column: source.ordered"),
        ({"high_water_mark": "customer"}, "high_water_mark: customer is c1 in a row, which cannot be compared"),
        ({"overlap": "1h"}, "overlap = '1h': write a number, as the mark is one"),
        ({"overlap": 5, "high_water_mark": "at"}, "overlap = 5.0: write 30m, 2h or 1d, as the mark is a time"),
        ({"url": "env:NO_SHOP"}, "url = env:NO_SHOP: the environment variable NO_SHOP is not set"),
        ({"url": "file:/nowhere/url"}, "url = file:/nowhere/url: /nowhere/url cannot be read"),
        ({"url": "env:HOME"}, "env:HOME names has no URL that begins with its kind"),
        ({"driver": "oracle"}, "adbc_driver_oracle.*pip install adbc-driver-oracle"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_landed(shop, source, message):
    shop.insert(make_order(1))
    with pytest.raises(InputError, match=message):
        shop.land(**source)
    assert not list(shop.home.landing.iterdir())


def test_a_missing_driver_names_the_extra(shop, monkeypatch):
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite.dbapi", None)
    with pytest.raises(InputError, match=r"needs the driver adbc_driver_sqlite.*pip install .*'\.\[sql\]'"):
        shop.land()


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("query = 'select 1'\nurl = 'env:X'", "source: Value error, give `query` and `high_water_mark`"),
        ("query = 'select 1'\nhigh_water_mark = 'id'", "env:NAME"),
        ("url = 'env:X'", "give `query` and `high_water_mark`"),
        ("url = 's3://bucket'", "source: Value error, give `query`"),
        ("quary = 'select 1'", "unknown key source.quary. Did you mean query?"),
        ("query = 'x'\nurl = 'env:X'\nhigh_water_mark = 'id'\noverlap = 'long'", "30m, 2h or 1d"),
    ],
)
def test_a_wrong_section_of_the_file_is_refused(tmp_path, toml, message):
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "shop.toml").write_text(f"[source]\n{toml}\n")
    with pytest.raises(InputError) as refused:
        load_dataset("shop", tmp_path)
    assert message in str(refused.value)


def test_a_landing_that_is_killed_before_any_change_of_files_loses_and_doubles_nothing(shop):
    rows, number, whole = [make_order(1)], 0, False
    shop.insert(*rows)
    shop.land(high_water_mark="at", overlap="1h")
    while not whole:
        number += 1
        new = [make_order(10 * number + place, f"2026-11-01 10:{number:02}:00") for place in range(3)]
        shop.insert(*new)
        rows += new
        whole = ends_before_change(number, lambda: shop.land(high_water_mark="at", overlap="1h"))
    assert number > 4
    assert sorted(shop.landed()) == sorted(rows)
    assert not list(shop.home.landing.glob(".source-partial*"))


class PostgresShop(Shop):
    def execute(self, *statements: str) -> None:
        postgres_server.execute_statements(self.url, *statements)


@pytest.fixture(scope="module")
def postgres():
    with postgres_server.start_postgres() as url:
        yield url


@pytest.fixture
def postgres_shop(postgres, tmp_path, monkeypatch):
    shop = PostgresShop(tmp_path, postgres, monkeypatch)
    shop.execute(
        "drop table if exists orders",
        "create table orders (id bigserial, customer text, sku numeric(12), quantity numeric(10, 2), at timestamptz)",
    )
    return shop


def test_types_of_postgresql_reach_the_events(postgres_shop):
    postgres_shop.execute(
        "insert into orders (customer, sku, quantity, at) values ('Zoë', 17850, 3.10, '2026-03-29 01:30:00+01'), "
        "('a''b', 12345678901, 0.01, '2026-10-25 02:30:00.123456+02'), (null, 1, 2, '2026-01-01'), ('c', null, 2, null)"
    )
    dataset = postgres_shop.dataset().model_copy(update={"max_reject_share": 1.0})
    done = ingest(postgres_shop.home, dataset, [], "1")
    assert (done.events, done.rejects) == (2, 2)
    with duckdb.connect(str(postgres_shop.home.warehouse), read_only=True) as connection:
        found = connection.execute(
            "select user_id, item_id, value, occurred_at::varchar from raw.events order by line_number"
        ).fetchall()
        reasons = connection.execute("select reason from raw.rejects order by line_number").fetchall()
    assert found == [
        ("Zoë", "17850", 3.1, "2026-03-29 00:30:00"),
        ("a'b", "12345678901", 0.01, "2026-10-25 00:30:00.123456"),
    ]
    assert [reason for (reason,) in reasons] == ["names no user", "names no item"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "first", "then", "overlap"),
    [
        ("smallint", ["1", "2", "2"], ["2", "3"], 0),
        ("bigint", ["9007199254740993", "9007199254740993"], ["9007199254740993", "9007199254740994"], 0),
        ("numeric", ["0.12345678901234567890", "0.2"], ["0.2", "0.20000000000000000001"], 0),
        ("numeric(20, 4)", ["5", "9"], ["8.5", "10"], 2),
        ("real", ["0.1", "0.7"], ["0.7", "0.8"], 0),
        ("double precision", ["0.1", "0.3"], ["0.3", "1e300"], 0),
        ("date", ["2026-01-01", "2026-01-02"], ["2026-01-02", "2026-01-03"], 0),
        ("date", ["2026-01-01", "2026-01-02"], ["2026-01-01", "2026-01-02"], "2h"),
        ("timestamp", ["2026-01-01 10:00:00.000001"], ["2026-01-01 10:00:00.000001", "2026-01-02"], 0),
        ("timestamptz", ["2026-01-01 10:00:00.5+05"], ["2026-01-01 06:00:00.5+01", "2026-01-01 05:00:01+00"], 0),
        ("timestamptz", ["2026-01-01 10:00:00+00"], ["2026-01-01 09:00:00+00", "2026-01-01 09:00:00+00"], "1h"),
        ("text", ["2026-01-01 10:00:00"], ["2026-01-01 10:00:00", "2026-01-01 11:00:00"], 0),
    ],
)
def test_marks_of_every_type_take_each_row_once(postgres_shop, kind, first, then, overlap):
    postgres_shop.execute("drop table orders", f"create table orders (customer int, sku int, at {kind})")
    chosen = {
        "query": "select customer, sku, 1 as quantity, at as seen from orders",
        "high_water_mark": "seen",
        "overlap": overlap,
    }
    customer = 0
    for marks in (first, then, then[-1:]):
        rows = [f"({number}, 1, '{mark}')" for number, mark in enumerate(marks, customer + 1)]
        postgres_shop.execute(f"insert into orders values {', '.join(rows)}")
        customer += len(rows)
        assert postgres_shop.land(**chosen) == len(marks)
    assert postgres_shop.land(**chosen) == 0
    assert sorted(postgres_shop.landed("customer")) == [(number,) for number in range(1, customer + 1)]


@pytest.mark.parametrize("value", ["'infinity'::timestamptz", "'NaN'::numeric", "'-infinity'::timestamp"])
def test_a_mark_without_an_order_is_refused(postgres_shop, value):
    with pytest.raises(InputError, match="which cannot be compared with others"):
        postgres_shop.land(
            query=f"select 1 as customer, 2 as sku, 1 as quantity, {value} as seen", high_water_mark="seen"
        )
    assert not list(postgres_shop.home.landing.iterdir())


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select 1 as id, 1 as customer, 2 as sku, 3 as sku", "two columns called sku"),
        ("select 1 as id, 1 as customer, 2 as sku, interval '1 day' as wait", "Parquet cannot hold.*interval.*Cast it"),
        (
            "select 1 as id, 1 as customer, array[1, 2] as sku, 1 as quantity",
            "the column sku of the item has the type INTEGER",
        ),
        ("select 1 as id, 1 / (2 - n) as customer, 1 as sku from generate_series(1, 2) as n", "division by zero"),
        ("drop table orders", "refuses the query .*syntax error"),
    ],
)
def test_a_query_that_cannot_be_landed_is_explained(postgres_shop, query, message):
    with pytest.raises(InputError, match=message):
        postgres_shop.land(query=query)
    assert not list(postgres_shop.home.landing.iterdir())


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        ("s3cret%2Fpass%23word", "wrong%2Fpass%23word"),
        ("s3cret%2Fpass%23word", "s3cret/pass#word"),
        ("%2Fpass", "/pass"),
        ("shop:s3cret%2Fpass%23word@127.0.0.1", "shop:s3cret@pass@word@no.such.host.invalid"),
        ("shop:s3cret%2Fpass%23word@", "shop@"),
        ("/postgres", "/postgres?password=wrong&sslmode=pass"),
    ],
)
def test_no_message_shows_the_password(postgres_shop, monkeypatch, there, instead):
    assert there in postgres_shop.url
    monkeypatch.setenv("SHOP_URL", postgres_shop.url.replace(there, instead))
    with pytest.raises(InputError) as refused:
        postgres_shop.land()
    error, shown = refused.value, ""
    while error is not None:
        shown, error = shown + str(error), error.__cause__
    assert "env:SHOP_URL names cannot be opened" in shown
    assert not [word for word in ("s3cret", "pass", "word", "wrong", "://") if word in shown.replace("password", "")]


def test_a_transaction_that_commits_late_is_taken_within_the_overlap(postgres_shop):
    from adbc_driver_postgresql import dbapi

    chosen = {"high_water_mark": "at", "overlap": "1h"}
    insert = "insert into orders (customer, sku, at) values ('c', 1, now())"
    with dbapi.connect(postgres_shop.url) as slow, slow.cursor() as cursor:
        cursor.execute(insert)
        postgres_shop.execute(insert, insert)
        assert postgres_shop.land(**chosen) == 2
        slow.commit()
    assert postgres_shop.land(**chosen) == 1
    assert sorted(postgres_shop.landed("id")) == [(1,), (2,), (3,)]


def test_the_documented_source_is_inspected_and_prepares_a_run_without_files(postgres_shop, monkeypatch, capsys):
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "arrivals.md").read_text(encoding="utf-8")
    shown = re.search(r"((?:^    .*\n)+)", page[page.index("    [source]") :], flags=re.MULTILINE)[1]
    root = postgres_shop.home.root
    (root / "datasets").mkdir(parents=True)
    (root / "datasets" / "shop.toml").write_text(f"{SHOP_COLUMNS}\n{textwrap.dedent(shown)}")
    monkeypatch.setenv("SHOP_DATABASE_URL", postgres_shop.url)
    postgres_shop.execute(
        "alter table orders rename at to ordered_at",
        "insert into orders (customer, sku, quantity, ordered_at) values ('Zoë', 17850, 2, '2026-03-29 01:30:00+01')",
    )
    assert commands.main("inspect", ["--dataset", "shop", "--home", str(root)]) == 0
    said = capsys.readouterr().out
    assert "[source] query: Parquet" in said and "Zoë" in said and "2026-03-29 00:30:00" in said
    assert not postgres_shop.home.landing.exists()
    run = prepare_run(BackfillParameters(dataset="shop", home=str(root), models=["popularity"]))
    assert run.dataset.source.overlap_seconds == 3600 and is_log_name("source-2026-11-26-000001.parquet", run.dataset)
