"""What runs after a publication: `publish.after`, and the script that copies the lists into a real PostgreSQL."""

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from oneclass.tasks.publish import manual, stage
from oneclass.tasks.stores import runs, warehouse
from tests import postgres_server
from tests.conftest import query_rows
from tests.tasks.conftest import publish_model

RECORD = """
import json, os
names = ("PUBLICATION", "DATASET", "HOME")
with open(os.environ["ONECLASS_HOME"] + "/ran.jsonl", "a") as file:
    file.write(json.dumps([os.environ["ONECLASS_" + name] for name in names]) + "\\n")
"""
SCRIPT = Path(__file__).parents[3] / "examples" / "publish_to_postgres.py"
COPY = [sys.executable, str(SCRIPT)]
COPIED = "select (select count(*) from small.lists), (select max(score) from small.recommendations)"


def load_alarms(home):
    return [text for (text,) in query_rows(home, "select alarm from operations.alarms")]


def record_settings(home, **settings):
    """Record an evaluated run with these settings of `publish`."""
    with runs.record_run(home, "evaluated", "backfill", {"publish": settings}):
        pass
    with warehouse.open_warehouse(home) as connection:
        connection.execute(
            "insert into evaluation.metrics by name select 'evaluated' as run_id, 'leave_one_out' as protocol, "
            "'slim' as model, 'score' as score, 'ndcg@100' as metric, 0.1 as value, 60 as users"
        )


def test_the_command_learns_what_stands_after_a_night_and_after_a_rollback(copied, split_once):
    command = [sys.executable, "-c", RECORD]
    publish_model(copied, split_once[1], "wmf", "night", after=command)
    record_settings(copied, after=command, explore="bonus", postgres_env="SHOP_LISTS")  # two of an earlier version
    manual.roll_back(copied, "by hand")
    told = [json.loads(line) for line in (copied.root / "ran.jsonl").read_text().splitlines()]
    folders = [copied.publications / run_id for run_id in ("night", "of-random_graph")]
    assert told == [[str(folder.resolve()), "small", str(copied.root.resolve())] for folder in folders]
    assert load_alarms(copied) == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["no-such-program"], "No such file"),
        (["no\0program"], "null byte"),
        ([sys.executable, "-c", "import sys; sys.exit('the shop is closed')"], "status 1. the shop is closed"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "did not end within 1 s"),
    ],
    ids=["absent", "impossible", "failed", "slow"],
)
def test_a_command_that_fails_is_an_alarm_and_the_publication_stands(copied, split_once, monkeypatch, command, reason):
    monkeypatch.setattr(stage, "AFTER_TIMEOUT_SECONDS", 1)
    publish_model(copied, split_once[1], "wmf", "night", after=command)
    [alarm] = load_alarms(copied)
    assert alarm.startswith("publish.after: ") and reason in alarm
    assert copied.published.resolve().name == "night"
    record_settings(copied, after=command)
    manual.roll_back(copied, "by hand")
    assert copied.published.resolve().name == "of-random_graph" and len(load_alarms(copied)) == 2


@pytest.fixture
def ask(postgres, monkeypatch):
    """Query the database, in which no schema `small` is yet."""
    from adbc_driver_postgresql import dbapi

    monkeypatch.setenv("SHOP_LISTS", postgres)
    postgres_server.execute_statements(postgres, "drop schema if exists small cascade")

    def ask(query):
        with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()

    return ask


def test_the_script_replaces_the_rows_and_keeps_grants(copied, split_once, ask, postgres):
    publish_model(copied, split_once[1], "wmf", "first", after=COPY)
    postgres_server.execute_statements(postgres, "create role app", "grant select on small.recommendations to app")
    publish_model(copied, split_once[1], "mrf_dense", "second", after=COPY)
    assert load_alarms(copied) == []
    for table, key in (("recommendations", ["user_id", "rank"]), ("lists", ["list", "window_days", "rank"])):
        published = pl.read_parquet(copied.published / f"{table}.parquet").select(key).sort(key)
        assert ask(f"select {', '.join(key)} from small.{table} order by {', '.join(key)} nulls first") == (
            published.rows()
        )
    grants = ask("select grantee from information_schema.table_privileges where table_name = 'recommendations'")
    assert ("app",) in grants
    indexes = [index for (index,) in ask("select indexdef from pg_indexes where schemaname = 'small'")]
    assert any(index.endswith("recommendations USING btree (user_id)") for index in indexes)


def test_a_copy_that_fails_on_the_way_leaves_the_old_lists_until_the_next(copied, split_once, ask, postgres):
    publish_model(copied, split_once[1], "wmf", "first", after=COPY)
    before = ask(COPIED)
    refuse = "alter table small.lists add constraint nothing check (rank < 0) not valid"
    postgres_server.execute_statements(postgres, refuse)  # after the recommendations were replaced
    publish_model(copied, split_once[1], "mrf_dense", "second", after=COPY)
    assert ask(COPIED) == before and copied.published.resolve().name == "second"
    [alarm] = load_alarms(copied)
    assert "nothing" in alarm and postgres_server.PASSWORD not in alarm
    postgres_server.execute_statements(postgres, "alter table small.lists drop constraint nothing")
    publish_model(copied, split_once[1], "slim", "third", after=COPY)
    assert ask(COPIED) != before and len(load_alarms(copied)) == 1
