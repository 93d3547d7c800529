"""Forgetting a user, without the refits, against DuckDB's bare copy of the same warehouse in the same run.

    python -m benchmarks.speed.forget [--events 10000000] [--threads 2]

The log is one CSV in the landing folder, shaped like MovieLens', and read into a warehouse. The user's lines are then
taken out of both. `copy` is `COPY FROM DATABASE` of the warehouse before, the least that a file without the bytes of
deleted rows costs. Prints wall and processor seconds, and the process's peak memory.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import duckdb

from benchmarks.speed.ingest import MOVIELENS
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.forget.stage import remove_users
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits

USER = "777"


def copy_database(source: Path, target: Path, limits: Limits) -> None:
    with duckdb.connect(config={"threads": limits.threads, "memory_limit": f"{limits.memory}B"}) as connection:
        connection.execute(f"attach '{source}' as source (read_only); attach '{target}' as target")
        connection.execute("copy from database source to target; checkpoint target")


def main() -> None:
    """Print a line for the copy and one for the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    limits = Limits(threads=arguments.threads, memory=4 << 30)
    with tempfile.TemporaryDirectory() as folder:
        home, dataset = Home(Path(folder), "shop", limits), Dataset(name="shop", title="shop", files=("*.csv",))
        home.landing.mkdir(parents=True)
        with duckdb.connect(config={"threads": limits.threads}) as connection:
            connection.execute(MOVIELENS.format(lines=arguments.events, path=home.landing / "ratings.csv"))
        ingest(home, dataset, [], "first")
        work = {
            "copy": lambda: copy_database(home.warehouse, Path(folder) / "copy.duckdb", limits),
            "forget": lambda: remove_users(home, dataset, [USER]),
        }
        for name, step in work.items():
            wall, processor = time.perf_counter(), time.process_time()
            step()
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            print(f"{name:8} {arguments.events:12,} events {wall:8.1f} s wall {processor:8.1f} s processor", flush=True)
        with warehouse.open_warehouse(home, read_only=True) as connection:
            assert connection.execute(f"select count(*) from raw.events where user_id = '{USER}'").fetchone() == (0,)
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:,} MB")


if __name__ == "__main__":
    main()
