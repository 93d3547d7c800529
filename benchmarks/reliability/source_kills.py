"""Kill landings of a SQL query (`kill -9`), and check that every row lands once, also those committed late.

    python -m benchmarks.reliability.source_kills [--kills 100] [--seed 1]

Two processes insert orders into a PostgreSQL without a pause. One keeps its transactions open for up to half a second,
so that rows with lower marks appear after higher ones. Meanwhile processes land the new rows, one after another. Half
of them are killed before a drawn change of files, half at a drawn time within that of a landing. After one more landing
the landed rows are compared with those of the database. Prints the killed landings by what they left.

Exit status: 0 if each row was landed once, else 1.
"""

import argparse
import itertools
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.synchronize import Event
from pathlib import Path

import duckdb

from oneclass.tasks.datasets import Dataset
from oneclass.tasks.ingest.query_source import LANDED, PARTIAL, TAKEN, land_query
from oneclass.tasks.stores.home import Home
from tests import postgres_server
from tests.killed_process import ends_before_change

CONTEXT = multiprocessing.get_context("fork")
MAX_OPEN_SECONDS = 0.05, 0.5  # of the transactions of the two processes
CREATE_TABLE = "create table orders (user_id int, item_id int, ordered_at timestamptz default clock_timestamp())"
INSERT_ORDERS = "insert into orders (user_id, item_id) select n, {item} from generate_series(1, 5) as n"
DATASET = Dataset(
    name="shop",
    columns={"value": [], "time": ["ordered_at"]},  # pyright: ignore[reportArgumentType]
    source={  # pyright: ignore[reportArgumentType]
        "query": "select * from orders",
        "url_env": "SHOP_URL",
        "high_water_mark": "ordered_at",
        "overlap": "1m",
    },
)


def land_orders(home: Home) -> None:
    """Land the new rows of the query."""
    assert DATASET.source is not None
    land_query(home, DATASET, DATASET.source)


def insert_orders(url: str, number: int, open_seconds: float, stop: Event) -> None:
    """Insert five orders at a time, in transactions that stay open after the marks are set."""
    from adbc_driver_postgresql import dbapi

    generator, item = random.Random(number), 1_000_000 * number
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        while not stop.is_set():
            item += 1
            cursor.execute(INSERT_ORDERS.format(item=item))
            time.sleep(generator.uniform(0, open_seconds))
            connection.commit()


def kill_landings(home: Home, kills: int, generator: random.Random) -> Counter:
    """Kill landings, and count the killed ones by what they left."""
    began = time.monotonic()
    changes = next(number for number in itertools.count(1) if ends_before_change(number, lambda: land_orders(home)))
    seconds = (time.monotonic() - began) / changes
    left = Counter({"of the first landing, before each change of files": changes - 1})
    while left.total() < kills:
        if left.total() % 2:
            has_ended = ends_before_change(generator.randint(1, changes), lambda: land_orders(home))
        else:
            process = CONTEXT.Process(target=land_orders, args=[home])
            process.start()
            process.join(generator.uniform(0, 1.5 * seconds))
            has_ended = process.exitcode is not None
            process.kill()
            process.join()
        if not has_ended:
            left[describe_rest(home)] += 1
    return left


def describe_rest(home: Home) -> str:
    """Describe the files that a killed landing left."""
    names = {path.name for path in home.landing.glob("*")}
    landed = max((match[1] for name in names if (match := LANDED.fullmatch(name))), default="")
    copied = max((match[1] for name in names if (match := TAKEN.fullmatch(name))), default="")
    if landed > copied:
        return "a landed file that the copy of taken rows lacks"
    return "a part of a file" if any(name.startswith(PARTIAL) for name in names) else "nothing"


def count_differences(url: str, home: Home) -> tuple[int, int]:
    """Count the rows of the database, and those that are not landed exactly once."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("select user_id, item_id from orders")
        expected = Counter(cursor.fetchall())
    files = [str(path) for path in home.landing.glob("source-*.parquet")]
    with duckdb.connect() as connection:
        landed = Counter(connection.read_parquet(files).select("user_id, item_id").fetchall())
    return expected.total(), ((expected - landed) + (landed - expected)).total()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable()
    with postgres_server.start_postgres() as url, tempfile.TemporaryDirectory() as folder:
        os.environ["SHOP_URL"] = url
        home, stop = Home(Path(folder), "shop"), CONTEXT.Event()
        postgres_server.execute_statements(url, CREATE_TABLE)
        writers = [
            CONTEXT.Process(target=insert_orders, args=[url, number, seconds, stop])
            for number, seconds in enumerate(MAX_OPEN_SECONDS)
        ]
        for writer in writers:
            writer.start()
        try:
            left = kill_landings(home, options.kills, random.Random(options.seed))
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        land_orders(home)
        rows, different = count_differences(url, home)
    print("| left behind | landings |\n|---|---|")
    for rest, count in left.items():
        print(f"| {rest} | {count} |")
    print(f"{rows:,} rows, {different:,} of them not landed exactly once")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
