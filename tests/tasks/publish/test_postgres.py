"""The publication in a real PostgreSQL: readers see one publication or the other, and what fails leaves the earlier."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import polars as pl
import pytest

from oneclass.tasks.errors import InputError
from oneclass.tasks.publish.postgres import copy_to_postgres
from oneclass.tasks.publish.settings import PublishSettings
from tests import postgres_server
from tests.conftest import query_rows
from tests.tasks.conftest import publish_model

dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra `sql` is not installed")
SETTINGS = PublishSettings(postgres_env="SHOP_LISTS", postgres_schema="shop")
BY_RUN = (
    "select run_id, (select count(*) from shop.recommendations), (select min(score) from shop.recommendations) "
    "from shop.publication"
)

COPY = """
import sys
from pathlib import Path
from oneclass.tasks.publish.postgres import copy_to_postgres
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.stores.home import Home
settings = PublishSettings(postgres_env="SHOP_LISTS", postgres_schema="shop")
copy_to_postgres(Home(Path(sys.argv[1]), sys.argv[2]), "night", settings)
"""


@pytest.fixture(scope="module")
def url():
    with postgres_server.start_postgres() as address:
        yield address


@pytest.fixture
def server(url, monkeypatch):
    """Ask the database, in which no schema `shop` is yet."""
    monkeypatch.setenv("SHOP_LISTS", url)
    postgres_server.execute_statements(url, "drop schema if exists shop cascade")

    def ask(query):
        with dbapi.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()

    return ask


def load_alarms(home):
    return [text for (text,) in query_rows(home, "select alarm from operations.alarms")]


def test_the_tables_are_those_of_the_publication_and_are_replaced_by_the_next(copied, split_once, server, url):
    copy_to_postgres(copied, "night", SETTINGS)
    published = pl.read_parquet(copied.published / "recommendations.parquet")
    assert pl.from_arrow(server("select * from shop.recommendations order by user_id, rank")).equals(
        published.sort("user_id", "rank")
    )
    postgres_server.execute_statements(url, "create role app", "grant usage on schema shop to app")
    postgres_server.execute_statements(url, "grant select on shop.recommendations to app")
    first = server("select copied_at from shop.publication")
    copy_to_postgres(copied, "night", SETTINGS)
    assert server("select copied_at from shop.publication") == first
    publish_model(copied, split_once[1], "wmf", "second")
    copy_to_postgres(copied, "night", SETTINGS)
    assert server("select run_id from shop.publication").to_pydict() == {"run_id": ["second"]}
    scores = pl.read_parquet(copied.published / "recommendations.parquet")["score"].sum()
    copied_scores = server("select sum(score) as total from shop.recommendations")["total"][0].as_py()
    assert copied_scores == pytest.approx(scores)
    grants = server("select grantee from information_schema.table_privileges where table_name = 'recommendations'")
    assert "app" in grants["grantee"].to_pylist()
    assert load_alarms(copied) == []


def test_a_reader_sees_one_publication_or_the_other(copied, split_once, server, url):
    copy_to_postgres(copied, "night", SETTINGS)
    seen, done = set(), threading.Event()

    def read():
        with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            while not done.wait(0.001):
                cursor.execute(BY_RUN)
                seen.update(cursor.fetchall())

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for model, run in (("wmf", "a"), ("mrf_dense", "b"), ("slim", "c")):
        publish_model(copied, split_once[1], model, run)
        copy_to_postgres(copied, "night", SETTINGS)
    done.set()
    for reader in readers:
        reader.join()
    by_run = {run for run, *_ in seen}
    assert len(seen) == len(by_run) >= 2  # each run with one number of rows and one least score


def test_what_fails_on_the_way_leaves_the_earlier_publication_and_is_an_alarm(copied, split_once, server, url):
    copy_to_postgres(copied, "night", SETTINGS)
    before = server(BY_RUN).to_pydict()
    publish_model(copied, split_once[1], "wmf", "second")
    postgres_server.execute_statements(
        url, "alter table shop.lists add constraint nothing check (rank < 0) not valid"
    )  # the third table refuses, after the recommendations were replaced
    copy_to_postgres(copied, "night", SETTINGS)
    assert server(BY_RUN).to_pydict() == before
    [alarm] = load_alarms(copied)
    assert "could not be copied" in alarm and "s3cret" not in alarm
    postgres_server.execute_statements(url, "alter table shop.lists drop constraint nothing")
    copy_to_postgres(copied, "next night", SETTINGS)
    assert server("select run_id from shop.publication").to_pydict() == {"run_id": ["second"]}


def test_a_role_without_rights_beyond_its_schema_copies(copied, server, url, monkeypatch):
    postgres_server.execute_statements(
        url, "drop role if exists copier", "create role copier login password 'x'", "create schema shop"
    )
    postgres_server.execute_statements(url, "grant usage, create on schema shop to copier")
    monkeypatch.setenv("SHOP_LISTS", f"postgresql://copier:x@{url.partition('@')[2]}")
    copy_to_postgres(copied, "night", SETTINGS)
    assert load_alarms(copied) == []
    indexes = server("select indexdef from pg_indexes where schemaname = 'shop'")["indexdef"].to_pylist()
    assert any(index.endswith("recommendations USING btree (user_id)") for index in indexes)
    postgres_server.execute_statements(url, "drop owned by copier cascade", "drop role copier")


def test_a_snapshot_that_began_before_sees_the_earlier_publication(copied, split_once, server, url):
    copy_to_postgres(copied, "night", SETTINGS)
    publish_model(copied, split_once[1], "wmf", "second")
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read")
        cursor.execute(BY_RUN)
        before = cursor.fetchall()
        copy_to_postgres(copied, "night", SETTINGS)
        cursor.execute(BY_RUN)
        assert cursor.fetchall() == before
        connection.rollback()
        cursor.execute(BY_RUN)
        assert cursor.fetchall() != before


@pytest.mark.slow
def test_a_copy_that_is_killed_leaves_the_earlier_publication(copied, split_once, server):
    copy_to_postgres(copied, "night", SETTINGS)
    before = server(BY_RUN)
    publish_model(copied, split_once[1], "wmf", "second")
    recommendations = copied.published.resolve() / "recommendations.parquet"
    rows = pl.read_parquet(recommendations)
    recommendations.unlink()
    pl.concat([rows] * 2000).write_parquet(recommendations)  # a copy of seconds
    copier = subprocess.Popen([sys.executable, "-c", COPY, str(copied.root), copied.dataset], env=os.environ)
    until = time.monotonic() + 60
    while not len(server("select 1 as at_work from pg_stat_progress_copy where tuples_processed > 0")):
        assert time.monotonic() < until and copier.poll() is None
    copier.send_signal(signal.SIGKILL)
    assert copier.wait() == -signal.SIGKILL
    assert server(BY_RUN) == before
    copy_to_postgres(copied, "night", SETTINGS)
    assert server("select run_id from shop.publication").to_pydict() == {"run_id": ["second"]}


def test_an_unreachable_server_is_an_alarm_without_the_password(copied, monkeypatch):
    monkeypatch.setenv("SHOP_LISTS", "postgresql://shop:s3cret%2Fpass@127.0.0.1:1/postgres")
    copy_to_postgres(copied, "night", SETTINGS)
    [alarm] = load_alarms(copied)
    assert "could not be copied" in alarm and "s3cret" not in alarm and "pass@" not in alarm


@pytest.mark.parametrize(
    ("address", "hidden"),
    [
        ("app:abc@HOST/db", {"app", "abc"}),
        ("app:p@s@HOST/db", {"app", "p", "s"}),  # an @ that should be escaped: the server's name seems to be s@HOST
        ("app:a/b@HOST/db", {"app", "a", "b"}),
        ("shop:s3cret@pg/db", {"shop", "s3cret", "pg"}),
        ("HOST/db?user=app&password=a%b", {"app", "a", "b"}),
    ],
)
def test_an_alarm_has_neither_user_nor_password_nor_host(copied, url, monkeypatch, address, hidden):
    host = url.rpartition("@")[2].partition("/")[0]
    monkeypatch.setenv("SHOP_LISTS", f"postgresql://{address.replace('HOST', host)}")
    copy_to_postgres(copied, "night", SETTINGS)
    [alarm] = load_alarms(copied)
    quoted = " ".join(re.findall(r'"[^"]*"', alarm))  # libpq quotes values
    assert quoted and not hidden & {*re.findall(r"\w+", quoted)}
    assert "127.0.0.1" not in alarm and host.partition(":")[2] not in alarm


def test_an_absent_or_wrong_url_is_refused(copied, monkeypatch):
    monkeypatch.delenv("SHOP_LISTS", raising=False)
    with pytest.raises(InputError, match="the environment variable SHOP_LISTS is not set"):
        copy_to_postgres(copied, "night", SETTINGS)
    monkeypatch.setenv("SHOP_LISTS", "mysql://shop")
    with pytest.raises(InputError, match="does not begin with postgresql://"):
        copy_to_postgres(copied, "night", SETTINGS)
    with pytest.raises(ValueError, match="give one of postgres_env"):
        PublishSettings(postgres_env="A", postgres_block="b")
