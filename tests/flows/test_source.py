"""From what a shop has to recommendations: rows of a real PostgreSQL, and the orders of a German Excel."""

import json
import sys
from pathlib import Path

import duckdb
import pytest

from oneclass.flows import commands

SCRIPT = Path(__file__).parents[2] / "examples" / "publish_to_postgres.py"
DECLARED = '''
columns = { user = "customer", item = "sku", value = "quantity", time = "ordered_at" }

[source]
query = """select customer, sku, quantity, ordered_at from orders
    where ordered_at >= {since}::timestamptz - interval '90 days'"""
url = "env:SHOP_DATABASE_URL"
'''
ORDERS = """
    insert into orders (customer, sku, quantity, ordered_at)
    select 'c' || customer, 's' || (customer * rank * rank) % 23, 1,
        timestamptz '2026-03-01' + customer * rank * interval '1 hour'
    from generate_series({0}, {1}) as customer, generate_series(1, 12) as rank
"""


@pytest.mark.slow
def test_a_backfill_and_a_night_take_all_rows_of_a_database_and_give_it_their_lists(
    postgres, prefect_server, tmp_path, monkeypatch
):
    from adbc_driver_postgresql import dbapi

    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "shop.toml").write_text(DECLARED)
    given = ["--dataset", "shop", "--home", str(tmp_path), "--models", "popularity,mrf_dense"]
    given += ["--set", "train.tune=off", "mrf_dense.l2=6", "publish.model=mrf_dense"]
    given += [f"publish.after={json.dumps([sys.executable, str(SCRIPT)])}"]
    lists = []
    with dbapi.connect(postgres, autocommit=True) as database, database.cursor() as cursor:
        monkeypatch.setenv("SHOP_DATABASE_URL", postgres)
        monkeypatch.setenv("SHOP_LISTS", postgres)
        cursor.execute(
            "create table orders (id bigserial, customer text, sku text, quantity int, ordered_at timestamptz)"
        )
        for command, customers in (("backfill", (1, 60)), ("nightly_retrain", (61, 64))):
            cursor.execute(ORDERS.format(*customers))
            assert commands.main(command, given) == 0
            cursor.execute("select distinct customer, sku from orders order by 1, 2")
            bought = cursor.fetchall()
            with duckdb.connect(str(tmp_path / "shop" / "warehouse.duckdb"), read_only=True) as connection:
                read = connection.execute("select distinct user_id, item_id from raw.events order by 1, 2").fetchall()
                counts = connection.execute("select count(*), count(distinct file_id) from raw.events").fetchone()
                listed = connection.execute("select user_id, item_id from published.recommendations").fetchall()
            assert read == bought and counts == (12 * customers[1], 1 if command == "backfill" else 2)
            assert {user for user, _ in listed} == {user for user, _ in bought}
            assert not set(listed) & set(bought)
            lists.append(listed)
            cursor.execute("select user_id, item_id from shop.recommendations")
            assert sorted(cursor.fetchall()) == sorted(listed)
        assert commands.main("promote", ["--dataset", "shop", "--home", str(tmp_path), "--rollback"]) == 0
        cursor.execute("select user_id, item_id from shop.recommendations")
        assert sorted(cursor.fetchall()) == sorted(lists[0]) != sorted(lists[1])


@pytest.mark.slow
def test_the_orders_of_a_german_excel_need_two_commands_and_a_line_of_the_first(prefect_server, tmp_path, capsys):
    orders = [
        f"{day:02}.{1 + customer % 12:02}.2025 09:30;Müller {customer};Tasse {(customer * day * day) % 23};1,50"
        for customer in range(1, 61)
        for day in range(1, 13)
    ]
    text = "\r\n".join(["Bestelldatum;Kunde;Artikelnummer;Menge", *orders, ""])
    (log := tmp_path / "bestellungen.csv").write_bytes(text.encode("windows-1252"))
    given = ["--dataset", "laden", "--home", str(tmp_path / "home"), "--source", str(log)]
    assert commands.main("inspect", given) == 0
    stated = 'encoding = "windows-1252"'
    assert stated in capsys.readouterr().out.splitlines()
    (tmp_path / "home" / "datasets").mkdir(parents=True)
    (tmp_path / "home" / "datasets" / "laden.toml").write_text(stated)
    assert commands.main("backfill", [*given, "--models", "popularity,mrf_dense", "--set", "train.tune=off"]) == 0
    with duckdb.connect(str(tmp_path / "home" / "laden" / "warehouse.duckdb"), read_only=True) as connection:
        events = connection.execute(
            "select strftime(occurred_at, '%d.%m.%Y %H:%M'), user_id, item_id, value from raw.events"
        ).fetchall()
        [(users,)] = connection.execute("select count(distinct user_id) from published.recommendations").fetchall()
    read = [f"{when};{user};{item};{value:.2f}".replace(".5", ",5") for when, user, item, value in events]
    assert sorted(read) == sorted(orders)
    assert users == 60
