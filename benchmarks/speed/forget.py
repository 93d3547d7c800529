"""Measure how long forgetting a user takes, without the refits, beside DuckDB's copy of the same warehouse.

    python -m benchmarks.speed.forget [--events 10000000] [--threads 2]

The log is a CSV file like MovieLens's in the landing folder, ingested into a warehouse. The user's lines are removed
from both. `copy` is `COPY FROM DATABASE` of the warehouse before, the least work that leaves a file without the bytes
of deleted rows. Prints wall and CPU seconds, and the process's peak memory.
"""

import argparse
import resource
import tempfile
from pathlib import Path

import duckdb

from benchmarks.speed.ingest import MOVIELENS
from benchmarks.speed.timing import time_call
from oneclass.tasks.datasets import Dataset
from oneclass.tasks.forget.stage import remove_users
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits

USER = "777"


def copy_database(source: Path, target: Path, limits: Limits) -> None:
    """Copy a DuckDB file with the threads and memory of a home."""
    with duckdb.connect(config={"threads": limits.threads, "memory_limit": f"{limits.memory}B"}) as connection:
        connection.execute(f"attach '{source}' as source (read_only); attach '{target}' as target")
        connection.execute("copy from database source to target; checkpoint target")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    limits = Limits(threads=options.threads, memory=4 << 30)
    with tempfile.TemporaryDirectory() as folder:
        home, dataset = Home(Path(folder), "shop", limits), Dataset(name="shop", title="shop", files=("*.csv",))
        home.landing.mkdir(parents=True)
        with duckdb.connect(config={"threads": limits.threads}) as connection:
            connection.execute(MOVIELENS.format(lines=options.events, path=home.landing / "ratings.csv"))
        ingest(home, dataset, [], "first")
        timings = {
            "copy": time_call(lambda: copy_database(home.warehouse, Path(folder) / "copy.duckdb", limits)),
            "forget": time_call(lambda: remove_users(home, dataset, [USER])),
        }
        for name, (_, wall, cpu) in timings.items():
            print(f"{name:8} {options.events:12,} events {wall:8.1f} s wall {cpu:8.1f} s CPU", flush=True)
        with warehouse.open_warehouse(home, read_only=True) as connection:
            assert connection.execute(f"select count(*) from raw.events where user_id = '{USER}'").fetchone() == (0,)
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:,} MB")


if __name__ == "__main__":
    main()
