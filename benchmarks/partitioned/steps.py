"""What a worker does with one log, or with one partition. Each returns the CPU seconds that it took.

Everything that concerns one user alone is done by the stages' own statements. What concerns items is asked of all partitions
(`benchmarks.partitioned.reductions`): their numbers, and which of them a training user has. So the items' filters
(`min_item_edges`, `k_core`), which the edges of all partitions decide, are not here.
"""

import time

import duckdb

import sql
from benchmarks.partitioned.layout import TABLES, Layout
from tasks import datasets
from tasks.binarize import BinarizeSettings, binarize
from tasks.ingest import ingest
from tasks.split import leave_one_out
from tasks.split.matrix import keep, matrix
from tasks.stores import warehouse

RUN = "partitions"

CUT = """
copy (
    with users as (
        select user_id, md5_number(user_id) % {parts} as part from (select distinct user_id from raw.events)
    )
    select user_id, item_id, value, occurred_at, {log} as file_id, line_number, part
    from raw.events join users using (user_id)
) to '{folder}' (format parquet, partition_by (part))
"""
LOG = "copy (select * replace ({log} as file_id) from operations.log_files) to '{file}' (format parquet)"
TAKE_IN = """
insert into operations.log_files from read_parquet('{logs}');
insert into raw.events
select user_id, item_id, value, occurred_at, file_id, line_number from read_parquet('{events}', hive_partitioning = false)
"""
FIRST = """
copy (
    select {key}, min(first_file_id << 40 | first_line) as position
    from indexed.interactions join indexed.items using (item_index) group by {key}
) to '{file}' (format parquet)
"""
RENUMBER = """
create or replace temp table users as
select numbers.user_index, user_id
from indexed.users join read_parquet('{users}') as numbers on numbers.local_index = users.user_index;
create or replace temp table items as select item_index, item_id from indexed.items;
create or replace temp table edges as
select numbers.user_index, items.item_index, event_count, first_at, last_at, first_file_id, first_line
from indexed.interactions as edges
join read_parquet('{users}') as numbers on numbers.local_index = edges.user_index
join indexed.items as own on own.item_index = edges.item_index
join read_parquet('{items}') as items on items.item_id = own.item_id;
delete from indexed.users;
insert into indexed.users from users;
delete from indexed.items;
insert into indexed.items
select item_index, item_id from read_parquet('{items}') semi join items using (item_id);
delete from indexed.interactions;
insert into indexed.interactions from edges;
"""


def read(layout: Layout, log: int, source: str) -> float:
    """Ingest one log into a warehouse of its own, and cut its events by the hash of their users' ids.

    Args:
        log: its file_id on one machine.
    """
    began = time.process_time()
    home = layout.home(f"log-{log}")
    ingest(home, datasets.load("demo", layout.folder), [source], RUN)
    folder = layout.folder / "events" / f"log={log}"
    folder.mkdir(parents=True)
    with warehouse.connect(home, read_only=True) as connection:
        connection.execute(CUT.format(log=log, parts=layout.parts, folder=folder))
        connection.execute(LOG.format(log=log, file=layout.file("log", log)))
    return time.process_time() - began


def edges(layout: Layout, part: int) -> float:
    """Binarize the events of one partition; hands on where its users and items first appear."""
    began = time.process_time()
    home = layout.home(f"part-{part}")
    with warehouse.connect(home) as connection:
        connection.execute(TAKE_IN.format(events=layout.events("*", part), logs=layout.file("log", "*")))
    settings = BinarizeSettings(threshold=layout.threshold, min_user_edges=layout.min_user_edges)
    binarize(home, settings, RUN)
    with warehouse.connect(home, read_only=True) as connection:
        for name, key in (("users", "user_index"), ("items", "item_id")):
            connection.execute(FIRST.format(key=key, file=layout.file(f"first-{name}", part)))
    return time.process_time() - began


def numbered(layout: Layout, part: int) -> float:
    """Give the partition's users and items the numbers of one machine; hands on the items of its training users."""
    began = time.process_time()
    with warehouse.connect(layout.home(f"part-{part}")) as connection:
        connection.begin()
        connection.execute(RENUMBER.format(users=layout.file("users", part), items=layout.file("items")))
        connection.commit()
        _draw_users(connection, layout)
        connection.execute(sql.statement("split/train_items"))
        file = layout.file("first-train-items", part)
        connection.execute(f"copy (from train_items) to '{file}' (format parquet)")
    return time.process_time() - began


def split(layout: Layout, part: int) -> float:
    """Both protocols' tables of one partition; hands on all three tables."""
    began = time.process_time()
    with warehouse.connect(layout.home(f"part-{part}")) as connection:
        _draw_users(connection, layout)
        connection.execute(f"create temp table train_items as from read_parquet('{layout.file('train-items')}')")
        connection.execute(sql.statement("split/held_out_edges"))
        connection.execute(sql.statement("split/hashed_targets"), {"seed": str(layout.seed)})
        connection.execute(sql.statement("split/held_out_roles"))
        connection.execute(sql.statement("split/roles"))
        keep(connection, "strong_generalization", "roles", "user_index, item_index, part, role")
        connection.execute(sql.statement("split/all_edges"))
        items = connection.execute("select max(item_index) + 1 from indexed.items").fetchone()[0]
        users, edges = matrix(connection, "all_edges where true", items)
        leave_one_out.draw(connection, edges, users, layout.seed, threads=1)
        connection.execute(sql.statement("split/leave_one_out"))
        keep(connection, "leave_one_out", "leave_one_out_roles")
    took = time.process_time() - began
    hand_on(layout, f"part-{part}", part)
    return took


def hand_on(layout: Layout, home: str, part: int | str) -> None:
    """The tables of a warehouse as files, for the comparison."""
    with warehouse.connect(layout.home(home), read_only=True) as connection:
        for table in TABLES:
            connection.execute(f"copy (from {table}) to '{layout.file(table, part)}' (format parquet)")


def _draw_users(connection: duckdb.DuckDBPyConnection, layout: Layout) -> None:
    connection.execute(sql.statement("split/active", min_user_edges="0", min_item_edges="0"))
    values = {"seed": str(layout.seed), "held_out_share": layout.held_out_share}
    connection.execute(sql.statement("split/hashed_users"), values)
    connection.execute(sql.statement("split/active_edges"))
