"""Compare binarize and split with a short DuckDB script that makes the same tables, in the same run.

    python -m benchmarks.speed.edges [--lines 2000000] [--threads 1]

The log is like MovieLens's; 28 % of its lines are likes. Seconds are the medians of three repeats. The script numbers
users and items by their first like, adds up the likes of each pair, holds out a fifth of the users with a fifth of
their edges, and one edge of every user, by hashes, and saves the rows of each split as arrays. It checks nothing. The
stages are measured whole, with their contracts; Great Expectations is loaded before. Trust CPU seconds more than the
wall clock.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.speed.ingest import MOVIELENS
from benchmarks.speed.timing import time_call
from oneclass.data_contracts import lazy_gx
from oneclass.tasks import datasets
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import split
from oneclass.tasks.stores.home import Home, Limits

REPEATS = 3
PROTOCOLS = ("strong_generalization", "leave_one_out")
EDGES = """
    create or replace table pairs as
        select user_id, item_id, count(*) as events, min(occurred_at) as first_at, max(occurred_at) as last_at,
            min((file_id << 40) | line_number) as position
        from warehouse.raw.events where value >= 4 group by user_id, item_id;
    create or replace table users as
        select user_id, row_number() over (order by min(position)) - 1 as user_index from pairs group by user_id;
    create or replace table items as
        select item_id, row_number() over (order by min(position)) - 1 as item_index from pairs group by item_id;
    create or replace table edges as
        select user_index, item_index, events, first_at, last_at, position
        from pairs join users using (user_id) join items using (item_id) order by user_index, item_index;
"""
SPLITS = """
    create or replace table strong_generalization as
        select user_index, item_index,
            case when hash(user_index) % 10 = 0 then 'test' when hash(user_index) % 10 = 1 then 'validation'
                else 'train' end as part,
            if(hash(user_index) % 10 < 2 and hash(user_index, item_index) % 5 = 0, 'target', 'fit') as role
        from edges order by user_index, item_index;
    create or replace table leave_one_out as
        select user_index, item_index,
            if(hash(user_index, item_index) = max(hash(user_index, item_index)) over (partition by user_index)
                and count(*) over (partition by user_index) > 1, 'target', 'fit') as role
        from edges order by user_index, item_index;
"""


def run_script(connection: duckdb.DuckDBPyConnection, statements: str) -> None:
    """Run the statements of a script one by one."""
    for statement in statements.split(";")[:-1]:
        connection.execute(statement)


def save_splits(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Save the columns and the starts of rows of each split's parts."""
    run_script(connection, SPLITS)
    for table in PROTOCOLS:
        for role in ("fit", "target"):
            rows = connection.execute(f"select user_index, item_index from {table} where role = '{role}'").fetchnumpy()
            np.save(folder / f"{table}-{role}-columns.npy", rows["item_index"].astype(np.int32))
            np.save(folder / f"{table}-{role}-starts.npy", np.cumsum(np.bincount(rows["user_index"])))


def measure_medians(work: Callable[[int], object]) -> tuple[float, float]:
    """Measure the median wall and CPU seconds of the repeats; `work` gets the number of the repeat."""
    timings = [time_call(partial(work, number)) for number in range(REPEATS)]
    return statistics.median(one.wall for one in timings), statistics.median(one.cpu for one in timings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=2_000_000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    lazy_gx.load_great_expectations()  # before the clock starts
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home, path = Home(folder, "ml-20m", Limits(threads=options.threads, memory=4 << 30)), folder / "ratings.csv"
        with duckdb.connect() as connection:
            connection.execute(MOVIELENS.format(lines=options.lines, path=path))
        dataset = datasets.load_dataset("ml-20m", folder)
        ingest(home, dataset, [path], "run")
        config = {"threads": options.threads, "memory_limit": "4GB"}
        with duckdb.connect(folder / "script.duckdb", config=config) as connection:
            connection.execute(f"attach '{home.warehouse}' as warehouse (read_only)")
            script = [
                measure_medians(lambda _: run_script(connection, EDGES)),
                measure_medians(lambda _: save_splits(connection, folder)),
            ]
            [(edges,)] = connection.execute("select count(*) from edges").fetchall()
        # Another threshold or seed each time, as an unchanged stage is not run again.
        likes = [BinarizeSettings(threshold=4 - number / 1000) for number in range(REPEATS)]
        stages = [
            measure_medians(lambda number: binarize(home, likes[number], "run")),
            measure_medians(
                lambda number: split(home, SplitSettings(held_out_share=0.1), "run", protocols=PROTOCOLS, seed=number)
            ),
        ]
    print(f"{options.lines} lines, {edges} edges, {options.threads} threads; CPU seconds (wall)")
    for stage, (own_wall, own), (wall, cpu) in zip(("binarize", "split"), script, stages, strict=True):
        print(f"  {stage:9} script {own:5.2f} ({own_wall:.2f})  stage {cpu:5.2f} ({wall:.2f})  {cpu / own:.2f} times")


if __name__ == "__main__":
    main()
