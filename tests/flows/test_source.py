"""From rows of a real PostgreSQL to recommendations, and from a log whose name DuckDB could take for a pattern."""

import json
import shutil
import sys
from pathlib import Path

import polars as pl
import pytest

from oneclass.flows import commands
from oneclass.tasks.stores.home import Home
from tests.conftest import query_rows
from tests.flows.conftest import ML

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
    lists, stored = [], Home(tmp_path, "shop")
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
            read = query_rows(stored, "select distinct user_id, item_id from raw.events order by 1, 2")
            [counts] = query_rows(stored, "select count(*), count(distinct file_id) from raw.events")
            listed = query_rows(stored, "select user_id, item_id from published.recommendations")
            assert read == bought and counts == (12 * customers[1], 1 if command == "backfill" else 2)
            assert {user for user, _ in listed} == {user for user, _ in bought}
            assert not set(listed) & set(bought)
            lists.append(listed)
            cursor.execute("select user_id, item_id from shop.recommendations")
            assert sorted(cursor.fetchall()) == sorted(listed)
        assert commands.main("promote", ["--dataset", "shop", "--home", str(tmp_path), "--rollback"]) == 0
        cursor.execute("select user_id, item_id from shop.recommendations")
        assert sorted(cursor.fetchall()) == sorted(lists[0]) != sorted(lists[1])


RUN = [*ML, "--models", "popularity", "--protocols", "strong_generalization", "--threads", "1"]
RUN += ["--set", "publish.min_size_ratio=0", "publish.margin=1e9"]
LISTS = "select user_id, item_id, rank, score from published.recommendations order by 1, 3"


@pytest.mark.slow
def test_nights_lists_and_a_rollback_touch_no_file_that_a_name_matches(prefect_server, ratings, tmp_path, capsys):
    home, log = tmp_path / "a[1]*b", tmp_path / "r[1]*?.csv"
    place = ["--home", str(home)]
    shutil.copy(ratings, log)
    (tmp_path / "r1zz.csv").write_text("userId,movieId,rating,timestamp\nother,1,5,1\n")
    lists, stored = [], Home(home, "ml-latest-small")
    for liked in ("4", "5"):
        given = [*RUN, *place, "--source", str(log), "--set", f"binarize.threshold={liked}"]
        assert commands.main("backfill", given) == 0
        lists.append(query_rows(stored, LISTS))
        matched = shutil.copytree(home, tmp_path / f"a1{liked}b", symlinks=True)
        for file in matched.glob("*/publications/*/**/*.parquet"):
            pl.read_parquet(file).clear().write_parquet(file)
    assert lists[0] and lists[0] != lists[1] and not any(user == "other" for user, *_ in lists[0])
    capsys.readouterr()
    for expected in (lists[1], lists[0]):
        user, items = expected[0][0], [item for user, item, *_ in expected if user == expected[0][0]]
        assert commands.main("recommend", [*ML, *place, "--user", user, "--n", str(len(items)), "--json"]) == 0
        assert [one["item_id"] for one in json.loads(capsys.readouterr().out)["items"]] == items
        if expected is lists[1]:
            assert commands.main("promote", [*ML, *place, "--rollback"]) == 0
            capsys.readouterr()
    assert query_rows(stored, LISTS) == lists[0]
    assert pl.read_parquet(stored.published / "recommendations.parquet", glob=False).height == len(lists[0])
